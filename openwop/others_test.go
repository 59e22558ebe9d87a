//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/woptest"
)

// E74: what no existing host does. That all fixtures pass, replayed byte by byte and
// valid in every event, is TestFixtures; that no secret is stored, TestNothingSecretIsStored.
func TestWhereOtherHostsFail(t *testing.T) {
	t.Parallel()
	b, s := newBus(t), woptest.Load(t)
	ran := func(t *testing.T, workflow, status string) (run string, events []object) {
		t.Helper()
		run = b.start(workflow)
		if snap := b.settle(run); snap["status"] != status {
			t.Fatalf("%s: %v", workflow, snap)
		}
		events = b.events(run)
		s.Events(t, events)
		return run, events
	}
	t.Run("run.started is at 0, and what is of no node names none", func(t *testing.T) {
		t.Parallel()
		_, events := ran(t, "conformance-noop", "completed")
		if e := events[0]; e["type"] != "run.started" || e["sequence"] != 0.0 {
			t.Error(e)
		}
		for _, e := range events {
			node, has := e["nodeId"]
			if of := e["type"] != "run.started" && e["type"] != "run.completed"; has != of || of && node != "noop" {
				t.Error(e)
			}
		}
	})
	t.Run("inputs and outcome are carried", func(t *testing.T) {
		t.Parallel()
		_, events := ran(t, "conformance-agent-reasoning", "completed")
		if diff := cmp.Diff([]any{first(events, "agent.toolCalled")["inputs"], first(events, "agent.toolReturned")["outcome"]}, []any{object{"x": 1.0}, object{"x": 1.0}}); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a suspended node names its interrupt", func(t *testing.T) {
		t.Parallel()
		_, events := ran(t, "conformance-approval", "waiting-approval")
		if p := first(events, "node.suspended"); p["nodeId"] != "gate" || p["interruptId"] != "gate:0" || p["key"] != p["interruptId"] {
			t.Error(p)
		}
	})
	t.Run("a decision of low confidence is resolved", func(t *testing.T) {
		t.Parallel()
		run, _ := ran(t, "conformance-agent-low-confidence", "waiting-approval")
		if status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/low-conf-decider", object{"resumeValue": object{"action": "accept"}}); status != http.StatusOK {
			t.Fatal(status, out)
		}
		b.left(run, "waiting-approval")
		if snap := b.settle(run); snap["status"] != "completed" {
			t.Error(snap)
		}
	})
	t.Run("mockDecisions are what a supervisor decides", func(t *testing.T) {
		t.Parallel()
		_, events := ran(t, "conformance-orchestrator-dispatch", "completed")
		var kinds []any
		for _, e := range events {
			if e["type"] == "runOrchestrator.decided" {
				kinds = append(kinds, e["payload"].(object)["decision"].(object)["kind"])
			}
		}
		if !slices.Equal(kinds, []any{"next-worker", "terminate"}) {
			t.Error(kinds)
		}
	})
	t.Run("agent events are replayed byte by byte", func(t *testing.T) {
		t.Parallel()
		run, events := ran(t, "conformance-agent-reasoning-streaming", "completed")
		_, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "replay"})
		again := out["runId"].(string)
		b.settle(again)
		if diff := cmp.Diff(shapeOf(run, events), shapeOf(again, b.events(again))); diff != "" {
			t.Error(diff)
		}
	})
}
