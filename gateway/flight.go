package gateway

import (
	"context"
	"net/http"
	"sync"

	"github.com/agentbus/agentbus"
)

// A flight is a call that is being executed by one request, its leader, and may
// be waited for by duplicates of it (G22). What the leader publishes is what
// its own caller reads; bytes that end the answer are published when they are
// durable.
type flight struct {
	key    agentbus.Digest
	digest agentbus.Digest
	cancel context.CancelCauseFunc // ends the execution; nil before it began. Guarded by flights.mu

	mu     sync.Mutex
	wake   chan struct{} // closed at the next change; nil when nobody waits
	call   agentbus.CallRecord
	status int // 0 before the head is known
	header http.Header
	body   []byte // everything published; only appended to
	over   bool   // the body grew past what is kept: body is no longer complete
	ended  bool
	err    error // why there is no answer; set with ended
}

func (f *flight) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

func (f *flight) head(status int, header http.Header) {
	f.change(func() { f.status, f.header = status, header })
}

// publish adds b to the body, of which at most most bytes are kept.
func (f *flight) publish(b []byte, most int64) {
	f.change(func() {
		if f.over = f.over || int64(len(f.body)+len(b)) > most; !f.over {
			f.body = append(f.body, b...)
		}
	})
}

func (f *flight) end(err error) { f.change(func() { f.ended, f.err = true, err }) }

// A view is a flight at one moment, as a duplicate sees it.
type view struct {
	call   agentbus.CallRecord
	status int
	header http.Header
	body   []byte // from the asked offset
	over   bool
	ended  bool
	err    error
	change <-chan struct{} // closed when there is more
}

func (f *flight) view(from int) view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{call: f.call, status: f.status, header: f.header, over: f.over, ended: f.ended, err: f.err}
	if from < len(f.body) {
		v.body = f.body[from:len(f.body):len(f.body)]
	}
	if !f.ended {
		if f.wake == nil {
			f.wake = make(chan struct{})
		}
		v.change = f.wake
	}
	return v
}

// flights are the calls of this process that are being executed, by key.
type flights struct {
	mu    sync.Mutex // guards byKey and each flight's cancel
	byKey map[agentbus.Digest]*flight
}

// join returns the flight of key, and whether the caller leads it. A leader
// must leave it.
func (fs *flights) join(key, digest agentbus.Digest) (f *flight, leads bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.byKey[key]; ok {
		return f, false
	}
	f = &flight{key: key, digest: digest}
	fs.byKey[key] = f
	return f, true
}

// leave takes f off its key, as soon as the ledger knows how it ended: who comes
// from now on asks the ledger, which has the answer or a free key. Leaving twice
// does nothing.
func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.byKey[f.key] == f {
		delete(fs.byKey, f.key)
	}
}

func (fs *flights) began(f *flight, cancel context.CancelCauseFunc) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.cancel = cancel
}

func (fs *flights) abort(cause error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.byKey {
		if f.cancel != nil {
			f.cancel(cause)
		}
	}
}
