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
	"github.com/agentbus/agentbus/server"
)

const (
	inserters  = 8 // connections of bare inserts, as many as a replica writes with
	sharedRuns = 8000
	claimable  = 3000
	tailed     = 400 // events that are followed
)

// measurePostgres measures one replica and three on the PostgreSQL that the
// command line names, next to bare inserts on the same server.
func measurePostgres(ctx context.Context, o options, r *report) (err error) {
	if o.postgres == "" {
		say("PostgreSQL is not measured: name a server with -postgres")
		return nil
	}
	db := o.postgres
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
	var all []*server.Server
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
	}()
	for range n {
		s, err := openBusOn(ctx, at)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	for _, m := range []struct {
		figure string
		do     func(context.Context, []*server.Server) (float64, error)
	}{{"calls", sharedCalls}, {"turns", sharedTurns}} {
		before, err := bareInserts(ctx, db, o.each/2, silent)
		if err != nil {
			return err
		}
		rate, err := m.do(ctx, all)
		if err != nil {
			return err
		}
		after, err := bareInserts(ctx, db, o.each/2, silent)
		if err != nil {
			return err
		}
		figure := "PostgreSQL, " + m.figure + ", replicas: " + strconv.Itoa(n)
		r.add(figure, "against bare inserts", rate/((before+after)/2))
		r.add(figure, "a second", rate)
		r.add("PostgreSQL, bare inserts", "a second", (before+after)/2)
	}
	rate, err := claims(ctx, all)
	if err != nil {
		return err
	}
	r.add("PostgreSQL, claims, replicas: "+strconv.Itoa(n), "a second", rate)
	if n == 1 {
		return nil
	}
	late, err := tail(ctx, all[0], all[1])
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

// sharedCalls returns the calls a second that 64 callers of 16 payers reserve and
// settle, over all replicas.
func sharedCalls(ctx context.Context, all []*server.Server) (float64, error) {
	const callers = 64
	return timed(callers, sharedRuns, func(i int) error {
		payer := bus.Payer("payer-" + strconv.Itoa(i%16))
		for n := range sharedRuns / callers {
			if err := reserveAndSettle(ctx, all[i%len(all)], payer, bus.RunID("bench.w"+strconv.Itoa(i)+"."+strconv.Itoa(n))); err != nil {
				return err
			}
		}
		return nil
	})
}

// sharedTurns returns the turns a second of many runs, over all replicas.
func sharedTurns(ctx context.Context, all []*server.Server) (float64, error) {
	return timed(manyRuns, manyRuns*manyTurns, func(i int) error { return drive(ctx, all[i%len(all)], manyTurns, nil) })
}

// claims returns the runs a second that the replicas claim from each other, of
// those that wait for a driver.
func claims(ctx context.Context, all []*server.Server) (float64, error) {
	_, err := timed(64, claimable, func(i int) error {
		for n := i; n < claimable; n += 64 {
			id := bus.ExecutionID("claim-" + strconv.Itoa(n))
			if _, err := all[0].Store().Open(ctx, bus.Execution{ID: id, Run: bus.RunID(id), Conversation: "bench", Payer: "bench", Began: time.Now()}, bus.Claim{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var claimed atomic.Int64
	alive, none := func(string) bool { return true }, func(bus.ExecutionID) bool { return false }
	rate, err := timed(len(all), claimable, func(i int) error {
		for claimed.Load() < claimable {
			got, err := all[i].Store().Orphans(ctx, bus.Claim{Owner: all[i].Owner(), TTL: time.Hour}, 16, alive, none)
			if err != nil {
				return err
			}
			claimed.Add(int64(len(got)))
		}
		return nil
	})
	if n := claimed.Load(); err == nil && n != claimable {
		err = fmt.Errorf("%d runs were claimed %d times", claimable, n)
	}
	return rate, err
}

// tail follows an execution at one replica that another appends to, and returns
// how late each event was, in milliseconds, the least first.
func tail(ctx context.Context, writer, reader *server.Server) (late []float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	const id = "tail"
	e, err := writer.Store().Open(ctx, bus.Execution{ID: id, Run: id, Conversation: "bench", Payer: "bench", Began: time.Now()}, bus.Claim{Owner: writer.Owner(), TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	seen, ended := make(chan time.Time, tailed), make(chan error, 1)
	go func() { ended <- follow(ctx, reader, id, seen) }()
	defer func() {
		stop()
		<-ended //nolint:errcheck // it was told to stop
	}()
	for range tailed {
		if _, err := writer.Store().AppendEvents(ctx, e.Lease, bus.Event{Type: "bench", At: time.Now(), Run: id}); err != nil {
			return nil, err
		}
		acknowledged := time.Now()
		select {
		case at := <-seen:
			late = append(late, max(at.Sub(acknowledged).Seconds()*1e3, 0))
		case err := <-ended:
			ended <- err
			return nil, err
		}
	}
	slices.Sort(late)
	return late, nil
}

// follow tells when each event of an execution was seen, until ctx ends.
func follow(ctx context.Context, s *server.Server, id bus.ExecutionID, seen chan<- time.Time) error {
	after := bus.Position(-1)
	for ctx.Err() == nil {
		rung, release := s.Store().Watch(id)
		found := false
		for e, err := range s.Store().Events(ctx, id, after) {
			if err != nil {
				release()
				return err
			}
			after, found = e.Position, true
			seen <- time.Now()
		}
		if !found {
			select {
			case <-rung:
			case <-ctx.Done():
			}
		}
		release()
	}
	return ctx.Err()
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
