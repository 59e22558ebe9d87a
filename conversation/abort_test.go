package conversation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// deaf is a backend that ignores its context until it is released.
func (a *agents) deaf(release <-chan struct{}) agentbus.Backend {
	return a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		<-release
		return agentbus.Chunk{Text: "too late"}, nil
	})
}

// hangs is a backend that answers only when its context ends.
func (a *agents) hangs() agentbus.Backend {
	return a.does(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
		<-ctx.Done()
		return agentbus.Chunk{}, ctx.Err()
	})
}

// R9: an abort in a turn halts at once, also when the backend is deaf, is no
// participant's error, and leaves a journal that goes on with the same turn.
func TestAbortLeavesADeafBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m, release := newRecorder(), make(chan struct{})
		c := talk(1, "a", oneAfterAnother(a.deaf(release), a.says("x")), "b", a.says("y"))
		o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		r, err := ran(ctx, c, o)
		if took := time.Since(began); err != nil || r.Halt.Kind != agentbus.HaltAbort || r.Halt.Error != nil || took > 1100*time.Millisecond {
			t.Errorf("%+v, %v after %v", r.Halt, err, took)
		}
		close(release)
		synctest.Wait() // its goroutine ends as it returns: synctest and goleak see to that
		r, err = ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || r.Turns[0].Reply.Text != "x" || r.Turns[0].Attempts != 2 || a.calls[0].Turn != a.calls[1].Turn {
			t.Errorf("resumed: %+v, %v", r, err)
		}
	})
}

// R9: a backend that listens is waited for.
func TestAbortWaitsForAListeningBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		slow := agentbus.Answer(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
			<-ctx.Done()
			<-time.After(50 * time.Millisecond)
			ended = true
			return agentbus.Chunk{}, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := ran(ctx, talk(1, "a", slow, "b", slow), conversation.Options{})
		if err != nil || r.Halt.Kind != agentbus.HaltAbort || !ended {
			t.Errorf("%+v, %v, ended %v", r.Halt, err, ended)
		}
	})
}

// R3, R16: the deadline is final.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := newRecorder()
		c := talk(9, "a", a.says("x"), "b", a.hangs())
		o := conversation.Options{Run: "r", Journal: m, Runs: m, Deadline: time.Now().Add(time.Minute)}
		began := time.Now()
		r, err := ran(t.Context(), c, o)
		if took := time.Since(began); err != nil || r.Halt.Kind != agentbus.HaltDeadline || r.Halt.Turns != 1 || took != time.Minute {
			t.Errorf("%+v, %v after %v", r.Halt, err, took)
		}
		o.Deadline = time.Time{}
		if again, err := ran(t.Context(), c, o); err != nil || again.Halt.Kind != agentbus.HaltDeadline || len(a.calls) != 2 {
			t.Errorf("it was not final: %+v, %v, %d calls", again.Halt, err, len(a.calls))
		}
		o.Run, o.Deadline = "late", began // it has passed before there is a run
		if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltDeadline || r.Halt.Turns != 0 || len(a.calls) != 2 {
			t.Errorf("%+v, %v, %d calls", r.Halt, err, len(a.calls))
		}
	})
}

// R5: who stops reading aborts the run; its halt is stored.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	for _, at := range []string{conversation.EventStarted, conversation.EventTurnStarted, conversation.EventDelta, conversation.EventTurnDone} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			var a agents
			m := newRecorder()
			c := talk(2, "a", a.says("x"), "b", a.says("y"))
			o := conversation.Options{Run: "r", Journal: m, Runs: m}
			for e, err := range streamed(t.Context(), c, o) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == at {
					break
				}
			}
			e, err := m.Open(t.Context(), agentbus.Execution{ID: "r"}, agentbus.Claim{Owner: "x"})
			if err != nil || e.Halt == nil || e.Halt.Kind != agentbus.HaltAbort {
				t.Errorf("%+v, %v", e.Halt, err)
			}
			if r, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m, Owner: "x"}); err != nil || len(r.Turns) != 2 {
				t.Errorf("resumed: %+v, %v", r, err)
			}
		})
	}
}

// A backend that panics, or ends its goroutine, fails its turn only.
func TestBackendPanics(t *testing.T) {
	t.Parallel()
	var a agents
	for _, c := range []struct {
		want agentbus.Code
		b    agentbus.Backend
	}{
		{agentbus.CodeInternal, a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { panic("boom") })},
		{agentbus.CodeInternal, a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { panic(errCrash) })},
		{agentbus.CodeAgentUnavailable, a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			runtime.Goexit()
			return agentbus.Chunk{Text: "never"}, nil
		})},
	} {
		r, err := ran(t.Context(), talk(1, "a", c.b, "b", c.b), conversation.Options{})
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != c.want {
			t.Errorf("%+v, %v", r.Halt, err)
		}
	}
}

// leases counts renewals, and loses the lease when told to.
type leases struct {
	*recorder
	renewed int
	lost    bool
}

func (l *leases) Renew(ctx context.Context, lease agentbus.Lease, ttl time.Duration) (agentbus.Lease, error) {
	l.renewed++
	if l.lost {
		return lease, &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "taken over"}
	}
	if l.renewed == 2 {
		return lease, errors.New("the store hiccups")
	}
	return l.Memory.Renew(ctx, lease, ttl)
}

// R17: the lease is renewed every third; a hiccup of the store does not matter.
func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{recorder: newRecorder()}
		slow := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			<-time.After(95 * time.Second)
			return agentbus.Chunk{Text: "x"}, nil
		})
		r, err := ran(t.Context(), talk(1, "a", slow, "b", slow), conversation.Options{Journal: l, Runs: l})
		if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || l.renewed != 9 {
			t.Errorf("%+v, %v, %d renewals in 95 s", r.Halt, err, l.renewed)
		}
	})
}

// R17: a driver that lost its lease stops, with lease_lost, and writes nothing.
func TestLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		l := &leases{recorder: newRecorder(), lost: true}
		began := time.Now()
		_, err := ran(t.Context(), talk(1, "a", a.hangs(), "b", a.hangs()), conversation.Options{Run: "r", Journal: l, Runs: l, TTL: 3 * time.Second})
		if agentbus.CodeOf(err) != agentbus.CodeLeaseLost || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		if e, _ := l.Open(t.Context(), agentbus.Execution{ID: "r"}, agentbus.Claim{Owner: "x"}); e.Halt != nil {
			t.Errorf("a halt was stored: %+v", e.Halt)
		}
	})
}

// R17: a driver that slept past its lease is refused at its next write.
func TestSleepingDriverIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := conversation.NewMemory() // its lease is not renewed: as if the process slept
		release := make(chan struct{})
		c := talk(2, "a", oneAfterAnother(a.deaf(release), a.says("x")), "b", a.says("y"))
		o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Owner: "one"}
		slept := make(chan error)
		go func() {
			_, err := ran(t.Context(), c, o)
			slept <- err
		}()
		synctest.Wait()
		o.Owner = "two"
		if _, err := ran(t.Context(), c, o); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
			t.Errorf("a held lease was given away: %v", err)
		}
		<-time.After(time.Minute)
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Turns[0].Reply.Text != "x" {
			t.Errorf("%+v, %v", r, err)
		}
		close(release)
		if err := <-slept; agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
			t.Errorf("the sleeper got %v", err)
		}
	})
}

// strict is a journal that does nothing for a caller that has left.
type strict struct{ *recorder }

func (s strict) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.recorder.Finish(ctx, done, next, events...)
}

func (s strict) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.recorder.Halt(ctx, l, h, events...)
}

// R9, R14: a caller that leaves as an answer arrives loses neither the answer
// nor the halt.
func TestLeavingLosesNothing(t *testing.T) {
	t.Parallel()
	var a agents
	s := strict{newRecorder()}
	ctx, cancel := context.WithCancel(t.Context())
	c := talk(3, "a", a.says("x"), "b", a.says("y"))
	c.HaltWhen = func([]agentbus.Turn) (string, bool) { // asked between the answer and its write
		cancel()
		return "", false
	}
	o := conversation.Options{Run: "r", Journal: s, Runs: s}
	r, err := ran(ctx, c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltAbort || len(r.Turns) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = ran(t.Context(), c, o); err != nil || len(r.Turns) != 3 || len(a.calls) != 3 {
		t.Errorf("resumed: %+v, %v, calls %v", r, err, a.turns())
	}
}

// E4, R23: in older records the branches of a run that was stopped failed by that, and it was
// cancelled all the same, with its canceller's reason. They are replayed as they were.
func TestOlderStopOfAFanOutIsReplayed(t *testing.T) {
	t.Parallel()
	refused := &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator"}
	said := &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was cancelled by its caller", Explain: &agentbus.Explain{Rule: "E4", Observed: "enough"}}
	for reason, why := range map[string]*agentbus.Error{"stopped by its operator": refused, "enough": said} {
		for _, join := range []conversation.Join{conversation.JoinAll, conversation.JoinAny, conversation.JoinBestEffort} {
			var a agents
			m := newRecorder()
			fails := a.streams(&agentbus.Error{Code: agentbus.CodeForbidden, Message: refused.Message})
			c := fans(join, "a", fails, "b", fails)
			if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m}); err != nil {
				t.Fatal(err)
			}
			rec := m.record("r")
			for i := range rec.Turns {
				rec.Turns[i].Error = refused
			}
			for i := range rec.Events {
				rec.Events[i].Data = bytes.ReplaceAll(rec.Events[i].Data, []byte(agentbus.CodeForbidden), []byte(agentbus.CodeRunStopped))
			}
			halt := &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: reason, Error: why, Failed: true}
			rec.Execution.Halt, rec.Execution.State = halt, agentbus.RunDone
			last := &rec.Events[len(rec.Events)-1]
			last.Type = agentbus.EventRunCancelled
			last.Data, _ = json.Marshal(struct {
				agentbus.RunCancelled
				Bus map[string]*agentbus.Halt `json:"agentbus"`
			}{agentbus.RunCancelled{Reason: reason}, map[string]*agentbus.Halt{"halt": halt}})
			if err := replays(c, rec); err != nil {
				t.Errorf("%s, %s: %v", join, reason, err)
			}
		}
	}
}

// E9, R23: in older records the event of a join names its turns with their run.
func TestOlderJoinIsReplayed(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := fans("", "a", a.says("A"), "b", a.says("B"))
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r<1>", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	for was, whole := range map[string]bool{`["r\u003c1\u003e.t0.a","r\u003c1\u003e.t1.b"]`: true, `["t0.x","t1.b"]`: false} {
		rec := m.record("r<1>")
		for i := range rec.Events {
			if e := &rec.Events[i]; e.Type == agentbus.EventJoined {
				e.Data = bytes.ReplaceAll(e.Data, []byte(`["t0.a","t1.b"]`), []byte(was))
			}
		}
		if err := replays(c, rec); (err == nil) != whole {
			t.Errorf("%s: %v", was, err)
		}
	}
}
