//go:build unix

// Package pgtest gives tests a PostgreSQL of their own: it finds the programs of
// the server on this machine, runs one in a temporary directory, and hands each
// test its own database.
//
// AGENTBUS_TEST_POSTGRES names a server to use instead, as a URL whose user may
// create databases. Where there is neither, tests are skipped with the name of
// the package that is missing; see package require.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus/internal/require"
)

// shared is the server of this test binary, once a test wants it, and the
// databases of pools there.
var shared struct {
	sync.Mutex

	server *Server
	pooled []string
}

// Main runs the tests of m and returns their exit code. It ends the server they
// shared, however they ended, or removes what they left on another's.
func Main(m *testing.M) (code int) {
	defer func() {
		if s := shared.server; s != nil {
			s.End()
			return
		}
		for _, name := range shared.pooled {
			drop(context.Background(), os.Getenv("AGENTBUS_TEST_POSTGRES"), name) //nolint:errcheck // the next run has other names
		}
	}()
	return m.Run()
}

// databases counts those made by this process.
var databases atomic.Int64

// Database makes an empty database on the server of this test binary and
// returns its URL. The database goes with the test, the server with [Main].
func Database(tb testing.TB) string {
	tb.Helper()
	return create(tb, server(tb), "")
}

// server returns the URL of the server of this test binary.
func server(tb testing.TB) string {
	tb.Helper()
	if base := os.Getenv("AGENTBUS_TEST_POSTGRES"); base != "" {
		return base
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = start(tb, programs(tb))
	}
	return shared.server.URL()
}

// newName returns a name that no database has.
func newName() string {
	return "agentbus_" + strconv.Itoa(os.Getpid()) + "_" + strconv.FormatInt(databases.Add(1), 10)
}

// do runs a statement on the server at base.
func do(ctx context.Context, base, statement string) error {
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }() // nothing is lost with it
	_, err = c.Exec(ctx, statement)
	return err
}

// create makes a database on the server at base, which goes with the test.
func create(tb testing.TB, base, how string) string {
	tb.Helper()
	name := newName()
	if err := do(tb.Context(), base, "CREATE DATABASE "+name+how); err != nil {
		tb.Fatalf("make a database: %v", err)
	}
	tb.Cleanup(func() {
		if err := drop(context.WithoutCancel(tb.Context()), base, name); err != nil {
			tb.Logf("drop a database: %v", err) // the server may be gone
		}
	})
	return within(tb, base, name)
}

func drop(ctx context.Context, base, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return do(ctx, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// within returns the URL of a database of the server at base.
func within(tb testing.TB, base, name string) string {
	tb.Helper()
	u, err := url.Parse(base)
	if err != nil {
		tb.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// programs returns the directory of initdb and postgres.
func programs(tb testing.TB) string {
	tb.Helper()
	dir := find()
	if dir == "" {
		require.Missing(tb, "PostgreSQL (package postgresql)")
	}
	return dir
}

// find returns the directory of initdb and postgres; "" when there is none.
func find() string {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // initdb looks beside itself
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is a good one
	if len(found) == 0 {
		return ""
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest)
}

// version returns the number in /usr/lib/postgresql/15/bin/postgres.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// Own starts a server for one test alone, which may stop and start it again.
func Own(tb testing.TB) *Server {
	tb.Helper()
	s := start(tb, programs(tb))
	tb.Cleanup(s.End)
	return s
}

// Database makes an empty database on the server and returns its URL.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return create(tb, s.URL(), "")
}

// URL is where the server's own database is reached.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=5432", url.QueryEscape(s.dir))
}
