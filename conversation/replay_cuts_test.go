package conversation_test

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R23: how long a run took is the clock's, also when that was no time at all.
func TestReplayOfARunThatTookNoTime(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	stopped := &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped"}
	c := talk(2, "a", a.streams(stopped), "b", a.says("B"))
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	took := regexp.MustCompile(`("reason":"[^"]*")(,"durationMs":\d+)?`)
	for _, as := range []string{`$1`, `$1,"durationMs":7`} {
		rec := m.record("r")
		last := &rec.Events[len(rec.Events)-1]
		if last.Type != agentbus.EventRunCancelled {
			t.Fatalf("it ended with %s", last.Type)
		}
		last.Data = took.ReplaceAll(last.Data, []byte(as))
		if err := replays(c, rec); err != nil {
			t.Errorf("as %s: %v", as, err)
		}
	}
}

// E57, R23: a stopped run leaves the branches that still speak in the middle, also
// when a refusal of their calls is what tells it.
func TestStopLeavesBranches(t *testing.T) {
	t.Parallel()
	stopped := &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped"}
	for _, join := range []conversation.Join{conversation.JoinAll, conversation.JoinAny, conversation.JoinBestEffort} {
		var a agents
		m := newRecorder()
		c := fans(join, "a", a.streams(stopped), "b", a.hangs(), "c", a.streams(stopped), "synth", a.says("S"))
		o := conversation.Options{Run: "r", Journal: m, Runs: m, StopReason: func(context.Context, agentbus.RunID) (string, error) { return "enough", nil }}
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltAbort || r.Halt.Reason != "enough" || !r.Halt.Final() {
			t.Fatalf("%s: %+v, %v", join, r.Halt, err)
		}
		want := []string{
			"run.started", "conversation.opened", "node.started t0.a", "node.started t1.b", "node.started t2.c",
			"node.cancelled t0.a", "node.cancelled t1.b", "node.cancelled t2.c", "run.cancelled",
		}
		if diff := cmp.Diff(want, kinds(m.record("r"))); diff != "" {
			t.Error(diff)
		}
		if err := replays(c, m.record("r")); err != nil {
			t.Error(err)
		}
	}
}

// E57, R23: a branch that asks when its run is aborted is left in the middle like
// those that still speak.
func TestAbortLeavesWhoeverAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		c := fans("", "a", a.asking("A"), "b", a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			<-time.After(second)
			cancel()
			return agentbus.Chunk{Text: "B"}, nil
		}))
		r, err := ran(ctx, c, conversation.Options{Run: "r", Journal: m, Runs: m})
		if err != nil || r.Halt.Kind != agentbus.HaltAbort {
			t.Fatalf("%+v, %v", r.Halt, err)
		}
		want := []string{"run.started", "conversation.opened", "node.started t0.a", "node.started t1.b", "node.cancelled t0.a", "node.cancelled t1.b", "run.paused"}
		if diff := cmp.Diff(want, kinds(m.record("r"))); diff != "" {
			t.Error(diff)
		}
	})
}

// R21, R14: the answer that a join was met with is kept before whoever waits is
// withdrawn: wherever it is cut, nobody is called again.
func TestMetJoinIsKeptBeforeItWithdraws(t *testing.T) {
	t.Parallel()
	for at := 2; at < 5; at++ { // behind the intents
		synctest.Test(t, func(t *testing.T) {
			var a agents
			m := newRecorder()
			c := fans(conversation.JoinAny, "a", a.asking("A"), "b", a.after(second, "B", nil), "c", a.asking("C"))
			j := &crashing{recorder: m, at: at, after: at == 2}
			_, _ = ran(t.Context(), c, conversation.Options{Run: "r", Journal: j, Runs: j, Owner: "one"})
			r, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m, Owner: "one"})
			if err != nil || outcomes(r.Turns) != "0 a cancelled|1 b done B|2 c cancelled" || len(a.calls) != 3 {
				t.Errorf("cut at %d: %v: %s after %v", at, err, outcomes(r.Turns), a.turns())
			}
		})
	}
}

// R21, R23: a drive that was cut before it withdrew who waits, or while it did, is
// replayed as what the next one found.
func TestReplayOfAWithdrawalThatWasCut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after, decides bool
	}{"before": {}, "within": {after: true}, "before, and decided": {decides: true}, "within, and decided": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a agents
			m := newRecorder()
			c := fans(conversation.JoinAny, "a", a.asking("A"), "b", oneAfterAnother(a.streams(reset), a.says("B")))
			o := conversation.Options{Run: "r", Journal: m, Runs: m, Owner: "one"}
			r, err := ran(t.Context(), c, o)
			ids := waits(t, r, err)
			j := &crashing{recorder: m, at: 3, after: tt.after} // behind the answer of b
			o.Journal, o.Runs = j, j
			_, _ = ran(t.Context(), c, o)
			if tt.decides {
				m.Resolve(ids[0], agentbus.Resolution{Decision: agentbus.DecisionDenied})
			}
			o.Journal, o.Runs = m, m
			if r, err := ran(t.Context(), c, o); err != nil || outcomes(r.Turns) != "0 a cancelled|1 b done B" || len(a.calls) != 3 {
				t.Errorf("%v: %s after %v", err, outcomes(r.Turns), a.turns())
			}
		})
	}
}

// R8, R21, R23: a budget that has not what the branches can cost whose questions were
// decided halts the run, and its replay too.
func TestReplayOfABudgetBehindADecision(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := fans("", "a", a.asking("A"), "b", a.asking("B"))
	c.Participants[0].MaxCost, c.Participants[1].MaxCost = 5, 5
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	m.Resolve(waits(t, r, err)[0], granted())
	c.Budget = new(agentbus.Micros(4))
	r, err = ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltBudget || r.Halt.Reason != "a call of a can cost $0.000005" {
		t.Errorf("%+v, %v", r.Halt, err)
	}
	c.Budget = nil
	if r, err = ran(t.Context(), c, o); len(waits(t, r, err)) != 1 || len(a.calls) != 3 {
		t.Errorf("%+v after %v", r.Halt, a.turns())
	}
}

// R22, R23: what is asked in bytes that are no text is stored as text.
func TestAskInBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	garbled := &agentbus.Error{Code: agentbus.CodeInputRequired, Ask: &agentbus.Ask{Kind: agentbus.AskApproval, Prompt: "may I \xff?"}}
	c := talk(2, "a", a.streams(garbled), "b", a.says("B"))
	r, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m})
	waits(t, r, err)
	if got := m.Waiting()[0].Ask.Prompt; got != "may I \uFFFD?" {
		t.Errorf("it asks %q", got)
	}
}
