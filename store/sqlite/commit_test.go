package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// hold takes the write lock of the store in dir until release is called.
func hold(t *testing.T, dir string) (release func()) {
	t.Helper()
	db := beside(t, dir)
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// poison makes every write of a call to the agent "poison" fail inside SQLite.
func poison(t *testing.T, dir string) {
	t.Helper()
	db := beside(t, dir)
	defer closed(t, db)
	_, err := db.ExecContext(t.Context(), `CREATE TRIGGER poison BEFORE INSERT ON calls WHEN NEW.agent = 'poison'
		BEGIN SELECT RAISE(ABORT, 'poisoned'); END`)
	if err != nil {
		t.Fatal(err)
	}
}

// An error that SQLite did not announce fails the task it belongs to and
// nothing beside it.
func TestABadTaskFailsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	defer closed(t, s)
	poison(t, dir)
	release := hold(t, dir) // so that all of them meet in one batch
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			r := request("run_a", n, "x")
			if n%10 == 7 {
				r.Call.Agent = "poison"
			}
			got, err := s.Reserve(t.Context(), r)
			switch {
			case n%10 != 7 && (err != nil || got.Outcome != agentbus.OutcomeExecute):
				t.Errorf("call %d: %v, %v", n, got.Outcome, err)
			case n%10 == 7 && (agentbus.CodeOf(err) != agentbus.CodeStoreUnavailable || !strings.Contains(err.Error(), "poisoned")):
				t.Errorf("poisoned call: %v", err)
			}
		})
	}
	release()
	wg.Wait()
	if err := s.Record(t.Context(), agentbus.Digest{1}, agentbus.CallRecord{TurnKey: agentbus.TurnKey{Agent: "poison"}}); err != nil {
		t.Error(err) // it is queued; that it cannot be written is logged
	}
	if calls, err := s.Calls(t.Context(), "run_a"); err != nil || len(calls) != 36 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

// U16: while transactions fail the store says why, and one that changes nothing is
// no commit whose time would hide that of the others.
func TestFailingIsTold(t *testing.T) {
	t.Parallel()
	dir, commits := t.TempDir(), atomic.Int32{}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "bus.db"), Committed: func(time.Duration) { commits.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	poison(t, dir)
	r := request("run_a", 1, "x")
	r.Call.Agent = "poison"
	if _, err := s.Reserve(t.Context(), r); err == nil || s.Failing() == "" {
		t.Errorf("%v, failing %q", err, s.Failing())
	}
	if err := s.Check(t.Context()); err != nil || s.Failing() != "" {
		t.Errorf("%v, failing %q", err, s.Failing())
	}
	before := commits.Load()
	if _, err := s.ReleaseDead(t.Context(), func(string) bool { return true }); err != nil || commits.Load() != before {
		t.Errorf("%d commits of nothing, %v", commits.Load()-before, err)
	}
}

// I2: what is written to a file that was moved or replaced is gone with the process:
// soon it is not acknowledged any more, until the file is back.
func TestMovedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	defer closed(t, s)
	path, away := filepath.Join(dir, "bus.db"), filepath.Join(dir, "away.db")
	eventually := func(what string, ok func(error) bool) {
		t.Helper()
		var err error
		for range 1000 {
			if _, err = s.Reserve(t.Context(), request("run_a", 1, "x")); ok(err) {
				return
			}
			<-time.After(5 * time.Millisecond) // the file is looked for now and then
		}
		t.Fatalf("%s: %v, failing %q", what, err, s.Failing())
	}
	refused := func(err error) bool {
		return agentbus.CodeOf(err) == agentbus.CodeStoreUnavailable && strings.Contains(err.Error(), "is not where it was opened; put it back") && s.Failing() != ""
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(path, away))
	eventually("moved", refused)
	must(os.Rename(away, path))
	eventually("put back", func(err error) bool { return err == nil && s.Failing() == "" })
	must(os.Rename(path, away))
	must(os.WriteFile(path, nil, 0o600))
	eventually("replaced", refused)
}

// I2: so it is with a file that was emptied, as a shell does with >.
func TestEmptiedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	defer func() { _ = s.Close() }() // it cannot fold its log into that file
	if err := os.Truncate(filepath.Join(dir, "bus.db"), 0); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * sqlite.LookEvery) // whoever writes next looks
	if err := s.Check(t.Context()); agentbus.CodeOf(err) != agentbus.CodeStoreUnavailable || !strings.Contains(err.Error(), "its file was emptied; stop the process and restore a copy") || s.Failing() == "" {
		t.Errorf("%v, failing %q", err, s.Failing())
	}
	select {
	case <-s.Broken():
		t.Error("the store is broken, and its process would be started again on an empty one")
	default:
	}
}

// A caller who leaves while the writer is busy gets its context's error; what
// it had queued is committed.
func TestWhatIsQueuedIsCommitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	defer closed(t, s)
	release := hold(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Reserve(ctx, request("run_a", 0, "x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	release()
	if calls, err := s.Calls(t.Context(), "run_a"); err != nil || len(calls) != 1 {
		t.Errorf("%v, %v", calls, err)
	}
}

// P12: repeats of one refusal that wait cost no room; only a full queue makes
// its writer wait, until its context ends.
func TestRepeatsTakeNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	defer closed(t, s)
	refused := func(ctx context.Context, n int) error {
		return s.Record(ctx, agentbus.Digest{byte(n), byte(n >> 8)}, agentbus.CallRecord{TurnKey: agentbus.TurnKey{Run: "run_a"}, State: agentbus.CallRefused})
	}
	release := hold(t, dir)
	accepted := 0
	for range 20_000 {
		if err := refused(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		accepted++
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	distinct, err := 0, error(nil)
	for err == nil {
		distinct++
		if err = refused(ctx, distinct); err == nil {
			accepted++
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full queue answers %v", err)
	}
	release()
	calls, err := s.Calls(t.Context(), "run_a")
	total := 0
	for _, c := range calls {
		total += 1 + c.Repeats
	}
	if err != nil || total != accepted || len(calls) > 4096 {
		t.Errorf("%d records count %d refusals, %d were accepted: %v", len(calls), total, accepted, err)
	}
}

// What is asked often walks an index, however much is stored.
func TestHotQueriesWalkAnIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closed(t, opened(t, dir))
	db := beside(t, dir)
	defer closed(t, db)
	for query, params := range sqlite.HotQueries {
		plan := explain(t, db, query, params)
		if whole := regexp.MustCompile(`SCAN (calls|c|entries|executions|e|holds|h|frames)\b.*`).FindString(plan); whole != "" && !strings.Contains(whole, "INDEX") ||
			strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\n%s", query, plan)
		}
	}
}

func explain(t *testing.T, db *sql.DB, query string, params int) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, []any{1, 2, 3, 4, 5, 6, 7}[:params]...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
