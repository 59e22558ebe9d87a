package conversation_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R19: a driver that leaves between two turns, or in the middle of one, halts
// nothing: whoever claims the run goes on with it at once.
func TestLeaveIsNoHalt(t *testing.T) {
	t.Parallel()
	for name, leaveAt := range map[string]string{"after a turn": conversation.EventTurnDone, "in a turn": conversation.EventTurnStarted, "at the start": conversation.EventStarted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a agents
			m := conversation.NewMemory()
			c := talk(4, "a", a.says("x"), "b", a.says("y"))
			o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Owner: "one"}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var last error
			for e, err := range streamed(ctx, c, o) {
				if last = err; err == nil && e.Type == leaveAt {
					cancel(conversation.ErrLeave)
				}
				if e.Result != nil {
					t.Errorf("it halted: %+v", e.Result.Halt)
				}
			}
			if !errors.Is(last, conversation.ErrLeave) {
				t.Errorf("it ended with %v", last)
			}
			o.Owner = "two"
			r, err := ran(t.Context(), c, o)
			if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || len(r.Turns) != 4 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// R19: a run that is submitted waits for a driver, with all it was begun with.
func TestSubmit(t *testing.T) {
	t.Parallel()
	var a agents
	m := conversation.NewMemory()
	c := talk(2, "a", a.says("x"), "b", a.says("y"))
	run, err := conversation.Submit(t.Context(), c, conversation.Options{Seed: "s", Payer: "p", Journal: m, Runs: m})
	if err != nil || len(a.calls) != 0 {
		t.Fatalf("%v, %d calls", err, len(a.calls))
	}
	r, err := ran(t.Context(), c, conversation.Options{Run: run, Payer: "p", Journal: m, Runs: m})
	if err != nil || len(r.Turns) != 2 || a.calls[0].Messages[0].Content != "s" {
		t.Errorf("%+v, %v", r, err)
	}
	other := talk(3, "a", a.says("x"), "b", a.says("y"))
	if _, err := conversation.Submit(t.Context(), other, conversation.Options{Run: run, Journal: m, Runs: m}); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		t.Errorf("submitted with another definition: %v", err)
	}
	if _, err := conversation.Submit(t.Context(), c, conversation.Options{}); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("submitted to nobody: %v", err)
	}
	if c.Definition() == other.Definition() {
		t.Error("two definitions are one")
	}
}

// R18: a run that cannot go on halts as it is opened, and loses nothing.
func TestHaltAtOnce(t *testing.T) {
	t.Parallel()
	var a agents
	m := conversation.NewMemory()
	c := talk(4, "a", a.says("x"), "b", a.says("y"))
	one := agentbus.Micros(20_000)
	c.Budget = &one
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Owner: "one"}
	if r, err := ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltBudget || len(r.Turns) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	o.Halt = &agentbus.Halt{Kind: agentbus.HaltWaitingAuth, Reason: "why"}
	r, err := ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltWaitingAuth || r.Halt.Reason != "why" || r.Halt.Turns != 2 || len(r.Turns) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	o.Halt, c.Budget = nil, nil
	if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Errorf("%+v, %v", r, err)
	}
	o.Halt = &agentbus.Halt{Kind: agentbus.HaltWaitingAuth}
	if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || len(a.calls) != 4 {
		t.Errorf("a run that was over: %+v, %v", r, err)
	}
}
