package sqlite

import (
	"context"
	"errors"
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
// those that served it before (P17). Leases go by a clock that the processes of
// this machine share and that nobody can set. e.Sealed, unless it is empty, is
// kept until the execution is done or its run is stopped (R18).
func (s *Store) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	return write(ctx, s, "claim an execution", func(c *conn) (agentbus.Execution, error) {
		got, err := open(c, e, claim, s.clock.now())
		if err == nil && got.State == agentbus.RunRunning {
			err = seal(c, &e)
		}
		return got, err
	})
}

func open(c *conn, e agentbus.Execution, claim agentbus.Claim, now time.Time) (agentbus.Execution, error) {
	r, found, err := c.first("SELECT "+executionColumns+" FROM executions WHERE id = ?1", string(e.ID))
	if err != nil {
		return agentbus.Execution{}, err
	}
	if !found {
		return insertExecution(c, e, claim, now)
	}
	known := readExecution(r)
	if r.err != nil || known.State == agentbus.RunDone {
		return known, r.err
	}
	l := &known.Lease
	held := l.Owner != "" && l.Owner != claim.Owner && l.Expires.After(now)
	if held && (claim.TakeOver == 0 || claim.TakeOver != l.Epoch) {
		return known, refusal(agentbus.CodeRunConflict, "another driver is running this execution; follow it there, or claim it once its lease has expired")
	}
	known.State, known.Ended = agentbus.RunRunning, time.Time{}
	l.Owner, l.Epoch, l.Expires = claim.Owner, l.Epoch+1, expiry(claim, now)
	_, err = c.exec("UPDATE executions SET state = 'running', owner = ?2, epoch = ?3, expires = ?4, ended = NULL WHERE id = ?1",
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
		r, _, err := c.first(`SELECT coalesce(max((SELECT max(id) FROM turns WHERE id BETWEEN number << 28 AND (number << 28) + 0xfffffff) & 0xfffffff) + 1, 0)
			FROM executions WHERE run = ?1 AND parent = ?2 AND payer = ?3 AND path = ?4`,
			string(e.Run), string(e.Parent), string(e.Payer), e.Path)
		if err != nil {
			return agentbus.Execution{}, err
		}
		e.First = r.int()
	}
	_, err := c.exec(`INSERT INTO executions (id, run, conversation, definition, seed, payer, path, parent, depth, first, spec, state,
			owner, epoch, expires, began)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'running', ?12, 1, ?13, ?14)`,
		string(e.ID), string(e.Run), e.Conversation, e.Definition[:], e.Seed, string(e.Payer), e.Path, string(e.Parent),
		int64(e.Depth), int64(e.First), blob(e.Spec), e.Lease.Owner, micros(e.Lease.Expires), micros(e.Began))
	return e, err
}

// Renew prolongs a lease to ttl from now. CodeLeaseLost: it was given back or
// has moved on (R17). CodeRunStopped: the run was stopped, which its driver
// learns here when that was done in another process.
func (s *Store) Renew(ctx context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error) {
	return write(ctx, s, "renew a lease", func(c *conn) (agentbus.Lease, error) {
		r, holds, err := c.first(`SELECT EXISTS (SELECT 1 FROM stopped_runs WHERE run = executions.run)
			FROM executions WHERE id = ?1 AND owner = ?2 AND epoch = ?3`, string(l.Execution), l.Owner, signed(l.Epoch))
		switch {
		case err != nil:
			return l, err
		case !holds:
			return l, errLeaseLost
		case r.bool():
			return l, refusal(agentbus.CodeRunStopped, "this run was stopped by its operator")
		}
		renewed := l
		renewed.Expires = stored(s.clock.now().Add(ttl))
		_, err = c.exec("UPDATE executions SET expires = ?2 WHERE id = ?1", string(l.Execution), micros(renewed.Expires))
		return renewed, err
	})
}

// Halt stores why the execution stopped: done when h is final, else paused
// (R16). With it, the turns that asked for something are finished and what they
// raise is stored (R22), which is CodeOverloaded when too many wait already. An
// execution that waits for something that was resolved meanwhile stays running,
// for whoever claims it next. It appends events and gives the lease back, in the same transaction; a
// done execution's sealed credential is removed (R18).
// CodeLeaseLost: the lease was given back or has moved on (R17).
func (s *Store) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	halt, err := jsonText(h)
	if err != nil {
		return unavailable("encode a halt", err)
	}
	state, ended := agentbus.RunPaused, any(nil)
	if h.Final() {
		state, ended = agentbus.RunDone, micros(time.Now())
	}
	parks, err := s.parking(h.Wait)
	if err != nil {
		return unavailable("encode what a run waits for", err)
	}
	_, err = write(ctx, s, "halt an execution", func(c *conn) (struct{}, error) {
		d, err := takeDesk(c, l.Execution, l.Epoch)
		if err != nil {
			return struct{}{}, err
		}
		if err := parks.write(c, &d); err != nil {
			return struct{}{}, err
		}
		over, err := parks.over(c)
		if err != nil {
			return struct{}{}, err
		}
		state := state
		if over && !h.Final() {
			state = agentbus.RunRunning
		}
		changed, err := c.exec("UPDATE executions SET state = ?3, halt = ?4, ended = ?5, owner = '', expires = NULL WHERE id = ?1 AND owner = ?2",
			string(l.Execution), l.Owner, string(state), halt, ended)
		if err == nil && changed == 0 {
			err = errLeaseLost
		}
		if err != nil {
			return struct{}{}, err
		}
		if h.Kind.Final() {
			err = unseal(c, l.Execution)
		}
		return struct{}{}, errors.Join(err, d.appendEvents(c, events))
	})
	s.rang(l.Execution, events, err)
	return err
}
