package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

// A task is one caller's write. The committer runs it inside a transaction, and
// may run it again in another one after a roll-back.
type task struct {
	run     func(*conn) error
	patient bool          // it may wait for others to share its commit with
	err     error         // valid once done is closed
	done    chan struct{} // closed after COMMIT, or when the task failed
}

// write hands f to the committer and waits until what f wrote is durable. f
// decides with SELECT, ON CONFLICT and the number of changed rows. An
// *agentbus.Error it returns is its verdict and reaches the caller with f's
// result; what f wrote before is undone.
func write[T any](ctx context.Context, s *Store, what string, f func(*conn) (T, error)) (T, error) {
	return writeWith(ctx, s, what, false, f)
}

// writeWith is write; where nobody waits for it at once, it may be patient.
func writeWith[T any](ctx context.Context, s *Store, what string, patient bool, f func(*conn) (T, error)) (T, error) {
	var result, none T
	t := &task{patient: patient, done: make(chan struct{}), run: func(c *conn) error {
		var err error
		result, err = f(c)
		return err
	}}
	if s.atOnce(ctx, t) {
		return result, unavailable(what, t.err)
	}
	if err := s.enter(ctx, t); err != nil {
		return none, unavailable(what, err)
	}
	select {
	case <-t.done:
		return result, unavailable(what, t.err)
	case <-ctx.Done():
		return none, ctx.Err() // the committer may still be writing result
	}
}

// enter puts t into the queue.
func (s *Store) enter(ctx context.Context, t *task) error {
	s.entries.RLock()
	defer s.entries.RUnlock()
	if err := s.writable(); err != nil {
		return err
	}
	select {
	case s.queue <- t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writable returns why nothing can be written. The caller holds entries.
func (s *Store) writable() error {
	if s.closed {
		return errClosed
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// atOnce commits t in the goroutine that waits for it, and reports whether it did:
// where nobody else has anything to write, and had not with the last commit. To
// hand t to the committer, and to be woken by it, may each wake a thread, which takes
// longer than all that a commit of one task computes. Under load it would make
// commits of one task where many could share one.
func (s *Store) atOnce(ctx context.Context, t *task) bool {
	s.entries.RLock() // shut waits for it
	defer s.entries.RUnlock()
	if t.patient || !s.alone.Load() || len(s.queue) > 0 || ctx.Err() != nil || s.writable() != nil || !s.writing.TryLock() {
		return false
	}
	defer s.writing.Unlock()
	if s.notes.waiting() { // everything noted before t is committed with it
		return false
	}
	whole := false
	defer func() {
		if !whole { // it panicked, and its transaction is open: in the committer, that ends the process
			s.broken.CompareAndSwap(nil, &errCutOff)
		}
	}()
	s.settle(context.WithoutCancel(ctx), []*task{t})
	whole = true
	return true
}

var errCutOff = errors.New("a write was cut off in its middle")

// commit is the committer. It ends when the queue is closed and empty.
func (s *Store) commit(ctx context.Context) {
	defer close(s.ended)
	batch := make([]*task, 0, maxBatch)
	for open := true; open; {
		batch = batch[:0]
		select {
		case t, ok := <-s.queue:
			if open = ok; ok {
				batch = append(batch, t)
			}
		case <-s.notes.bell:
		}
		s.writing.Lock()
		if open {
			batch, open = s.gather(batch)
		}
		s.alone.Store(len(batch) <= 1)
		s.commitAll(ctx, batch)
		s.writing.Unlock()
	}
}

// gather adds the tasks to batch that it can share a commit with.
func (s *Store) gather(batch []*task) (_ []*task, open bool) {
	switch {
	case len(batch) == 0:
		return s.linger(batch, noteDelay)
	case allPatient(batch):
		return s.linger(s.drain(batch), patience)
	}
	return s.drain(batch), true
}

// commitAll commits batch, and what was noted before one of its tasks entered.
func (s *Store) commitAll(ctx context.Context, batch []*task) {
	noted := s.notes.take()
	if noted != nil {
		batch = append(batch, &task{done: make(chan struct{}), run: noted.write})
	}
	if len(batch) > 0 {
		s.settle(ctx, batch)
	}
	switch {
	case noted == nil:
	case transient(batch[len(batch)-1].err):
		s.notes.putBack(noted)
	default:
		s.notes.release(noted)
	}
}

// linger waits for a task that batch and the notes can share a commit with, for
// so long at most. Nobody waits for notes, and little for patient tasks; a storm
// of refusals, or a hundred streams, must not become as many commits.
func (s *Store) linger(batch []*task, most time.Duration) (_ []*task, open bool) {
	over := time.NewTimer(most)
	defer over.Stop()
	for {
		select {
		case t, ok := <-s.queue:
			if !ok {
				return batch, false
			}
			if batch = append(batch, t); !t.patient || len(batch) >= maxBatch {
				return s.drain(batch), true
			}
		case <-over.C:
			return s.drain(batch), true
		}
	}
}

// allPatient reports whether none of the tasks is waited for at once.
func allPatient(tasks []*task) bool {
	return !slices.ContainsFunc(tasks, func(t *task) bool { return !t.patient })
}

// drain adds the tasks that wait to batch. It lets others run once before, so
// that those who were just acknowledged can come back with their next task and
// share the coming sync.
func (s *Store) drain(batch []*task) []*task {
	for before := 0; before < len(batch) && len(batch) < maxBatch; {
		before = len(batch)
		runtime.Gosched()
		batch = s.waiting(batch)
	}
	return batch
}

// waiting adds the tasks that wait to batch.
func (s *Store) waiting(batch []*task) []*task {
	for len(batch) < maxBatch {
		select {
		case t, ok := <-s.queue:
			if !ok {
				return batch
			}
			batch = append(batch, t)
		default:
			return batch
		}
	}
	return batch
}

// settle makes batch durable, together if possible, and acknowledges it. When
// one of its tasks fails, each runs in a transaction of its own, so that only
// the bad one fails.
func (s *Store) settle(ctx context.Context, batch []*task) {
	began, before := time.Now(), s.writer.wrote
	err := s.transact(batch)
	if err != nil || s.writer.wrote != before { // one that changes nothing waits for no disk, and would hide those that do
		s.timed(time.Since(began))
	}
	_, bad := errors.AsType[*undone](err)
	switch _, verdict := errors.AsType[*agentbus.Error](err); {
	case fatal(err):
		s.broken.CompareAndSwap(nil, &err)
		s.log.LogAttrs(ctx, slog.LevelError, "store is broken", slog.Any("error", err))
	case bad && len(batch) > 1:
		for _, t := range batch {
			s.settle(ctx, []*task{t})
		}
		return
	case err != nil && !verdict:
		s.log.LogAttrs(ctx, slog.LevelError, "store cannot commit", slog.Int("tasks", len(batch)), slog.Any("error", err))
		s.failing.Store(new(advice(err)))
	default:
		s.failing.Store(nil)
	}
	for _, t := range batch {
		if err != nil {
			t.err = err
		}
		close(t.done)
	}
}

// undone says that a task failed after it wrote, or because of SQLite, and that
// the transaction was rolled back for it.
type undone struct{ error }

// Unwrap returns why the task failed.
func (u *undone) Unwrap() error { return u.error }

// transact runs batch in one transaction and commits it. Verdicts of tasks that
// wrote nothing stay with their tasks.
func (s *Store) transact(batch []*task) error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	if err := s.file.there(); err != nil {
		return err
	}
	c := s.writer
	if err := c.begin(); err != nil {
		return err
	}
	faults.At(faults.CommitBegun)
	for _, t := range batch {
		before := c.wrote
		t.err = t.run(c)
		if t.err == nil {
			continue
		}
		if _, verdict := errors.AsType[*agentbus.Error](t.err); verdict && c.wrote == before {
			continue
		}
		_ = c.rollback() // SQLite may have rolled back by itself
		return &undone{t.err}
	}
	faults.At(faults.CommitAmid)
	if err := c.control("COMMIT"); err != nil {
		_ = c.rollback()
		return err
	}
	faults.At(faults.CommitAfter)
	return nil
}
