package http1

import (
	"context"
	"net"
	"sync"
	"time"
)

// A watch waits for a caller to leave while its request is answered, so that
// the request's context ends then. Most answers are there before [Patience] is
// over, and nobody has waited.
type watch struct {
	net   net.Conn
	timer *time.Timer // begins the wait; nil before the first

	mu     sync.Mutex         // guards what follows
	cancel context.CancelFunc // of the request that is answered; nil: there is none
	armed  bool               // the body of the request has come: what is read now is not of it
	over   chan struct{}      // closed when the wait is over; nil: nobody waits
	ahead  [1]byte            // the first byte of the next request
	n      int                // 1: it has come
}

// begin is told that a request is answered.
func (w *watch) begin(cancel context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
}

// arm is told that nobody else reads from the connection until end.
func (w *watch) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel == nil || w.armed {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(Patience, w.wait) // end waits for it
	} else {
		w.timer.Reset(Patience)
	}
}

// wait waits for the caller to leave, or for the next request.
func (w *watch) wait() {
	w.mu.Lock()
	if !w.armed || w.over != nil || w.n > 0 { // it is for a request that was answered meanwhile
		w.mu.Unlock()
		return
	}
	over := make(chan struct{})
	defer close(over)
	w.over = over
	_ = w.net.SetReadDeadline(time.Time{}) // that of the head; end may set another one
	w.mu.Unlock()
	n, _ := w.net.Read(w.ahead[:])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n = n; n == 0 && w.armed {
		w.cancel()
	}
}

// end is told that the request was answered. It reports whether somebody waited
// for its caller; then the read deadline of the connection has passed.
func (w *watch) end() bool {
	w.mu.Lock()
	over := w.over
	if w.armed && over == nil {
		w.timer.Stop()
	}
	if over != nil {
		_ = w.net.SetReadDeadline(time.Unix(1, 0)) // wakes it
	}
	w.cancel, w.armed = nil, false
	w.mu.Unlock()
	if over == nil {
		return false
	}
	<-over
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = nil
	return true
}

// came returns what was read while the last request was answered.
func (w *watch) came() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	w.n = 0
	return w.ahead[:n]
}

// left ends the request that is answered: its connection is about to be closed.
func (w *watch) left() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
}
