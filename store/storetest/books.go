package storetest

import (
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

var books = map[string]func(*place){
	"EveryEndedAttemptIsAnEntry":          everyEndedAttemptIsAnEntry,
	"EntriesArePaged":                     entriesArePaged,
	"EntriesOfManyAtOnceAreOneChain":      entriesOfManyAtOnceAreOneChain,
	"ABalanceIsTheSumOfItsCalls":          aBalanceIsTheSumOfItsCalls,
	"AnEmptyLedgerIsInOrder":              anEmptyLedgerIsInOrder,
	"ADifferentPayerIsAnotherCallAndBill": aDifferentPayerIsAnotherCallAndBill,
}

const zoe agentbus.Payer = "user:zoë" // who pays the calls of reservation

// chain returns the entries of a payer, which must be links.
func (p *place) chain(payer agentbus.Payer) []agentbus.Entry {
	p.t.Helper()
	entries, err := p.Entries(p.t.Context(), payer, 0, 10_000)
	ok(p.t, "entries", err)
	var before agentbus.Digest
	for i, e := range entries {
		if e.Seq != int64(i+1) || e.Prev != before || e.Hash != e.Sum() || e.Payer != payer {
			p.t.Errorf("entry %d of %s is no link: %+v", i+1, payer, e)
		}
		before = e.Hash
	}
	return entries
}

// verify fails the test unless the ledger is in order.
func (p *place) verify() agentbus.LedgerVerdict {
	p.t.Helper()
	v, err := p.VerifyLedger(p.t.Context())
	ok(p.t, "verify", err)
	if v.Bad != nil || v.Fault != "" {
		p.t.Errorf("the ledger: %s: %+v", v.Fault, v.Bad)
	}
	return v
}

func everyEndedAttemptIsAnEntry(p *place) { // G28
	t := p.t
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	if got := p.chain(zoe); len(got) != 0 {
		t.Errorf("a call in flight is entered: %+v", got)
	}
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1, Unbilled: 30, Ended: began.Add(time.Second)}))
	s := settlement(reserve(t, p, r), "x")
	s.Unbilled = 7
	ok(t, "settle", p.Settle(t.Context(), s))
	expectOutcome(t, p, r, agentbus.OutcomeSettled)
	p.reopen()
	got := p.chain(zoe)
	want := agentbus.Entry{
		Payer: zoe, Seq: 1, Kind: agentbus.EntryVoid, Call: call.ID, Attempt: 1, Key: r.Key, Agent: "critic", Run: "run_a",
		Turn: "run_a.t0.critic", Unbilled: 30, At: began.Add(time.Second),
	}
	want.Hash = want.Sum()
	charge := want
	charge.Seq, charge.Kind, charge.Attempt, charge.Amount, charge.Unbilled, charge.Prev = 2, agentbus.EntryCharge, 2, 4_000, 7, want.Hash
	charge.Hash = charge.Sum()
	same(t, "entries", got, []agentbus.Entry{want, charge})
	same(t, "the call's unbilled", oneCall(t, p).Unbilled, 37)
	same(t, "verdict", p.verify(), agentbus.LedgerVerdict{Payers: 1, Entries: 2, Charged: 4_000})
}

func entriesArePaged(p *place) { // G28
	t := p.t
	for n := range 7 {
		ok(t, "settle", p.Settle(t.Context(), settlement(reserve(t, p, reservation("run_a", n)), "x")))
	}
	whole := p.chain(zoe)
	var pages []agentbus.Entry
	for after := int64(0); ; after = pages[len(pages)-1].Seq {
		page, err := p.Entries(t.Context(), zoe, after, 3)
		ok(t, "entries", err)
		if len(page) == 0 {
			break
		}
		pages = append(pages, page...)
	}
	same(t, "by pages", pages, whole)
	same(t, "entries", len(whole), 7)
}

func entriesOfManyAtOnceAreOneChain(p *place) { // G28, I1
	t := p.t
	const callers, turns = 16, 12
	together(callers, func(i int) {
		for n := range turns {
			r := reservation(agentbus.RunID("run_"+strconv.Itoa(i)), n)
			if i%2 == 0 {
				r.Call.Payer = "bob"
				r.Key = r.Call.Hash()
			}
			got, err := p.Reserve(t.Context(), r)
			if err == nil && n%3 == 0 {
				err = p.Void(t.Context(), agentbus.Voiding{ID: got.Call.ID, Attempt: 1, Unbilled: 1})
			} else if err == nil {
				err = p.Settle(t.Context(), settlement(got.Call, "x"))
			}
			if err != nil {
				t.Errorf("call: %v", err)
			}
		}
	})
	for _, payer := range []agentbus.Payer{zoe, "bob"} {
		same(t, "entries", len(p.chain(payer)), callers*turns/2)
	}
	same(t, "verdict", p.verify(), agentbus.LedgerVerdict{Payers: 2, Entries: callers * turns, Charged: callers * turns * 2 / 3 * 4_000})
}

func aBalanceIsTheSumOfItsCalls(p *place) { // G26
	t := p.t
	r := reservation("run_a", 0)
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: reserve(t, p, r).ID, Attempt: 1, Unbilled: 30}))
	s := settlement(reserve(t, p, r), "x")
	s.Cost, s.Unbilled = 1_234, 5
	ok(t, "settle", p.Settle(t.Context(), s))
	expectOutcome(t, p, r, agentbus.OutcomeSettled)
	ok(t, "settle", p.Settle(t.Context(), settlement(reserve(t, p, reservation("run_a", 1)), "x")))
	reserve(t, p, holding(2, 300, strict("run", 1000), strict("payer", 1000)))
	key, c := refusedCall(3)
	ok(t, "record", p.Record(t.Context(), key, c))
	ok(t, "record", p.Record(t.Context(), key, c))
	key, c = refusedCall(4)
	c.Payer = "bob"
	ok(t, "record", p.Record(t.Context(), key, c))
	ok(t, "check", p.Check(t.Context())) // behind what is noted
	want := agentbus.Balance{Payer: zoe, Charged: 5_234, Unbilled: 35, Held: 300, Calls: 2, Voids: 1, Replays: 1, Refusals: 2}
	got, err := p.Balances(t.Context(), "")
	ok(t, "balances", err)
	same(t, "by name", got, []agentbus.Balance{{Payer: "bob", Refusals: 1}, want})
	got, err = p.Balances(t.Context(), zoe)
	ok(t, "balances", err)
	same(t, "of one", got, []agentbus.Balance{want})
	p.verify()
}

func anEmptyLedgerIsInOrder(p *place) {
	t := p.t
	same(t, "verdict", p.verify(), agentbus.LedgerVerdict{})
	entries, err := p.Entries(t.Context(), "nobody", 0, 10)
	if err != nil || len(entries) != 0 {
		t.Errorf("entries: %v, %v", entries, err)
	}
	balances, err := p.Balances(t.Context(), "nobody")
	if err != nil || len(balances) != 0 {
		t.Errorf("balances: %v, %v", balances, err)
	}
}

func aDifferentPayerIsAnotherCallAndBill(p *place) { // I4
	t := p.t
	mine, other := reservation("run_a", 0), reservation("run_a", 0)
	other.Call.Payer = "bob"
	other.Key = other.Call.Hash()
	ok(t, "settle", p.Settle(t.Context(), settlement(reserve(t, p, mine), "for zoë")))
	if _, found, err := p.Lookup(t.Context(), other.Key, other.Call.Digest); err != nil || found {
		t.Errorf("another payer's call: %v, %v", found, err)
	}
	ok(t, "settle", p.Settle(t.Context(), settlement(reserve(t, p, other), "for bob")))
	same(t, "body", string(expectOutcome(t, p, mine, agentbus.OutcomeSettled).Reply.Body), "for zoë")
	same(t, "body", string(expectOutcome(t, p, other, agentbus.OutcomeSettled).Reply.Body), "for bob")
}
