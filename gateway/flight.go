package gateway

import (
	"context"
	"net/http"
	"slices"
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
	depth  int // at which the leader arrived

	// Guarded by flights.mu.
	run    agentbus.RunID
	cancel context.CancelCauseFunc // ends the execution, or the wait for it; nil before
	begun  bool                    // the agent is being called
	beside *flight                 // the next one with the same payer and turn
	// followed says that the stream is told to other processes.
	followed bool

	mu       sync.Mutex
	wake     chan struct{} // closed at the next change; nil when nobody waits
	call     agentbus.CallRecord
	status   int // 0 before the head is known
	header   http.Header
	body     []byte // everything published; only appended to
	attached int    // duplicates that are attached
	over     bool   // the body grew past what is kept: body is no longer complete
	ended    bool
	err      error // why there is no answer; set with ended
}

func (f *flight) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.rouse()
}

// rouse wakes who waits for a change. f.mu is held.
func (f *flight) rouse() {
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

// part has what is published from now on stand elsewhere than what the ledger was
// given to store, which stands behind what was published before.
func (f *flight) part() { f.change(func() { f.body = slices.Clip(f.body) }) }

// whole publishes an answer that is no stream. Nobody changes body any more.
func (f *flight) whole(status int, header http.Header, body []byte, most int64) {
	f.change(func() {
		f.status, f.header = status, header
		if f.over = int64(len(body)) > most; !f.over {
			f.body = body
		}
	})
}

func (f *flight) end(err error) { f.change(func() { f.ended, f.err = true, err }) }

// attend says that so many duplicates more are attached.
func (f *flight) attend(more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached += more; f.attached == max(more, 0) { // the first has come, or the last has gone
		f.rouse()
	}
}

// untilAlone waits until no duplicate is attached, or ctx ends.
func (f *flight) untilAlone(ctx context.Context) {
	for change := f.still(true); change != nil; change = f.still(true) {
		select {
		case <-change:
		case <-ctx.Done():
			return
		}
	}
}

// still is closed at the next change, while duplicates are attached, or while none is;
// nil: it is not so.
func (f *flight) still(attended bool) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached > 0 != attended {
		return nil
	}
	return f.changed()
}

// changed is closed at the next change. f.mu is held.
func (f *flight) changed() <-chan struct{} {
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// attended reports whether duplicates are attached.
func (f *flight) attended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attached > 0
}

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
		v.change = f.changed()
	}
	return v
}

// known is what is known of the call by now.
func (f *flight) known() agentbus.CallRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.call
}

// flights are the calls of this process that are being executed.
type flights struct {
	mu     sync.Mutex // guards all of it
	byKey  map[agentbus.Digest]*flight
	byTurn map[turnOf]*flight // those that have begun; more of one turn are beside it
	passed map[*flight]bool   // requests that are no calls
}

// turnOf is by what the calls of a turn are found.
type turnOf struct {
	payer agentbus.Payer
	turn  agentbus.TurnID
}

func newFlights() flights {
	return flights{byKey: map[agentbus.Digest]*flight{}, byTurn: map[turnOf]*flight{}, passed: map[*flight]bool{}}
}

// join returns the flight of key, and whether the caller leads it. A
// leader must leave it.
func (fs *flights) join(key agentbus.Digest, x *exchange) (f *flight, leads bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.byKey[key]; ok {
		return f, false
	}
	f = &flight{key: key, digest: x.record.Digest, run: x.lineage.Run, depth: x.lineage.Depth}
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
	if !f.begun {
		return
	}
	f.begun = false
	turn := turnOf{f.call.Payer, f.call.TurnKey.ID}
	first := fs.byTurn[turn]
	switch {
	case first != f:
		for first.beside != f {
			first = first.beside
		}
		first.beside = f.beside
	case f.beside != nil:
		fs.byTurn[turn] = f.beside
	default:
		delete(fs.byTurn, turn)
	}
}

// began says that the agent of f is being called now, and how to end that.
func (fs *flights) began(f *flight, cancel context.CancelCauseFunc) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	turn := turnOf{f.call.Payer, f.call.TurnKey.ID} // which do not change any more
	f.run, f.cancel, f.begun, f.beside = f.call.Run, cancel, true, fs.byTurn[turn]
	fs.byTurn[turn] = f
}

func (fs *flights) hasBegun(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return f.begun
}

// wait says how to end the wait of f; nil: it is over.
func (fs *flights) wait(f *flight, cancel context.CancelCauseFunc) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.cancel = cancel
}

// pass says that a request is passed on that is no call, until leave is called.
func (fs *flights) pass(c agentbus.CallRecord, cancel context.CancelCauseFunc) (leave func()) {
	f := &flight{run: c.Run, cancel: cancel, call: c, begun: true}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.passed[f] = true
	return func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(fs.passed, f)
	}
}

// abort ends the flights of the runs that are meant, and returns how many.
func (fs *flights) abort(cause error, meant func(agentbus.RunID) bool) (n int) {
	fs.each(func(f *flight) {
		if f.cancel != nil && meant(f.run) {
			f.cancel(cause)
			n++
		}
	})
	return n
}

// each calls use, which must not wait, with every flight.
func (fs *flights) each(use func(*flight)) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.byKey {
		use(f)
	}
	for f := range fs.passed {
		use(f)
	}
}

// none reports whether nothing is being executed here.
func (fs *flights) none() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byKey)+len(fs.passed) == 0
}

// live returns what is being asked of agents, oldest first.
func (fs *flights) live() []agentbus.CallRecord {
	var calls []agentbus.CallRecord
	fs.each(func(f *flight) {
		if f.begun {
			calls = append(calls, f.known())
		}
	})
	slices.SortStableFunc(calls, func(a, b agentbus.CallRecord) int { return a.Began.Compare(b.Began) })
	return calls
}

// turns returns the calls that are being executed of a payer's turn, of
// whatever run.
func (fs *flights) turns(p agentbus.Payer, t agentbus.TurnID) []agentbus.CallRecord {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var calls []agentbus.CallRecord
	for f := fs.byTurn[turnOf{p, t}]; f != nil; f = f.beside {
		calls = append(calls, f.known())
	}
	return calls
}
