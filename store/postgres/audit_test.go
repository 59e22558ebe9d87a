package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// G27, G28: what a budget has counted is recomputed from the entries, and a
// counter that was changed is named.
func TestATamperedBudgetIsFound(t *testing.T) {
	t.Parallel()
	url := stores.Database(t)
	s := opened(t, url)
	t.Cleanup(func() { _ = s.Close() })
	for n := range 2 {
		r := request("alice", "run_a", n)
		r.Hold = agentbus.Hold{Amount: 5_000, Budgets: []agentbus.Budget{{Account: "run_a", Limit: 1 << 30}}}
		got, err := s.Reserve(t.Context(), r)
		if err == nil && n == 0 {
			err = s.Settle(t.Context(), answer(got.Call))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	for _, tt := range []struct{ query, want string }{
		{"SELECT 1", ""},
		{"UPDATE accounts SET spent = spent - 1", "the budget of run_a holds 5000, has spent 3999 and counts 2 calls; by the entries and the calls in flight it is 5000, 4000 and 2"},
		{"UPDATE accounts SET spent = spent + 1, calls = 1", "counts 1 calls; by the entries and the calls in flight it is 5000, 4000 and 2"},
		{"DELETE FROM accounts", "the budget of run_a is missing; by the entries it has spent 4000"},
	} {
		if _, err := c.Exec(t.Context(), tt.query); err != nil {
			t.Fatal(err)
		}
		v, err := s.VerifyLedger(t.Context())
		if err != nil || !strings.Contains(v.Fault, tt.want) || (v.Fault == "") != (tt.want == "") {
			t.Errorf("%s: %q, %v", tt.query, v.Fault, err)
		}
	}
}
