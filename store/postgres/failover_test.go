package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus/internal/pgtest"
)

// asked runs a statement at url and returns the first column of its first row.
func asked(t *testing.T, url, statement string) (got string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }() // it is done
	if err := c.QueryRow(t.Context(), statement).Scan(&got); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return got
}

// TestFailOver: I1, I2, the primary is lost in the middle of commits, and its
// synchronous standby is promoted: the store, whose URL names both, goes on, and
// what was acknowledged is there.
func TestFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("two servers, and one of them dies")
	}
	t.Parallel()
	primary := pgtest.Own(t)
	at := primary.Database(t)
	standby := primary.Standby(t)
	for asked(t, primary.URL(), "SELECT count(*)::text FROM pg_stat_replication WHERE sync_state = 'sync'") != "1" {
		<-time.After(10 * time.Millisecond)
	}
	s := opened(t, pgtest.Both(t, at, standby))
	defer func() { _ = s.Close() }()
	const n = 40
	l, done := loaded(t, s, n)
	for l.settled.Load() < 50 {
		<-time.After(time.Millisecond)
	}
	primary.Stop()
	asked(t, standby.URL(), "SELECT pg_promote()::text")
	<-done
	l.check(t, s, 8*n)
	select {
	case <-s.Broken():
		t.Error("the store is broken")
	default:
	}
}
