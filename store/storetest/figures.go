package storetest

import (
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

var figures = map[string]func(*place){
	"ActionsAreKeptNewestFirst":        actionsAreKeptNewestFirst,
	"ADrainedAgentStaysDrained":        aDrainedAgentStaysDrained,
	"TheNewestCallsComeFirst":          theNewestCallsComeFirst,
	"SpendingIsWhatTheEntriesComeTo":   spendingIsWhatTheEntriesComeTo,
	"WhatUnfinishedCallsHoldIsCounted": whatUnfinishedCallsHoldIsCounted,
}

func actionsAreKeptNewestFirst(p *place) { // U5
	t := p.t
	for i := range 5 {
		a := agentbus.Action{At: began, By: difficult, Kind: "run.stop", Object: "run_" + strconv.Itoa(i), Run: agentbus.RunID("run_" + strconv.Itoa(i)), Detail: difficult, Code: agentbus.CodeNotFound, RequestID: "req_1"}
		if i > 2 {
			a = agentbus.Action{At: began.Add(time.Hour), By: "ops", Kind: "agent.drain", Object: "critic"}
		}
		ok(t, "record", p.RecordAction(t.Context(), a))
	}
	p.reopen()
	read := func(q agentbus.ActionQuery) []agentbus.Action {
		all, err := p.Actions(t.Context(), q)
		ok(t, "actions", err)
		return all
	}
	all := read(agentbus.ActionQuery{Limit: 10})
	if len(all) != 5 {
		t.Fatalf("%d actions, want 5: %+v", len(all), all)
	}
	for i := range all[1:] {
		if all[i+1].ID >= all[i].ID {
			t.Errorf("action %d comes before %d", all[i].ID, all[i+1].ID)
		}
	}
	same(t, "the oldest", all[4], agentbus.Action{
		ID: all[4].ID, At: began, By: difficult, Kind: "run.stop", Object: "run_0", Run: "run_0", Detail: difficult, Code: agentbus.CodeNotFound, RequestID: "req_1",
	})
	same(t, "of an object", read(agentbus.ActionQuery{Object: "critic", Limit: 10}), all[:2])
	same(t, "of a run", read(agentbus.ActionQuery{Run: "run_1", Limit: 10}), all[3:4])
	same(t, "the next page", read(agentbus.ActionQuery{Before: all[1].ID, Limit: 2}), all[2:4])
}

func aDrainedAgentStaysDrained(p *place) { // U14
	t := p.t
	first := agentbus.Drained{Agent: "critic", By: "ops", At: began}
	ok(t, "drain", p.Drain(t.Context(), first, true))
	ok(t, "drain again", p.Drain(t.Context(), agentbus.Drained{Agent: "critic", By: "other", At: began.Add(time.Hour)}, true))
	ok(t, "drain another", p.Drain(t.Context(), agentbus.Drained{Agent: difficult, By: difficult, At: began}, true))
	ok(t, "enable another", p.Drain(t.Context(), agentbus.Drained{Agent: difficult}, false))
	p.reopen()
	all, err := p.DrainedAgents(t.Context())
	ok(t, "drained agents", err)
	same(t, "drained agents", all, []agentbus.Drained{first})
}

func theNewestCallsComeFirst(p *place) { // U12
	t := p.t
	for i := range 4 {
		r := reservation(agentbus.RunID("run_"+strconv.Itoa(i)), 1)
		r.Call.Began = began.Add(time.Duration(i) * time.Minute)
		reserve(t, p, r)
	}
	key, c := refusedCall(9)
	c.Began = began.Add(time.Hour)
	ok(t, "record", p.Record(t.Context(), key, c))
	runs := func(since time.Time, limit int) (of []agentbus.RunID) {
		calls, err := p.NewestCalls(t.Context(), since, limit)
		ok(t, "newest calls", err)
		for i := range calls {
			of = append(of, calls[i].Run)
		}
		return of
	}
	same(t, "all", runs(time.Time{}, 10), []agentbus.RunID{c.Run, "run_3", "run_2", "run_1", "run_0"})
	same(t, "three", runs(time.Time{}, 3), []agentbus.RunID{c.Run, "run_3", "run_2"})
	same(t, "since", runs(began.Add(2*time.Minute), 10), []agentbus.RunID{c.Run, "run_3", "run_2"})
	same(t, "since later", runs(began.Add(2*time.Hour), 10), nil)
}

func spendingIsWhatTheEntriesComeTo(p *place) { // U13
	t := p.t
	for i := range 4 {
		r := reservation(agentbus.RunID("run_"+strconv.Itoa(i%2)), i)
		if r.Call.Agent = "critic"; i == 3 {
			r.Call.Agent = "writer"
		}
		c := reserve(t, p, r)
		s := settlement(c, "x")
		s.Cost, s.Unbilled, s.Ended = agentbus.Micros(100*(i+1)), 1, began.UTC().Add(time.Duration(i)*24*time.Hour)
		if i < 3 {
			ok(t, "settle", p.Settle(t.Context(), s))
			continue
		}
		ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: c.ID, Attempt: c.Attempts, Unbilled: 5, Ended: s.Ended}))
	}
	read := func(q agentbus.SpendingQuery) []agentbus.Spending {
		if q.Payer = zoe; q.Limit == 0 {
			q.Limit = 10
		}
		all, err := p.Spending(t.Context(), q)
		ok(t, "spending", err)
		return all
	}
	same(t, "by agent", read(agentbus.SpendingQuery{By: agentbus.SpendingByAgent}), []agentbus.Spending{
		{Of: "critic", Calls: 3, Charged: 600, Unbilled: 3}, {Of: "writer", Voids: 1, Unbilled: 5},
	})
	same(t, "by run", read(agentbus.SpendingQuery{By: agentbus.SpendingByRun}), []agentbus.Spending{
		{Of: "run_0", Calls: 2, Charged: 400, Unbilled: 2}, {Of: "run_1", Calls: 1, Voids: 1, Charged: 200, Unbilled: 6},
	})
	same(t, "by day", read(agentbus.SpendingQuery{By: agentbus.SpendingByDay, After: 1, Limit: 2}), []agentbus.Spending{
		{Of: "2026-03-17", Voids: 1, Unbilled: 5}, {Of: "2026-03-16", Calls: 1, Charged: 300, Unbilled: 1},
	})
	charged, n, err := p.Spent(t.Context(), zoe, began.Add(36*time.Hour), 100)
	ok(t, "spent", err)
	same(t, "spent lately", charged, 300)
	same(t, "entries", n, 2)
}

func whatUnfinishedCallsHoldIsCounted(p *place) { // U13
	t := p.t
	r := reservation("run_a", 1)
	r.Hold = agentbus.Hold{Amount: 700, Budgets: []agentbus.Budget{{Account: "payer/x/day", Limit: 1_000, Strict: true}}}
	held, free := reserve(t, p, r), reserve(t, p, reservation("run_a", 2))
	got, err := p.Holds(t.Context(), []int64{held.ID, free.ID, 999})
	ok(t, "holds", err)
	same(t, "held", got, map[int64]agentbus.Micros{held.ID: 700})
	_, err = p.Replicas(t.Context())
	ok(t, "replicas", err)
}
