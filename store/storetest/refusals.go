package storetest

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

var refusals = map[string]func(*place){
	"ARepeatedRefusalIsOneRecord":       aRepeatedRefusalIsOneRecord,
	"RefusalsAreStoredAsTheyCame":       refusalsAreStoredAsTheyCame,
	"RepeatsAreCountedByManyAtOnce":     repeatsAreCountedByManyAtOnce,
	"ARefusalDoesNotTakeTheKeyOfACall":  aRefusalDoesNotTakeTheKeyOfACall,
	"ARefusalOfNoRunIsCounted":          aRefusalOfNoRunIsCounted,
	"WhatWasRecordedBeforeCloseIsKept":  whatWasRecordedBeforeCloseIsKept,
	"AWriteOfACallerWhoLeftIsCommitted": aWriteOfACallerWhoLeftIsCommitted,
	"AClosedStoreIsUnavailable":         aClosedStoreIsUnavailable,
}

// refusedCall returns a refused hop.
func refusedCall(n int) (agentbus.Digest, agentbus.CallRecord) {
	r := reservation("run_a", n)
	c := r.Call
	c.State, c.Status, c.Code, c.Message, c.Ended = agentbus.CallRefused, 429, agentbus.CodeDepthExceeded, difficult, began.Add(time.Second)
	return r.Key, c
}

func aRepeatedRefusalIsOneRecord(p *place) { // P12
	t := p.t
	key, c := refusedCall(4)
	ok(t, "record", p.Record(t.Context(), key, c))
	want := oneCall(t, p) // reading puts a commit between the two
	c.ID = want.ID
	same(t, "recorded", want, c)
	for i := range 5 {
		c.Ended = began.Add(time.Duration(i) * time.Minute)
		ok(t, "record", p.Record(t.Context(), key, c))
	}
	want.Repeats, want.Ended = 5, c.Ended
	same(t, "repeated", oneCall(t, p), want)
}

func refusalsAreStoredAsTheyCame(p *place) { // the order of ids is that of Calls
	t := p.t
	const n = 20
	for i := range n {
		key, c := refusedCall(i)
		c.Began = began.Add(time.Duration(i) * time.Millisecond)
		ok(t, "record", p.Record(t.Context(), key, c))
	}
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	same(t, "calls", len(calls), n)
	for i, c := range calls {
		same(t, "turn", c.TurnKey.ID, agentbus.RunID("run_a").Turn(i, "critic"))
	}
}

func repeatsAreCountedByManyAtOnce(p *place) { // P12
	t := p.t
	const callers, each, keys = 16, 500, 10
	together(callers, func(int) {
		for i := range each {
			key, c := refusedCall(i % keys)
			if err := p.Record(t.Context(), key, c); err != nil {
				t.Errorf("record: %v", err)
			}
		}
	})
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	total := 0
	for _, c := range calls {
		total += 1 + c.Repeats
	}
	if len(calls) != keys || total != callers*each {
		t.Errorf("%d records count %d refusals, want %d and %d", len(calls), total, keys, callers*each)
	}
	sums, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	ok(t, "summaries", err)
	if len(sums) != 1 || sums[0].Refusals != callers*each || sums[0].Calls != 0 || sums[0].Cost != 0 {
		t.Errorf("summaries: %+v", sums)
	}
}

func aRefusalDoesNotTakeTheKeyOfACall(p *place) { // P12, G20
	t := p.t
	key, c := refusedCall(0)
	ok(t, "record", p.Record(t.Context(), key, c))
	ok(t, "check", p.Check(t.Context()))
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	ok(t, "settle", p.Settle(t.Context(), settlement(call, "x")))
	ok(t, "record", p.Record(t.Context(), key, c))
	expectOutcome(t, p, r, agentbus.OutcomeSettled)
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	if len(calls) != 2 || calls[0].Repeats != 1 || calls[1].State != agentbus.CallSettled {
		t.Errorf("calls: %+v", calls)
	}
}

// Refusals that have no record of their own are counted in one of no run.
func aRefusalOfNoRunIsCounted(p *place) { // G2
	t := p.t
	for i := range 3 {
		_, c := refusedCall(0)
		c.Ended = began.Add(time.Duration(i) * time.Minute)
		c = agentbus.CallRecord{TurnKey: agentbus.TurnKey{Payer: c.Payer, Agent: c.Agent}, State: c.State, Status: c.Status, Code: c.Code, Began: c.Began, Ended: c.Ended}
		ok(t, "record", p.Record(t.Context(), c.Hash("tally"), c))
	}
	calls, err := p.Calls(t.Context(), "")
	ok(t, "calls", err)
	if len(calls) != 1 || calls[0].Repeats != 2 || !calls[0].Ended.Equal(began.Add(2*time.Minute)) {
		t.Errorf("calls of no run: %+v", calls)
	}
	balances, err := p.Balances(t.Context(), "")
	ok(t, "balances", err)
	if len(balances) != 1 || balances[0].Refusals != 3 {
		t.Errorf("balances: %+v", balances)
	}
	sums, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	ok(t, "summaries", err)
	same(t, "runs", len(sums), 0)
}

func whatWasRecordedBeforeCloseIsKept(p *place) {
	t := p.t
	for n := range 50 {
		key, c := refusedCall(n)
		ok(t, "record", p.Record(t.Context(), key, c))
	}
	p.reopen()
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	if len(calls) != 50 {
		t.Errorf("%d of 50 refusals are kept", len(calls))
	}
}

func aWriteOfACallerWhoLeftIsCommitted(p *place) {
	t := p.t
	const n = 200
	var left atomic.Int32
	together(n, func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel() // at about the time the reservation is queued
		if _, err := p.Reserve(ctx, reservation(agentbus.RunID("run_"+strconv.Itoa(i)), 0)); err != nil {
			left.Add(1)
			if agentbus.CodeOf(err) == agentbus.CodeStoreUnavailable || ctx.Err() == nil {
				t.Errorf("a caller who left got %v", err)
			}
		}
	})
	stored := 0
	for i := range n {
		calls, err := p.Calls(t.Context(), agentbus.RunID("run_"+strconv.Itoa(i)))
		ok(t, "calls", err)
		stored += len(calls)
	}
	if stored < n-int(left.Load()) {
		t.Errorf("%d reservations were acknowledged, %d are stored", n-int(left.Load()), stored)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Check(gone); err == nil || agentbus.CodeOf(err) == agentbus.CodeStoreUnavailable {
		t.Logf("a context that had ended before: %v", err) // either is right: queued, or not
	}
}

func aClosedStoreIsUnavailable(p *place) {
	t := p.t
	closed := p.Store
	p.reopen()
	ok(t, "close again", closed.Close())
	_, err := closed.Reserve(t.Context(), reservation("run_a", 0))
	refused(t, "reserve", err, agentbus.CodeStoreUnavailable)
	key, c := refusedCall(0)
	refused(t, "record", closed.Record(t.Context(), key, c), agentbus.CodeStoreUnavailable)
	_, err = closed.Keys(t.Context())
	refused(t, "keys", err, agentbus.CodeStoreUnavailable)
}
