package sqlite

import (
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// What below the log of a connection counts and refuses. There is one, since SQLite
// calls functions of the package.
var below struct {
	write  uintptr
	writes atomic.Int32
	full   atomic.Bool
}

func countWrites(tls *libc.TLS, file, p uintptr, n int32, at int64) int32 {
	below.writes.Add(1)
	if below.full.Load() {
		return lib.SQLITE_FULL
	}
	return writeBelow(below.write, tls, file, p, n, at)
}

// TestACommitIsWrittenAtOnce: the pages of a commit are one write; what others commit
// meanwhile stays, whatever a commit that failed has left for the next one, or for
// the end of the connection, which folds the log into the file.
func TestACommitIsWrittenAtOnce(t *testing.T) {
	uri := (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(t.TempDir(), "x.db"))}).String() + "?_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"
	open := func() *conn {
		c, err := dial(uri)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	do := func(c *conn, queries ...string) {
		t.Helper()
		for _, q := range queries {
			if err := c.control(q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
	commit := func(c *conn, word string) error {
		t.Helper()
		if err := c.begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
			INSERT INTO words SELECT ?1 || i, randomblob(3000) FROM n`, word); err != nil {
			t.Fatal(err)
		}
		if err := c.control("COMMIT"); err != nil {
			_ = c.rollback() // SQLite may have rolled back by itself
			return err
		}
		return nil
	}
	holds := func(c *conn, words string) {
		t.Helper()
		for query, want := range map[string]string{"PRAGMA integrity_check": "ok", "SELECT group_concat(word, ' ') FROM words WHERE word LIKE '%1'": words} {
			if r, _, err := c.first(query); err != nil || r.text() != want {
				t.Errorf("%s: %v, %v, want %s", query, r, err, want)
			}
		}
	}
	t.Cleanup(func() { // once all others are closed, the writer last
		c, err := dial(uri)
		if err != nil {
			t.Fatal(err)
		}
		holds(c, "a1 b1 c1 d1")
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	writer, other := open(), open()
	do(writer, "PRAGMA journal_mode = WAL", "CREATE TABLE words (word TEXT, body BLOB)")
	if err := writer.hold(); err != nil {
		t.Fatal(err)
	}
	l := logAt(writer.log)
	below.write, l.below.FxWrite = l.below.FxWrite, address(countWrites)

	before := below.writes.Load()
	if err := commit(writer, "a"); err != nil || below.writes.Load() != before+1 {
		t.Errorf("a commit of 10 pages took %d writes, %v", below.writes.Load()-before, err)
	}
	meanwhile := func(word string) { // as if a commit had failed between its writes and its sync, and another process had gone on
		t.Helper()
		below.full.Store(true)
		if err := commit(writer, "never"); sqliteCode(err) != lib.SQLITE_FULL {
			t.Errorf("a commit on a full disk: %v", err)
		}
		below.full.Store(false)
		if err := commit(other, word); err != nil {
			t.Error(err)
		}
		l.held = 32 << 10
	}
	meanwhile("b")
	if err := commit(writer, "c"); err != nil {
		t.Error(err)
	}
	for _, c := range []*conn{open(), other, writer} {
		holds(c, "a1 b1 c1")
	}
	meanwhile("d")
}
