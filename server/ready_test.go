package server_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
)

// readiness returns what /readyz of s says.
func readiness(t *testing.T, s *server.Server) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

// becomesReady waits until s is ready: a write may take longer than /readyz waits.
func becomesReady(t *testing.T, s *server.Server) {
	t.Helper()
	soon(t, "200", func() bool {
		status, _ := readiness(t, s)
		return status == http.StatusOK
	})
}

// notReady waits until s says that it is not ready, with all words.
func notReady(t *testing.T, s *server.Server, words ...string) {
	t.Helper()
	soon(t, "503", func() bool {
		status, body := readiness(t, s)
		for _, word := range append(words, `"store_unavailable"`) {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, word) {
				t.Logf("%d %s, want 503 and %s", status, body, word)
				return false
			}
		}
		return true
	})
}

// G31: a bus whose database is away says so before whoever asks gives up, and not
// when it gives up itself.
func TestNotReadyWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.Own(t)
	s := buildOn(t, database.Database(t), "agents: {echo: {kind: builtin, builtin: echo}}\n")
	defer closeAll(t, s)
	becomesReady(t, s)
	database.Stop()
	notReady(t, s, "the store has taken no write within 2s: ", "database")
	database.Start(t)
	becomesReady(t, s)
}

// G31: so does one whose file another process keeps locked, for longer than a write waits.
func TestNotReadyWhileItsFileIsLocked(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))
	s := buildOn(t, "sqlite:"+path, "agents: {echo: {kind: builtin, builtin: echo}}\n")
	defer closeAll(t, s)
	other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }() // it has read nothing
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	notReady(t, s, "the store has taken no write within 2s: ", "write lock")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	becomesReady(t, s)
}

// G31: a bus whose readers are all busy, with a list or an export, is ready: calls are
// written, and do not wait for those.
func TestReadyBehindLongReads(t *testing.T) {
	t.Parallel()
	s := buildAt(t, filepath.Join(t.TempDir(), "bus.db"), "agents: {echo: {kind: builtin, builtin: echo}}\n")
	defer closeAll(t, s)
	if _, err := s.Stop(t.Context(), "run_a", "ops"); err != nil { // a row to stand at
		t.Fatal(err)
	}
	store, ok := s.Store().(interface {
		Export(ctx context.Context, row func(table string, columns []string, values []any) error) error
	})
	if !ok {
		t.Fatalf("%T", s.Store())
	}
	const readers = 4
	stand, leave := make(chan struct{}, readers), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(leave)
	for range readers {
		reading.Go(func() {
			first := sync.OnceFunc(func() { stand <- struct{}{} })
			defer first() // also where there is none
			if err := store.Export(t.Context(), func(string, []string, []any) error {
				first()
				<-leave
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range readers {
		<-stand
	}
	becomesReady(t, s)
}

// I2: a bus whose file was emptied, or cut, is not ready: what it would write there
// is gone with the process.
func TestNotReadyOnceItsFileIsCut(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 8192} {
		path := sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))
		s := buildOn(t, "sqlite:"+path, "agents: {echo: {kind: builtin, builtin: echo}}\n")
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		notReady(t, s, "; stop the process and restore a copy")
		_ = s.Close() // it cannot fold its log into that file
	}
}
