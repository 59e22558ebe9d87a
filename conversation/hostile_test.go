package conversation_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/store/sqlite"
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

// R2, P22: who pays is one of the two: a mode that there is not sends no credential, and
// the run goes on once it is mended.
func TestAuthWhenIsOdd(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", a.says("y"))
	mode := conversation.AuthMode("agent_owned")
	c.Participants[1].AuthWhen = func([]agentbus.Turn) conversation.AuthMode { return mode }
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Lineage: agentbus.Lineage{Auth: user}}
	r, err := ran(t.Context(), c, o)
	if want := `auth of b: "agent_owned" is not forward-user or agent-owned`; err == nil || !strings.Contains(err.Error(), want) || r.Halt.Kind != agentbus.HaltAbort || len(a.calls) != 1 {
		t.Errorf("%d calls, %+v, %v", len(a.calls), r.Halt, err)
	}
	mode = conversation.AuthAgentOwned
	if r, err := conversation.Run(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Errorf("mended: %+v, %v", r.Halt, err)
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

// R14: whatever a backend in Go explains of its error, the turn is stored as failed and
// the run goes on from there; what cannot be written, or is large, is left out.
func TestExplanationsThatAreStored(t *testing.T) {
	t.Parallel()
	next, huge := &agentbus.Explain{Rule: "R", Next: "n"}, strings.Repeat("x", 1<<20)
	for name, x := range map[string]struct{ told, want *agentbus.Explain }{
		"none":      {nil, nil},
		"small":     {&agentbus.Explain{Rule: "R", Observed: 5, Next: "n"}, &agentbus.Explain{Rule: "R", Observed: 5, Next: "n"}},
		"no number": {&agentbus.Explain{Rule: "R", Observed: math.NaN(), Next: "n"}, next},
		"no JSON":   {&agentbus.Explain{Rule: "R", Limit: func() {}, Next: "n"}, next},
		"large":     {&agentbus.Explain{Rule: "R", Observed: huge, Next: "n"}, next},
		"larger":    {&agentbus.Explain{Rule: "R", Next: huge}, nil},
	} {
		var a agents
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"})
		if err != nil {
			t.Fatal(err)
		}
		fails := &agentbus.Error{Code: agentbus.CodeForbidden, Message: "no", Explain: x.told, Policy: json.RawMessage("{no")}
		c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(fails), a.says("y")))
		o := conversation.Options{Run: "r", Journal: s, Runs: s}
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError {
			t.Fatalf("%s: %+v, %v", name, r.Halt, err)
		}
		if diff := cmp.Diff(x.want, r.Halt.Error.Explain); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
			t.Errorf("%s: resumed: %+v, %v", name, r.Halt, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// R14, R16: what a backend explains of a run that was stopped is kept in the same bounds.
func TestStopsThatAreStored(t *testing.T) {
	t.Parallel()
	for name, observed := range map[string]any{"large": strings.Repeat("x", 1<<20), "no number": math.NaN()} {
		var a agents
		m := newRecorder()
		fails := &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was ended\xff", Explain: &agentbus.Explain{Rule: "R", Observed: observed}}
		r, err := ran(t.Context(), talk(2, "a", a.streams(fails), "b", a.says("y")), conversation.Options{Run: "r", Journal: m, Runs: m})
		if err != nil || !r.Halt.Failed || r.Halt.Reason != "ended\uFFFD" {
			t.Errorf("%s: %+v, %v", name, r.Halt, err)
			continue
		}
		if diff := cmp.Diff(&agentbus.Explain{Rule: "R"}, m.record("r").Execution.Halt.Error.Explain); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// R22: what a backend in Go asks is written or fails its turn, and the run goes on from there.
func TestAsksThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		code, want agentbus.Code
		ask        agentbus.Ask
	}{
		{agentbus.CodeInputRequired, agentbus.CodeAgentUnavailable, agentbus.Ask{Kind: agentbus.AskPolicy, X402: map[string]json.RawMessage{"x": json.RawMessage("{no")}}},
		{agentbus.CodeInputRequired, agentbus.CodeAgentUnavailable, agentbus.Ask{Kind: agentbus.AskClarification, Low: &agentbus.LowConfidence{Observed: math.NaN()}}},
		{agentbus.CodeForbidden, agentbus.CodeForbidden, agentbus.Ask{Kind: agentbus.AskClarification, Low: &agentbus.LowConfidence{Observed: math.NaN()}}}, // it waits for nothing
	} {
		var a agents
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"})
		if err != nil {
			t.Fatal(err)
		}
		c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(&agentbus.Error{Code: x.code, Message: "say", Ask: &x.ask}), a.says("y")))
		o := conversation.Options{Run: "r", Journal: s, Runs: s}
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != x.want {
			t.Errorf("%+v: %+v, %v", x, r.Halt, err)
		}
		if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
			t.Errorf("%+v: resumed: %+v, %v", x, r.Halt, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// R2: a backend is any program's: what it does to the driver's goroutine, and an error
// that is none, are failures of its participant.
func TestBackendsThatBreakOff(t *testing.T) {
	t.Parallel()
	var none *agentbus.Error
	for want, ends := range map[string]func(yield func(agentbus.Chunk, error) bool){
		"the participant's backend panicked":                                    func(func(agentbus.Chunk, error) bool) { panic("boom") },
		"the participant's backend ended its goroutine":                         func(func(agentbus.Chunk, error) bool) { runtime.Goexit() },
		"the participant's backend returned a nil *agentbus.Error as its error": func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, none) },
	} {
		b := answering(func(yield func(agentbus.Chunk, error) bool) {
			yield(agentbus.Chunk{Text: "half"}, nil)
			ends(yield)
		})
		var a agents
		r, err := ran(t.Context(), talk(2, "a", a.says("x"), "b", b), conversation.Options{})
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Message != want {
			t.Errorf("%q: %+v, %v", want, r.Halt, err)
		}
	}
}

// answering is a backend that answers all calls so.
type answering func(yield func(agentbus.Chunk, error) bool)

func (f answering) Call(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return iter.Seq2[agentbus.Chunk, error](f)
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
