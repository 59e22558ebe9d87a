package conversation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

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
