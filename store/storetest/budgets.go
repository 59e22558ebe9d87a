package storetest

import (
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

var budgets = map[string]func(*place){
	"ACallHoldsOfItsBudgetsUntilItEnds":    aCallHoldsOfItsBudgetsUntilItEnds,
	"TheFirstBudgetThatIsShortIsNamed":     theFirstBudgetThatIsShortIsNamed,
	"ADuplicateNeedsNoBudget":              aDuplicateNeedsNoBudget,
	"AnotherAttemptHoldsOnce":              anotherAttemptHoldsOnce,
	"AnotherAttemptFitsOrIsRefused":        anotherAttemptFitsOrIsRefused,
	"StrictBudgetsAreNeverOvershot":        strictBudgetsAreNeverOvershot,
	"CallsAndAgeAreBounded":                callsAndAgeAreBounded,
	"WhatTheDeadHeldIsReleased":            whatTheDeadHeldIsReleased,
	"BudgetsSurviveReopening":              budgetsSurviveReopening,
	"TwoBoundsOfOneAccountHoldOnce":        twoBoundsOfOneAccountHoldOnce,
	"WhoWasTakenForDeadPaysWhatItSettles":  whoWasTakenForDeadPaysWhatItSettles,
	"ACallWithoutBudgetsIsNeverShort":      aCallWithoutBudgetsIsNeverShort,
	"AVoidedAttemptLeavesItsBudgetAsItWas": aVoidedAttemptLeavesItsBudgetAsItWas,
	"WhatBudgetsCountIsRecomputed":         whatBudgetsCountIsRecomputed,
}

// strict bounds an account, and never overshoots.
func strict(account string, limit agentbus.Micros) agentbus.Budget {
	return agentbus.Budget{Account: account, Limit: limit, Strict: true}
}

// holding is the n-th turn of run_a with what its call holds.
func holding(n int, amount agentbus.Micros, from ...agentbus.Budget) agentbus.Reservation {
	r := reservation("run_a", n)
	r.Hold = agentbus.Hold{Amount: amount, Budgets: from}
	return r
}

// settleFor settles the call of r at a cost.
func (p *place) settleFor(call agentbus.CallRecord, r agentbus.Reservation, cost agentbus.Micros) {
	p.t.Helper()
	s := settlement(call, "x")
	s.Cost, s.Hold = cost, r.Hold
	ok(p.t, "settle", p.Settle(p.t.Context(), s))
}

// voidFor voids the call of r.
func (p *place) voidFor(call agentbus.CallRecord, r agentbus.Reservation) {
	p.t.Helper()
	ok(p.t, "void", p.Void(p.t.Context(), agentbus.Voiding{ID: call.ID, Attempt: call.Attempts, Unbilled: 1, Hold: r.Hold}))
}

// state fails the test unless account is in a state.
func (p *place) state(account string, held, spent agentbus.Micros, calls int64) {
	p.t.Helper()
	got, err := p.BudgetStates(p.t.Context(), []string{account})
	ok(p.t, "budget states", err)
	want := agentbus.BudgetState{Account: account, Held: held, Spent: spent, Calls: calls}
	if len(got) == 1 && !got[0].Opened.IsZero() {
		want.Opened = began
	}
	same(p.t, "the budget", got, []agentbus.BudgetState{want})
}

// short fails the test unless r is refused for want of budget.
func (p *place) short(r agentbus.Reservation) agentbus.Shortage {
	p.t.Helper()
	got := expectOutcome(p.t, p, r, agentbus.OutcomeShort)
	if got.Short == nil || got.Reply != nil {
		p.t.Fatalf("a shortage without a word: %+v", got)
	}
	return *got.Short
}

func aCallHoldsOfItsBudgetsUntilItEnds(p *place) { // G27
	t := p.t
	p.state("run", 0, 0, 0)
	r := holding(0, 300, strict("run", 1000), strict("payer/"+difficult, 5000))
	call := reserve(t, p, r)
	p.state("run", 300, 0, 1)
	p.state("payer/"+difficult, 300, 0, 1)
	p.settleFor(call, r, 120)
	p.state("run", 0, 120, 1)
	p.state("payer/"+difficult, 0, 120, 1)
	second := holding(1, 300, strict("run", 1000))
	second.Call.Began = began.Add(time.Hour)
	p.settleFor(reserve(t, p, second), second, 0)
	p.state("run", 0, 120, 2) // opened by the first
	states, err := p.BudgetStates(t.Context(), []string{"none", "run"})
	ok(t, "states", err)
	same(t, "in the order asked", states[0], agentbus.BudgetState{Account: "none"})
	same(t, "in the order asked", states[1].Spent, 120)
}

func aVoidedAttemptLeavesItsBudgetAsItWas(p *place) { // G20, G27
	t := p.t
	r := holding(0, 300, strict("run", 300))
	p.voidFor(reserve(t, p, r), r)
	p.state("run", 0, 0, 0)
	p.settleFor(reserve(t, p, r), r, 300)
	p.state("run", 0, 300, 1)
}

func theFirstBudgetThatIsShortIsNamed(p *place) { // G27
	t := p.t
	wide, narrow, none := strict("wide", 10_000), strict("narrow", 500), strict("none", 0)
	first := holding(0, 400, wide, narrow)
	call := reserve(t, p, first)
	got := p.short(holding(1, 200, wide, narrow, none))
	same(t, "shortage", got, agentbus.Shortage{
		Budget: narrow, Passing: true,
		State: agentbus.BudgetState{Account: "narrow", Held: 400, Calls: 1, Opened: began},
	})
	same(t, "the order decides", p.short(holding(1, 200, none, narrow)).Budget, none)
	p.state("wide", 400, 0, 1) // nothing was taken
	oneCall(t, p)              // and nothing reserved
	p.settleFor(call, first, 400)
	if got := p.short(holding(1, 200, narrow)); got.Passing {
		t.Errorf("what is spent does not pass: %+v", got)
	}
	reserve(t, p, holding(1, 100, narrow))
}

func aDuplicateNeedsNoBudget(p *place) { // G22, G23
	t := p.t
	r := holding(0, 500, strict("run", 500))
	call := reserve(t, p, r)
	expectOutcome(t, p, r, agentbus.OutcomeInFlight)
	p.settleFor(call, r, 500)
	expectOutcome(t, p, r, agentbus.OutcomeSettled)
	r.Call.Digest = agentbus.Digest{9}
	expectOutcome(t, p, r, agentbus.OutcomeMismatch)
	p.state("run", 0, 500, 1)
}

func anotherAttemptHoldsOnce(p *place) { // G24, G27
	t := p.t
	r := holding(0, 300, strict("run", 500))
	reserve(t, p, r)
	r.TakeOver, r.Call.Owner = "host:1", "host:2"
	r.Hold = agentbus.Hold{Amount: 450, Budgets: []agentbus.Budget{strict("run", 500), strict("caller", 500)}}
	call := reserve(t, p, r)
	p.state("run", 450, 0, 1)
	p.state("caller", 450, 0, 1)
	p.settleFor(call, r, 450)
	p.state("run", 0, 450, 1)
}

func anotherAttemptFitsOrIsRefused(p *place) { // G24, G27
	t := p.t
	r := holding(0, 300, strict("run", 500))
	old := reserve(t, p, r)
	r.TakeOver, r.Call.Owner, r.Hold.Amount = "host:1", "host:2", 501
	if got := p.short(r); got.State.Held != 0 || got.Passing {
		t.Errorf("the dead attempt's own hold is in its way: %+v", got)
	}
	p.state("run", 300, 0, 1)
	same(t, "the call", oneCall(t, p), old)
	p.voidFor(old, r)
	if got := p.short(r); got.Passing {
		t.Errorf("shortage: %+v", got)
	}
	r.Hold.Amount = 500
	reserve(t, p, r)
	p.state("run", 500, 0, 1)
}

func strictBudgetsAreNeverOvershot(p *place) { // I5
	t := p.t
	const limit, amount = 1000, 90
	var executed, shorts, spent atomic.Int64
	together(48, func(i int) {
		r := holding(i, amount, strict("run", limit), agentbus.Budget{Account: "soft", Limit: 500})
		got, err := p.Reserve(t.Context(), r)
		switch {
		case err != nil:
			t.Errorf("reserve: %v", err)
		case got.Outcome == agentbus.OutcomeShort:
			shorts.Add(1)
		case got.Outcome == agentbus.OutcomeExecute:
			executed.Add(1)
			s := settlement(got.Call, "x")
			s.Cost, s.Hold = agentbus.Micros(amount-i%7), r.Hold
			spent.Add(int64(s.Cost))
			if err := p.Settle(t.Context(), s); err != nil {
				t.Errorf("settle: %v", err)
			}
		}
	})
	states, err := p.BudgetStates(t.Context(), []string{"run", "soft"})
	ok(t, "states", err)
	for _, s := range states {
		if int64(s.Spent) != spent.Load() || s.Held != 0 || s.Calls != executed.Load() || s.Spent > limit {
			t.Errorf("%d calls spent %d, %d were refused: %+v", executed.Load(), spent.Load(), shorts.Load(), s)
		}
	}
}

func callsAndAgeAreBounded(p *place) { // G27
	t := p.t
	turns := agentbus.Budget{Account: "turns", Limit: 1, Calls: 2}
	hour := agentbus.Budget{Account: "hour", Limit: 1, MaxAge: time.Hour}
	for n := range 2 {
		r := holding(n, 0, turns, hour)
		p.settleFor(reserve(t, p, r), r, 0)
	}
	same(t, "turns", p.short(holding(2, 0, hour, turns)).Budget.Account, "turns")
	late := holding(2, 0, hour)
	late.Call.Began = began.Add(time.Hour)
	reserve(t, p, late)
	later := holding(3, 0, hour)
	later.Call.Began = began.Add(time.Hour + time.Second)
	same(t, "age", p.short(later).Budget.Account, "hour")
}

func whatTheDeadHeldIsReleased(p *place) { // G24, G27
	t := p.t
	dead, living := holding(0, 300, strict("run", 1000)), holding(1, 200, strict("run", 1000))
	living.Call.Owner = "host:2"
	old := reserve(t, p, dead)
	reserve(t, p, living)
	reserve(t, p, reservation("run_b", 0)) // holds nothing
	alive := func(owner string) bool { return owner == "host:2" }
	for _, want := range []int{1, 0} {
		n, err := p.ReleaseDead(t.Context(), alive)
		ok(t, "release", err)
		same(t, "released", n, want)
	}
	p.state("run", 200, 0, 1)
	expectOutcome(t, p, dead, agentbus.OutcomeInFlight) // it stays executing
	dead.TakeOver = "host:1"
	if call := reserve(t, p, dead); call.ID != old.ID || call.Attempts != 2 {
		t.Errorf("taken over: %+v", call)
	}
	p.state("run", 500, 0, 2)
	unfinished, err := p.Unfinished(t.Context())
	ok(t, "unfinished", err)
	same(t, "unfinished calls", len(unfinished), 3)
	same(t, "the first", unfinished[0].Attempts, 2)
}

func whoWasTakenForDeadPaysWhatItSettles(p *place) { // G27
	t := p.t
	r := holding(0, 300, strict("run", 1000))
	call := reserve(t, p, r)
	n, err := p.ReleaseDead(t.Context(), func(string) bool { return false })
	ok(t, "release", err)
	same(t, "released", n, 1)
	p.state("run", 0, 0, 0)
	p.settleFor(call, r, 250)
	p.state("run", 0, 250, 1)
}

func whatBudgetsCountIsRecomputed(p *place) { // G27, G28
	t := p.t
	both := []agentbus.Budget{strict("run", 5000), strict("payer/"+difficult, 5000), {Account: "run", Limit: 5000, Calls: 9}}
	settled, voided, dead, flying := holding(0, 300, both...), holding(1, 300, both...), holding(2, 300, both...), holding(3, 300, both...)
	p.settleFor(reserve(t, p, settled), settled, 120)
	p.voidFor(reserve(t, p, voided), voided)
	call := reserve(t, p, dead)
	_, err := p.ReleaseDead(t.Context(), func(string) bool { return false })
	ok(t, "release", err)
	p.verify()
	p.settleFor(call, dead, 30)
	call = reserve(t, p, flying)
	p.verify()
	p.reopen()
	p.verify()
	p.settleFor(call, flying, 0)
	p.state("run", 0, 150, 3)
	same(t, "verdict", p.verify(), agentbus.LedgerVerdict{Payers: 1, Entries: 4, Charged: 150})
}

func budgetsSurviveReopening(p *place) { // I2
	t := p.t
	first, second := holding(0, 300, strict("run", 1000)), holding(1, 200, strict("run", 1000))
	p.settleFor(reserve(t, p, first), first, 100)
	call := reserve(t, p, second)
	p.reopen()
	p.state("run", 200, 100, 2)
	p.settleFor(call, second, 200)
	p.state("run", 0, 300, 2)
}

func twoBoundsOfOneAccountHoldOnce(p *place) { // G27
	t := p.t
	turns := agentbus.Budget{Account: "run", Limit: 1000, Calls: 5}
	r := holding(0, 300, strict("run", 1000), turns)
	call := reserve(t, p, r)
	p.state("run", 300, 0, 1)
	p.settleFor(call, r, 300)
	p.state("run", 0, 300, 1)
}

func aCallWithoutBudgetsIsNeverShort(p *place) { // G27
	t := p.t
	r := reservation("run_a", 0)
	r.Hold.Amount = 1 << 40 // of nothing
	p.settleFor(reserve(t, p, r), r, 1<<40)
	balances, err := p.Balances(t.Context(), "")
	ok(t, "balances", err)
	same(t, "held", balances[0].Held, 0)
}
