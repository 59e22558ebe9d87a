package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// oldSchema makes a store in dir as the first schema had it, with the rows that
// query inserts.
func oldSchema(t *testing.T, dir, query string) {
	t.Helper()
	db := beside(t, dir)
	defer closed(t, db)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migrations"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// oldRows are a settled call, one whose stream stands in frames, one that
// failed twice, one whose third attempt is executing, one whose reply is not
// kept, and a refusal.
const oldRows = `
INSERT INTO calls (id, key, state, attempts, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker, depth,
	digest, owner, stream, status, cost, unbilled, began, ended, opened, kept, head, body) VALUES
	(1, randomblob(32), 'settled',   1, 'alice', 'critic', 'run_a', '', '', 'run_a.t0.critic', 0, 'req', 'alice', '', 1, zeroblob(32), 'x', 0, 200, 400, 0, 5, 6, 5, 1, '{"A":["b"]}', x'6f6e65'),
	(2, randomblob(32), 'settled',   3, 'alice', 'critic', 'run_a', '', '', 'run_a.t1.critic', 1, 'req', 'alice', '', 1, zeroblob(32), 'x', 1, 200, 500, 9, 5, 7, NULL, 1, '{}', x'6f'),
	(3, randomblob(32), 'voided',    2, 'bob',   'critic', 'run_a', '', '', 'run_a.t2.critic', 2, 'req', 'alice', '', 1, zeroblob(32), 'x', 0, 502, 0, 7, 5, 8, NULL, 0, NULL, NULL),
	(4, randomblob(32), 'executing', 3, 'bob',   'critic', 'run_a', '', '', 'run_a.t3.critic', 3, 'req', 'alice', '', 1, zeroblob(32), 'x', 1, 0, 0, 2, 5, NULL, NULL, 0, NULL, NULL),
	(5, randomblob(32), 'settled',   1, 'alice', 'critic', 'run_a', '', '', 'run_a.t4.critic', 4, 'req', 'alice', '', 1, zeroblob(32), 'x', 0, 200, 600, 0, 5, 9, NULL, 0, NULL, NULL),
	(6, randomblob(33), 'refused',   0, 'alice', 'critic', 'run_a', '', '', '', -1, 'req', 'alice', '', 1, zeroblob(32), '', 0, 429, 0, 0, 5, 5, NULL, 0, NULL, NULL);
INSERT INTO frames (call_id, data) VALUES (2, CAST('da' AS BLOB)), (4, CAST('li' AS BLOB)), (2, CAST('ta: tw' AS BLOB)), (4, CAST('ne' AS BLOB));
INSERT INTO api_keys (hash, handle, principal, role, inter_agent, created) VALUES (zeroblob(32), 'ab_1', 'alice', 'user', 0, 5);
`

// A store of the first schema keeps its answers, and gets the entries that it
// would have.
func TestAnOldStoreIsMigrated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	oldSchema(t, dir, oldRows)
	keys := keysOf(t, dir)
	s := opened(t, dir)
	defer closed(t, s)
	for id, want := range map[int64]string{1: "one", 2: "data: two"} {
		got, found, err := s.Lookup(t.Context(), keys[id], agentbus.Digest{})
		if err != nil || !found || got.Outcome != agentbus.OutcomeSettled || string(got.Reply.Body) != want {
			t.Errorf("call %d: %+v, %v, %v", id, got, found, err)
		}
	}
	got, found, err := s.Lookup(t.Context(), keys[5], agentbus.Digest{})
	if err != nil || !found || got.Outcome != agentbus.OutcomeExpired {
		t.Errorf("call 5: %+v, %v, %v", got, found, err)
	}
	if err := s.Append(t.Context(), 4, 3, []byte("!")); err != nil {
		t.Error(err)
	}
	a := answer(agentbus.CallRecord{ID: 4, Attempts: 3}, "")
	a.Appended = true
	if err := s.Settle(t.Context(), a); err != nil {
		t.Error(err)
	}
	if got, _, err := s.Lookup(t.Context(), keys[4], agentbus.Digest{}); err != nil || string(got.Reply.Body) != "line!" {
		t.Errorf("call 4: %+v, %v", got, err)
	}
	type line struct {
		Kind             agentbus.EntryKind
		Call             int64
		Attempt          int
		Amount, Unbilled agentbus.Micros
	}
	for payer, want := range map[agentbus.Payer][]line{
		"alice": {{"charge", 1, 1, 400, 0}, {"void", 2, 2, 0, 9}, {"charge", 2, 3, 500, 0}, {"charge", 5, 1, 600, 0}},
		"bob":   {{"void", 3, 2, 0, 7}, {"void", 4, 2, 0, 2}, {"charge", 4, 3, 4000, 0}},
	} {
		entries, err := s.Entries(t.Context(), payer, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []line
		var before agentbus.Digest
		for i, e := range entries {
			got = append(got, line{e.Kind, e.Call, e.Attempt, e.Amount, e.Unbilled})
			if e.Sum() != e.Hash || e.Prev != before || e.Seq != int64(i+1) { // G28
				t.Errorf("%s: entry %d is no link: %+v", payer, i, e)
			}
			before = e.Hash
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("entries of %s (-want +got):\n%s", payer, d)
		}
	}
	if all, err := s.Keys(t.Context()); err != nil || len(all) != 1 || all[0].Principal.Grants != nil {
		t.Errorf("keys: %+v, %v", all, err)
	}
}

// Tables that another process may be writing are not made newer under it, and are
// as soon as it has ended, by one of those that wait (decision 147); a migration
// that came beside others is made up for.
func TestAStoreInUseIsNotMigrated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	oldSchema(t, dir, oldRows)
	older := beside(t, dir)
	provider, err := goose.NewProvider(goose.DialectSQLite3, older, os.DirFS("migrations"), goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 27); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.ApplyVersion(t.Context(), 29, true); err != nil {
		t.Fatal(err)
	}
	if _, err := older.ExecContext(t.Context(), "PRAGMA journal_mode = WAL; SELECT count(*) FROM calls"); err != nil { // as a store has it open
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus.db")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := sqlite.Open(ctx, sqlite.Config{Path: path}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another uses it: %v", err)
	}
	if version, _, err := sqlite.Schema(path); version != 29 || err != nil {
		t.Errorf("its schema is %d, %v", version, err)
	}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			closed(t, s)
		})
	}
	closed(t, older)
	wait.Wait()
	if version, newest, err := sqlite.Schema(path); version != newest || err != nil {
		t.Errorf("its schema is %d, %v, want %d", version, err, newest)
	}
}

// keysOf reads the keys of the calls in dir by their ids.
func keysOf(t *testing.T, dir string) map[int64]agentbus.Digest {
	t.Helper()
	db := beside(t, dir)
	defer closed(t, db)
	rows, err := db.QueryContext(t.Context(), "SELECT id, key FROM calls")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	keys := make(map[int64]agentbus.Digest)
	for rows.Next() {
		var id int64
		var key []byte
		if err := rows.Scan(&id, &key); err != nil {
			t.Fatal(err)
		}
		var d agentbus.Digest
		copy(d[:], key)
		keys[id] = d
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}
