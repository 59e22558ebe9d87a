package storetest

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

var journal = map[string]func(*place){
	"ANewTurnIsPending":                          aNewTurnIsPending,
	"BeginTwiceReturnsTheStoredTurn":             beginTwiceReturnsTheStoredTurn,
	"SeveralTurnsBeginTogether":                  severalTurnsBeginTogether,
	"AFailedTurnIsPendingAgain":                  aFailedTurnIsPendingAgain,
	"ADoneTurnNeverChanges":                      aDoneTurnNeverChanges,
	"AnotherRequestForATurnIsAMismatch":          anotherRequestForATurnIsAMismatch,
	"FinishCommitsResultNextAndEventsTogether":   finishCommitsResultNextAndEventsTogether,
	"AFinishThatFailsStoresNothing":              aFinishThatFailsStoresNothing,
	"ALostLeaseWritesNothing":                    aLostLeaseWritesNothing,
	"EventsAreDenseInEachExecution":              eventsAreDenseInEachExecution,
	"HeldEventsWaitForTheirPosition":             heldEventsWaitForTheirPosition,
	"SeveralTurnsCanBePending":                   severalTurnsCanBePending,
	"TurnsOfALongRunComeByIndex":                 turnsOfALongRunComeByIndex,
	"AcknowledgedTurnsAndEventsSurviveReopening": turnsSurviveReopening,
	"ManyRunsAtOnceKeepTheirOwnTurns":            manyRunsAtOnceKeepTheirOwnTurns,
}

// opened opens an execution of run whose lease is held by "host:1".
func opened(t *testing.T, s Store, id agentbus.ExecutionID) agentbus.Execution {
	t.Helper()
	e, err := s.Open(t.Context(), execution(id), agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	ok(t, "open", err)
	return e
}

// turn returns the intent of the n-th turn of e.
func turn(e agentbus.Execution, n int) agentbus.Turn {
	return agentbus.Turn{
		TurnKey: agentbus.TurnKey{
			Payer: "user:zoë", Agent: "critic", Run: e.Run, Path: "0123456789abcdef", Parent: "run_a.t0.root", ID: e.Run.Turn(n, "critic"),
		},
		Execution: e.ID, Index: n, Speaker: "Zoë 🦊", Digest: agentbus.Digest{1, 2, byte(n & 0xff)}, Epoch: e.Lease.Epoch,
		State: agentbus.TurnPending, Began: began,
	}
}

// done returns t with a result.
func done(t agentbus.Turn, text string) agentbus.Turn {
	t.State, t.Attempts, t.Cost, t.Ended = agentbus.TurnDone, t.Attempts+1, t.Cost+4_000, began.Add(time.Second)
	t.Reply = agentbus.Reply{
		Text: text, Reasoning: difficult, Model: "m", Finish: "stop", Replayed: true,
		ToolCalls: []agentbus.ToolCall{{ID: "1", Name: "f", Arguments: `{"x":1}`}},
		Usage:     agentbus.Usage{InputTokens: 5, OutputTokens: 6, Cost: 7},
		Receipts:  []json.RawMessage{json.RawMessage(`{"n":9007199254740993}`)},
	}
	return t
}

// failed returns t with an error.
func failed(t agentbus.Turn) agentbus.Turn {
	t.State, t.Attempts, t.Cost, t.Ended = agentbus.TurnFailed, t.Attempts+1, t.Cost+100, began.Add(time.Second)
	t.Error = &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: difficult, RetryAfter: time.Second, Status: 502,
		Explain: &agentbus.Explain{Rule: "R11", Observed: "502", Supported: []string{"a"}, Next: "retry"},
	}
	return t
}

func begin(t *testing.T, s Store, want agentbus.Turn) agentbus.Turn {
	t.Helper()
	got, err := s.Begin(t.Context(), []agentbus.Turn{want})
	ok(t, "begin", err)
	return got[0]
}

func turnsOf(t *testing.T, s Store, e agentbus.Execution) []agentbus.Turn {
	t.Helper()
	return collect(t, s.Turns(t.Context(), e.ID))
}

func aNewTurnIsPending(p *place) { // R14
	t := p.t
	e := opened(t, p, "run_a")
	want := turn(e, 0)
	same(t, "begun", begin(t, p, want), want)
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{want})
	same(t, "of an unknown execution", turnsOf(t, p, agentbus.Execution{ID: "run_x"}), nil)
}

func beginTwiceReturnsTheStoredTurn(p *place) { // R14, P16
	t := p.t
	e := opened(t, p, "run_a")
	first := turn(e, 0)
	first.Attempts, first.Cost = 2, 50
	begin(t, p, first)
	again := turn(e, 0)
	again.Began = began.Add(time.Hour)
	same(t, "begun again", begin(t, p, again), first)

	want := done(first, "no objection")
	ok(t, "finish", p.Finish(t.Context(), want, nil))
	same(t, "begun when done", begin(t, p, again), want)
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{want})
}

func severalTurnsBeginTogether(p *place) { // R14, R20
	t := p.t
	e := opened(t, p, "run_a")
	finished := done(begin(t, p, turn(e, 1)), "no objection")
	ok(t, "finish", p.Finish(t.Context(), finished, nil, held(e, "of the branch", 1)))
	all := []agentbus.Turn{turn(e, 0), turn(e, 1), turn(e, 2)}
	clash := []agentbus.Turn{turn(e, 0), turn(e, 1), turn(e, 2)}
	clash[2].ID = "run_a.t0.critic"
	_, err := p.Begin(t.Context(), clash, happened(e, "x"))
	refused(t, "begin with one that clashes", err, agentbus.CodeTurnMismatch)
	strange := []agentbus.Turn{turn(e, 0), turn(opened(t, p, "run_b"), 0)}
	_, err = p.Begin(t.Context(), strange, happened(e, "x"))
	refused(t, "begin with one of another run", err, agentbus.CodeLeaseLost)
	_, err = p.Begin(t.Context(), nil, happened(e, "x"))
	refused(t, "begin nothing", err, agentbus.CodeInvalidRequest)
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{finished})
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), nil)

	resumed := happened(e, agentbus.EventRunResumed)
	got, err := p.Begin(t.Context(), all, resumed)
	ok(t, "begin", err)
	all[1] = finished
	same(t, "begun", got, all)
	same(t, "stored", turnsOf(t, p, e), all)
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), []agentbus.Event{placed(e, 0, happened(e, "of the branch")), placed(e, 1, resumed)})
}

func aFailedTurnIsPendingAgain(p *place) { // R14, R16, R8
	t := p.t
	e := opened(t, p, "run_a")
	first := begin(t, p, turn(e, 0))
	bad := failed(first)
	ok(t, "finish", p.Finish(t.Context(), bad, nil))
	same(t, "failed", turnsOf(t, p, e), []agentbus.Turn{bad})
	e = opened(t, p, "run_a") // the same owner may claim again
	again := turn(e, 0)
	again.Began = began.Add(time.Hour)
	got := begin(t, p, again)
	want := bad
	want.State, want.Epoch, want.Error, want.Ended = agentbus.TurnPending, 2, nil, time.Time{}
	same(t, "pending again", got, want) // Attempts, Cost and Began are kept
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{want})
	good := done(got, "better")
	ok(t, "finish", p.Finish(t.Context(), good, nil))
	same(t, "done", turnsOf(t, p, e), []agentbus.Turn{good})
}

func aDoneTurnNeverChanges(p *place) { // R14, I2
	t := p.t
	e := opened(t, p, "run_a")
	want := done(begin(t, p, turn(e, 0)), "first")
	ok(t, "finish", p.Finish(t.Context(), want, nil))
	refused(t, "finish twice", p.Finish(t.Context(), done(turn(e, 0), "second"), nil), agentbus.CodeLeaseLost)
	refused(t, "fail a done turn", p.Finish(t.Context(), failed(turn(e, 0)), nil), agentbus.CodeLeaseLost)
	refused(t, "finish a turn that was not begun", p.Finish(t.Context(), done(turn(e, 1), "x"), nil), agentbus.CodeLeaseLost)
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{want})
}

func anotherRequestForATurnIsAMismatch(p *place) { // R15
	t := p.t
	e := opened(t, p, "run_a")
	want := begin(t, p, turn(e, 0))
	for what, change := range map[string]func(*agentbus.Turn){
		"another digest":                  func(t *agentbus.Turn) { t.Digest[5] = 1 },
		"another turn id at its index":    func(t *agentbus.Turn) { t.ID = "run_a.t0.other" },
		"its turn id at another index":    func(t *agentbus.Turn) { t.Index = 7 },
		"its index under another request": func(t *agentbus.Turn) { t.ID, t.Digest[5] = "run_a.t0.other", 1 },
	} {
		other := turn(e, 0)
		change(&other)
		_, err := p.Begin(t.Context(), []agentbus.Turn{other})
		refused(t, what, err, agentbus.CodeTurnMismatch)
	}
	same(t, "stored", turnsOf(t, p, e), []agentbus.Turn{want})
}

// happened returns an event of e.
func happened(e agentbus.Execution, kind string) agentbus.Event {
	return agentbus.Event{
		At: began, Type: kind, Execution: e.ID, Run: e.Run, Turn: "run_a.t0.critic", Cause: "evt_x", Data: []byte(`{"text": "é \u0000"}`),
	}
}

// placed returns want at its position.
func placed(e agentbus.Execution, n int, want agentbus.Event) agentbus.Event {
	want.Position, want.ID = agentbus.Position(n), agentbus.EventID("evt_"+string(e.ID)+"_"+strconv.Itoa(n))
	return want
}

func finishCommitsResultNextAndEventsTogether(p *place) { // R14
	t := p.t
	e := opened(t, p, "run_a")
	first, next := begin(t, p, turn(e, 0)), turn(e, 1)
	one, two := happened(e, agentbus.EventNodeCompleted), happened(e, "second")
	ok(t, "finish", p.Finish(t.Context(), done(first, difficult), &next, one, two))
	same(t, "turns", turnsOf(t, p, e), []agentbus.Turn{done(first, difficult), next})
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), []agentbus.Event{placed(e, 0, one), placed(e, 1, two)})
	got, found, err := p.Execution(t.Context(), e.ID)
	ok(t, "execution", err)
	if !found || got.Turns != 1 || got.Cost != 4_000 {
		t.Errorf("found %v: %+v", found, got)
	}
	// The intent that was committed with the result needs no Begin.
	ok(t, "finish the next", p.Finish(t.Context(), done(next, "x"), nil))
}

func aFinishThatFailsStoresNothing(p *place) { // R14
	t := p.t
	e := opened(t, p, "run_a")
	first := begin(t, p, turn(e, 0))
	second := begin(t, p, turn(e, 1))
	clash := turn(e, 1)
	clash.Digest[5] = 1
	together(8, func(i int) { // beside others, who are not harmed
		if i == 0 {
			refused(t, "finish", p.Finish(t.Context(), done(first, "x"), &clash, happened(e, "x")), agentbus.CodeTurnMismatch)
		} else if _, err := p.Reserve(t.Context(), reservation("run_b", i)); err != nil {
			t.Errorf("reserve: %v", err)
		}
	})
	same(t, "turns", turnsOf(t, p, e), []agentbus.Turn{first, second})
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), nil)
	calls, err := p.Calls(t.Context(), "run_b")
	ok(t, "calls", err)
	same(t, "calls beside it", len(calls), 7)
}

func aLostLeaseWritesNothing(p *place) { // R17
	t := p.t
	old := opened(t, p, "run_a")
	first := begin(t, p, turn(old, 0))
	e, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: old.Lease.Epoch})
	ok(t, "take over", err)
	next := turn(old, 1)
	_, err = p.Begin(t.Context(), []agentbus.Turn{turn(old, 0)}, happened(old, "late"))
	refused(t, "begin", err, agentbus.CodeLeaseLost)
	_, err = p.Begin(t.Context(), []agentbus.Turn{next})
	refused(t, "begin the next", err, agentbus.CodeLeaseLost)
	refused(t, "finish", p.Finish(t.Context(), done(first, "late"), &next, happened(old, "late")), agentbus.CodeLeaseLost)
	_, err = p.Renew(t.Context(), old.Lease, time.Hour)
	refused(t, "renew", err, agentbus.CodeLeaseLost)
	refused(t, "halt", p.Halt(t.Context(), old.Lease, agentbus.Halt{Kind: agentbus.HaltDone}, happened(old, "late")), agentbus.CodeLeaseLost)
	_, err = p.Begin(t.Context(), []agentbus.Turn{turn(agentbus.Execution{ID: "run_x", Run: "run_x", Lease: agentbus.Lease{Epoch: 1}}, 0)})
	refused(t, "begin without an execution", err, agentbus.CodeLeaseLost)

	same(t, "turns", turnsOf(t, p, e), []agentbus.Turn{first})
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), nil)
	taken := begin(t, p, turn(e, 0))
	if taken.Epoch != 2 {
		t.Errorf("the turn goes on under epoch %d, want 2", taken.Epoch)
	}
	refused(t, "finish under the old epoch", p.Finish(t.Context(), done(first, "late"), nil), agentbus.CodeLeaseLost)
	ok(t, "finish", p.Finish(t.Context(), done(taken, "in time"), nil))
}

func eventsAreDenseInEachExecution(p *place) {
	t := p.t
	var runs [3]agentbus.Execution
	for i := range runs {
		runs[i] = opened(t, p, agentbus.ExecutionID("run_"+strconv.Itoa(i)))
	}
	const n = 150
	together(len(runs), func(i int) {
		for k := range n {
			next := turn(runs[i], k)
			if _, err := p.Begin(t.Context(), []agentbus.Turn{next}); err != nil {
				t.Errorf("begin: %v", err)
			}
			if err := p.Finish(t.Context(), done(next, "x"), nil, happened(runs[i], "a"), happened(runs[i], "b")); err != nil {
				t.Errorf("finish: %v", err)
			}
		}
	})
	for _, e := range runs {
		all := collect(t, p.Events(t.Context(), e.ID, -1))
		for i, got := range all {
			same(t, "event", got, placed(e, i, happened(e, string(rune('a'+i%2)))))
		}
		same(t, "events", len(all), 2*n)
		same(t, "events after 100", collect(t, p.Events(t.Context(), e.ID, 100)), all[101:])
		same(t, "events after the last", collect(t, p.Events(t.Context(), e.ID, 2*n-1)), nil)
		for _, err := range p.Events(t.Context(), e.ID, -1) {
			ok(t, "read", err)
			break // a reader may stop
		}
	}
}

// held returns an event of e that is kept back.
func held(e agentbus.Execution, kind string, hold int) agentbus.Event {
	event := happened(e, kind)
	event.Hold = hold
	return event
}

func heldEventsWaitForTheirPosition(p *place) { // R20
	t := p.t
	e := opened(t, p, "run_a")
	write := func(n int, events ...agentbus.Event) {
		t.Helper()
		ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(e, n)), "x"), nil, events...))
	}
	var want []agentbus.Event
	expect := func(kinds ...string) {
		t.Helper()
		for _, kind := range kinds {
			want = append(want, placed(e, len(want), happened(e, kind)))
		}
		same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), want)
	}
	write(0, happened(e, "started"), held(e, "third", 3))
	expect("started")
	write(1, held(e, "first", 1))
	write(2, held(e, "first again", 1))
	expect()
	p.reopen() // it is durable with its turn
	write(3, held(e, "second", 2), happened(e, "joined"), happened(e, "after"), held(e, "left", 9))
	expect("first", "first again", "second", "third", "joined", "after")
	ok(t, "halt", p.Halt(t.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltAbort}, happened(e, "halted")))
	expect("left", "halted")
}

func severalTurnsCanBePending(p *place) { // R20
	t := p.t
	e := opened(t, p, "run_a")
	const n = 50
	together(n, func(i int) {
		if _, err := p.Begin(t.Context(), []agentbus.Turn{turn(e, n-1-i)}); err != nil {
			t.Errorf("begin: %v", err)
		}
	})
	want := turnsOf(t, p, e)
	same(t, "turns begun", len(want), n)
	want[3], want[40] = done(want[3], "x"), done(want[40], "y")
	want[7].State, want[7].Ended = agentbus.TurnCancelled, began
	next := turn(e, n)
	for _, i := range []int{40, 7} {
		ok(t, "finish", p.Finish(t.Context(), want[i], nil))
	}
	ok(t, "finish", p.Finish(t.Context(), want[3], &next))
	same(t, "turns", turnsOf(t, p, e), append(want, next))
}

func turnsOfALongRunComeByIndex(p *place) { // R4
	t := p.t
	e := opened(t, p, "run_a")
	const n = 300
	text := strings.Repeat("a longer answer ", 500)
	next := begin(t, p, turn(e, 0))
	for i := range n {
		finished := done(next, text)
		next = turn(e, i+1)
		ok(t, "finish", p.Finish(t.Context(), finished, &next))
	}
	all := turnsOf(t, p, e)
	same(t, "turns", len(all), n+1)
	for i, got := range all[:n] {
		if got.Index != i || got.Reply.Text != text {
			t.Fatalf("turn %d is number %d with %d bytes", i, got.Index, len(got.Reply.Text))
		}
	}
	for got, err := range p.Turns(t.Context(), e.ID) { // a reader may write while it reads
		ok(t, "read", err)
		if got.Index == 3 {
			break
		}
		ok(t, "check", p.Check(t.Context()))
	}
}

func turnsSurviveReopening(p *place) { // I2
	t := p.t
	e := opened(t, p, "run_a")
	next := turn(e, 1)
	ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(e, 0)), difficult), &next, happened(e, "x")))
	turns, events := turnsOf(t, p, e), collect(t, p.Events(t.Context(), e.ID, -1))
	p.reopen()
	same(t, "turns", turnsOf(t, p, e), turns)
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), events)
	same(t, "the lease", begin(t, p, next), next) // the epoch holds over a restart
}

func manyRunsAtOnceKeepTheirOwnTurns(p *place) { // R14
	t := p.t
	const runs, turns = 32, 10
	together(runs, func(i int) {
		id := agentbus.ExecutionID("run_" + strconv.Itoa(i))
		e, err := p.Open(t.Context(), execution(id), agentbus.Claim{Owner: "host:1", TTL: time.Hour})
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		next := turn(e, 0)
		if _, err := p.Begin(t.Context(), []agentbus.Turn{next}); err != nil {
			t.Errorf("begin: %v", err)
		}
		for n := range turns {
			finished := done(next, string(id))
			next = turn(e, n+1)
			if err := p.Finish(t.Context(), finished, &next, happened(e, "x")); err != nil {
				t.Errorf("finish: %v", err)
			}
		}
	})
	for i := range runs {
		e := execution(agentbus.ExecutionID("run_" + strconv.Itoa(i)))
		all := turnsOf(t, p, e)
		if len(all) != turns+1 || all[turns-1].Reply.Text != string(e.ID) || all[turns].State != agentbus.TurnPending {
			t.Errorf("run %d has %d turns", i, len(all))
		}
	}
}
