package storetest

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

var keys = map[string]func(*place){
	"AKeyIsFoundByItsHashUntilRevoked": aKeyIsFoundByItsHashUntilRevoked,
	"KeysOfAPrincipalAreRevokedAtOnce": keysOfAPrincipalAreRevokedAtOnce,
}

var reads = map[string]func(*place){
	"RunsAreChosenByHowTheyStand":          runsAreChosenByHowTheyStand,
	"RunsAreSortedByTheirFigures":          runsAreSortedByTheirFigures,
	"AnUnknownRunIsEmpty":                  anUnknownRunIsEmpty,
	"RunsAreListedNewestFirst":             runsAreListedNewestFirst,
	"ASummaryPutsJournalAndLedgerTogether": aSummaryPutsJournalAndLedgerTogether,
	"ExecutionsOfARunComeTopLevelFirst":    executionsOfARunComeTopLevelFirst,
	"RunsAreFilteredByWhoTookPart":         runsAreFilteredByWhoTookPart,
	"ARunIsReadWhole":                      aRunIsReadWhole,
}

func aKeyIsFoundByItsHashUntilRevoked(p *place) { // G4
	t := p.t
	want := agentbus.APIKey{
		Handle: "ab_1234", Hash: agentbus.Digest{1}, Created: began,
		Principal: agentbus.Principal{ID: "service:" + difficult, Role: agentbus.PrincipalAdmin, InterAgent: true},
	}
	want.Principal.Grants = &agentbus.Grants{Agents: []string{"critic", difficult}, NoRunIDs: true, PerSecond: 0.5, Burst: 3}
	ok(t, "create", p.CreateKey(t.Context(), want))
	refused(t, "create twice", p.CreateKey(t.Context(), want), agentbus.CodeInvalidRequest)
	p.reopen()
	got, found, err := p.KeyByHash(t.Context(), want.Hash)
	ok(t, "look up", err)
	if same(t, "key", got, want); !found {
		t.Errorf("the key is not found")
	}
	if _, found, err := p.KeyByHash(t.Context(), agentbus.Digest{2}); err != nil || found {
		t.Errorf("an unknown key: %v, %v", found, err)
	}
	for _, want := range []int{1, 0} {
		n, err := p.RevokeKey(t.Context(), "ab_1234")
		ok(t, "revoke", err)
		same(t, "revoked", n, want)
	}
	if got, found, err := p.KeyByHash(t.Context(), want.Hash); err != nil || found || got != (agentbus.APIKey{}) {
		t.Errorf("a revoked key: %v, %v, %v", got, found, err)
	}
	all, err := p.Keys(t.Context())
	ok(t, "keys", err)
	if len(all) != 1 || all[0].Revoked.IsZero() {
		t.Errorf("keys: %+v", all)
	}
}

func keysOfAPrincipalAreRevokedAtOnce(p *place) { // G4
	t := p.t
	for i := range 3 {
		k := agentbus.APIKey{
			Handle: "ab_" + strconv.Itoa(i), Hash: agentbus.Digest{byte(i)}, Created: began.Add(time.Duration(-i)),
			Principal: agentbus.Principal{ID: "alice", Role: agentbus.PrincipalUser},
		}
		if i == 2 {
			k.Principal.ID, k.Created = "bob", began.Add(-time.Hour)
		}
		ok(t, "create", p.CreateKey(t.Context(), k))
	}
	n, err := p.RevokeKey(t.Context(), "alice")
	ok(t, "revoke", err)
	same(t, "revoked", n, 2)
	all, err := p.Keys(t.Context())
	ok(t, "keys", err)
	if len(all) != 3 || all[0].Principal.ID != "bob" || !all[0].Revoked.IsZero() {
		t.Errorf("keys, oldest first: %+v", all)
	}
}

func anUnknownRunIsEmpty(p *place) {
	t := p.t
	calls, err := p.Calls(t.Context(), "run_x")
	if err != nil || len(calls) != 0 {
		t.Errorf("calls: %v, %v", calls, err)
	}
	loops, err := p.Executions(t.Context(), "run_x")
	if err != nil || len(loops) != 0 {
		t.Errorf("executions: %v, %v", loops, err)
	}
	sums, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	if err != nil || len(sums) != 0 {
		t.Errorf("summaries: %v, %v", sums, err)
	}
	if sum, found, err := p.RunSummary(t.Context(), "run_x"); err != nil || found {
		t.Errorf("summary: %v, %v, %v", sum, found, err)
	}
	if sums, err = p.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "run_x"); err != nil || len(sums) != 0 {
		t.Errorf("summaries before an unknown run: %v, %v", sums, err)
	}
}

func runsAreListedNewestFirst(p *place) {
	t := p.t
	const n = 12
	for i := range n { // a third in the journal only, a third in the ledger only, a third in both
		id := "run_" + strconv.Itoa(i%4) + strconv.Itoa(i)
		at := began.Add(time.Duration(i/2) * time.Minute) // two at a time
		e, r := execution(agentbus.ExecutionID(id)), reservation(agentbus.RunID(id), 1)
		e.Began, r.Call.Began = at, at
		if i%3 == 2 { // the call comes after the execution, or before it
			r.Call.Began = at.Add(time.Hour)
			if i%2 == 1 {
				e.Began, r.Call.Began = r.Call.Began, e.Began
			}
		}
		if i%3 != 0 {
			_, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
			ok(t, "open", err)
			nested := execution(agentbus.ExecutionID(id + "_nested"))
			nested.Run, nested.Parent, nested.Began = e.Run, "x", e.Began.Add(time.Minute)
			_, err = p.Open(t.Context(), nested, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
			ok(t, "open", err)
		}
		if i%3 != 1 {
			reserve(t, p, r)
			r2 := reservation(agentbus.RunID(id), 2)
			r2.Call.Began = at.Add(time.Hour * 24)
			reserve(t, p, r2)
		}
	}
	whole, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 100, "")
	ok(t, "summaries", err)
	same(t, "runs", len(whole), n)
	seen := map[agentbus.RunID]bool{}
	for i, s := range whole {
		seen[s.Run] = true
		if i > 0 && s.Began.After(whole[i-1].Began) {
			t.Errorf("%s began %v, after %s before it", s.Run, s.Began, whole[i-1].Run)
		}
	}
	same(t, "distinct runs", len(seen), n)
	var pages []agentbus.RunSummary
	for before := agentbus.RunID(""); ; {
		page, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 5, before)
		ok(t, "summaries", err)
		if len(page) == 0 {
			break
		}
		pages = append(pages, page...)
		before = page[len(page)-1].Run
	}
	same(t, "by pages", pages, whole)
	for _, want := range whole {
		got, found, err := p.RunSummary(t.Context(), want.Run)
		if ok(t, "summary", err); !found {
			t.Errorf("%s is not found", want.Run)
		}
		same(t, "summary of one", got, want)
	}
}

func aSummaryPutsJournalAndLedgerTogether(p *place) { // G26
	t := p.t
	e := opened(t, p, "run_a")
	ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(e, 0)), "x"), nil))
	call := reserve(t, p, reservation("run_a", 0))
	ok(t, "settle", p.Settle(t.Context(), settlement(call, "x")))
	expectOutcome(t, p, reservation("run_a", 0), agentbus.OutcomeSettled)
	deep := reservation("run_a", 1)
	deep.Call.Depth = 3
	reserve(t, p, deep)
	key, c := refusedCall(2)
	c.Depth, c.Ended = 4, began.Add(time.Hour)
	ok(t, "record", p.Record(t.Context(), key, c))
	ok(t, "record", p.Record(t.Context(), key, c))
	key, c = refusedCall(3)
	c.State = agentbus.CallPassed
	ok(t, "record", p.Record(t.Context(), key, c))
	_, err := p.Calls(t.Context(), "run_a") // behind everything recorded
	ok(t, "calls", err)
	halt := agentbus.Halt{Kind: agentbus.HaltBudget, Spent: 3, Limit: 2}
	ok(t, "halt", p.Halt(t.Context(), e.Lease, halt))
	got, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	ok(t, "summaries", err)
	same(t, "summaries", got, []agentbus.RunSummary{{
		Run: "run_a", State: agentbus.RunPaused, Conversation: "review", Halt: &halt, Payer: "user:zoë",
		Turns: 1, Calls: 2, Replays: 1, Refusals: 2, MaxDepth: 4, Cost: 4_000, Began: began, Last: began.Add(time.Hour),
		Agent: "critic", First: agentbus.CallSettled, Live: 1, Saved: 4_000, Usage: agentbus.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 7, Estimated: true},
	}})
}

func executionsOfARunComeTopLevelFirst(p *place) {
	t := p.t
	for i, id := range []agentbus.ExecutionID{"run_3", "run_2", "run_a"} {
		e := execution(id)
		e.Run, e.Began = "run_a", began.Add(-time.Duration(i)*time.Minute)
		if id != "run_a" {
			e.Parent = "run_a.t0.root"
		} else {
			e.Began = began.Add(time.Hour)
		}
		_, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
		ok(t, "open", err)
	}
	all, err := p.Executions(t.Context(), "run_a")
	ok(t, "executions", err)
	var ids []agentbus.ExecutionID
	for _, e := range all {
		ids = append(ids, e.ID)
		same(t, "execution", e, stored(t, p, e.ID))
	}
	same(t, "order", ids, []agentbus.ExecutionID{"run_a", "run_2", "run_3"})
}

func runsAreFilteredByWhoTookPart(p *place) { // U10
	t := p.t
	for i, run := range []agentbus.RunID{"run_a", "run_b"} {
		r := reservation(run, 1)
		r.Call.Began = began.Add(time.Duration(i) * time.Second)
		if run == "run_b" {
			r.Call.Payer, r.Call.Agent, r.Call.Speaker = "user:bob", "writer", agentbus.Speaker(difficult)
			r.Key = r.Call.Hash()
		}
		reserve(t, p, r)
	}
	e := execution("run_c")
	e.Payer, e.Began = "user:bob", began.Add(time.Hour)
	_, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	ok(t, "open", err)
	for _, want := range []struct {
		f    agentbus.RunFilter
		runs []agentbus.RunID
	}{
		{agentbus.RunFilter{}, []agentbus.RunID{"run_c", "run_b", "run_a"}},
		{agentbus.RunFilter{Payer: "user:bob"}, []agentbus.RunID{"run_c", "run_b"}},
		{agentbus.RunFilter{Payer: "user:bob", Agent: "writer"}, []agentbus.RunID{"run_b"}},
		{agentbus.RunFilter{Agent: "critic"}, []agentbus.RunID{"run_a"}},
		{agentbus.RunFilter{Speaker: agentbus.Speaker(difficult)}, []agentbus.RunID{"run_b"}},
		{agentbus.RunFilter{Conversation: e.Conversation}, []agentbus.RunID{"run_c"}},
		{agentbus.RunFilter{Agent: "' OR 1=1 --"}, nil},
		{agentbus.RunFilter{Run: "run_b"}, []agentbus.RunID{"run_b"}},
		{agentbus.RunFilter{Run: "_a"}, []agentbus.RunID{"run_a"}},
		{agentbus.RunFilter{Run: "run_a", Agent: "writer"}, nil},
		{agentbus.RunFilter{Run: "run"}, nil},
		{agentbus.RunFilter{Run: "a much longer id than any that is here, run_a"}, nil},
	} {
		var runs []agentbus.RunID
		for before := agentbus.RunID(""); ; { // a run a page
			page, err := p.RunSummaries(t.Context(), want.f, 1, before)
			ok(t, "summaries", err)
			if len(page) == 0 {
				break
			}
			before = page[0].Run
			runs = append(runs, before)
		}
		same(t, "runs", runs, want.runs)
	}
	late := reservation("run_a", 2)
	late.Call.Agent, late.Call.Speaker = "late", "late"
	late.Key = late.Call.Hash()
	reserve(t, p, late)
	for _, f := range []agentbus.RunFilter{
		{Agent: "late"}, {Speaker: "late", By: agentbus.FigureCost}, {Agent: "late", Payer: late.Call.Payer, Standing: agentbus.StandingRunning},
	} {
		if runs := listed(p, f); len(runs) != 1 || runs[0].Run != "run_a" {
			t.Errorf("who came to a run later, by %+v: %+v", f, runs)
		}
	}
}

// runsOfEveryStanding makes a run for each way to stand, of which no two have the
// same figures, and returns them in the order in which they began.
func runsOfEveryStanding(p *place) []agentbus.RunID {
	t := p.t
	later := func(i int) time.Time { return began.Add(time.Duration(i) * time.Hour) }
	drive := func(i int, id agentbus.ExecutionID, halt *agentbus.Halt) {
		e := execution(id)
		e.Began = later(i)
		opened, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
		ok(t, "open", err)
		if halt != nil {
			ok(t, "halt", p.Halt(t.Context(), opened.Lease, *halt))
		}
	}
	call := func(i int, id agentbus.RunID) agentbus.CallRecord {
		r := reservation(id, 1)
		r.Call.Began, r.Call.Depth = later(i), 1+i
		return reserve(t, p, r)
	}
	drive(0, "run_running", nil)
	drive(1, "run_waiting", &agentbus.Halt{Kind: agentbus.HaltWaitingAuth})
	drive(2, "run_paused", &agentbus.Halt{Kind: agentbus.HaltBudget})
	drive(3, "run_done", &agentbus.Halt{Kind: agentbus.HaltDone})
	drive(4, "run_failed", &agentbus.Halt{Kind: agentbus.HaltParticipantError, Failed: true})
	call(5, "run_executing")
	ok(t, "settle", p.Settle(t.Context(), settlement(call(6, "run_settled"), "x")))
	voided := call(7, "run_voided")
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: voided.ID, Attempt: voided.Attempts, Status: 502, Code: agentbus.CodeDeadlineExceeded, Ended: later(8)}))
	key, c := refusedCall(8)
	c.Run, c.Began, c.Ended = "run_refused", later(8), later(9)
	ok(t, "record", p.Record(t.Context(), key, c))
	drive(9, "run_stopped", nil)
	ok(t, "stop", p.StopRun(t.Context(), "run_stopped", "ops", "", later(10)))
	_, err := p.Calls(t.Context(), "run_refused") // behind everything recorded
	ok(t, "calls", err)
	asking := call(11, "run_asking")
	nested := execution("run_nested")
	nested.Run, nested.Parent, nested.Depth, nested.Began = "run_asking", asking.TurnKey.ID, asking.Depth+1, later(11)
	e, err := p.Open(t.Context(), nested, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	ok(t, "open", err)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, waiting(waits(begin(t, p, turn(e, 0)), interruptOf(e)))))
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: asking.ID, Attempt: asking.Attempts, Status: 402, Code: agentbus.CodePaymentRequired, Ended: later(12)}))
	left := call(13, "run_left")
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: left.ID, Attempt: left.Attempts, Status: agentbus.StatusCallerLeft, Code: agentbus.CodeAgentUnavailable, Ended: later(15)}))
	return []agentbus.RunID{
		"run_running", "run_waiting", "run_paused", "run_done", "run_failed", "run_executing", "run_settled", "run_voided", "run_refused", "run_stopped", "run_asking", "run_left",
	}
}

// least asks for a least value of a figure.
func least(f agentbus.RunFigure, value int64) map[agentbus.RunFigure]int64 {
	asked := make(map[agentbus.RunFigure]int64)
	asked[f] = value
	return asked
}

// listed reads a list a page of four at a time.
func listed(p *place, f agentbus.RunFilter) (runs []agentbus.RunSummary) {
	for before := agentbus.RunID(""); ; {
		page, err := p.RunSummaries(p.t.Context(), f, 4, before)
		ok(p.t, "summaries", err)
		if len(page) == 0 {
			return runs
		}
		runs, before = append(runs, page...), page[len(page)-1].Run
	}
}

func runsAreChosenByHowTheyStand(p *place) { // U3, U10
	runsOfEveryStanding(p)
	check := func(when string) {
		for _, word := range agentbus.Standings() {
			var want []agentbus.RunSummary
			for _, sum := range listed(p, agentbus.RunFilter{}) {
				if sum.Standing() == word {
					want = append(want, sum)
				}
			}
			if len(want) == 0 {
				p.t.Errorf("%s: no run is %s", when, word)
			}
			same(p.t, when+", those that are "+string(word), listed(p, agentbus.RunFilter{Standing: word}), want)
		}
	}
	check("at first")
	check("a second time")
	// What changes without a new call: an answer from memory, a refusal that is
	// repeated, a call that is executed again, a run that goes on.
	expectOutcome(p.t, p, reservation("run_settled", 1), agentbus.OutcomeSettled)
	again := reservation("run_voided", 1)
	again.Call.RequestID = "req_again"
	reserve(p.t, p, again)
	key, c := refusedCall(8)
	c.Run = "run_refused"
	ok(p.t, "record", p.Record(p.t.Context(), key, c))
	ok(p.t, "stop", p.StopRun(p.t.Context(), "run_executing", "ops", "", began))
	for _, sum := range listed(p, agentbus.RunFilter{By: agentbus.FigureRefusals, Least: least(agentbus.FigureRefusals, 2)}) {
		same(p.t, "refused twice", sum.Run, "run_refused")
	}
	same(p.t, "saved", len(listed(p, agentbus.RunFilter{Least: least(agentbus.FigureSaved, 1)})), 1)
	same(p.t, "executed again", listed(p, agentbus.RunFilter{Standing: agentbus.StandingRunning})[0].Run, "run_voided")
	same(p.t, "stopped", len(listed(p, agentbus.RunFilter{Standing: agentbus.StandingStopped})), 3)
	all, err := p.Interrupts(p.t.Context(), agentbus.InterruptQuery{Run: "run_asking", Limit: 1})
	ok(p.t, "interrupts", err)
	same(p.t, "what asks", len(all), 1)
	_, err = p.Resolve(p.t.Context(), all[0].ID, granted("ops"))
	ok(p.t, "resolve", err)
	check("once it is decided")
	same(p.t, "decided", listed(p, agentbus.RunFilter{Standing: agentbus.StandingFailed})[0].Run, "run_asking")
	p.reopen()
	same(p.t, "after a restart", len(listed(p, agentbus.RunFilter{Standing: agentbus.StandingStopped})), 3)
}

func runsAreSortedByTheirFigures(p *place) { // U3, U10
	t := p.t
	ids := runsOfEveryStanding(p)
	all := listed(p, agentbus.RunFilter{})
	same(t, "runs", len(all), len(ids))
	for _, by := range agentbus.RunFigures() {
		want := slices.Clone(all) // newest first
		slices.SortStableFunc(want, func(a, b agentbus.RunSummary) int { return cmp.Compare(b.Figure(by), a.Figure(by)) })
		same(t, "by "+string(by), listed(p, agentbus.RunFilter{By: by}), want)
		middle := want[len(want)/2].Figure(by)
		n := 0
		for i := range all {
			if all[i].Figure(by) >= middle {
				n++
			}
		}
		same(t, "with the least "+string(by), listed(p, agentbus.RunFilter{By: by, Least: least(by, middle)}), want[:n])
	}
	of := agentbus.RunFilter{By: agentbus.FigureDepth, Agent: "critic"}
	for _, sum := range listed(p, of) {
		same(t, "its first agent", sum.Agent, "critic")
	}
	page, err := p.RunSummaries(t.Context(), of, 5, "run_x")
	if ok(t, "behind an unknown run", err); len(page) != 0 {
		t.Errorf("behind an unknown run: %v", page)
	}
}

func aRunIsReadWhole(p *place) { // U11
	t := p.t
	empty, err := p.RunRecord(t.Context(), "run_x")
	ok(t, "record of an unknown run", err)
	same(t, "record of an unknown run", empty, agentbus.RunRecord{})
	e := opened(t, p, "run_a")
	ok(t, "finish", p.Finish(t.Context(), done(begin(t, p, turn(e, 0)), "x"), nil))
	begin(t, p, turn(e, 1))
	call := reserve(t, p, reservation("run_a", 0))
	ok(t, "settle", p.Settle(t.Context(), settlement(call, "x")))
	key, c := refusedCall(2)
	ok(t, "record", p.Record(t.Context(), key, c))
	got, err := p.RunRecord(t.Context(), "run_a")
	ok(t, "record", err)
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	loops, err := p.Executions(t.Context(), "run_a")
	ok(t, "executions", err)
	var turns []agentbus.Turn
	for t2, err := range p.Turns(t.Context(), e.ID) {
		ok(t, "turns", err)
		t2.Reply = agentbus.Reply{}
		turns = append(turns, t2)
	}
	same(t, "record", got, agentbus.RunRecord{Executions: loops, Calls: calls, Turns: turns})
	entries, err := p.CallEntries(t.Context(), call.Payer, call.ID)
	ok(t, "entries", err)
	all, err := p.Entries(t.Context(), call.Payer, 0, 10)
	ok(t, "entries", err)
	same(t, "entries of the call", entries, all)
	if none, err := p.CallEntries(t.Context(), "nobody", call.ID); err != nil || len(none) != 0 {
		t.Errorf("entries of somebody else: %v, %v", none, err)
	}
}
