//go:build unix

package pgtest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil {
		os.Stderr.WriteString(err.Error()) //nolint:errcheck // the exit code tells
		code = 1
	}
	os.Exit(code)
}

func ask(t *testing.T, url, query string) (got string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if err := c.QueryRow(t.Context(), query).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	const name = "SELECT current_database()"
	if a, b := ask(t, pgtest.Database(t), name), ask(t, pgtest.Database(t), name); a == b {
		t.Errorf("both are %s", a)
	}
}

func TestAServerIsStoppedAndStarted(t *testing.T) {
	s := pgtest.Own(t)
	url := s.Database(t)
	const name = "SELECT current_database()"
	before := ask(t, url, name)
	s.Stop()
	if c, err := pgx.Connect(t.Context(), url); err == nil {
		t.Errorf("a server that was stopped answers: %v", c.Close(t.Context()))
	}
	s.Start(t)
	if got := ask(t, url, name); got != before {
		t.Errorf("it was %q and is %q", before, got)
	}
}
