package sqlite_test

import (
	"os"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// someLedger makes a store in dir with entries of two payers: alice's calls 1
// to 3, the last of which failed once, and one of bob; call 5 is in flight.
func someLedger(t *testing.T, dir string) {
	t.Helper()
	s := opened(t, dir)
	defer closed(t, s)
	for n := range 5 {
		r := request("run_a", n, "x")
		r.Hold = agentbus.Hold{Amount: 5_000, Budgets: []agentbus.Budget{{Account: "run_a", Limit: 1 << 30}}}
		if n == 3 {
			r.Call.Payer = "bob"
		}
		if n == 2 {
			voided(t, s, r)
		}
		got, err := s.Reserve(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		a := answer(got.Call, "x")
		a.Hold = r.Hold
		if n == 4 {
			continue
		}
		if err := s.Settle(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
}

// voided makes an attempt of r that fails.
func voided(t *testing.T, s *sqlite.Store, r agentbus.Reservation) {
	t.Helper()
	got, err := s.Reserve(t.Context(), r)
	if err == nil {
		err = s.Void(t.Context(), agentbus.Voiding{ID: got.Call.ID, Attempt: got.Call.Attempts, Unbilled: 7, Hold: r.Hold})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// G28, I1: whatever is changed in the ledger behind the bus's back shows, and
// the first bad entry is named.
func TestATamperedLedgerIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query string
		payer agentbus.Payer
		seq   int64 // 0: the entry is missing
		want  string
	}{
		"nothing":             {query: "SELECT 1", want: ""},
		"an amount":           {"UPDATE entries SET amount = 1 WHERE payer = 'user:alice' AND seq = 2", "user:alice", 2, "its hash is not"},
		"a time":              {"UPDATE entries SET at = at + 1 WHERE payer = 'bob'", "bob", 1, "its hash is not"},
		"a hash":              {"UPDATE entries SET hash = zeroblob(32) WHERE payer = 'user:alice' AND seq = 1", "user:alice", 1, "its hash is not"},
		"a balance":           {"UPDATE entries SET charged_sum = charged_sum - 1 WHERE payer = 'user:alice' AND seq = 3", "user:alice", 3, "the balance with it is 8000 charged"},
		"an entry removed":    {"DELETE FROM entries WHERE payer = 'user:alice' AND seq = 2", "user:alice", 3, "entry 2 is missing"},
		"the last removed":    {"DELETE FROM entries WHERE payer = 'user:alice' AND seq = 4", "user:alice", 0, "call 3 was settled and has no entry"},
		"a payer removed":     {"DELETE FROM entries WHERE payer = 'bob'", "bob", 0, "call 4 was settled and has no entry"},
		"an entry moved":      {"UPDATE entries SET payer = 'bob', seq = 2 WHERE payer = 'user:alice' AND seq = 4", "bob", 2, "its hash is not"},
		"a call's cost":       {"UPDATE calls SET cost = 1 WHERE id = 2", "user:alice", 2, "its call 2 cost 1"},
		"a call's agent":      {"UPDATE calls SET agent = 'free' WHERE id = 4", "bob", 1, "its hash is not"},
		"a call's payer":      {"UPDATE calls SET payer = 'eve' WHERE id = 4", "bob", 1, "its call 4 is that of eve"},
		"a call's key":        {"UPDATE calls SET key = randomblob(32) WHERE id = 1", "user:alice", 1, "its hash is not"},
		"a call's state":      {"UPDATE calls SET state = 'voided' WHERE id = 1", "user:alice", 1, "its call 1 is voided, and charged"},
		"a call removed":      {"DELETE FROM calls WHERE id = 4", "bob", 1, "hash is not"},
		"a call made settled": {"UPDATE calls SET state = 'settled' WHERE id = 5", "user:alice", 0, "call 5 was settled and has no entry"},
		"a call's unbilled":   {"UPDATE calls SET unbilled = 8 WHERE id = 3", "", 0, "the calls have 8 unbilled, the entries 7"},
		"a charge in flight":  {"UPDATE calls SET cost = 9 WHERE id = 5", "", 0, "the calls cost 16009, the entries 16000"},
		"a hold":              {"DELETE FROM holds", "", 0, "the budget of run_a holds 5000, has spent 16000 and counts 5 calls; by the entries and the calls in flight it is 0, 16000 and 4"},
		// G27
		"what is spent":      {"UPDATE accounts SET spent = spent - 1", "", 0, "the budget of run_a holds 5000, has spent 15999 and counts 5 calls; by the entries and the calls in flight it is 5000, 16000 and 5"},
		"how many calls":     {"UPDATE accounts SET calls = 1", "", 0, "and counts 1 calls"},
		"a budget removed":   {"DELETE FROM accounts", "", 0, "the budget of run_a holds 0, has spent 0"},
		"what was there":     {"INSERT INTO accounts (account, held, spent, calls, before_spent, before_calls) VALUES ('old', 0, 7, 2, 7, 2)", "", 0, ""},
		"whose charge it is": {"UPDATE entries SET accounts = NULL WHERE payer = 'bob'", "", 0, "has spent 16000 and counts 5 calls; by the entries and the calls in flight it is 5000, 12000 and 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			someLedger(t, dir)
			execute(t, dir+"/bus.db", c.query)
			s := opened(t, dir)
			defer closed(t, s)
			got, err := s.VerifyLedger(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var bad agentbus.Entry
			if got.Bad != nil {
				bad = *got.Bad
			}
			if !strings.Contains(got.Fault, c.want) || (c.want == "") != (got.Fault == "") || bad.Payer != c.payer || bad.Seq != c.seq {
				t.Errorf("got %q of entry %d of %q, want %q of %d of %q", got.Fault, bad.Seq, bad.Payer, c.want, c.seq, c.payer)
			}
		})
	}
}

// G27, G28: what budgets had counted before entries told of it is taken as it
// stands, and what is spent from then on is recomputed.
func TestBudgetsOfAnOldStoreAreInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	someLedger(t, dir)
	migration, err := os.ReadFile("migrations/00030_spent_by_entries.sql")
	if err != nil {
		t.Fatal(err)
	}
	again, _, _ := strings.Cut(string(migration), "PRAGMA")
	execute(t, dir+"/bus.db", `ALTER TABLE entries DROP COLUMN accounts; ALTER TABLE accounts DROP COLUMN before_spent;
		ALTER TABLE accounts DROP COLUMN before_calls; `+again)
	s := opened(t, dir)
	defer closed(t, s)
	inOrder := func() {
		t.Helper()
		if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" {
			t.Error(v.Fault, err)
		}
	}
	inOrder()
	if err := s.Settle(t.Context(), answer(agentbus.CallRecord{ID: 5, Attempts: 1}, "x")); err != nil { // in flight until now
		t.Fatal(err)
	}
	inOrder()
	got, err := s.BudgetStates(t.Context(), []string{"run_a"})
	if err != nil || got[0].Spent != 20_000 || got[0].Calls != 5 {
		t.Error(got, err)
	}
	execute(t, dir+"/bus.db", "UPDATE accounts SET spent = 16000")
	if v, err := s.VerifyLedger(t.Context()); err != nil || !strings.Contains(v.Fault, "of run_a holds 0, has spent 16000 and counts 5 calls; by the entries and the calls in flight it is 0, 20000 and 5") {
		t.Error(v.Fault, err)
	}
}
