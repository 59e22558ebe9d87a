package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R23: any run, however it was cut, ended and resumed, is replayed as it was:
// turn for turn, and the events byte for byte.
func TestReplayOfAnyRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plans int
		calm  bool
	}{
		"one at a time":           {plansOfOne, true},
		"several at once":         {allPlans, true},
		"one at a time, asking":   {plansOfOne, false},
		"several at once, asking": {allPlans, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				for _, p := range aRun(rt, tt.plans, tt.calm) {
					if p.record.Execution.ID == "" {
						continue
					}
					err := errors.Join(ended(p.record), bracketed(p.record, p.older), replays(p.conversation, p.record))
					if tt.calm { // the wire of the others is that of all tests here
						err = errors.Join(err, wireFault(p.record.Events))
					}
					if err != nil {
						rt.Fatalf("%v\n%s", err, asText(p.record.Turns, p.record.Events))
					}
				}
			})
		})
	}
}

// R23: what was changed in a record is found at its very turn.
func TestReplayFindsWhatWasChanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		first := aRun(rt, plansOfOne, true)[0]
		c, rec := first.conversation, first.record
		if len(rec.Turns) == 0 {
			return
		}
		rec.Turns, rec.Events = slices.Clone(rec.Turns), slices.Clone(rec.Events)
		turn := &rec.Turns[rapid.IntRange(0, len(rec.Turns)-1).Draw(rt, "turn")]
		changes := []func(){
			func() { turn.Speaker += "x" },
			func() { turn.Digest[3]++ },
			func() { turn.ID += "x" },
			func() { turn.Path = "fedcba9876543210" },
			func() { turn.Agent = "other" },
		}
		if turn.State == agentbus.TurnDone {
			changes = append(changes,
				func() { turn.Reply.Text += "x" },
				func() { turn.Reply.Usage.OutputTokens++ },
				func() { turn.Cost++ },
				func() { turn.Attempts++ },
			)
		}
		for i := range rec.Events {
			if e := &rec.Events[i]; e.Turn == turn.ID && bytes.Contains(e.Data, []byte(`"depth":`)) {
				changes = append(changes, func() { e.Data = bytes.Replace(e.Data, []byte(`"depth":`), []byte(`"depth":1`), 1) })
			}
		}
		changes[rapid.IntRange(0, len(changes)-1).Draw(rt, "change")]()
		got, err := conversation.Replay(context.Background(), c, rec)
		if err != nil || got.Divergence == nil || got.Divergence.Turn != turn.Index {
			rt.Errorf("found %+v, %v, want turn %d", got.Divergence, err, turn.Index)
		}
	})
}

// R23: a divergence says what was recorded and what the driver did.
func TestDivergence(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("x"), "b", a.says("y"))
	c.Plan = conversation.PlanFunc(conversation.Alternate{"a", "b"}.Next)
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	calls := len(a.calls)
	for _, x := range []struct {
		change func(*conversation.Conversation, *conversation.Record)
		want   string
	}{
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Execution.Seed = "t" }, "turn 0 of execution r: messages: recorded is "},
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Turns = r.Turns[:1] }, `turn 1 of execution r: turn: recorded is none, the driver did r.t1.b`},
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Events = r.Events[:12] }, "turn 1 of execution r: event: recorded is none, the driver did agent.invocation.completed of r.t1.b"},
		{func(_ *conversation.Conversation, r *conversation.Record) {
			r.Events[9], r.Events[17] = r.Events[17], r.Events[9]
		}, `turn 1 of execution r: event of: recorded is "r.t1.b", the driver did "r.t0.a"`},
		{func(_ *conversation.Conversation, r *conversation.Record) {
			last := &r.Events[len(r.Events)-1]
			last.Data = bytes.Replace(last.Data, []byte(`{"halt":{"kind":"max_turns"`), []byte(`{"halt":{"kind":"done"`), 1)
		}, `event 27 of execution r: kind of the event: recorded is "done", the driver did "max_turns"`},
		{func(c *conversation.Conversation, _ *conversation.Record) {
			c.Plan = conversation.PlanFunc(conversation.Alternate{"b", "a"}.Next)
		}, `turn 0 of execution r: speaker: recorded is "a", the driver did "b"`},
		{func(c *conversation.Conversation, _ *conversation.Record) {
			c.HaltWhen = func(turns []agentbus.Turn) (string, bool) { return "enough", len(turns) == 2 }
		}, `turn 2 of execution r: event: recorded is "node.started", the driver did "conversation.closed"`},
	} {
		changed, rec := c, m.record("r")
		x.change(&changed, &rec)
		got, err := conversation.Replay(t.Context(), changed, rec)
		if err != nil || got.Divergence == nil || !strings.HasPrefix(got.Divergence.String(), x.want) {
			t.Errorf("got %v, %v, want %q", got.Divergence, err, x.want)
		}
	}
	if len(a.calls) != calls {
		t.Errorf("a replay called somebody: %v", a.turns())
	}
}

// R15, R23: another definition is named as such, and nothing is replayed.
func TestReplayOfAnotherDefinition(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("x"), "b", a.says("y"))
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	c.MaxTurns = 4
	_, err := conversation.Replay(t.Context(), c, m.record("r"))
	if agentbus.CodeOf(err) != agentbus.CodeRunConflict || !strings.Contains(err.Error(), "another definition") {
		t.Errorf("got %v", err)
	}
	c.MaxTurns = 0
	if _, err := conversation.Replay(t.Context(), c, m.record("r")); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("got %v", err)
	}
	c.MaxTurns = 3
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conversation.Replay(ctx, c, m.record("r")); err != context.Canceled { //nolint:errorlint // it is the cause itself
		t.Errorf("got %v", err)
	}
}
