package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// U3, U10: a name that more runs have than are looked at one by one is found by
// the index of the order, and gives what a rare one gives.
func TestRunsOfAFrequentName(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a store with 5,000 runs")
	}
	url := stores.Database(t)
	s := opened(t, url)
	t.Cleanup(func() { _ = s.Close() })
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	_, err = c.Exec(t.Context(), `WITH made AS (INSERT INTO calls (id, key, state, attempts, payer, agent, run, path, parent, turn, turn_index, request_id, caller,
			speaker, depth, digest, owner, stream, began, ended)
		SELECT n, sha256(n::text::bytea), 'settled', 1, 'alice', 'often', 'run_' || n, '', '', '', -1, 'req', 'alice',
			CASE n % 2000 WHEN 9 THEN 'seldom' ELSE '' END, 1, '', 'host:1', false, n, n FROM generate_series(1, 5000) n RETURNING run, began)
		INSERT INTO opened_runs (run, opened, payer) SELECT run, began, 'alice' FROM made`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		f    agentbus.RunFilter
		runs []agentbus.RunID
	}{
		{agentbus.RunFilter{Agent: "often"}, []agentbus.RunID{"run_5000", "run_4999"}},
		{agentbus.RunFilter{Agent: "often", Speaker: "seldom"}, []agentbus.RunID{"run_4009", "run_2009"}},
		{agentbus.RunFilter{Speaker: "seldom", By: agentbus.FigureLast}, []agentbus.RunID{"run_4009", "run_2009"}},
	} {
		got, err := s.RunSummaries(t.Context(), want.f, 2, "")
		if err != nil || len(got) != 2 || got[0].Run != want.runs[0] || got[1].Run != want.runs[1] {
			t.Errorf("%+v: %+v, %v", want.f, got, err)
		}
	}
}
