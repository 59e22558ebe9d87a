//go:build unix

package pgtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Pool hands databases with the same tables to one test after the other, on the
// server of this test binary. To make a database and its tables takes longer than
// most tests do; to empty one takes a moment.
type Pool struct {
	// Fill makes the tables in an empty database. Nothing may be connected to it
	// any more when it returns.
	Fill func(ctx context.Context, url string) error
	// Keep is the table whose rows stay when a database is handed on.
	Keep string

	mu   sync.Mutex // guards free
	free []string
}

// Database returns the URL of a database whose tables are empty. Whoever is still
// connected to it when the test ends is cut off.
func (p *Pool) Database(tb testing.TB) string {
	tb.Helper()
	base, name := server(tb), p.take()
	if name == "" {
		name = p.make(tb, base)
	}
	url := within(tb, base, name)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		if err := p.empty(ctx, url); err != nil {
			tb.Logf("empty a database: %v", err) // it is not used again
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, name)
	})
	return url
}

// take returns a database that nobody uses; "" when there is none.
func (p *Pool) take() (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		name, p.free = p.free[n-1], p.free[:n-1]
	}
	return name
}

// make makes another database.
func (p *Pool) make(tb testing.TB, base string) (name string) {
	tb.Helper()
	name = newName()
	err := do(tb.Context(), base, "CREATE DATABASE "+name)
	shared.Lock()
	shared.pooled = append(shared.pooled, name)
	shared.Unlock()
	if err == nil {
		url := within(tb, base, name)
		if err = p.Fill(tb.Context(), url); err == nil {
			err = p.empty(tb.Context(), url)
		}
	}
	if err != nil {
		tb.Fatalf("make a database: %v", err)
	}
	return name
}

// empty removes all rows of a database, and begins all sequences again.
func (p *Pool) empty(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }() // everything is committed
	const others = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	if _, err := c.Exec(ctx, others); err != nil {
		return err
	}
	for _, things := range []struct{ which, do string }{
		{"relkind IN ('r', 'p') AND NOT relispartition AND relname <> $1", "DELETE FROM %s"},
		{"relkind = 'S' AND NOT starts_with(relname, $1)", "ALTER SEQUENCE %s RESTART"},
	} {
		rows, err := c.Query(ctx, "SELECT format('"+things.do+"', oid::regclass) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND "+things.which, p.Keep)
		if err != nil {
			return err
		}
		statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := c.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
