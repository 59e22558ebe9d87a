package conversation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R2, P22: who pays may be decided for each turn; what is decided is in the record,
// and a replay decides the same.
func TestAuthWhen(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(4, "a", a.says("x"), "b", a.says("y"))
	c.Participants[0].AuthWhen = func(turns []agentbus.Turn) conversation.AuthMode {
		if len(turns) == 2 {
			return conversation.AuthAgentOwned
		}
		return ""
	}
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Lineage: agentbus.Lineage{Auth: user}}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	var sent, owned []bool
	for _, call := range a.calls {
		sent = append(sent, call.Headers[agentbus.HeaderForwardedAuthorization] != "")
	}
	for _, e := range m.record("r").Events {
		if e.Type == agentbus.EventNodeCompleted {
			owned = append(owned, strings.Contains(string(e.Data), `"auth":"agent-owned"`))
		}
	}
	if diff := cmp.Diff([]bool{true, true, false, true}, sent) + cmp.Diff([]bool{false, false, true, false}, owned); diff != "" {
		t.Error(diff)
	}
}

// What an agent fails with is stored in bounds, and what is not ours is not
// stored at all: it may tell a secret. Whoever drives has it as the cause.
func TestErrorsThatAreStored(t *testing.T) {
	t.Parallel()
	foreign := errors.New("dial https://user:secret@host")
	for name, x := range map[string]struct {
		fails   error
		message string
	}{
		"long":    {&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: strings.Repeat("é", 1<<20)}, strings.Repeat("é", 2<<10) + "…"},
		"foreign": {foreign, "the participant's backend failed with an error that has no code"},
	} {
		var a agents
		m := newRecorder()
		r, err := ran(t.Context(), talk(1, "a", a.streams(x.fails), "b", a.says("y")), conversation.Options{Run: "r", Journal: m, Runs: m})
		if err != nil || r.Halt.Error.Message != x.message || name == "foreign" && !errors.Is(r.Halt.Error, foreign) {
			t.Errorf("%s: %+v, %v", name, r.Halt.Error, err)
		}
		for _, e := range m.record("r").Events {
			if len(e.Data) > 8<<10 || strings.Contains(string(e.Data), "secret") {
				t.Errorf("%s: %s holds %s", name, e.Type, e.Data)
			}
		}
	}
}

// R15, R16: a run that is paused is not begun for others with another definition:
// it stays as it was.
func TestSubmitOfAnother(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(reset), a.says("y")))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	other := c
	other.MaxTurns = 3
	if _, err := conversation.Submit(t.Context(), other, o); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		t.Errorf("got %v", err)
	}
	if e := m.record("r").Execution; e.State != agentbus.RunPaused || e.Halt.Kind != agentbus.HaltParticipantError {
		t.Errorf("it is %s now, %v", e.State, e.Halt)
	}
	if run, err := conversation.Submit(t.Context(), c, o); err != nil || run != "r" || m.record("r").Execution.State != agentbus.RunRunning {
		t.Errorf("%s, %v", run, err)
	}
}

// R15, R17: who is refused a run that a crash has cut does not keep it from the
// next one, who comes with the right definition.
func TestRefusedDriverLeavesTheRun(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", a.says("y"))
	o := conversation.Options{Run: "r", Seed: "s", Owner: "one", Runs: m, Journal: &crashing{recorder: m, at: 2}}
	if _, err := ran(t.Context(), c, o); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	o.Journal, o.Owner, o.TakeOver = m, "two", m.record("r").Execution.Lease.Epoch
	other := c
	other.MaxTurns = 3
	if _, err := ran(t.Context(), other, o); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		t.Fatal(err)
	}
	o.Owner, o.TakeOver = "three", 0
	if r, err := ran(t.Context(), c, o); err != nil || len(r.Turns) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
