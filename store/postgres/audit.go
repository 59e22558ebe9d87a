package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/agentbus/agentbus"
)

// Balances returns what the account of a payer comes to, or of every payer by
// name when payer is "" (G26). It walks the calls for what is counted in them
// alone.
func (s *Store) Balances(ctx context.Context, payer agentbus.Payer) ([]agentbus.Balance, error) {
	return list(ctx, s, "read balances", func(r *row) agentbus.Balance {
		return agentbus.Balance{
			Payer: agentbus.Payer(r.text()), Charged: r.micros(), Unbilled: r.micros(), Held: r.micros(),
			Calls: r.int64(), Voids: r.int64(), Replays: r.int64(), Refusals: r.int64(),
		}
	}, `SELECT p.payer, coalesce(e.charged_sum, 0), coalesce(e.unbilled_sum, 0), coalesce(h.held, 0)::bigint,
			coalesce(e.charges, 0), coalesce(e.seq - e.charges, 0), p.replays::bigint, p.refusals::bigint
		FROM (SELECT payer, sum(replays) AS replays, coalesce(sum(repeats + 1) FILTER (WHERE state = 'refused'), 0) AS refusals
				FROM calls WHERE $1 = '' OR payer = $1 GROUP BY payer) p
			LEFT JOIN (SELECT c.payer, sum(amount) AS held FROM holds JOIN calls c ON c.id = call_id GROUP BY c.payer) h ON h.payer = p.payer
			LEFT JOIN payers e ON e.payer = p.payer
		ORDER BY p.payer`, string(payer))
}

// VerifyLedger reads every entry and recomputes every link and balance, and
// holds them against the calls: each settled call has exactly one charge, of
// its cost, and the sums are equal (G28, I1). What budgets hold and have spent is
// recomputed from the calls in flight and the entries (G27). It reads one state of the store, from the disk to the
// end, and takes no lock.
func (s *Store) VerifyLedger(ctx context.Context) (agentbus.LedgerVerdict, error) {
	a := &audit{charged: make(map[int64]uint64)}
	err := s.snapshot(ctx, "verify the ledger", a.all)
	if err != nil {
		return agentbus.LedgerVerdict{}, err
	}
	return a.verdict, nil
}

// An audit is a verification under way.
type audit struct {
	verdict  agentbus.LedgerVerdict
	payer    agentbus.Payer
	last     link             // of payer
	unbilled agentbus.Micros  // of all entries
	charged  map[int64]uint64 // the calls charged so far: a bit each, 64 calls to a word
}

// all checks everything, to the first fault.
func (a *audit) all(each eachRow) error {
	for _, step := range []func(eachRow) error{a.entries, a.ends, a.calls, a.budgets} {
		if err := step(each); err != nil || a.verdict.Fault != "" {
			return err
		}
	}
	return nil
}

// fault ends the audit with what is wrong with e.
func (a *audit) fault(e agentbus.Entry, format string, args ...any) bool {
	a.verdict.Bad, a.verdict.Fault = &e, fmt.Sprintf(format, args...)
	return false
}

// charge marks a call as charged, and reports whether it was before.
func (a *audit) charge(call int64) (before bool) {
	word, bit := call>>6, uint64(1)<<(call&63)
	before = a.charged[word]&bit != 0
	a.charged[word] |= bit
	return before
}

// entries checks every chain.
func (a *audit) entries(each eachRow) error {
	return each(func(r *row) bool {
		e := readEntry(r)
		sums := readLink(r)
		var call agentbus.CallRecord
		call.Payer, call.State = agentbus.Payer(r.text()), agentbus.CallState(r.text())
		call.Cost, call.Attempts = r.micros(), r.int()
		if a.verdict.Entries == 0 || e.Payer != a.payer {
			a.payer, a.last = e.Payer, link{}
			a.verdict.Payers++
		}
		a.verdict.Entries++
		return a.link(e, sums) && a.entry(&e, &call)
	}, "SELECT "+entryColumns+", e.seq, e.hash, e.charged_sum, e.unbilled_sum, e.charges, "+
		`coalesce(c.payer, ''), coalesce(c.state, ''), coalesce(c.cost, 0), coalesce(c.attempts, 0)
		FROM entries e LEFT JOIN calls c ON c.payer = e.payer AND c.id = e.call_id ORDER BY e.payer, e.seq`)
}

// link checks that e follows the entry before and sums up with it.
func (a *audit) link(e agentbus.Entry, sums link) bool {
	if e.Seq != a.last.seq+1 {
		return a.fault(e, "entry %d is missing before it", a.last.seq+1)
	}
	want := e // with the place and hash it must have
	next := a.last.append(&want)
	e.Prev = want.Prev
	switch {
	case e.Hash != want.Hash:
		return a.fault(e, "its hash is not that of what it says and of the entry before: one of them, or its call, was changed")
	case sums != next:
		return a.fault(e, "the balance with it is %d charged, %d unbilled and %d charges, the ledger says %d, %d and %d",
			next.charged, next.unbilled, next.charges, sums.charged, sums.unbilled, sums.charges)
	}
	a.last = next
	return true
}

// entry checks e against its call.
func (a *audit) entry(e *agentbus.Entry, call *agentbus.CallRecord) bool {
	a.unbilled += e.Unbilled
	switch {
	case call.State == "":
		return a.fault(*e, "its payer has no call %d", e.Call)
	case e.Kind == agentbus.EntryVoid && e.Amount != 0:
		return a.fault(*e, "a failed attempt is charged %d", e.Amount)
	case e.Kind == agentbus.EntryVoid:
		return true
	case e.Kind != agentbus.EntryCharge:
		return a.fault(*e, "there is no such kind of entry")
	case a.charge(e.Call):
		return a.fault(*e, "its call %d is charged twice", e.Call) // I1
	case call.State != agentbus.CallSettled:
		return a.fault(*e, "its call %d is %s, and charged", e.Call, call.State)
	case call.Cost != e.Amount || call.Attempts != e.Attempt:
		return a.fault(*e, "its call %d cost %d in attempt %d", e.Call, call.Cost, call.Attempts)
	}
	a.verdict.Charged += e.Amount
	return true
}

// ends checks that each chain ends where its payer's row says.
func (a *audit) ends(each eachRow) error {
	return each(func(r *row) bool {
		e := agentbus.Entry{Payer: agentbus.Payer(r.text()), Seq: r.int64()}
		return a.fault(e, "its chain should end with entry %d", e.Seq)
	}, `SELECT p.payer, p.seq FROM payers p LEFT JOIN entries e ON e.payer = p.payer AND e.seq = p.seq
		WHERE p.seq > 0 AND (e.hash IS DISTINCT FROM p.hash OR (e.charged_sum, e.unbilled_sum, e.charges) IS DISTINCT FROM (p.charged_sum, p.unbilled_sum, p.charges))
			OR EXISTS (SELECT 1 FROM entries f WHERE f.payer = p.payer AND f.seq > p.seq) LIMIT 1`)
}

// calls checks that every settled call has its charge.
func (a *audit) calls(each eachRow) error {
	var cost, unbilled agentbus.Micros
	err := each(func(r *row) bool {
		e := agentbus.Entry{Kind: agentbus.EntryCharge, Call: r.int64(), Payer: agentbus.Payer(r.text()), Agent: r.text()}
		e.Run, e.Turn, e.Attempt = agentbus.RunID(r.text()), agentbus.TurnID(r.text()), r.int()
		e.Amount, e.At = r.micros(), r.time()
		unbilled += r.micros()
		settled := r.bool()
		if settled && a.charged[e.Call>>6]&(1<<(e.Call&63)) == 0 {
			return a.fault(e, "call %d was settled and has no entry", e.Call)
		}
		cost += e.Amount
		return true
	}, `SELECT id, payer, agent, run, turn, attempts, cost, ended, unbilled, state = 'settled' FROM calls
		WHERE state = 'settled' OR cost <> 0 OR unbilled <> 0 ORDER BY id`)
	switch {
	case err != nil || a.verdict.Fault != "":
	case cost != a.verdict.Charged:
		a.verdict.Fault = fmt.Sprintf("the calls cost %d, the entries %d", cost, a.verdict.Charged)
	case unbilled != a.unbilled:
		a.verdict.Fault = fmt.Sprintf("the calls have %d unbilled, the entries %d", unbilled, a.unbilled)
	}
	return err
}

// budgets checks what accounts hold against the calls in flight, and what they
// have spent against the entries (G27).
func (a *audit) budgets(each eachRow) error {
	type sum struct{ amount, n int64 }
	held, paid := map[string]sum{}, map[string]sum{}
	for query, sums := range map[string]map[string]sum{
		"SELECT h.amount, h.accounts FROM holds h JOIN calls c ON c.id = h.call_id AND c.state = 'executing'": held,
		"SELECT amount, accounts FROM entries WHERE accounts IS NOT NULL":                                     paid,
	} {
		err := each(func(r *row) bool {
			t := readTaken(r)
			for _, account := range t.accounts {
				sums[account] = sum{sums[account].amount + int64(t.amount), sums[account].n + 1}
			}
			return true
		}, query)
		if err != nil {
			return err
		}
	}
	err := each(func(r *row) bool {
		account, amount, spent, calls := r.text(), r.int64(), r.int64(), r.int64()
		h, p := held[account], paid[account]
		wantSpent, wantCalls := r.int64()+p.amount, r.int64()+p.n+h.n
		delete(paid, account)
		if amount == h.amount && spent == wantSpent && calls == wantCalls {
			return true
		}
		a.verdict.Fault = fmt.Sprintf("the budget of %s holds %d, has spent %d and counts %d calls; by the entries and the calls in flight it is %d, %d and %d",
			account, amount, spent, calls, h.amount, wantSpent, wantCalls)
		return false
	}, "SELECT account, held, spent, calls, before_spent, before_calls FROM accounts ORDER BY account")
	if missing := slices.Sorted(maps.Keys(paid)); err == nil && a.verdict.Fault == "" && len(missing) > 0 {
		a.verdict.Fault = fmt.Sprintf("the budget of %s is missing; by the entries it has spent %d", missing[0], paid[missing[0]].amount)
	}
	return err
}
