package conversation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R23: a fork says what the run said, at no cost, up to its turn, and asks from
// there on, in a run of its own.
func TestFork(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(4, "a", a.says("1", "3"), "b", a.says("2", "4"))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	for at := range 5 {
		var b agents
		c := talk(4, "a", b.says("other"), "b", b.says("another"))
		c = conversation.Fork(c, conversation.Source{Execution: "r", Turns: at, Journal: m})
		o.Run = agentbus.RunID(fmt.Sprint("f", at))
		j := &crashing{recorder: m, at: 2} // it copies on after a crash
		o.Journal, o.Runs, o.Owner = j, j, "one"
		_, _ = ran(t.Context(), c, o)
		o.Journal, o.Runs = m, m
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || r.Spent != agentbus.Micros(4-at)*10_000 {
			t.Fatalf("at %d: %+v, %v", at, r, err)
		}
		for i, turn := range r.Turns {
			copied := i < at
			if turn.Reply.Replayed != copied || copied != (turn.Cost == 0) || copied != (turn.Reply.Usage == agentbus.Usage{}) || turn.ID != o.Run.Turn(i, turn.Speaker) {
				t.Errorf("at %d: %+v", at, turn)
			}
		}
		want := slices.Concat([]string{"a: 1", "b: 2", "a: 3", "b: 4"}[:at], []string{"a: other", "b: another", "a: other", "b: another"}[at:])
		if diff := cmp.Diff(want, texts(r.Turns)); diff != "" {
			t.Errorf("at %d (-want +got)\n%s", at, diff)
		}
		for _, call := range b.calls {
			if call.Turn.Index(o.Run) < at {
				t.Errorf("at %d: %s was called", at, call.Turn)
			}
		}
	}
}

// R23: a turn that would have been asked otherwise is not copied.
func TestForkOfOtherQuestions(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("1"), "b", a.says("2"))
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	turned := c
	turned.Plan = conversation.RoundRobin{"a", "a"}
	calls := len(a.calls)
	for _, x := range []struct {
		c    conversation.Conversation
		seed string
		at   int
		want string
	}{
		{c, "t", 2, "turn 0 of run r cannot be copied: it was asked something else"},
		{turned, "s", 2, `turn 1 of run r cannot be copied: it was spoken by "b", and here it is the turn of "a"`},
		{talk(5, "a", a.says("1"), "b", a.says("2")), "s", 5, "turn 3 of run r cannot be copied: it is not done"},
	} {
		f := conversation.Fork(x.c, conversation.Source{Execution: "r", Turns: x.at, Journal: m})
		r, err := ran(t.Context(), f, conversation.Options{Seed: x.seed})
		if err != nil || r.Halt.Error == nil || r.Halt.Error.Code != agentbus.CodeRunConflict || !strings.HasPrefix(r.Halt.Error.Message, x.want) {
			t.Errorf("got %+v, %v, want %q", r.Halt, err, x.want)
		}
	}
	if len(a.calls) != calls {
		t.Error("somebody was called")
	}
}
