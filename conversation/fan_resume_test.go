package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R16, R20: a run whose join broke keeps the branches that are done, and asks
// only the others when it is resumed.
func TestResumeAsksTheRestOnly(t *testing.T) {
	t.Parallel()
	for want, join := range map[string]conversation.Join{
		"0 a done A|1 b done B|2 c done C|3 synth done S":    conversation.JoinAll,
		"0 a done A|1 b done B|2 c cancelled|3 synth done S": conversation.JoinQuorum(2),
	} {
		t.Run(string(join), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a agents
				m := newRecorder()
				b := oneAfterAnother(a.streams(reset, agentbus.Chunk{Usage: &agentbus.Usage{Cost: 7}}), a.after(second, "B", nil))
				late := oneAfterAnother(a.streams(reset), a.after(2*second, "C", nil))
				c := fans(join, "a", a.after(second, "A", nil), "b", b, "c", late, "synth", a.says("S"))
				o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
				r, err := ran(t.Context(), c, o)
				if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Participant != "b" || r.Spent != 10_007 || len(a.calls) != 3 {
					t.Fatalf("%+v, %v", r, err)
				}
				a.calls = nil
				r, err = ran(t.Context(), c, o)
				if err != nil || outcomes(r.Turns) != want || r.Turns[1].Attempts != 2 || r.Turns[1].Cost != 10_007 {
					t.Errorf("%v: %s", err, outcomes(r.Turns))
				}
				slices.SortFunc(a.calls, func(x, y called) int { return strings.Compare(string(x.Turn), string(y.Turn)) })
				if diff := cmp.Diff([]agentbus.TurnID{"r.t1.b", "r.t2.c", "r.t3.synth"}, a.turns()); diff != "" {
					t.Errorf("asked again (-want +got)\n%s", diff)
				}
				before := len(a.calls)
				again, err := ran(t.Context(), c, o)
				if err != nil || outcomes(again.Turns) != want || again.Reply != r.Reply || len(a.calls) != before {
					t.Errorf("again: %v: %s", err, outcomes(again.Turns))
				}
			})
		})
	}
}

// R16, R20: with best effort a failure is final, unless nobody answered.
func TestBestEffortNeedsOne(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := fans(conversation.JoinBestEffort, "a", oneAfterAnother(a.streams(reset), a.says("A")), "b", a.streams(reset))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	if r, err := ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Participant != "a" {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := ran(t.Context(), c, o); err != nil || outcomes(r.Turns) != "0 a done A|1 b failed agent_unavailable" || len(a.calls) != 4 {
		t.Errorf("%v: %s after %v", err, outcomes(r.Turns), a.turns())
	}
}

// R14, R20: wherever a fan-out is cut, and however often, no branch that is done
// is asked again, and it ends as one that was never cut.
func TestFanOutFromAnyCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(1, 6).Draw(rt, "width")
		join := rapid.SampledFrom([]conversation.Join{conversation.JoinAll, conversation.JoinBestEffort}).Draw(rt, "join")
		fails := rapid.IntRange(0, width).Draw(rt, "fails") // that one fails, if the join can bear it
		build := func(g *gateway) conversation.Conversation {
			var all []any
			for i := range width {
				b := g.agent(t)
				if i+1 == fails && width > 1 && join == conversation.JoinBestEffort {
					b = new(agents).streams(reset)
				}
				all = append(all, fmt.Sprintf("p%d", i), b)
			}
			return fans(join, append(all, "synth", g.agent(t))...)
		}
		whole := newGateway()
		want, err := ran(context.Background(), build(whole), conversation.Options{Run: "r", Seed: "s"})
		if err != nil {
			rt.Fatal(err)
		}
		g, m := newGateway(), newRecorder()
		c := build(g)
		o := conversation.Options{Run: "r", Seed: "s", Owner: "one"}
		for _, at := range rapid.SliceOfN(rapid.IntRange(1, 2*width+3), 0, 4).Draw(rt, "cuts") {
			j := &crashing{recorder: m, at: at, after: rapid.Bool().Draw(rt, "after")}
			o.Journal, o.Runs = j, j
			_, _ = ran(context.Background(), c, o)
			for _, id := range j.done {
				g.closed[id] = true
			}
		}
		o.Journal, o.Runs = m, m
		got, err := ran(context.Background(), c, o)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(told(want, whole), told(got, g)); diff != "" || outcomes(got.Turns) != outcomes(want.Turns) || got.Reply != want.Reply {
			rt.Errorf("%s (-uncut +cut)\n%s", outcomes(got.Turns), diff)
		}
	})
}

// R15, R20: a branch that the journal has done meanwhile is used, not asked.
func TestBeginFindsABranchDone(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := fans("", "a", a.says("A"), "b", oneAfterAnother(a.streams(reset), a.says("B")))
	o := conversation.Options{Run: "r", Seed: "s", Owner: "one", Journal: m, Runs: m}
	for range 2 {
		if _, err := ran(t.Context(), c, o); err != nil {
			t.Fatal(err)
		}
		o.Journal = &forgetful{recorder: m}
	}
	if len(a.calls) != 3 {
		t.Errorf("asked %v", a.turns())
	}
}

// A store that fails ends a fan-out with its error, and nobody speaks on.
func TestJournalFailsInAFanOut(t *testing.T) {
	t.Parallel()
	for at := range 4 { // Begin, two Finish, Halt
		var a agents
		j := &crashing{recorder: newRecorder(), at: at + 1}
		_, err := ran(t.Context(), fans("", "a", a.says("A"), "b", a.says("B")), conversation.Options{Run: "r", Journal: j, Runs: j})
		if !errors.Is(err, errCrash) {
			t.Errorf("write %d: %v", at+1, err)
		}
	}
}

// R15: a fan-out with another join is another conversation.
func TestResumeWithAnotherJoin(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	build := func(join conversation.Join) conversation.Conversation {
		return fans(join, "a", a.says("A"), "b", a.streams(reset))
	}
	if _, err := ran(t.Context(), build(""), o); err != nil {
		t.Fatal(err)
	}
	if _, err := ran(t.Context(), build(conversation.JoinAny), o); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		t.Errorf("got %v", err)
	}
	o.Force = true
	if r, err := ran(t.Context(), build(conversation.JoinAny), o); err != nil || outcomes(r.Turns) != "0 a done A|1 b failed agent_unavailable" {
		t.Errorf("forced: %v: %s", err, outcomes(r.Turns))
	}
}
