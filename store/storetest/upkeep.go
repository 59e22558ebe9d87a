package storetest

import (
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

var upkeep = map[string]func(*place){
	"OldAnswersAreSweptAndAmountsStay":  oldAnswersAreSweptAndAmountsStay,
	"EventsOfOldRunsAreForgotten":       eventsOfOldRunsAreForgotten,
	"ASweepGoesOnWhereItStopped":        aSweepGoesOnWhereItStopped,
	"ALookupSaysWhatAReservationWould":  aLookupSaysWhatAReservationWould,
	"AStoppedRunStaysStopped":           aStoppedRunStaysStopped,
	"TheCallsOfATurnAreFoundByItsID":    theCallsOfATurnAreFoundByItsID,
	"AStoreThatWritesIsNotBroken":       aStoreThatWritesIsNotBroken,
	"AnAnswerOfAnotherPayerIsNoParent":  anAnswerOfAnotherPayerIsNoParent,
	"AtMostSixteenCallsOfATurnAreNamed": atMostSixteenCallsOfATurnAreNamed,
}

// sweepAll sweeps until there is nothing left to sweep.
func (p *place) sweepAll(before time.Time, limit int) (n int) {
	p.t.Helper()
	for {
		swept, err := p.Sweep(p.t.Context(), before, limit)
		ok(p.t, "sweep", err)
		if swept > limit {
			p.t.Errorf("a sweep of at most %d swept %d", limit, swept)
		}
		if swept == 0 {
			return n
		}
		n += swept
	}
}

func oldAnswersAreSweptAndAmountsStay(p *place) { // G25
	t := p.t
	bodies := []string{"x", strings.Repeat("large", 1<<19), "", "young"}
	for n, body := range bodies {
		s := settlement(reserve(t, p, reservation("run_a", n)), body)
		if n == 2 {
			ok(t, "append", p.Append(t.Context(), s.ID, 1, []byte("streamed")))
			s.Appended = true
		}
		if n == 3 {
			s.Ended = began.Add(time.Hour)
		}
		ok(t, "settle", p.Settle(t.Context(), s))
	}
	before, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	same(t, "swept", p.sweepAll(began.Add(time.Minute), 2), 3)
	after, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	same(t, "the calls", after, before)
	for n := range 3 {
		if got := expectOutcome(t, p, reservation("run_a", n), agentbus.OutcomeExpired); got.Call.Cost != 4_000 || got.Reply != nil {
			t.Errorf("expired: %+v", got)
		}
	}
	same(t, "body", string(expectOutcome(t, p, reservation("run_a", 3), agentbus.OutcomeSettled).Reply.Body), "young")
	same(t, "verdict", p.verify(), agentbus.LedgerVerdict{Payers: 1, Entries: 4, Charged: 16_000})
}

// Events go with their run, whole; what is left says how many they were.
func eventsOfOldRunsAreForgotten(p *place) { // E9
	t := p.t
	over := func(run agentbus.ExecutionID, h agentbus.Halt) agentbus.ExecutionID {
		e := opened(t, p, run)
		ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(e, 0)), "x"), nil, agentbus.Event{Type: "x.y", At: began}, agentbus.Event{Type: "x.z", At: began}))
		ok(t, "halt", p.Halt(t.Context(), e.Lease, h))
		return e.ID
	}
	var old []agentbus.ExecutionID
	for i := range 3 {
		old = append(old, over(agentbus.ExecutionID("run_"+strconv.Itoa(i)), agentbus.Halt{Kind: agentbus.HaltMaxTurns}))
	}
	paused := over("run_p", agentbus.Halt{Kind: agentbus.HaltAbort})
	forget := func(before time.Time) (n int) {
		for {
			some, err := p.ForgetEvents(t.Context(), before, 2)
			ok(t, "forget", err)
			if n += some; some == 0 {
				return n
			}
		}
	}
	same(t, "forgotten too early", forget(began.Add(-time.Hour)), 0)
	before, err := p.Appended(t.Context(), old[0])
	ok(t, "appended", err)
	same(t, "forgotten", forget(time.Now().Add(time.Hour)), 3)
	same(t, "forgotten again", forget(time.Now().Add(time.Hour)), 0)
	p.reopen()
	for _, id := range old {
		after, err := p.Appended(t.Context(), id)
		ok(t, "appended", err)
		same(t, "appended", after, before)
		for e, err := range p.Events(t.Context(), id, -1) {
			if agentbus.CodeOf(err) != agentbus.CodeReplyExpired {
				t.Errorf("%v, %v", e, err)
			}
		}
	}
	n := 0
	for _, err := range p.Events(t.Context(), paused, -1) {
		ok(t, "events of a run that may go on", err)
		n++
	}
	same(t, "events of a run that may go on", n, 2)
}

func aSweepGoesOnWhereItStopped(p *place) { // G25
	t := p.t
	const calls = 20
	for n := range calls { // every fifth stays
		s := settlement(reserve(t, p, reservation("run_a", n)), "x")
		if n%5 == 2 {
			s.Ended = began.Add(time.Hour)
		}
		ok(t, "settle", p.Settle(t.Context(), s))
	}
	same(t, "swept", p.sweepAll(began.Add(time.Minute), 3), calls*4/5)
	same(t, "swept again", p.sweepAll(began.Add(time.Minute), 3), 0)
	same(t, "swept later", p.sweepAll(began.Add(2*time.Hour), 3), calls/5)
}

func aLookupSaysWhatAReservationWould(p *place) { // G22, G23
	t := p.t
	r := reservation("run_a", 0)
	lookup := func(want agentbus.Outcome) agentbus.Reserved {
		t.Helper()
		got, found, err := p.Lookup(t.Context(), r.Key, r.Call.Digest)
		ok(t, "look up", err)
		if got.Outcome != want || found != (want != 0) {
			t.Errorf("outcome %d, found %v, want %d", got.Outcome, found, want)
		}
		return got
	}
	lookup(0)
	call := reserve(t, p, r)
	same(t, "in flight", lookup(agentbus.OutcomeInFlight).Call, call)
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1}))
	lookup(0)
	s := settlement(reserve(t, p, r), difficult)
	ok(t, "settle", p.Settle(t.Context(), s))
	same(t, "reply", lookup(agentbus.OutcomeSettled).Reply, &s.Reply)
	same(t, "it counts nothing", oneCall(t, p).Replays, 0)
	r.Call.Digest = agentbus.Digest{9}
	if got := lookup(agentbus.OutcomeMismatch); got.Reply != nil {
		t.Errorf("a mismatch came with the other request's reply")
	}
	r = reservation("run_a", 0)
	p.sweepAll(began.Add(time.Hour), 10)
	lookup(agentbus.OutcomeExpired)
}

func aStoppedRunStaysStopped(p *place) {
	t := p.t
	for _, run := range []agentbus.RunID{"run_b", "run_a", "run_b"} {
		ok(t, "stop", p.StopRun(t.Context(), run, "service:"+difficult, difficult, began))
	}
	p.reopen()
	got, err := p.StoppedRuns(t.Context())
	ok(t, "stopped runs", err)
	same(t, "stopped runs", got, []agentbus.RunID{"run_a", "run_b"})
	opened(t, p, "run_b")
	for run, h := range map[agentbus.ExecutionID]agentbus.HaltKind{"run_a": agentbus.HaltAbort, "run_c": agentbus.HaltAbort, "run_d": agentbus.HaltDone} {
		ok(t, "halt", p.Halt(t.Context(), opened(t, p, run).Lease, agentbus.Halt{Kind: h}))
	}
	ok(t, "stop", p.StopRun(t.Context(), "run_d", "service:"+difficult, "", began))
	got, err = p.StoppedPaused(t.Context())
	ok(t, "paused ones of them", err)
	same(t, "paused ones of them", got, []agentbus.RunID{"run_a"})
	for run, want := range map[agentbus.RunID]string{"run_a": difficult, "run_c": ""} {
		reason, err := p.StopReason(t.Context(), run)
		ok(t, "why", err)
		same(t, "why it was stopped", reason, want)
	}
}

func theCallsOfATurnAreFoundByItsID(p *place) { // P17
	t := p.t
	var want []agentbus.CallRecord
	for _, parent := range []agentbus.TurnID{"run_a.t0.root", "", "run_a.t7.critic"} { // nested runs restart their index
		for n := range 3 {
			r := reservation("run_a", n)
			r.Call.Parent = parent
			r.Key = r.Call.Hash()
			if call := reserve(t, p, r); n == 1 {
				want = append(want, call)
			}
		}
	}
	key, c := refusedCall(1)
	ok(t, "record", p.Record(t.Context(), key, c))
	ok(t, "check", p.Check(t.Context()))
	got, err := p.ParentCalls(t.Context(), zoe, "run_a", "run_a.t1.critic")
	ok(t, "parent calls", err)
	same(t, "calls of the turn", got, want)
	odd := reservation("run_a", 9)
	odd.Call.TurnKey.ID = "a turn id of another's making"
	odd.Key = odd.Call.Hash()
	call := reserve(t, p, odd)
	got, err = p.ParentCalls(t.Context(), zoe, "run_a", odd.Call.TurnKey.ID)
	ok(t, "parent calls", err)
	same(t, "calls of an odd turn", got, []agentbus.CallRecord{call})
}

func anAnswerOfAnotherPayerIsNoParent(p *place) { // I4
	t := p.t
	reserve(t, p, reservation("run_a", 1))
	for _, k := range []agentbus.TurnKey{
		{Payer: "bob", Run: "run_a", ID: "run_a.t1.critic"},
		{Payer: zoe, Run: "run_b", ID: "run_a.t1.critic"},
		{Payer: zoe, Run: "run_a", ID: "run_a.t1.writer"},
	} {
		if got, err := p.ParentCalls(t.Context(), k.Payer, k.Run, k.ID); err != nil || len(got) != 0 {
			t.Errorf("%+v: %v, %v", k, got, err)
		}
	}
}

func atMostSixteenCallsOfATurnAreNamed(p *place) {
	t := p.t
	for n := range 20 {
		r := reservation("run_a", 1)
		r.Call.Parent = agentbus.RunID("run_a").Turn(n, "root")
		r.Key = r.Call.Hash()
		reserve(t, p, r)
	}
	got, err := p.ParentCalls(t.Context(), zoe, "run_a", "run_a.t1.critic")
	ok(t, "parent calls", err)
	same(t, "calls", len(got), 16)
}

func aStoreThatWritesIsNotBroken(p *place) {
	select {
	case <-p.Broken():
		p.t.Errorf("a new store is broken")
	default:
	}
}
