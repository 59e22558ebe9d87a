package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// Open creates the execution e, or finds it by its id, and claims its lease,
// in one transaction (R17). Its outcomes:
//
//   - The claim succeeds: the execution is returned as it is stored, running,
//     with a lease of a higher epoch. Definition, Seed, Spec, First and Halt are
//     those of the first Open and the last [Store.Halt] (R15).
//   - The execution is done: it is returned as stored, without a claim.
//   - Another owner holds the lease, it has not expired, and claim.TakeOver is
//     not its epoch: CodeRunConflict, and the execution as stored.
//
// A claim without an Owner leaves the execution running under nobody's lease,
// for whoever claims it next: see [Store.Orphans]. Turns are not counted: a driver
// reads them itself, and a claim costs the same however many there are.
//
// The first turn of a new execution that serves a turn comes after the turns of
// those that served it before (P17). Leases go by the database server's clock.
// e.Sealed, unless it is empty, is kept until the execution is done or its run
// is stopped (R18).
func (s *Store) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	const what = "claim an execution"
	type opened struct {
		agentbus.Execution

		refused error // with the execution as stored, so that it is no error of the transaction
	}
	got, err := write(ctx, s, what, func(c *conn) (opened, error) {
		got, err := open(c, e, claim)
		if agentbus.CodeOf(err) == agentbus.CodeRunConflict {
			return opened{got, err}, nil
		}
		if err == nil && got.State == agentbus.RunRunning {
			err = seal(c, &e)
		}
		return opened{got, nil}, err
	})
	if err != nil {
		return agentbus.Execution{}, err
	}
	s.bells.ring(roomOf(e.ID))
	return got.Execution, got.refused
}

// nowMicros is the server's clock, as leases are stored.
const nowMicros = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

func now(c *conn) (time.Time, error) {
	r, _, err := c.first("SELECT " + nowMicros)
	if err != nil {
		return time.Time{}, err
	}
	return r.time(), nil
}

func open(c *conn, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	// Two that open an execution at once, or two executions in one turn, go one
	// after the other.
	if _, _, err := c.first("SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", string(e.Run)); err != nil {
		return agentbus.Execution{}, err
	}
	r, found, err := c.first("SELECT "+executionColumns+" FROM executions WHERE id = $1 FOR NO KEY UPDATE", string(e.ID))
	if err != nil {
		return agentbus.Execution{}, err
	}
	now, err := now(c)
	if err != nil {
		return agentbus.Execution{}, err
	}
	if !found {
		return insertExecution(c, e, claim, now)
	}
	known := readExecution(r)
	if r.err != nil {
		return known, &rowError{r.err}
	}
	if known.State == agentbus.RunDone {
		return known, nil
	}
	l := &known.Lease
	held := l.Owner != "" && l.Owner != claim.Owner && l.Expires.After(now)
	if held && (claim.TakeOver == 0 || claim.TakeOver != l.Epoch) {
		return known, refusal(agentbus.CodeRunConflict, "another driver is running this execution; follow it there, or claim it once its lease has expired")
	}
	known.State, known.Ended = agentbus.RunRunning, time.Time{}
	l.Owner, l.Epoch, l.Expires = claim.Owner, l.Epoch+1, expiry(claim, now)
	_, err = c.exec("UPDATE executions SET state = 'running', owner = $2, epoch = $3, expires = $4, ended = NULL WHERE id = $1",
		string(e.ID), l.Owner, signed(l.Epoch), micros(l.Expires))
	return known, err
}

// expiry returns when a lease ends that is claimed now: nobody's never does.
func expiry(claim agentbus.Claim, now time.Time) time.Time {
	if claim.Owner == "" {
		return time.Time{}
	}
	return stored(now.Add(claim.TTL))
}

// insertExecution stores a new execution under its first lease.
func insertExecution(c *conn, e agentbus.Execution, claim agentbus.Claim, now time.Time) (agentbus.Execution, error) {
	e.State, e.Halt, e.Turns, e.Cost = agentbus.RunRunning, nil, 0, 0
	e.Began, e.Ended = stored(e.Began), time.Time{}
	e.Lease = agentbus.Lease{Execution: e.ID, Owner: claim.Owner, Epoch: 1, Expires: expiry(claim, now)}
	e.First, e.Sealed = 0, nil
	if e.Parent != "" {
		r, _, err := c.first(`SELECT coalesce(max((SELECT max(idx) FROM turns t WHERE t.number = e.number)) + 1, 0)
			FROM executions e WHERE run = $1 AND parent = $2 AND payer = $3 AND path = $4`,
			string(e.Run), string(e.Parent), string(e.Payer), e.Path)
		if err != nil {
			return agentbus.Execution{}, err
		}
		e.First = r.int()
	}
	_, err := c.exec(`INSERT INTO executions (id, run, conversation, definition, seed, payer, path, parent, depth, first, spec, state,
			owner, epoch, expires, began)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'running', $12, 1, $13, $14)`,
		string(e.ID), string(e.Run), e.Conversation, e.Definition[:], e.Seed, string(e.Payer), e.Path, string(e.Parent),
		int64(e.Depth), int64(e.First), blob(e.Spec), e.Lease.Owner, micros(e.Lease.Expires), micros(e.Began))
	return e, err
}

// Renew prolongs a lease to ttl from now. CodeLeaseLost: it was given back or
// has moved on (R17). CodeRunStopped: the run was stopped, which its driver
// learns here when that was done in another process.
func (s *Store) Renew(ctx context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error) {
	renewed := l
	err := of(s.journal, string(l.Execution)).do(ctx, s, "renew a lease", func(p *journalPage) { p.want(l.Execution) }, func(p *journalPage) error {
		d := p.desks[l.Execution]
		switch {
		case d == nil || d.Lease.Owner != l.Owner || d.Lease.Epoch != l.Epoch:
			return errLeaseLost
		case p.stopped[d.Run]:
			return errStopped
		}
		d.Lease.Expires, d.changed = stored(p.now.Add(ttl)), true
		renewed.Expires = d.Lease.Expires
		return nil
	})
	if err != nil {
		return l, err
	}
	return renewed, nil
}

// Halt stores why the execution stopped: done when h is final, else paused
// (R16). With it, the turns that asked for something are finished and what they
// raise is stored (R22), which is CodeOverloaded when too many wait already. An
// execution that waits for something that was resolved meanwhile stays running,
// for whoever claims it next. It appends events and gives the lease back, in the same transaction; a
// done execution's sealed credential is removed (R18).
// CodeLeaseLost: the lease was given back or has moved on (R17).
func (s *Store) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	const what = "halt an execution"
	if _, err := jsonText(h); err != nil {
		return unavailable(ctx, what, &rowError{err})
	}
	parks, err := newParking(h.Wait)
	if err != nil {
		return unavailable(ctx, what, &rowError{err})
	}
	events = slices.Clone(events)
	return of(s.journal, string(l.Execution)).do(ctx, s, what, func(p *journalPage) { parks.want(p, l.Execution) }, func(p *journalPage) error {
		return p.all(func() error { return p.halt(l, h, parks, s.mostInterrupts, events) })
	})
}

func (p *journalPage) halt(l agentbus.Lease, h agentbus.Halt, parks *parking, most int64, events []agentbus.Event) error {
	d, err := p.take(l.Execution, l.Epoch)
	if err != nil {
		return err
	}
	if d.Lease.Owner != l.Owner {
		return errLeaseLost
	}
	over, err := p.park(d, parks, most)
	if err != nil {
		return err
	}
	switch d.Ended = (time.Time{}); {
	case h.Final():
		d.State, d.Ended = agentbus.RunDone, p.now
	case over:
		d.State = agentbus.RunRunning
	default:
		d.State = agentbus.RunPaused
	}
	d.Halt, d.Lease.Owner, d.Lease.Expires = &h, "", time.Time{}
	d.changed, d.unseal = true, h.Kind.Final()
	return d.append(events)
}
