package server

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// readyWithin is how long the store may take a write for, and be ready: who asks
// wants to know before a balancer or a kubelet gives up on the answer.
const readyWithin = 2 * time.Second

// askFor is how long one question to the store may take.
const askFor = 30 * time.Second

// A readiness asks the store whether it can be written and read, once for all who want to
// know meanwhile: a store that is away holds the question for longer than them.
type readiness struct {
	mu     sync.Mutex
	asked  *question // nil: nobody asks
	ended  bool      // the store is closed, and nobody asks any more
	ending sync.WaitGroup
}

// A question is put to the store.
type question struct {
	written  chan struct{} // closed once the store took the write
	answered chan struct{}
	err      error // once it is
}

// ask puts the question, unless it is being put. The answer comes once the store is
// closed at the latest.
func (r *readiness) ask(ctx context.Context, s Store) *question {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked != nil {
		return r.asked
	}
	q := &question{written: make(chan struct{}), answered: make(chan struct{})}
	if r.ended {
		q.err = &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "the store is closed; the process is stopping"}
		close(q.answered)
		return q
	}
	r.asked = q
	r.ending.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
		defer cancel()
		if q.err = s.Check(ctx); q.err == nil {
			close(q.written)
			q.err = read(ctx, s)
		}
		r.mu.Lock()
		r.asked = nil
		r.mu.Unlock()
		close(q.answered)
	})
	return q
}

// end waits for the question that is being put; the store is closed.
func (r *readiness) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.ending.Wait()
}

// read reads the store. A read that is late is in line behind others, for which calls do
// not wait.
func read(ctx context.Context, s Store) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	_, err := s.DrainedAgents(ctx) // behind a write, whoever reads looks at the file again
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ready reports whether the store can be written and read, soon.
func (s *Server) ready(ctx context.Context) error {
	q := s.readiness.ask(ctx, s.store)
	late := time.NewTimer(readyWithin)
	defer late.Stop()
	select {
	case <-q.answered:
		if !errors.Is(q.err, context.DeadlineExceeded) {
			return q.err
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
	}
	select {
	case <-q.written: // its read is late
		return nil
	default:
	}
	return &agentbus.Error{
		Code: agentbus.CodeStoreUnavailable,
		Message: "the store has taken no write within " + readyWithin.String() + ": " +
			cmp.Or(s.store.Failing(), "see that its disk, or its database, answers, and that nobody else holds its write lock"),
	}
}
