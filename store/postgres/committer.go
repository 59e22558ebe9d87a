package postgres

import (
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"runtime"
	"time"

	"github.com/agentbus/agentbus"
)

// A page is what one transaction of a committer is about: it is told what its
// tasks want, loads it under locks, lets each of them decide, and writes what
// they changed. A page serves one transaction.
type page interface {
	load(c *conn) error
	write(c *conn) error
	written(s *Store) // after COMMIT
}

// A task is one caller's write. The committer lets it say what it wants and run
// on what was loaded, and may do so again on another page after a roll-back.
type task[P page] struct {
	want func(P)
	run  func(P) error // changes nothing of the page when it fails
	err  error         // valid once done is closed
	done chan struct{} // closed after COMMIT, or when the task failed
}

// A committer commits the tasks that wait for it, many in one transaction.
type committer[P page] struct {
	seat  *seat
	queue chan *task[P]
	page  func() P
	notes *notes // nil: none are taken
}

func newCommitter[P page](at *seat, page func() P) *committer[P] {
	return &committer[P]{seat: at, queue: make(chan *task[P], maxQueue), page: page}
}

// of returns the committer for a name: always the same.
func of[P page](all []*committer[P], name string) *committer[P] {
	return all[int(crc32.ChecksumIEEE([]byte(name)))%len(all)]
}

// do hands a task to the committer and waits until what it wrote is durable. An
// *agentbus.Error of run is its verdict and reaches the caller.
func (k *committer[P]) do(ctx context.Context, s *Store, what string, want func(P), run func(P) error) error {
	t := &task[P]{want: want, run: run, done: make(chan struct{})}
	if err := k.enter(ctx, s, t); err != nil {
		return unavailable(ctx, what, err)
	}
	select {
	case <-t.done:
		return unavailable(ctx, what, t.err)
	case <-ctx.Done():
		return ctx.Err() // the committer may still be running it
	}
}

// enter puts t into the queue.
func (k *committer[P]) enter(ctx context.Context, s *Store, t *task[P]) error {
	s.entries.RLock()
	defer s.entries.RUnlock()
	if err := s.writable(); err != nil {
		return err
	}
	select {
	case k.queue <- t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run commits until the queue is closed and empty.
func (k *committer[P]) run(ctx context.Context, s *Store) {
	batch := make([]*task[P], 0, maxBatch)
	var bell chan struct{}
	if k.notes != nil {
		bell = k.notes.bell
	}
	for open := true; open; {
		batch = batch[:0]
		select {
		case t, ok := <-k.queue:
			open = ok
			if ok {
				batch = k.drain(append(batch, t))
			}
		case <-bell:
			batch, open = k.linger(batch)
		}
		k.settle(ctx, s, batch)
	}
}

// linger waits for a task that the notes can share a commit with. Nobody waits
// for notes, and a storm of refusals must not become a storm of commits.
func (k *committer[P]) linger(batch []*task[P]) (_ []*task[P], open bool) {
	patience := time.NewTimer(noteDelay)
	defer patience.Stop()
	select {
	case t, ok := <-k.queue:
		if !ok {
			return batch, false
		}
		return k.drain(append(batch, t)), true
	case <-patience.C:
		return k.drain(batch), true
	}
}

// drain adds the tasks that wait to batch. It lets others run once before, so
// that those who were just acknowledged can come back with their next task.
func (k *committer[P]) drain(batch []*task[P]) []*task[P] {
	runtime.Gosched()
	for len(batch) < maxBatch {
		select {
		case t, ok := <-k.queue:
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

// settle makes batch durable together, with the notes that wait, and
// acknowledges it.
func (k *committer[P]) settle(ctx context.Context, s *Store, batch []*task[P]) {
	var noted *notePage
	all := batch
	if k.notes != nil {
		if noted = k.notes.take(); noted != nil { // after the tasks: everything noted before one of them entered is committed with it
			if t, ok := any(noted.task()).(*task[P]); ok {
				all = append(batch, t) //nolint:gocritic // batch has room, and is not used behind its end
			}
		}
	}
	if len(all) == 0 {
		return
	}
	began := time.Now()
	err := k.transact(ctx, s, all)
	s.timed(time.Since(began))
	if _, verdict := errors.AsType[*agentbus.Error](err); err != nil && !verdict {
		s.log.LogAttrs(ctx, slog.LevelError, "store cannot commit", slog.Int("tasks", len(all)), slog.Any("error", err))
		s.failing.Store(new(advice(err)))
	} else {
		s.failing.Store(nil)
	}
	for _, t := range all {
		if err != nil {
			t.err = err
		}
		close(t.done)
	}
	switch {
	case noted == nil:
	case passing(err):
		k.notes.putBack(noted)
	default:
		k.notes.release(noted)
	}
}

// transact runs tasks in one transaction.
func (k *committer[P]) transact(ctx context.Context, s *Store, tasks []*task[P]) error {
	var p P
	err := s.commit(ctx, k.seat, func(c *conn) error {
		p = k.page()
		for _, t := range tasks {
			if t.want != nil {
				t.want(p)
			}
		}
		if err := p.load(c); err != nil {
			return err
		}
		for _, t := range tasks {
			t.err = t.run(p)
		}
		return p.write(c)
	})
	if err == nil {
		p.written(s)
	}
	return err
}
