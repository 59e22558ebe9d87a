package admin_test

import (
	"database/sql"
	"testing"
)

// A run of 10,000 calls, as the Run screen shows it (U3): what its handler takes.
func BenchmarkPageOfALongRun(b *testing.B) {
	const n = 10_000
	x := open(b, nil)
	db, err := sql.Open("sqlite", x.path)
	if err == nil {
		_, err = db.ExecContext(b.Context(), longRun, n)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	cookie := x.signIn(adminKey)
	b.ReportAllocs()
	for b.Loop() {
		body := x.form("/console/runs/run_long", cookie, nil).body
		b.ReportMetric(float64(len(body)), "page-bytes")
	}
}

// longRun fills a store with a run of n calls, a turn after the other.
const longRun = `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < ?1 - 1)
	INSERT INTO calls (key, state, attempts, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker, depth, digest, owner, stream,
		status, cost, input_tokens, began, ended, opened)
	SELECT randomblob(32), 'settled', 1, 'alice', 'critic' || n % 8, 'run_long', '', '', 'run_long.t' || n || '.critic', n, 'req', 'alice', 'critic', 1, zeroblob(32),
		'host:1', 0, 200, 7, 9, 1000000 * n, 1000000 * n + 900000, CASE n WHEN 0 THEN 0 END FROM i`
