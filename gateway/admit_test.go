package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A turnstile is an agent that holds its calls until it is told to answer them, and
// knows how many it had at once.
type turnstile struct {
	*agent
	open  chan struct{} // one for each call that may be answered
	mu    sync.Mutex    // guards the rest
	now   int
	most  int
	order []string // runs, as they arrived
}

func newTurnstile(t *testing.T, name string) *turnstile {
	t.Helper()
	g := &turnstile{open: make(chan struct{}, 1024)}
	g.agent = newAgent(t, name, func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.now++
		g.most = max(g.most, g.now)
		g.order = append(g.order, r.Header.Get("x-tangle-runid"))
		g.mu.Unlock()
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
		g.mu.Lock()
		g.now--
		g.mu.Unlock()
		answerWith(http.StatusOK, completion)(w, r)
	})
	return g
}

// atOnce returns how many calls there were at once, at most.
func (g *turnstile) atOnce() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// arrived returns the runs of the calls as they arrived.
func (g *turnstile) arrived() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.order)
}

// serving waits until as many requests are in the gateway.
func (b *bus) serving(n int) {
	b.t.Helper()
	b.await("no run", func([]agentbus.CallRecord) bool { return b.InFlight() == n })
}

// queued waits until as many calls wait for a place at the critic.
func (b *bus) queued(n int) {
	b.t.Helper()
	b.await("no run", func([]agentbus.CallRecord) bool { return b.QueuedAt("critic") == n })
}

// TestConcurrency: G8, of many calls at once an agent never has more than it
// may, its queue not more than it holds, and the rest is told when to come back.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	const callers, concurrency, queue = 500, 4, 8
	g := newTurnstile(t, "critic")
	g.Concurrency, g.Queue, g.QueueTimeout = concurrency, queue, patience
	b := newBus(t, nil, g.agent)
	answers := make(chan answer, callers)
	for i := range callers {
		go func() { answers <- b.call("critic", turn("r"+strconv.Itoa(i), "t")...) }()
	}
	for range callers - concurrency - queue { // the others cannot end before these
		refused(t, "no room", <-answers, http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	}
	b.await("no run", func([]agentbus.CallRecord) bool { return g.atOnce() >= concurrency }) // who has a place may not be there yet
	for range concurrency + queue {
		g.open <- struct{}{}
	}
	for range concurrency + queue {
		if got := <-answers; got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if g.atOnce() != concurrency || g.executions() != concurrency+queue {
		t.Errorf("%d at once, %d executions", g.atOnce(), g.executions())
	}
}

// TestQueueIsFair: G8, who waits longest is next; who leaves frees its place in
// the queue, and was refused nothing.
func TestQueueIsFair(t *testing.T) {
	t.Parallel()
	g := newTurnstile(t, "critic")
	g.Concurrency, g.Queue, g.QueueTimeout = 1, 2, patience
	b := newBus(t, nil, g.agent)
	answers := make(chan answer, 8)
	call := func(run string) { go func() { answers <- b.call("critic", turn(run, "t")...) }() }
	call("first")
	g.next(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- b.leaving(ctx, ask("critic"), turn("leaves", "t")...) }()
	b.queued(1)
	call("second")
	b.queued(2)
	refused(t, "full", b.call("critic", turn("no-room", "t")...), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	leave()
	if <-left == nil {
		t.Error("the caller that left was answered")
	}
	b.queued(1)
	call("third")
	b.queued(2)
	for range 3 {
		g.open <- struct{}{}
		if got := <-answers; got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, g.arrived()); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if r := b.calls("leaves"); len(r) > 0 {
		t.Errorf("who left is recorded as %+v", r)
	}
}

// TestReconfiguredQueue: G8 and G30, who waits gets the places that another
// configuration gives the agent, at once.
func TestReconfiguredQueue(t *testing.T) {
	t.Parallel()
	for _, places := range []int{2, 0} {
		g := newTurnstile(t, "critic")
		g.Concurrency, g.Queue, g.QueueTimeout = 1, 2, patience
		var cfg gateway.Config
		b := newBus(t, func(c *gateway.Config) { cfg = *c }, g.agent)
		answers := make(chan answer, 2)
		call := func(run string) { go func() { answers <- b.call("critic", turn(run, "t")...) }() }
		call("first")
		g.next(t)
		call("second")
		b.queued(1)
		wider := target(t, "critic", g.URL.String())
		wider.Concurrency, wider.Queue = places, 2
		cfg.Router = gateway.NewTable([]*gateway.Target{wider}, nil)
		if _, err := b.Reconfigured(cfg); err != nil {
			t.Fatal(err)
		}
		g.next(t)
		b.queued(0)
		for range 2 {
			g.open <- struct{}{}
			if got := <-answers; got.status != http.StatusOK {
				t.Error(got)
			}
		}
	}
}

// TestQueueTimeout: G8, nobody waits for longer than the agent's queue allows.
func TestQueueTimeout(t *testing.T) {
	t.Parallel()
	g := newTurnstile(t, "critic")
	g.Concurrency, g.Queue, g.QueueTimeout = 1, 1, 20*time.Millisecond
	b := newBus(t, nil, g.agent)
	done := make(chan answer, 1)
	go func() { done <- b.call("critic", turn("first", "t")...) }()
	g.next(t)
	refused(t, "too long", b.call("critic", turn("second", "t")...), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	// What is no call takes a place like one.
	refused(t, "GET", b.send(http.MethodGet, "/agents/critic/x", "", asAlice), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	g.open <- struct{}{}
	<-done
}

// TestDetachedHoldsItsPlace: G8 and G14, a call that goes on without its caller
// is still one call at its agent.
func TestDetachedHoldsItsPlace(t *testing.T) {
	t.Parallel()
	g := newTurnstile(t, "critic")
	g.Concurrency = 1
	b := newBus(t, nil, g.agent)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- b.leaving(ctx, ask("critic"), turn("leaves", "t")...) }()
	g.next(t)
	leave()
	if <-left == nil {
		t.Error("the caller that left was answered")
	}
	b.await("leaves", func([]agentbus.CallRecord) bool { return b.Detached() == 1 })
	refused(t, "taken", b.call("critic", turn("r", "t")...), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	g.open <- struct{}{}
	b.one("leaves", agentbus.CallSettled)
	b.serving(0)
	g.open <- struct{}{}
	if got := b.call("critic", turn("r", "t")...); got.status != http.StatusOK {
		t.Errorf("once it is free: %v", got)
	}
}

// TestDuplicatesTakeNothing: G8 and G23, neither a duplicate of a call in flight
// nor one of a finished call takes a place or a token.
func TestDuplicatesTakeNothing(t *testing.T) {
	t.Parallel()
	g, other := newTurnstile(t, "critic"), newAgent(t, "other", nil)
	g.Concurrency = 1
	b := newBus(t, grant(agentbus.Grants{PerSecond: 1e-6, Burst: 3}), g.agent, other) // three calls, in all
	answers := make(chan answer, 4)
	for range 4 {
		go func() { answers <- b.call("critic", turn("r", "t")...) }()
	}
	g.next(t)
	b.serving(4)
	g.open <- struct{}{}
	var first answer
	for range 4 {
		first = <-answers
	}
	again := b.call("critic", turn("r", "t")...) // there are tokens: the one it took is given back
	same(t, "with tokens left", first, again)
	done := make(chan answer, 1)
	go func() { done <- b.call("critic", turn("r2", "t")...) }()
	g.next(t)
	same(t, "while the agent is busy", first, b.call("critic", turn("r", "t")...))
	refused(t, "another request", b.stream("critic", turn("r", "t")...), http.StatusUnprocessableEntity, agentbus.CodeTurnMismatch)
	if got := b.call("other", turn("r3", "t")...); got.status != http.StatusOK {
		t.Errorf("the third call: %v", got)
	}
	refused(t, "the fourth", b.call("other", turn("r4", "t")...), http.StatusTooManyRequests, agentbus.CodeRateLimited)
	same(t, "without tokens", first, b.call("critic", turn("r", "t")...))
	g.open <- struct{}{}
	<-done
	// same counted each of them: three attached, three from memory.
	b.await("r", func(calls []agentbus.CallRecord) bool { return calls[0].Replays == 6 })
}

// TestRate: G8, a caller's rate is its own, refused calls take nothing of it, and
// the time that is told is the one after which there is room again.
func TestRate(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, grant(agentbus.Grants{PerSecond: 2, Burst: 2}), a)
	served := 0
	var got answer
	for i := range 50 {
		if got = b.call("critic", turn("r"+strconv.Itoa(i), "t")...); got.status != http.StatusOK {
			break
		}
		served++
	}
	refused(t, "too many", got, http.StatusTooManyRequests, agentbus.CodeRateLimited)
	ms, err := strconv.Atoi(got.header.Get("Retry-After-Ms"))
	if served < 2 || err != nil || ms < 1 || ms > 500 {
		t.Errorf("%d served, retry after %d ms, %v", served, ms, err)
	}
	if got := b.send(http.MethodPost, chatRoute, ask("critic"), asBob); got.status != http.StatusOK {
		t.Errorf("bob: %v", got)
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	<-timer.C
	if got := b.call("critic", turn("later", "t")...); got.status != http.StatusOK {
		t.Errorf("after the time that was told: %v", got)
	}
}

// TestRateAtOnce: G8, callers at once get no more than the burst between them.
func TestRateAtOnce(t *testing.T) {
	t.Parallel()
	const callers, burst = 64, 5
	a := newAgent(t, "critic", nil)
	b := newBus(t, grant(agentbus.Grants{PerSecond: 1e-6, Burst: burst}), a)
	var served atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			got := b.call("critic", turn("r"+strconv.Itoa(i), "t")...)
			if got.status == http.StatusOK {
				served.Add(1)
				return
			}
			refused(t, "over", got, http.StatusTooManyRequests, agentbus.CodeRateLimited)
		})
	}
	all.Wait()
	if served.Load() != burst || a.executions() != burst {
		t.Errorf("%d served, %d executions, want %d", served.Load(), a.executions(), burst)
	}
}

// TestRetryAfter: G8 and P12, every refusal that a retry can change says when,
// and nothing else does; the time of a busy agent is by how long its calls take.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	g, broken := newTurnstile(t, "critic"), newRawAgent(t, "broken", wire(okJSON+"\nContent-Length: 10", "abc"))
	g.Concurrency = 1
	b := newBus(t, func(c *gateway.Config) { c.InFlight = 2 }, g.agent, broken)
	g.open <- struct{}{}
	if got := b.call("critic"); got.status != http.StatusOK {
		t.Fatal(got)
	}
	<-g.heard
	done := make(chan answer, 2)
	go func() { done <- b.call("critic") }()
	g.next(t)
	got := b.call("critic")
	refused(t, "busy", got, http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	if ms, err := strconv.Atoi(got.header.Get("Retry-After-Ms")); err != nil || ms < 10 || ms > 60_000 {
		t.Errorf("a busy agent: retry after %d ms, %v", ms, err)
	}
	refused(t, "broken", b.call("broken"), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
	b.Drain()
	refused(t, "draining", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeDraining)
	g.open <- struct{}{}
	<-done
}

// TestInFlightBound: G8, the bus itself serves as many requests as it may.
func TestInFlightBound(t *testing.T) {
	t.Parallel()
	g := newTurnstile(t, "critic")
	b := newBus(t, func(c *gateway.Config) { c.InFlight = 1 }, g.agent)
	done := make(chan answer, 1)
	go func() { done <- b.call("critic") }()
	g.next(t)
	refused(t, "shed", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	g.open <- struct{}{}
	<-done
}

// TestManyRates: G8, there are not more buckets than are kept, whoever calls.
func TestManyRates(t *testing.T) {
	t.Parallel()
	r := gateway.NewRates()
	now := time.Now()
	slow := &agentbus.Grants{PerSecond: 0.001}
	for i := range 3 * gateway.MaxBuckets {
		if _, ok := r.Take(fmt.Sprint("caller", i), slow, now); !ok {
			t.Fatalf("the first call of caller %d was refused", i)
		}
	}
	if n := r.Len(); n > gateway.MaxBuckets {
		t.Errorf("%d buckets", n)
	}
	if wait, ok := r.Take("caller"+strconv.Itoa(3*gateway.MaxBuckets-1), slow, now.Add(-time.Hour)); ok || wait > time.Hour {
		t.Errorf("a clock that went back: %v, %v", wait, ok)
	}
	if _, ok := r.Take("big", &agentbus.Grants{PerSecond: 1e300, Burst: 1 << 60}, now); !ok {
		t.Error("a rate beyond all bounds")
	}
}
