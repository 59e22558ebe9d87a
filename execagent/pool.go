package execagent

import (
	"context"
	"sync"
	"time"
)

// A pool is the workers of an agent: one a conversation, so many at once. Whoever
// wants one more while all are busy waits.
type pool struct {
	most     int
	patience time.Duration // how long a worker may be idle

	mu      sync.Mutex
	workers map[string]*worker
	changed chan struct{} // closed, and replaced, when a worker is given back or gone
	closed  bool
	ending  sync.WaitGroup // what ends workers
}

// take returns the worker of a conversation, once nobody has it: an idle one, or
// one that is still to be started.
func (p *pool) take(ctx context.Context, key string) (*worker, error) {
	for {
		w, changed := p.try(key)
		if w != nil {
			return w, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try is take without waiting; what to wait for is closed when it may succeed.
func (p *pool) try(key string) (*worker, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.workers[key]
	switch {
	case w == nil && len(p.workers) < p.most:
		w = &worker{key: key, gone: make(chan struct{})}
		p.workers[key] = w
		return w, nil
	case w == nil:
		p.evict()
	case w.idle != nil:
		w.idle.Stop()
		w.idle = nil
		return w, nil
	}
	return nil, p.changed
}

// evict ends a worker that is idle to make room, unless one is ending. mu is
// held.
func (p *pool) evict() {
	var idle *worker
	for _, w := range p.workers {
		if w.ended {
			return
		}
		if w.idle != nil {
			idle = w
		}
	}
	if idle != nil {
		p.end(idle)
	}
}

// end ends a worker that nobody has, or that whoever has it is done with. It
// keeps its place until nothing of it is left. mu is held.
func (p *pool) end(w *worker) {
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	w.ended = true
	p.ending.Go(func() { // Close waits for it
		w.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.workers, w.key)
		p.tell()
		close(w.gone)
	})
}

// tell wakes those who wait. mu is held.
func (p *pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// give gives a worker back after a turn. One that is good for no other has ended
// when it returns.
func (p *pool) give(w *worker, good bool) {
	p.mu.Lock()
	if !good || p.closed {
		p.end(w)
		p.mu.Unlock()
		<-w.gone
		return
	}
	defer p.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(p.patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.idle == timer && !p.closed { // nobody has taken it since
			p.end(w)
		}
	})
	w.idle = timer
	p.tell()
}

// close ends the workers that are idle and waits until they are gone. What serves
// now, and what is started from now on, ends with its turn.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.workers {
		if w.idle != nil {
			p.end(w)
		}
	}
	p.mu.Unlock()
	p.ending.Wait()
}
