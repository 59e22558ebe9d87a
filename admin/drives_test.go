package admin_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// A driver is one that does nothing, and says what it was asked.
type driver struct{ diverges string }

func (driver) Drives(e agentbus.Execution) bool { return e.Conversation == "review" }

func (driver) Resume(_ context.Context, run agentbus.RunID, _ *agentbus.Micros) error {
	if run != "run_a" {
		return &agentbus.Error{Code: agentbus.CodeRunNotFound, Message: "no driver of this store ran " + string(run)}
	}
	return nil
}

func (driver) Fork(context.Context, agentbus.RunID, int) (agentbus.RunID, error) {
	return "run_new", nil
}

func (d driver) Replay(_ context.Context, run agentbus.RunID) ([]admin.Replayed, error) {
	return []admin.Replayed{{Execution: agentbus.ExecutionID(run), Conversation: "review", Turns: 2, Events: 9, Divergence: d.diverges}}, nil
}

// U5, U11: resume, replay and fork are forms with the token of the session, which
// ask once; who did it stands on the page.
func TestRunIsGoneOnWith(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	s := b.visit()
	s.page("/console/runs/run_a").shows(t, "a paused run", "Resume this run", "Replay this run")
	s.page("/console/runs/run_b").shows(t, "a run without a driver", "not", "Resume this run")
	for _, what := range []string{"resume", "replay", "fork"} {
		if a := s.form("/console/runs/run_a/"+what, s.cookie, url.Values{"turn": {"1"}}); a.status != http.StatusForbidden {
			t.Errorf("%s by a form of nobody's session: %d", what, a.status)
		}
	}
	if a := s.post("/console/runs/run_a/resume", url.Values{"max_usd": {"2.5"}}); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/runs/run_a" {
		t.Errorf("resume: %d %s", a.status, a.body)
	}
	if a := s.post("/console/runs/run_a/fork", url.Values{"turn": {"1"}}); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/runs/run_new" {
		t.Errorf("fork: %d %s", a.status, a.body)
	}
	if a := s.post("/console/runs/run_a/fork", url.Values{"turn": {"one"}}); a.status != http.StatusBadRequest {
		t.Errorf("fork at no turn: %d", a.status)
	}
	if a := s.post("/console/runs/run_a/replay", url.Values{}); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/runs/run_a#did" {
		t.Errorf("replay: %d %s", a.status, a.body)
	}
	s.page("/console/runs/run_a").shows(t, "what was done", "as recorded: 2 turns, 9 events", "run.fork", "at turn 1 as run_new", "at most $2.500000")
	row := s.page("/console/runs/run_a?at=run_a-0").body
	if !strings.Contains(row, "Fork at turn 0") {
		t.Errorf("a turn cannot be forked at: %s", row)
	}
	other := open(t, func(c *admin.Config) { c.Driver = driver{"turn 1: it said something else"} })
	other.fill()
	o := other.visit()
	o.post("/console/runs/run_a/replay", url.Values{})
	o.page("/console/runs/run_a").shows(t, "another replay", "diverges: turn 1: it said something else")
	none := open(t, func(c *admin.Config) { c.Driver = nil })
	none.fill()
	v := none.visit()
	v.page("/console/runs/run_a").shows(t, "without a driver", "not", "Resume this run")
	if a := v.post("/console/runs/run_a/resume", url.Values{}); a.status != http.StatusNotFound {
		t.Errorf("resume without a driver: %d", a.status)
	}
}
