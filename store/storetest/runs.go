package storetest

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

var runs = map[string]func(*place){
	"OpenCreatesAnExecutionUnderALease":  openCreatesAnExecutionUnderALease,
	"OpenFindsWhatWasStoredFirst":        openFindsWhatWasStoredFirst,
	"AHeldLeaseIsAConflict":              aHeldLeaseIsAConflict,
	"AnExpiredLeaseIsClaimed":            anExpiredLeaseIsClaimed,
	"OneOfManyConcurrentClaimsWins":      oneOfManyConcurrentClaimsWins,
	"AFinalHaltEndsTheExecution":         aFinalHaltEndsTheExecution,
	"AFailedHaltEndsTheExecution":        aFailedHaltEndsTheExecution,
	"APausedExecutionIsResumed":          aPausedExecutionIsResumed,
	"ALeaseIsRenewedUntilItIsGivenBack":  aLeaseIsRenewedUntilItIsGivenBack,
	"ASecondConversationInATurnCountsOn": aSecondConversationInATurnCountsOn,
}

// execution returns a top-level execution.
func execution(id agentbus.ExecutionID) agentbus.Execution {
	return agentbus.Execution{
		ID: id, Run: agentbus.RunID(id), Conversation: "review", Definition: agentbus.Digest{4, 2}, Seed: difficult,
		Payer: "user:zoë", Spec: []byte(`{"plan": "alternate"}`), Began: began,
	}
}

func stored(t *testing.T, s Store, id agentbus.ExecutionID) agentbus.Execution {
	t.Helper()
	e, found, err := s.Execution(t.Context(), id)
	ok(t, "execution", err)
	if !found {
		t.Fatalf("the store does not know %s", id)
	}
	return e
}

func openCreatesAnExecutionUnderALease(p *place) { // R17
	t := p.t
	want := execution("run_a")
	want.Path, want.Depth, want.Parent = "0123456789abcdef", 2, "run_a.t0.root"
	before := time.Now()
	got, err := p.Open(t.Context(), want, agentbus.Claim{Owner: "host:1", TTL: time.Minute})
	ok(t, "open", err)
	if x := got.Lease.Expires; x.Before(before.Add(time.Minute-time.Millisecond)) || x.After(time.Now().Add(time.Minute)) {
		t.Errorf("a lease of a minute from %v expires %v", before, x)
	}
	want.State, want.Lease = agentbus.RunRunning, agentbus.Lease{Execution: "run_a", Owner: "host:1", Epoch: 1, Expires: got.Lease.Expires}
	same(t, "opened", got, want)
	same(t, "stored", stored(t, p, "run_a"), want)
	_, found, err := p.Execution(t.Context(), "run_x")
	if err != nil || found {
		t.Errorf("an unknown execution: %v, %v", found, err)
	}
}

func openFindsWhatWasStoredFirst(p *place) { // R15
	t := p.t
	want := opened(t, p, "run_a")
	other := execution("run_a")
	other.Definition, other.Seed, other.Spec, other.Conversation, other.Began = agentbus.Digest{9}, "other", nil, "other", began.Add(time.Hour)
	got, err := p.Open(t.Context(), other, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	ok(t, "open", err)
	want.Lease.Epoch, want.Lease.Expires = 2, got.Lease.Expires
	same(t, "opened again by its owner", got, want)
	next := turn(got, 1)
	ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(got, 0)), "x"), &next))
	got = stored(t, p, "run_a")
	if got.Turns != 1 || got.Cost != 4_000 {
		t.Errorf("after one turn: %d turns, %d", got.Turns, got.Cost)
	}
}

func aHeldLeaseIsAConflict(p *place) { // R17
	t := p.t
	want := opened(t, p, "run_a")
	for _, wrong := range []uint64{0, 2} {
		got, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: wrong})
		refused(t, "open", err, agentbus.CodeRunConflict)
		same(t, "the execution as stored", got, want)
	}
	same(t, "stored", stored(t, p, "run_a"), want)
	got, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: 1})
	ok(t, "take over", err)
	if got.Lease.Epoch != 2 || got.Lease.Owner != "host:2" {
		t.Errorf("taken over: %+v", got.Lease)
	}
}

func anExpiredLeaseIsClaimed(p *place) { // R17
	t := p.t
	_, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:1", TTL: -time.Second})
	ok(t, "open", err)
	got, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour})
	ok(t, "claim", err)
	if got.Lease.Epoch != 2 || got.Lease.Owner != "host:2" {
		t.Errorf("claimed: %+v", got.Lease)
	}
}

func oneOfManyConcurrentClaimsWins(p *place) { // R17
	t := p.t
	var won atomic.Int32
	together(32, func(i int) {
		_, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: strconv.Itoa(i), TTL: time.Hour})
		if err == nil {
			won.Add(1)
		} else {
			refused(t, "open", err, agentbus.CodeRunConflict)
		}
	})
	if n := won.Load(); n != 1 {
		t.Errorf("%d of 32 claims won", n)
	}
}

func aFailedHaltEndsTheExecution(p *place) { // R16
	t := p.t
	e := opened(t, p, "run_a")
	halt := agentbus.Halt{Kind: agentbus.HaltParticipantError, Participant: "critic", Failed: true}
	ok(t, "halt", p.Halt(t.Context(), e.Lease, halt))
	got, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour})
	ok(t, "open", err)
	if got.State != agentbus.RunDone || got.Lease.Owner != "" {
		t.Errorf("it is %s, held by %q", got.State, got.Lease.Owner)
	}
	same(t, "halt", got.Halt, &halt)
}

func aFinalHaltEndsTheExecution(p *place) { // R16
	t := p.t
	e := opened(t, p, "run_a")
	halt := agentbus.Halt{Kind: agentbus.HaltMaxTurns, Turns: 4, Reason: difficult}
	ok(t, "halt", p.Halt(t.Context(), e.Lease, halt, happened(e, agentbus.EventRunCompleted)))
	want := e
	want.State, want.Halt, want.Lease.Owner, want.Lease.Expires = agentbus.RunDone, &halt, "", time.Time{}
	got := stored(t, p, "run_a")
	if got.Ended.IsZero() {
		t.Errorf("a done execution has no end")
	}
	want.Ended = got.Ended
	same(t, "stored", got, want)
	same(t, "events", len(collect(t, p.Events(t.Context(), e.ID, -1))), 1)
	again, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: 1})
	ok(t, "open", err)
	same(t, "opened when done", again, want)
	refused(t, "halt twice", p.Halt(t.Context(), e.Lease, halt), agentbus.CodeLeaseLost)
}

func aPausedExecutionIsResumed(p *place) { // R16
	t := p.t
	e := opened(t, p, "run_a")
	halt := agentbus.Halt{
		Kind: agentbus.HaltParticipantError, Turns: 1, Participant: "critic", Spent: 1, Limit: 2,
		Error: &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: difficult},
	}
	ok(t, "halt", p.Halt(t.Context(), e.Lease, halt))
	got := stored(t, p, "run_a")
	if got.State != agentbus.RunPaused || !got.Ended.IsZero() {
		t.Errorf("paused: %+v", got)
	}
	same(t, "halt", got.Halt, &halt)
	p.reopen()
	again, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour})
	ok(t, "resume", err)
	if again.State != agentbus.RunRunning || again.Lease.Epoch != 2 || again.Lease.Owner != "host:2" {
		t.Errorf("resumed: %+v", again)
	}
	same(t, "what it was halted for", again.Halt, &halt)
	if got := stored(t, p, "run_a"); got.Halt != nil || got.State != agentbus.RunRunning {
		t.Errorf("an execution that runs again: %+v", got)
	}
}

func aLeaseIsRenewedUntilItIsGivenBack(p *place) { // R17
	t := p.t
	e := opened(t, p, "run_a")
	renewed, err := p.Renew(t.Context(), e.Lease, 2*time.Hour)
	ok(t, "renew", err)
	if !renewed.Expires.After(e.Lease.Expires) || renewed.Epoch != 1 || renewed.Owner != "host:1" {
		t.Errorf("renewed %+v as %+v", e.Lease, renewed)
	}
	same(t, "stored", stored(t, p, "run_a").Lease, renewed)
	ok(t, "halt", p.Halt(t.Context(), renewed, agentbus.Halt{Kind: agentbus.HaltAbort}))
	_, err = p.Renew(t.Context(), renewed, time.Hour)
	refused(t, "renew what was given back", err, agentbus.CodeLeaseLost)
	_, err = p.Renew(t.Context(), agentbus.Lease{Execution: "run_x", Owner: "host:1", Epoch: 1}, time.Hour)
	refused(t, "renew the unknown", err, agentbus.CodeLeaseLost)
}

func aSecondConversationInATurnCountsOn(p *place) { // P17
	t := p.t
	nested := func(id agentbus.ExecutionID, change func(*agentbus.Execution)) agentbus.Execution {
		e := execution(id)
		e.Run, e.Parent, e.Path, e.First = "run_a", "run_a.t3.root", "0123456789abcdef", 77
		change(&e)
		got, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
		ok(t, "open", err)
		return got
	}
	none := func(*agentbus.Execution) {}
	first := nested("run_1", none)
	same(t, "the first", first.First, 0)
	for n := range 3 {
		begin(t, p, turn(first, n))
	}
	second := nested("run_2", none)
	same(t, "the second", second.First, 3)
	same(t, "the second as stored", stored(t, p, "run_2").First, 3)
	begin(t, p, turn(second, 5))
	same(t, "the third", nested("run_3", none).First, 6)
	same(t, "the first again", nested("run_1", none).First, 0)
	same(t, "another path", nested("run_4", func(e *agentbus.Execution) { e.Path = "fedcba9876543210" }).First, 0)
	same(t, "another payer", nested("run_5", func(e *agentbus.Execution) { e.Payer = "bob" }).First, 0)
	same(t, "another parent", nested("run_6", func(e *agentbus.Execution) { e.Parent = "run_a.t4.root" }).First, 0)
	same(t, "at top level", nested("run_7", func(e *agentbus.Execution) { e.Parent = "" }).First, 0)
}
