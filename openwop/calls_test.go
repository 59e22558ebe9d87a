package openwop_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openwop"
)

// What goes on in a run is told to its payer: the calls that the payer pays for,
// without a word of what is said.
func TestCalls(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := newBus(t, func(c *openwop.Config) {
		c.Calling = func(e agentbus.Execution) ([]agentbus.CallRecord, agentbus.Micros) {
			of := func(payer agentbus.Payer, run agentbus.RunID, agent string) agentbus.CallRecord {
				return agentbus.CallRecord{TurnKey: agentbus.TurnKey{Payer: payer, Run: run, ID: "t0", Parent: "p", Agent: agent}, Depth: 2, Began: at, Message: planted}
			}
			return []agentbus.CallRecord{of(e.Payer, e.Run, "mine"), of("other", e.Run, "theirs"), of(e.Payer, "another", "elsewhere")}, 500_000
		}
	})
	run := b.start("conformance-noop")
	b.settle(run)
	path := "/v1/runs/" + run + "/vendor.agentbus.calls"
	status, out, _ := b.do(http.MethodGet, path, nil)
	want := object{
		"calls":         []any{object{"turnId": "t0", "parentTurnId": "p", "agent": "mine", "depth": 2.0, "began": "2026-01-02T03:04:05Z"}},
		"budget_micros": 500_000.0,
	}
	if diff := cmp.Diff(want, out); status != http.StatusOK || diff != "" {
		t.Errorf("%d (-want +got):\n%s", status, diff)
	}
	if status, out, _ := b.do(http.MethodGet, strings.Replace(path, run, "run_none", 1), nil); status != http.StatusNotFound {
		t.Errorf("%d %v", status, out)
	}
}
