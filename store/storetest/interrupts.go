package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

var interrupts = map[string]func(*place){
	"AnInterruptIsStoredWithTheHaltOfItsRun":        anInterruptIsStoredWithTheHaltOfItsRun,
	"AnInterruptIsDecidedOnce":                      anInterruptIsDecidedOnce,
	"RacingResolversHaveOneWinner":                  racingResolversHaveOneWinner,
	"AResolutionLetsTheRunGoOn":                     aResolutionLetsTheRunGoOn,
	"AResolutionBeforeTheHaltIsNotMissed":           aResolutionBeforeTheHaltIsNotMissed,
	"ARunThatServesACallWaitsForItsCaller":          aRunThatServesACallWaitsForItsCaller,
	"AnInterruptExpiresAsDenied":                    anInterruptExpiresAsDenied,
	"AWaitingTurnKeepsWhatItAsksUntilItIsFinished":  aWaitingTurnKeepsWhatItAsks,
	"ACancelledTurnWithdrawsWhatItAsked":            aCancelledTurnWithdrawsWhatItAsked,
	"AStopWithdrawsTheInterruptsOfTheRun":           aStopWithdrawsTheInterruptsOfTheRun,
	"InterruptsAreListedInTheOrderOfTheirRaising":   interruptsAreListed,
	"WhoLostTheLeaseRaisesNothing":                  whoLostTheLeaseRaisesNothing,
	"AnyInterleavingOfDecisionsHasOneWinnerForEach": anyInterleavingOfDecisions,
}

// interruptOf returns what the first turn of e asks.
func interruptOf(e agentbus.Execution) agentbus.Interrupt {
	t := turn(e, 0)
	return agentbus.Interrupt{
		ID: agentbus.InterruptOf(e.ID, t.ID, 1), Run: e.Run, Execution: e.ID, Root: e.ID, Turn: t.ID, Payer: e.Payer,
		Path:   []agentbus.Speaker{"panel", "Zoë 🦊"},
		Ask:    agentbus.Ask{Kind: agentbus.AskPolicy, Title: difficult, Choices: []string{"yes", "no"}, Policy: []byte(`{"kind":"payment_required","state":"s3cret"}`), Resume: []byte(`{"task":"t1"}`)},
		Raised: began, Expires: began.Add(time.Hour),
	}
}

// waits returns t, which has asked i.
func waits(t agentbus.Turn, i agentbus.Interrupt) agentbus.Turn {
	t.State, t.Attempts, t.Ended, t.Interrupt = agentbus.TurnWaiting, 1, began.Add(time.Second), &i
	t.Error = &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "pay", Ask: &agentbus.Ask{Kind: agentbus.AskPolicy, Title: "pay", Interrupts: []agentbus.InterruptID{i.ID}}}
	return t
}

// waiting returns the halt of a run that waits for what turns have asked.
func waiting(asked ...agentbus.Turn) agentbus.Halt {
	h := agentbus.Halt{Kind: agentbus.HaltWaiting, Participant: "Zoë 🦊", Wait: &agentbus.Wait{Asked: asked}}
	for _, t := range asked {
		h.Wait.Interrupts = append(h.Wait.Interrupts, t.Interrupt.ID)
	}
	return h
}

// parked parks a run on what its first turn asks.
func parked(t *testing.T, s Store, id agentbus.ExecutionID) agentbus.Interrupt {
	t.Helper()
	e := opened(t, s, id)
	i := interruptOf(e)
	ok(t, "halt", s.Halt(t.Context(), e.Lease, waiting(waits(begin(t, s, turn(e, 0)), i)), event(e, "asked")))
	return i
}

// event returns an event of e.
func event(e agentbus.Execution, kind string) agentbus.Event {
	return agentbus.Event{At: began, Type: kind, Execution: e.ID, Run: e.Run}
}

func interrupt(t *testing.T, s Store, id agentbus.InterruptID) agentbus.Interrupt {
	t.Helper()
	i, found, err := s.Interrupt(t.Context(), id)
	ok(t, "interrupt", err)
	if !found {
		t.Fatalf("the store does not know %s", id)
	}
	return i
}

// granted is a decision in time.
func granted(by string) agentbus.Resolution {
	return agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: difficult, Policy: []byte(`{"evidence":1}`), By: by, At: began.Add(time.Minute)}
}

func anInterruptIsStoredWithTheHaltOfItsRun(p *place) { // R22, I2
	t := p.t
	want := parked(t, p, "run_a")
	p.reopen()
	same(t, "interrupt", interrupt(t, p, want.ID), want)
	got := stored(t, p, "run_a")
	if got.State != agentbus.RunPaused || got.Halt.Kind != agentbus.HaltWaiting || len(got.Halt.Wait.Interrupts) != 1 || got.Halt.Wait.Asked != nil {
		t.Errorf("a run that waits: %+v", got)
	}
	turns := collect(t, p.Turns(t.Context(), "run_a"))
	if turns[0].State != agentbus.TurnWaiting || turns[0].Error.Ask.Interrupts[0] != want.ID || turns[0].Interrupt != nil {
		t.Errorf("a turn that asked: %+v", turns[0])
	}
	same(t, "events", len(collect(t, p.Events(t.Context(), "run_a", -1))), 1)
	same(t, "orphans", orphaned(t, p, 9, "host:1"), nil)
	if _, found, err := p.Interrupt(t.Context(), "int_x"); found || err != nil {
		t.Errorf("an unknown interrupt: %v, %v", found, err)
	}
}

func anInterruptIsDecidedOnce(p *place) { // R22, I6
	t := p.t
	i := parked(t, p, "run_a")
	want := granted("zoë")
	got, err := p.Resolve(t.Context(), i.ID, want)
	ok(t, "resolve", err)
	i.Resolution = &want
	same(t, "resolved", got, i)
	got, err = p.Resolve(t.Context(), i.ID, agentbus.Resolution{Decision: agentbus.DecisionDenied, By: "eve", At: began.Add(time.Minute)})
	refused(t, "resolve again", err, agentbus.CodeRunConflict)
	same(t, "resolved before", got, i)
	p.reopen()
	same(t, "stored", interrupt(t, p, i.ID), i)
	_, err = p.Resolve(t.Context(), "int_x", want)
	refused(t, "resolve an unknown one", err, agentbus.CodeNotFound)
}

func racingResolversHaveOneWinner(p *place) { // R22, I6: two processes on one store
	t := p.t
	i := parked(t, p, "run_a")
	other, closes := p.beside()
	defer closes()
	var winners atomic.Int64
	var by atomic.Value
	together(16, func(n int) {
		s := []Store{p, other}[n%2]
		name := "resolver " + strconv.Itoa(n)
		_, err := s.Resolve(t.Context(), i.ID, granted(name))
		if err == nil {
			winners.Add(1)
			by.Store(name)
		} else if agentbus.CodeOf(err) != agentbus.CodeRunConflict {
			t.Errorf("resolve: %v", err)
		}
	})
	if winners.Load() != 1 || interrupt(t, p, i.ID).Resolution.By != by.Load() {
		t.Errorf("%d winners, %v, stored: %+v", winners.Load(), by.Load(), interrupt(t, p, i.ID).Resolution)
	}
}

func aResolutionLetsTheRunGoOn(p *place) { // R19, R22
	t := p.t
	i := parked(t, p, "run_a")
	parked(t, p, "run_b")
	_, err := p.Resolve(t.Context(), i.ID, granted("zoë"))
	ok(t, "resolve", err)
	same(t, "orphans", orphaned(t, p, 9, "host:1"), []agentbus.ExecutionID{"run_a"})
	e := opened(t, p, "run_a")
	if e.State != agentbus.RunRunning || e.Halt == nil || e.Halt.Kind != agentbus.HaltWaiting {
		t.Errorf("it goes on: %+v", e)
	}
}

func aResolutionBeforeTheHaltIsNotMissed(p *place) { // R22: the run around a nested one parks after it
	t := p.t
	i := parked(t, p, "run_a")
	outer := opened(t, p, "run_b")
	tn := waits(begin(t, p, turn(outer, 0)), i)
	tn.Interrupt = nil
	h := agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{Interrupts: []agentbus.InterruptID{i.ID}, Asked: []agentbus.Turn{tn}}}
	_, err := p.Resolve(t.Context(), i.ID, granted("zoë"))
	ok(t, "resolve", err)
	ok(t, "halt", p.Halt(t.Context(), outer.Lease, h))
	found := orphaned(t, p, 9, "host:1")
	slices.Sort(found) // neither has a lease that ended first
	same(t, "orphans", found, []agentbus.ExecutionID{"run_a", "run_b"})
}

func aRunThatServesACallWaitsForItsCaller(p *place) { // R22
	t := p.t
	e := execution("run_a")
	e.ID, e.Parent = "run_nested", "run_a.t0.root"
	e = claimed(t, p, e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	i := interruptOf(e)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, waiting(waits(begin(t, p, turn(e, 0)), i))))
	_, err := p.Resolve(t.Context(), i.ID, granted("zoë"))
	ok(t, "resolve", err)
	same(t, "state", stored(t, p, "run_nested").State, agentbus.RunPaused)
}

func anInterruptExpiresAsDenied(p *place) { // R22
	t := p.t
	a := parked(t, p, "run_a")
	b := parked(t, p, "run_b")
	n, err := p.ExpireInterrupts(t.Context(), began.Add(time.Hour-time.Second), 9)
	ok(t, "expire", err)
	same(t, "expired too early", n, 0)
	_, err = p.Resolve(t.Context(), a.ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, At: began.Add(time.Hour)})
	refused(t, "grant too late", err, agentbus.CodeRunConflict)
	same(t, "too late", interrupt(t, p, a.ID).Resolution.Decision, agentbus.DecisionExpired)
	for _, want := range []int{1, 0} {
		n, err = p.ExpireInterrupts(t.Context(), began.Add(2*time.Hour), 9)
		ok(t, "expire", err)
		same(t, "expired", n, want)
	}
	same(t, "expired", interrupt(t, p, b.ID).Resolution, &agentbus.Resolution{Decision: agentbus.DecisionExpired, At: b.Expires})
	found := orphaned(t, p, 9, "host:1")
	slices.Sort(found) // neither has a lease that ended first
	same(t, "orphans", found, []agentbus.ExecutionID{"run_a", "run_b"})
}

func aWaitingTurnKeepsWhatItAsks(p *place) { // R22: who crashes in the turn finds what was decided
	t := p.t
	i := parked(t, p, "run_a")
	for range 2 {
		e := opened(t, p, "run_a")
		got := begin(t, p, turn(e, 0))
		if got.State != agentbus.TurnPending || got.Attempts != 1 || got.Error == nil || got.Error.Ask.Interrupts[0] != i.ID {
			t.Errorf("begun again: %+v", got)
		}
	}
	e := opened(t, p, "run_a")
	tn := begin(t, p, turn(e, 0))
	tn.Error = nil
	ok(t, "finish", p.Finish(t.Context(), done(tn, "x"), nil))
	if got := collect(t, p.Turns(t.Context(), "run_a"))[0]; got.Error != nil || got.State != agentbus.TurnDone {
		t.Errorf("done: %+v", got)
	}
}

func aCancelledTurnWithdrawsWhatItAsked(p *place) { // R21
	t := p.t
	i := parked(t, p, "run_a")
	e := opened(t, p, "run_a")
	tn := begin(t, p, turn(e, 0))
	tn.State, tn.Error, tn.Ended, tn.Withdraw = agentbus.TurnCancelled, nil, began, []agentbus.InterruptID{i.ID, "int_x"}
	ok(t, "finish", p.Finish(t.Context(), tn, nil))
	same(t, "withdrawn", interrupt(t, p, i.ID).Resolution.Decision, agentbus.DecisionWithdrawn)
	_, err := p.Resolve(t.Context(), i.ID, granted("zoë"))
	refused(t, "resolve", err, agentbus.CodeRunConflict)
}

func aStopWithdrawsTheInterruptsOfTheRun(p *place) { // G14, R22
	t := p.t
	a := parked(t, p, "run_a")
	b := parked(t, p, "run_b")
	ok(t, "stop", p.StopRun(t.Context(), "run_a", "ops", "", began))
	same(t, "withdrawn", interrupt(t, p, a.ID).Resolution.Decision, agentbus.DecisionWithdrawn)
	left := interrupt(t, p, b.ID)
	same(t, "of another run", left.Open(), true)
}

func interruptsAreListed(p *place) { // R22
	t := p.t
	var ids []agentbus.InterruptID
	for n := range 5 {
		i := parked(t, p, agentbus.ExecutionID(fmt.Sprintf("run_%d", 9-n)))
		ids = append(ids, i.ID)
	}
	_, err := p.Resolve(t.Context(), ids[1], granted("zoë"))
	ok(t, "resolve", err)
	for what, c := range map[string]struct {
		q    agentbus.InterruptQuery
		want []agentbus.InterruptID
	}{
		"that wait":     {agentbus.InterruptQuery{Limit: 9}, []agentbus.InterruptID{ids[0], ids[2], ids[3], ids[4]}},
		"all":           {agentbus.InterruptQuery{All: true, Limit: 9}, ids},
		"a page":        {agentbus.InterruptQuery{After: ids[0], Limit: 2}, ids[2:4]},
		"of a run":      {agentbus.InterruptQuery{Run: "run_8", All: true, Limit: 9}, ids[1:2]},
		"of a payer":    {agentbus.InterruptQuery{Payer: "user:zoë", Limit: 1}, ids[:1]},
		"of another":    {agentbus.InterruptQuery{Payer: "user:x", Limit: 9}, nil},
		"behind a last": {agentbus.InterruptQuery{After: ids[4], Limit: 9}, nil},
	} {
		list, err := p.Interrupts(t.Context(), c.q)
		ok(t, what, err)
		var got []agentbus.InterruptID
		for _, i := range list {
			got = append(got, i.ID)
		}
		same(t, what, got, c.want)
	}
}

func whoLostTheLeaseRaisesNothing(p *place) { // R17
	t := p.t
	e := opened(t, p, "run_a")
	i := interruptOf(e)
	asked := waits(begin(t, p, turn(e, 0)), i)
	claimed(t, p, execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: e.Lease.Epoch})
	refused(t, "halt", p.Halt(t.Context(), e.Lease, waiting(asked)), agentbus.CodeLeaseLost)
	if _, found, err := p.Interrupt(t.Context(), i.ID); found || err != nil {
		t.Errorf("raised all the same: %v, %v", found, err)
	}
}

// anyInterleavingOfDecisions holds the store against the plainest one: whatever
// the order of decisions, deadlines, stops and withdrawals, each interrupt has
// the first of them (I6), and what waits is what was not decided.
func anyInterleavingOfDecisions(p *place) {
	var rounds atomic.Int64
	rapid.Check(p.t, func(r *rapid.T) {
		round := rounds.Add(1)
		want := map[agentbus.InterruptID]agentbus.Decision{}
		var all []agentbus.Interrupt
		payer := agentbus.Payer("payer " + strconv.FormatInt(round, 10))
		for n := range rapid.IntRange(1, 4).Draw(r, "runs") {
			e := execution(agentbus.ExecutionID(fmt.Sprintf("run_m%d_%d", round, n)))
			e.Payer = payer
			e = claimed(p.t, p, e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
			i := interruptOf(e)
			i.Expires = began.Add(time.Duration(n+1) * time.Second)
			ok(p.t, "halt", p.Halt(p.t.Context(), e.Lease, waiting(waits(begin(p.t, p, turn(e, 0)), i))))
			all, want[i.ID] = append(all, i), ""
		}
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			i := rapid.SampledFrom(all).Draw(r, "interrupt")
			at := began.Add(time.Duration(rapid.IntRange(0, 5).Draw(r, "second")) * time.Second)
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				_, err := p.ExpireInterrupts(p.t.Context(), at, 1000)
				ok(p.t, "expire", err)
				for _, j := range all {
					if want[j.ID] == "" && !j.Expires.After(at) {
						want[j.ID] = agentbus.DecisionExpired
					}
				}
			case 1:
				ok(p.t, "stop", p.StopRun(p.t.Context(), i.Run, "ops", "", at))
				if want[i.ID] == "" {
					want[i.ID] = agentbus.DecisionWithdrawn
				}
			default:
				d := rapid.SampledFrom([]agentbus.Decision{agentbus.DecisionGranted, agentbus.DecisionDenied}).Draw(r, "decision")
				_, err := p.Resolve(p.t.Context(), i.ID, agentbus.Resolution{Decision: d, At: at})
				wins := want[i.ID] == "" && at.Before(i.Expires)
				if wins != (err == nil) {
					r.Fatalf("resolve: %v, it was %q", err, want[i.ID])
				}
				if wins {
					want[i.ID] = d
				} else if want[i.ID] == "" {
					want[i.ID] = agentbus.DecisionExpired
				}
			}
		}
		open := 0
		for _, i := range all {
			got := interrupt(p.t, p, i.ID)
			if d := want[i.ID]; d == "" != got.Open() || d != "" && got.Resolution.Decision != d {
				r.Fatalf("%s: %+v, want %q", i.ID, got.Resolution, d)
			}
			if got.Open() {
				open++
			}
		}
		list, err := p.Interrupts(p.t.Context(), agentbus.InterruptQuery{Payer: payer, Limit: 99})
		if err != nil || len(list) != open {
			r.Fatalf("%d wait, want %d: %v", len(list), open, err)
		}
	})
}
