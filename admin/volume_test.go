package admin_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// manyRuns fills a store with n runs of one call each: every tenth failed, every
// hundredth was refused.
const manyRuns = `WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?1)
	INSERT INTO calls (key, state, attempts, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker, depth, digest, owner, stream,
		status, cost, input_tokens, began, ended, opened)
	SELECT randomblob(32), CASE WHEN n % 100 = 0 THEN 'refused' WHEN n % 10 = 0 THEN 'voided' ELSE 'settled' END, 1, 'alice', 'critic',
		'run_' || n, '', '', 'run_' || n || '.t0.critic', 0, 'req', 'alice', 'critic', 1 + n / 10 % 4, zeroblob(32), 'host:1', 0,
		200, CASE WHEN n % 10 = 0 THEN 0 ELSE (n * 7919) % 100003 END, n % 977, n, n + n % 313, n FROM i`

// U3: filters and orders are exact over 100,000 runs, a page at a time. What a
// page takes is printed, and not judged.
func TestRunsOfAFullStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a store with 100,000 runs")
	}
	const n = 100_000
	b := open(t, func(*admin.Config) {})
	db, err := sql.Open("sqlite", b.path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = db.ExecContext(t.Context(), manyRuns, n); err != nil {
		t.Fatal(err)
	}
	if _, err = db.ExecContext(t.Context(), "UPDATE calls SET agent = 'seldom' WHERE id % 40000 = 9; UPDATE calls SET agent = 'early' WHERE id < 2000"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(query string) (l struct {
		Data []agentbus.RunSummary
		Next string
	},
	) {
		at := time.Now()
		if err := json.Unmarshal([]byte(b.get("/admin/v1/runs?limit=1000&"+query).body), &l); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		t.Logf("%s: %d runs in %v", query, len(l.Data), time.Since(at).Round(time.Millisecond))
		return l
	}
	seen, last := map[agentbus.RunID]bool{}, int64(1<<62)
	for query, more := "standing=refused&sort=tokens", true; more; {
		l := read(query)
		for i := range l.Data {
			sum := &l.Data[i]
			if sum.Standing() != agentbus.StandingRefused || sum.Figure(agentbus.FigureTokens) > last || seen[sum.Run] {
				t.Fatalf("%+v comes behind %d tokens", sum, last)
			}
			seen[sum.Run], last = true, sum.Figure(agentbus.FigureTokens)
		}
		query, more = "standing=refused&sort=tokens&cursor="+l.Next, l.Next != ""
	}
	if len(seen) != n/100 {
		t.Errorf("%d runs were refused, want %d", len(seen), n/100)
	}
	if most := read("sort=cost").Data[0].Cost; most != 100_002 {
		t.Errorf("the dearest run of all cost %d", most)
	}
	if l := read("standing=failed&min_depth=4"); l.Data[0].Run != agentbus.RunID(fmt.Sprintf("run_%d", n-10)) {
		t.Errorf("the newest that failed at depth 4 is %s", l.Data[0].Run)
	}
	for _, query := range []string{"agent=seldom", "agent=seldom&sort=cost", "agent=seldom&payer=alice"} {
		if l := read(query); len(l.Data) != 2 {
			t.Errorf("%s: %d runs, want 2", query, len(l.Data))
		}
	}
	if l := read("agent=critic&payer=alice"); len(l.Data) != 1000 || l.Data[0].Run != agentbus.RunID(fmt.Sprintf("run_%d", n)) {
		t.Errorf("of a name that all have, the newest of %d is %s", len(l.Data), l.Data[0].Run)
	}
	cookie := b.signIn(adminKey)
	for _, query := range []string{"", "?standing=refused&sort=cost", "?sort=duration", "?agent=nobody&sort=cost", "?agent=nobody", "?agent=seldom", "?agent=early", "?agent=early&sort=cost", "?payer=alice&sort=last"} {
		at := time.Now()
		body := b.form("/console/runs"+query, cookie, nil).body
		t.Logf("the page %q: %d bytes in %v", query, len(body), time.Since(at).Round(time.Millisecond))
	}
}
