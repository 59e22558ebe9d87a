//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	bus "github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/server"
)

const (
	inserters     = 8 // connections of bare inserts, as many as a replica writes with
	sharedCallers = 64
	sharedRuns    = 8000
	claimable     = 3000
	tailed        = 400 // events that are followed
	tailedRun     = "tail"
)

// measurePostgres measures one replica and three, in processes of their own, on
// the PostgreSQL that the command line names or on one that it starts, next to
// bare inserts on the same server.
func measurePostgres(ctx context.Context, o options, r *report) (err error) {
	db := o.postgres
	if db == "" {
		own, err := pgtest.Run(ctx, "shared_buffers=256MB")
		if err != nil && o.only == "" {
			say("PostgreSQL is not measured: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		defer own.End()
		db = own.URL()
	}
	defer func() { err = errors.Join(err, do(context.WithoutCancel(ctx), db, "DROP TABLE IF EXISTS bare")) }()
	for round := range o.rounds {
		for _, n := range []int{1, 3} {
			say("PostgreSQL, %d replicas, round %d of %d", n, round+1, o.rounds)
			if err := measureReplicas(ctx, o, r, db, n, "bench_"+strconv.Itoa(round)+"_"+strconv.Itoa(n)); err != nil {
				return err
			}
		}
		if err := doorbell(ctx, o, r, db); err != nil {
			return err
		}
	}
	return nil
}

// measureReplicas measures n replicas on a database of that name.
func measureReplicas(ctx context.Context, o options, r *report, db string, n int, name string) (err error) {
	at, err := newDatabase(ctx, db, name)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, do(context.WithoutCancel(ctx), db, "DROP DATABASE "+name+" WITH (FORCE)"))
	}()
	all, err := startReplicas(ctx, at, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endReplicas(all)) }()
	replicas := ", replicas: " + strconv.Itoa(n)
	for _, m := range []struct {
		what   string
		things int
	}{{"calls", sharedRuns}, {"turns", manyRuns * manyTurns}} {
		before, err := bareInserts(ctx, db, o.each/2, silent)
		if err != nil {
			return err
		}
		rate, _, err := together(all, m.what, m.things)
		if err != nil {
			return err
		}
		after, err := bareInserts(ctx, db, o.each/2, silent)
		if err != nil {
			return err
		}
		r.add("PostgreSQL, "+m.what+replicas, "against bare inserts", rate/((before+after)/2))
		r.add("PostgreSQL, "+m.what+replicas, "a second", rate)
		r.add("PostgreSQL, bare inserts", "a second", (before+after)/2)
	}
	s, err := openBusOn(ctx, at) // one more, which begins what the others claim and follow
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rate, err := claims(ctx, s, all)
	if err != nil {
		return err
	}
	r.add("PostgreSQL, claims"+replicas, "a second", rate)
	if n == 1 {
		return nil
	}
	late, err := tail(ctx, s, all[0])
	if err != nil {
		return err
	}
	r.add("PostgreSQL, tail at another replica", "p50, ms", late[len(late)/2])
	r.add("PostgreSQL, tail at another replica", "p99, ms", late[len(late)*99/100])
	return nil
}

// do runs a statement over a connection of its own.
func do(ctx context.Context, db, statement string) (err error) {
	c, err := pgx.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	_, err = c.Exec(ctx, statement)
	return err
}

// newDatabase makes a database and returns its URL.
func newDatabase(ctx context.Context, db, name string) (at string, err error) {
	if err := errors.Join(do(ctx, db, "DROP DATABASE IF EXISTS "+name), do(ctx, db, "CREATE DATABASE "+name)); err != nil {
		return "", err
	}
	u, err := url.Parse(db)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// claims returns the runs a second that the replicas claim from each other, of
// those that wait for a driver.
func claims(ctx context.Context, s *server.Server, all []*replica) (float64, error) {
	_, err := timed(64, claimable, func(i int) error {
		for n := i; n < claimable; n += 64 {
			id := bus.ExecutionID("claim-" + strconv.Itoa(n))
			if _, err := s.Store().Open(ctx, bus.Execution{ID: id, Run: bus.RunID(id), Conversation: "bench", Payer: "bench", Began: time.Now()}, bus.Claim{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	rate, claimed, err := together(all, "claims", claimable)
	if err == nil && claimed != claimable {
		err = fmt.Errorf("%d runs were claimed %d times", claimable, claimed)
	}
	return rate, err
}

// tail has a replica follow an execution that writer appends to, and returns how
// late each event was, in milliseconds, the least first.
func tail(ctx context.Context, writer *server.Server, reader *replica) (late []float64, err error) {
	e, err := writer.Store().Open(ctx, bus.Execution{ID: tailedRun, Run: tailedRun, Conversation: "bench", Payer: "bench", Began: time.Now()}, bus.Claim{Owner: writer.Owner(), TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	if err := reader.tell("follow", 0, 1); err != nil {
		return nil, err
	}
	for range tailed {
		if _, err := writer.Store().AppendEvents(ctx, e.Lease, bus.Event{Type: "bench", At: time.Now(), Run: tailedRun}); err != nil {
			return nil, err
		}
		acknowledged := time.Now()
		at, err := reader.told()
		if err != nil {
			return nil, err
		}
		late = append(late, max(time.Unix(0, at).Sub(acknowledged).Seconds()*1e3, 0))
	}
	if _, err := reader.told(); err != nil { // that it has seen all
		return nil, err
	}
	slices.Sort(late)
	return late, nil
}

// How those who insert ring.
const (
	silent  = "not at all"
	outside = "behind the COMMITs"
	inside  = "inside of each"
)

// doorbell measures what ringing costs those who insert.
func doorbell(ctx context.Context, o options, r *report, db string) error {
	quiet, err := bareInserts(ctx, db, o.each, silent)
	if err != nil {
		return err
	}
	for _, how := range []string{outside, inside} {
		rate, err := bareInserts(ctx, db, o.each, how)
		if err != nil {
			return err
		}
		r.add("PostgreSQL, bare inserts that ring "+how, "against silent ones", rate/quiet)
	}
	return nil
}

// bareInserts returns how many rows of 1 KiB a second are inserted and committed,
// each by itself.
func bareInserts(ctx context.Context, db string, lasts time.Duration, how string) (float64, error) {
	all := make([]*pgx.Conn, inserters+1)
	for i := range all {
		c, err := pgx.Connect(ctx, db)
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close(ctx) }() // it has been answered
		all[i] = c
	}
	if _, err := all[inserters].Exec(ctx, "CREATE TABLE IF NOT EXISTS bare (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT)"); err != nil {
		return 0, err
	}
	text, until := strings.Repeat("x", 1024), time.Now().Add(lasts)
	insert := "INSERT INTO bare (text) VALUES ($1)"
	if how == inside {
		insert = "WITH row AS (INSERT INTO bare (text) VALUES ($1)) SELECT pg_notify('bare', '')"
	}
	var rows atomic.Int64
	began := time.Now()
	_, err := timed(inserters+1, 1, func(i int) error {
		for time.Now().Before(until) {
			if i == inserters { // who rings behind them
				if how == outside {
					if _, err := all[i].Exec(ctx, "SELECT pg_notify('bare', '')"); err != nil {
						return err
					}
				}
				<-time.After(5 * time.Millisecond)
				continue
			}
			if _, err := all[i].Exec(ctx, insert, text); err != nil {
				return err
			}
			rows.Add(1)
		}
		return nil
	})
	return float64(rows.Load()) / time.Since(began).Seconds(), err
}

// timed runs do n times at once and returns how many things a second that were.
func timed(n, things int, do func(i int) error) (float64, error) {
	faults := make([]error, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range faults {
		wg.Go(func() { faults[i] = do(i) })
	}
	wg.Wait()
	return float64(things) / time.Since(began).Seconds(), errors.Join(faults...)
}
