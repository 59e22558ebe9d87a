package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus/internal/faults"
)

// A seat is a place from which one transaction at a time is committed. Its row
// says which was the last: so the outcome of a COMMIT whose answer never came is
// read, not guessed (I2).
type seat struct {
	id     string
	number int64 // of the last transaction that was committed
	fence  int64 // raised when an outcome is asked for: what is under way then is not committed any more
}

// Limits of patience.
const (
	retryFor   = 15 * time.Second // that a transaction is tried again which was not committed
	resolveFor = time.Minute      // that the outcome of one is asked for
	tryFor     = 30 * time.Second // that one may take
	retryPause = 20 * time.Millisecond
	pauseMost  = 500 * time.Millisecond
)

// transact runs f in a transaction and commits it, from a seat that is free. A
// transaction that was lost with its connection, or stood in the way of another,
// is run again. Once begun it goes on when ctx ends.
func (s *Store) transact(ctx context.Context, f func(*conn) error) error {
	select {
	case at := <-s.seats:
		defer func() { s.seats <- at }()
		return s.commit(context.WithoutCancel(ctx), at, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is transact for a method that writes alone and answers.
func write[T any](ctx context.Context, s *Store, what string, f func(*conn) (T, error)) (T, error) {
	var result, none T
	if err := s.enter(); err != nil {
		return none, unavailable(ctx, what, err)
	}
	defer s.writes.Done()
	err := s.transact(ctx, func(c *conn) (err error) {
		result, err = f(c)
		return err
	})
	return result, unavailable(ctx, what, err)
}

// commit is transact from a seat. It tries again as long as that may help and
// nothing was committed.
func (s *Store) commit(ctx context.Context, at *seat, f func(*conn) error) error {
	until, pause := time.Now().Add(retryFor), retryPause
	for {
		err := s.try(ctx, at, f)
		if damaged(err) {
			s.breaks(ctx, err)
		}
		if !passing(err) || s.broken.Load() != nil || time.Now().After(until) {
			return err
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "transaction is tried again", slog.Any("error", err))
		if s.rests(pause) {
			return err
		}
		pause = min(2*pause, pauseMost)
	}
}

// rests waits for a pause, and reports whether the store is being closed, which
// waits for nobody.
func (s *Store) rests(pause time.Duration) (closing bool) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-s.closing:
		return true
	}
}

// try runs f in a transaction once and commits it.
func (s *Store) try(ctx context.Context, at *seat, f func(*conn) error) error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	held, err := s.writers.Acquire(ctx)
	if err != nil {
		return err
	}
	defer held.Release() // a connection that is inside a transaction still is closed by it
	c := &conn{ctx: ctx, raw: held.Conn()}
	if _, err := c.raw.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	faults.At(faults.CommitBegun)
	if err := f(c); err != nil || !c.wrote {
		_, rerr := c.raw.Exec(ctx, "ROLLBACK")
		if err == nil {
			err = rerr
		}
		return err
	}
	faults.At(faults.CommitAmid)
	err = at.commit(c)
	if err != nil && (sqlState(err) == "" || c.raw.IsClosed()) {
		_ = c.raw.Close(ctx) // it is of no use
		return s.resolve(context.WithoutCancel(ctx), at, err)
	}
	if err == nil {
		at.number++
	}
	faults.At(faults.CommitAfter)
	return err
}

// commit notes the transaction at the seat and commits it. Where the seat was
// fenced since, it divides by zero, and the server leaves out the COMMIT.
func (at *seat) commit(c *conn) error {
	var b pgx.Batch
	b.Queue(`WITH noted AS (UPDATE seats SET number = $2 WHERE id = $1 AND number = $2 - 1 AND fence = $3 RETURNING 1)
		SELECT 1 / (SELECT count(*) FROM noted)`, at.id, at.number+1, at.fence)
	b.Queue("COMMIT")
	return c.raw.SendBatch(c.ctx, &b).Close()
}

// resolve finds out whether the transaction after the seat's last was committed,
// whose connection was lost for a reason: nil when it was, the reason when it
// was not and never will be. It breaks the store when the server does not say.
func (s *Store) resolve(ctx context.Context, at *seat, reason error) error {
	for began := time.Now(); time.Since(began) < resolveFor; s.rests(retryPause) {
		number, fence, err := s.fence(ctx, at)
		switch {
		case err != nil && !passing(err):
			reason = errors.Join(reason, err)
		case err != nil:
			continue
		case number == at.number+1:
			at.number, at.fence = number, fence
			return nil
		case number == at.number:
			at.fence = fence
			return reason
		default:
			reason = errors.Join(reason, errors.New("the seat of this process is used by another one"))
		}
		break
	}
	err := errors.Join(errUnknown, reason)
	s.breaks(ctx, err)
	return err
}

// fence keeps what is under way at the seat from being committed, waits for it
// where it is being committed at this moment, and returns what the seat says.
func (s *Store) fence(ctx context.Context, at *seat) (number, fence int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	err = s.writers.QueryRow(ctx, "UPDATE seats SET fence = fence + 1 WHERE id = $1 RETURNING number, fence", at.id).Scan(&number, &fence)
	return number, fence, err
}

// breaks ends all writing: what the database holds is not known.
func (s *Store) breaks(ctx context.Context, err error) {
	if s.broken.CompareAndSwap(nil, &err) {
		s.log.LogAttrs(ctx, slog.LevelError, "store is broken", slog.Any("error", err))
	}
}
