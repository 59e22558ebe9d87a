package conversation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// payment is what an agent of these tests asks.
var payment = &agentbus.Ask{
	Kind: agentbus.AskPolicy, Title: "pay $1", Prompt: "it is worth it",
	Policy: json.RawMessage(`{"kind":"payment_required","message":"pay","state":"s3cret"}`), Resume: json.RawMessage(`{"task":"t3cret"}`),
}

// ask is the failure that asks.
func ask(a *agentbus.Ask) error {
	return &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "this costs", Ask: a}
}

// asking answers text once it was told something, and asks before.
func (a *agents) asking(text string) agentbus.Backend {
	return a.does(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		if c.Resolution == nil {
			return agentbus.Chunk{}, ask(payment)
		}
		return agentbus.Chunk{Text: text + " " + string(c.Resolution.Decision) + " " + string(c.Resolution.Resume) + string(c.Resolution.Policy), Usage: &cent}, nil
	})
}

// waits returns the interrupts of a run that waits.
func waits(t *testing.T, r conversation.Result, err error) []agentbus.InterruptID {
	t.Helper()
	if err != nil || r.Halt.Kind != agentbus.HaltWaiting || r.Halt.Final() || r.Halt.Wait == nil || r.Halt.Wait.Asked != nil {
		t.Fatalf("it does not wait: %+v, %v", r.Halt, err)
	}
	return r.Halt.Wait.Interrupts
}

// kinds are the events of a record that tell of its run, its nodes and what they
// wait for.
func kinds(rec conversation.Record) (all []string) {
	for _, e := range rec.Events {
		switch e.Type {
		case agentbus.EventInvocationStarted, agentbus.EventInvocationCompleted, agentbus.EventProviderUsage,
			agentbus.EventConversationExchanged, agentbus.EventChannelWritten, agentbus.EventOutputChunk:
			continue
		}
		kind := strings.TrimPrefix(e.Type, "agentbus.")
		if e.Turn != "" {
			kind += " " + strings.TrimPrefix(string(e.Turn), string(e.Run)+".")
		}
		all = append(all, kind)
	}
	return all
}

var decidedAt = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func granted() agentbus.Resolution {
	return agentbus.Resolution{Decision: agentbus.DecisionGranted, By: "zoë", At: decidedAt, Policy: json.RawMessage(`{"evidence":"paid","in_reply_to_state":"mine"}`)}
}

// R19, R22, R5, C30: a turn that asks parks its run; who resumes it before the
// answer calls nobody; after it the same turn is called again with what was
// decided; and what it asked stands nowhere that it may not.
func TestAskParksTheRun(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.asking("A"), "b", a.says("B"))
	o := conversation.Options{Run: "r", Seed: "s", Payer: "zoë", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	ids := waits(t, r, err)
	if len(ids) != 1 || r.Halt.Reason != "pay $1" || r.Halt.Participant != "a" {
		t.Errorf("%+v", r)
	}
	i := m.Waiting()[0]
	if i.ID != ids[0] || i.Root != "r" || i.Turn != "r.t0.a" || i.Payer != "zoë" || !slices.Equal(i.Path, []agentbus.Speaker{"a"}) ||
		string(i.Ask.Resume) != string(payment.Resume) || i.Expires.Sub(i.Raised) != conversation.DefaultAskTimeout {
		t.Errorf("%+v", i)
	}
	r, err = ran(t.Context(), c, o)
	if got := waits(t, r, err); got[0] != ids[0] || len(a.calls) != 1 {
		t.Errorf("resumed before the answer: %v, %v", got, a.turns())
	}
	m.Resolve(ids[0], granted())
	r, err = ran(t.Context(), c, o)
	want := `0 a done A granted {"task":"t3cret"}{"evidence":"paid","in_reply_to_state":"s3cret","outcome":"granted","resolved_at":"2026-03-14T15:09:26Z"}|1 b done B`
	if err != nil || outcomes(r.Turns) != want || r.Turns[0].Attempts != 2 || r.Spent != 20_000 {
		t.Errorf("%v: %s, spent %d", err, outcomes(r.Turns), r.Spent)
	}
	if diff := cmp.Diff([]agentbus.TurnID{"r.t0.a", "r.t0.a", "r.t1.b"}, a.turns()); diff != "" {
		t.Error(diff)
	}
	rec := m.record("r")
	if diff := cmp.Diff([]string{ // E36
		"run.started", "conversation.opened", "node.started t0.a", "interrupt.requested t0.a", "node.suspended t0.a", "run.waiting",
		"run.resumed", "run.waiting",
		"run.resumed", "interrupt.resolved t0.a", "node.resumed t0.a", "node.completed t0.a", "node.started t1.b", "node.completed t1.b", "conversation.closed", "run.completed",
	}, kinds(rec)); diff != "" {
		t.Error(diff)
	}
	for _, e := range rec.Events { // the agent says in its answer what it was told, and that is not hidden from anybody
		if strings.Contains(string(e.Data), "3cret") && !strings.Contains(string(e.Data), "A granted") {
			t.Errorf("a secret is in the events: %s", e.Data)
		}
	}
}

// R18, R22: what is denied, or not decided in time, fails the turn without calling
// the agent, with the payer's credential or without, and on_halt says what that does;
// resumed, it asks anew.
func TestDeniedAsParticipantError(t *testing.T) {
	t.Parallel()
	for _, d := range []agentbus.Decision{agentbus.DecisionDenied, agentbus.DecisionExpired} {
		for _, on := range []conversation.OnHalt{conversation.OnHaltPause, conversation.OnHaltFail} {
			t.Run(string(d)+" "+string(on), func(t *testing.T) {
				t.Parallel()
				var a agents
				m := newRecorder()
				c := talk(2, "a", a.asking("A"), "b", a.says("B"))
				c.OnHalt = on
				o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
				r, err := ran(t.Context(), c, o)
				first := waits(t, r, err)[0]
				m.Resolve(first, agentbus.Resolution{Decision: d})
				o.Halt = &agentbus.Halt{Kind: agentbus.HaltWaitingAuth, Reason: "why"}
				r, err = ran(t.Context(), c, o)
				if err := replays(c, m.record("r")); err != nil {
					t.Error(err)
				}
				o.Halt = nil
				if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeForbidden || len(a.calls) != 1 || r.Halt.Failed != (on == conversation.OnHaltFail) {
					t.Fatalf("%+v, %v after %v", r.Halt, err, a.turns())
				}
				if r, err = ran(t.Context(), c, o); on == conversation.OnHaltFail {
					if err != nil || len(a.calls) != 1 {
						t.Errorf("%v after %v", err, a.turns())
					}
				} else if again := waits(t, r, err)[0]; again == first || len(a.calls) != 2 {
					t.Errorf("asked again: %s, %s after %v", first, again, a.turns())
				}
			})
		}
	}
}

// R21: branches that do not ask finish and are kept; a resume calls those that
// were answered, and nobody else; a join that is met withdraws what waits.
func TestFanOutAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := newRecorder()
		c := fans(conversation.JoinAll, "a", a.asking("A"), "b", a.after(second, "B", nil), "c", a.asking("C"), "synth", a.says("S"))
		o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
		r, err := ran(t.Context(), c, o)
		if ids := waits(t, r, err); len(ids) != 2 || len(a.calls) != 3 {
			t.Fatalf("%v after %v", ids, a.turns())
		}
		of := func(turn agentbus.TurnID) agentbus.InterruptID {
			for _, i := range m.Waiting() {
				if i.Turn == turn {
					return i.ID
				}
			}
			return ""
		}
		m.Resolve(of("r.t2.c"), granted())
		a.calls = nil
		r, err = ran(t.Context(), c, o)
		if ids := waits(t, r, err); len(ids) != 1 || ids[0] != of("r.t0.a") || !slices.Equal(a.turns(), []agentbus.TurnID{"r.t2.c"}) {
			t.Errorf("%v after %v", ids, a.turns())
		}
		m.Resolve(of("r.t0.a"), granted())
		a.calls = nil
		r, err = ran(t.Context(), c, o)
		if err != nil || r.Reply != "S" || !slices.Equal(a.turns(), []agentbus.TurnID{"r.t0.a", "r.t3.synth"}) {
			t.Errorf("%v: %s after %v", err, outcomes(r.Turns), a.turns())
		}
	})
}

// R21: a decision has the branch called again that asked, and not one that was denied
// before or had failed: the run halts for that one when the others have ended, and only
// then is it asked again.
func TestFanOutAnswersOneByOne(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := fans(conversation.JoinAll, "a", a.asking("A"), "b", oneAfterAnother(a.streams(reset), a.says("B")), "c", a.asking("C"))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	ids := waits(t, r, err)
	m.Resolve(ids[0], agentbus.Resolution{Decision: agentbus.DecisionDenied})
	r, err = ran(t.Context(), c, o)
	if left := waits(t, r, err); !slices.Equal(left, ids[1:]) || len(a.calls) != 3 {
		t.Errorf("%v of %v wait after %v", left, ids, a.turns())
	}
	m.Resolve(ids[1], granted())
	r, err = ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeForbidden || len(a.calls) != 4 {
		t.Errorf("%+v, %v after %v", r.Halt, err, a.turns())
	}
	r, err = ran(t.Context(), c, o)
	if again := waits(t, r, err); len(again) != 1 || slices.Contains(ids, again[0]) || !slices.Equal(a.turns()[4:], []agentbus.TurnID{"r.t0.a", "r.t1.b"}) && !slices.Equal(a.turns()[4:], []agentbus.TurnID{"r.t1.b", "r.t0.a"}) {
		t.Errorf("%v wait after %v", again, a.turns())
	}
}

// R21: what a join needs is enough: who asks is not waited for, and who waits is
// withdrawn.
func TestMetJoinWithdraws(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		join  conversation.Join
		waits int // interrupts after the first drive
		turns string
	}{
		"any":      {conversation.JoinAny, 0, "0 a cancelled|1 b done B|2 c cancelled"},
		"quorum":   {conversation.JoinQuorum(2), 2, "0 a done A|1 b done B|2 c cancelled"},
		"best":     {conversation.JoinBestEffort, 2, "0 a done A|1 b done B|2 c failed forbidden"},
		"best any": {conversation.JoinBestEffort, 2, "0 a done A|1 b done B|2 c failed forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a agents
				m := newRecorder()
				told := func(text string) agentbus.Backend {
					return a.does(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
						if c.Resolution == nil {
							return agentbus.Chunk{}, ask(payment)
						}
						return agentbus.Chunk{Text: text}, nil
					})
				}
				c := fans(tt.join, "a", told("A"), "b", a.after(second, "B", nil), "c", told("C"))
				o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
				r, err := ran(t.Context(), c, o)
				if tt.waits > 0 {
					if ids := waits(t, r, err); len(ids) != tt.waits {
						t.Fatalf("%v", ids)
					}
					for _, i := range m.Waiting() {
						switch {
						case i.Turn == "r.t0.a":
							m.Resolve(i.ID, granted())
						case tt.join == conversation.JoinBestEffort:
							m.Resolve(i.ID, agentbus.Resolution{Decision: agentbus.DecisionDenied})
						}
					}
					r, err = ran(t.Context(), c, o)
				}
				if err != nil || outcomes(r.Turns) != tt.turns {
					t.Errorf("%v: %s: %s", err, r.Halt, outcomes(r.Turns))
				}
			})
		})
	}
}

// R7, R22: what is asked at depth shows at the root with its path, as one
// interrupt, and one resolution lets both go on; also of several at once.
func TestNestedAsk(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	inner := fans(conversation.JoinAll, "x", a.asking("X"), "y", a.asking("Y"))
	inner.Name = "panel"
	c := talk(2, "a", conversation.Backend(conversation.BackendConfig{Conversation: inner}), "b", a.says("B"))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	if ids := waits(t, r, err); len(ids) != 2 || len(m.Waiting()) != 2 {
		t.Fatalf("%v", ids)
	}
	for left, i := range map[int]agentbus.Interrupt{1: m.Waiting()[0], 0: m.Waiting()[1]} {
		if i.Root != "r" || i.Execution == "r" || len(i.Path) != 2 || i.Path[0] != "a" {
			t.Errorf("%d: %+v", left, i)
		}
	}
	id := agentbus.ExecutionOf("", agentbus.Lineage{Run: "r", Turn: "r.t0.a"}, "panel")
	for left := range 2 {
		a.calls = nil
		m.Resolve(m.Waiting()[0].ID, granted())
		r, err = ran(t.Context(), c, o)
		if left == 0 {
			if ids := waits(t, r, err); len(ids) != 1 || len(a.calls) != 1 {
				t.Errorf("%v after %v", ids, a.turns())
			}
		}
	}
	if err != nil || len(r.Turns) != 2 || len(a.calls) != 2 {
		t.Errorf("%v: %s after %v", err, outcomes(r.Turns), a.turns())
	}
	parent := agentbus.TurnID("")
	rec := m.record(id)
	rec.Above = &parent
	if err := replays(inner, rec); err != nil {
		t.Errorf("replay of the nested one: %v", err)
	}
}

// R3, R22: who waits when the time of the run is up waits no longer: what it asked
// expires then, at any depth, unless it does before.
func TestAskExpiresWithTheRun(t *testing.T) {
	t.Parallel()
	var a agents
	deadline := time.Now().Add(time.Hour)
	inner := talk(1, "x", a.asking("X"), "y", a.says("Y"))
	inner.Name = "panel"
	nested := conversation.Backend(conversation.BackendConfig{Conversation: inner})
	for name, tt := range map[string]struct {
		b       agentbus.Backend
		timeout time.Duration
		want    bool
	}{"of its own": {a.asking("A"), 0, true}, "nested": {nested, 0, true}, "shorter": {a.asking("A"), time.Minute, false}} {
		m := newRecorder()
		o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Deadline: deadline, AskTimeout: tt.timeout}
		r, err := ran(t.Context(), talk(2, "a", tt.b, "b", a.says("B")), o)
		waits(t, r, err)
		if got := m.Waiting()[0].Expires; got.Equal(deadline) != tt.want || got.After(deadline) {
			t.Errorf("%s: it expires at %v, and the run is over at %v", name, got, deadline)
		}
	}
}

// R22: what somebody below was denied is that one's to fail.
func TestNestedDenied(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	inner := fans(conversation.JoinBestEffort, "x", a.asking("X"), "y", a.says("Y"))
	inner.Name = "panel"
	c := talk(2, "a", conversation.Backend(conversation.BackendConfig{Conversation: inner}), "b", a.says("B"))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	m.Resolve(waits(t, r, err)[0], agentbus.Resolution{Decision: agentbus.DecisionDenied})
	if r, err = ran(t.Context(), c, o); err != nil || outcomes(r.Turns) != "0 a done [y] Y|1 b done B" {
		t.Errorf("%v: %s: %s", err, r.Halt, outcomes(r.Turns))
	}
}

// R14, R22, I6: wherever a driver is cut, nothing that was raised is lost or
// raised twice, the agent that asked is not called again before the answer, and
// with it once.
func TestAskCutAnywhere(t *testing.T) {
	t.Parallel()
	for cut := 1; cut <= 6; cut++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %v", cut, after), func(t *testing.T) {
				t.Parallel()
				var a agents
				m := newRecorder()
				c := talk(2, "a", a.asking("A"), "b", a.says("B"))
				j := &crashing{recorder: m, at: cut, after: after}
				o := conversation.Options{Run: "r", Seed: "s", Owner: "one", Journal: j, Runs: j}
				raised := map[agentbus.InterruptID]bool{}
				var r conversation.Result
				for range 9 {
					before := len(a.calls)
					open := m.Waiting()
					var err error
					if r, err = conversation.Run(t.Context(), c, o); errors.Is(err, errCrash) {
						o.Journal, o.Runs = m, m
					} else if err != nil {
						t.Fatal(err)
					}
					if len(open) > 0 && len(a.calls) != before {
						t.Errorf("called before the answer: %v", a.turns())
					}
					checkReplay(c, conversation.Options{Run: "r", Journal: m, Runs: m}, "r")
					for _, i := range m.Waiting() {
						raised[i.ID] = true
						if len(open) > 0 { // it was seen, and resumed
							m.Resolve(i.ID, granted())
						}
					}
					if r.Halt.Kind == agentbus.HaltMaxTurns {
						break
					}
				}
				if len(r.Turns) != 2 || len(raised) != 1 {
					t.Errorf("%s, raised %v, called %v", outcomes(r.Turns), raised, a.turns())
				}
			})
		}
	}
}

// R22: what is asked is bounded, and what more would wait than may fails.
func TestAskTooLarge(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(2, "a", a.streams(ask(&agentbus.Ask{Kind: agentbus.AskClarification, Prompt: strings.Repeat("x", 1<<20)})), "b", a.says("B"))
	if r, err := ran(t.Context(), c, conversation.Options{Run: "r"}); err != nil || r.Halt.Kind != agentbus.HaltParticipantError {
		t.Errorf("%+v, %v", r.Halt, err)
	}
	m := newRecorder()
	c = fans(conversation.JoinAll, "a", a.asking("A"), "b", a.asking("B"))
	o := conversation.Options{Run: "r", Journal: m, Runs: full{m}}
	r, err := conversation.Run(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeOverloaded || len(m.Waiting()) != 0 {
		t.Errorf("%+v, %v", r.Halt, err)
	}
	if err := replays(c, m.record("r")); err != nil {
		t.Error(err)
	}
}

// full has no room for interrupts.
type full struct{ *recorder }

func (f full) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	if h.Wait != nil {
		return &agentbus.Error{Code: agentbus.CodeOverloaded, Message: "too many wait"}
	}
	return f.recorder.Halt(ctx, l, h, events...)
}
