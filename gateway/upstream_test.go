package gateway_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/require"
)

// several is one agent at the URLs of others.
func several(t *testing.T, name string, at ...*agent) *agent {
	t.Helper()
	a := &agent{Target: target(t, name, "http://127.0.0.1")}
	a.URL = nil
	for _, one := range at {
		a.URLs = append(a.URLs, one.URL)
	}
	return a
}

// gone is an agent at a port that nobody listens on.
func gone(t *testing.T) *agent {
	t.Helper()
	return &agent{Target: target(t, "gone", "http://"+require.Address(t)+"/v1")}
}

// A clock stands still until it is set forward.
type clock struct{ now atomic.Int64 }

func (c *clock) set(t *gateway.Target) {
	t.SetClock(func() time.Time { return time.Unix(c.now.Load(), 0) })
}

func (c *clock) forward(d time.Duration) { c.now.Add(int64(d / time.Second)) }

// eventually waits until as reports true.
func eventually(t *testing.T, what string, as func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !as(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: it did not come to be", what)
		}
	}
}

// failures are those of each URL of an agent.
func failures(a *agent) (n []int) {
	for _, u := range a.Upstreams() {
		n = append(n, u.Failures)
	}
	return n
}

// TestLeastInFlight: G13, a call goes to the URL with the fewest in flight.
func TestLeastInFlight(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan int, 16), [3]chan struct{}{}
	var at []*agent
	for i := range release {
		release[i] = make(chan struct{})
		at = append(at, newAgent(t, strconv.Itoa(i), func(w http.ResponseWriter, r *http.Request) {
			arrived <- i
			<-release[i]
			answerWith(http.StatusOK, completion)(w, r)
		}))
	}
	a := several(t, "critic", at...)
	b := newBus(t, nil, a)
	var calls sync.WaitGroup
	call := func() int {
		calls.Go(func() {
			if got := b.call("critic"); got.body != completion {
				t.Error(got)
			}
		})
		return <-arrived
	}
	var got [3]int
	for range 6 {
		got[call()]++
	}
	if want := [3]int{2, 2, 2}; got != want {
		t.Errorf("6 calls went to %v", got)
	}
	close(release[1])
	inFlight := func() (n [3]int) {
		for i, u := range a.Upstreams() {
			n[i] = u.InFlight
		}
		return n
	}
	for range 4 {
		eventually(t, "the second has nothing to do", func() bool { return inFlight() == [3]int{2, 0, 2} })
		if i := call(); i != 1 {
			t.Errorf("a call went to %d, which has the most to do", i)
		}
	}
	close(release[0])
	close(release[2])
	calls.Wait()
	if got := inFlight(); got != [3]int{} {
		t.Errorf("still in flight: %v", got)
	}
}

// TestOneURLIsFree: G13, choosing costs an agent with one URL no memory.
func TestOneURLIsFree(t *testing.T) { // not in parallel: what others allocate would be counted
	a := target(t, "critic", "http://127.0.0.1/v1")
	if n := testing.AllocsPerRun(100, a.TryOnce); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// TestOneOfTwoDown: G13, a URL that is not there costs no call anything: the
// other serves it, in one attempt and one execution.
func TestOneOfTwoDown(t *testing.T) {
	t.Parallel()
	up := newAgent(t, "up", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			streamWith(stream)(w, r)
		}
	})
	a := several(t, "critic", gone(t), up)
	new(clock).set(a.Target) // who is left out stays out
	b := newBus(t, nil, a)
	const calls = 20
	for i := range calls {
		run := "r" + strconv.Itoa(i)
		if got := b.stream("critic", turn(run, "t")...); got.body != stream || got.header.Get("X-Agentbus-Attempts") != "1" {
			t.Fatal(got)
		}
		if r := b.one(run, agentbus.CallSettled); r.Attempts != 1 {
			t.Errorf("recorded as %+v", r)
		}
		if got := b.send(http.MethodGet, "/agents/critic/x", "", asAlice); got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if n := up.executions(); n != 2*calls {
		t.Errorf("%d executions, want %d", n, 2*calls)
	}
	if got := a.Upstreams(); got[0].Failures != 5 || got[0].EjectedUntil.IsZero() || got[1].Failures != 0 {
		t.Errorf("left as %+v", got)
	}
}

// TestDownMidAnswer: G13 and G11, once a byte has been sent nothing is tried
// again: not on the same URL, and not on another.
func TestDownMidAnswer(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn, *http.Request){
		"before an answer": func(net.Conn, *http.Request) {},
		"in the answer":    wire(okJSON+"\nContent-Length: 9999", completion),
		"by reset":         reset(func(net.Conn, *http.Request) {}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newRawAgent(t, "one", serve), newRawAgent(t, "two", serve)
			b := newBus(t, nil, several(t, "critic", one, two))
			refused(t, name, b.call("critic", turn("r", "t")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
			if n := one.executions() + two.executions(); n != 1 {
				t.Errorf("%d executions, want 1", n)
			}
			if r := b.one("r", agentbus.CallVoided); r.Cost != 0 || r.Attempts != 1 {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}

// TestEjection: G13, a URL that fails again and again is left out; when that is
// over one request finds out whether it is back, however many there are; if not
// it is left out for twice as long.
func TestEjection(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	sick.Store(true)
	probing, found := make(chan struct{}, 64), make(chan struct{})
	close(found) // nobody waits, for now
	var hold atomic.Pointer[chan struct{}]
	hold.Store(&found)
	one := newAgent(t, "one", func(w http.ResponseWriter, r *http.Request) {
		probing <- struct{}{}
		select {
		case <-*hold.Load():
		case <-time.After(patience):
		}
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answerWith(http.StatusOK, completion)(w, r)
	})
	two := newAgent(t, "two", nil)
	a := several(t, "critic", one, two)
	a.Eject = gateway.Eject{Failures: 3, For: 10 * time.Second, AtMost: 15 * time.Second}
	var c clock
	c.set(a.Target)
	b := newBus(t, nil, a)
	for range 20 {
		b.call("critic")
	}
	if n := one.executions(); n != 3 {
		t.Fatalf("called %d times, want 3", n)
	}
	want := gateway.UpstreamState{URL: one.URL.String(), Failures: 3, EjectedUntil: time.Unix(10, 0)}
	if diff := cmp.Diff(want, a.Upstreams()[0]); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}

	// Each time it has been left out long enough, 32 callers come at once.
	for round, r := range []struct {
		out  time.Duration
		sick bool
	}{{10 * time.Second, true}, {15 * time.Second, true}, {15 * time.Second, false}} {
		before := one.executions()
		c.forward(r.out - time.Second)
		b.call("critic")
		if one.executions() != before {
			t.Errorf("round %d: called before it was time", round)
		}
		c.forward(time.Second)
		sick.Store(r.sick)
		for len(probing) > 0 {
			<-probing
		}
		wait := make(chan struct{})
		hold.Store(&wait)
		var callers sync.WaitGroup
		answered := make(chan int, 32)
		for range 32 {
			callers.Go(func() { answered <- b.call("critic").status })
		}
		<-probing
		for range 31 { // all but the one that waits for the first
			select {
			case status := <-answered:
				if status != http.StatusOK {
					t.Errorf("round %d: %d from the URL that is well", round, status)
				}
			case <-time.After(patience / 2):
				t.Fatalf("round %d: more than one caller waits for the URL that is out: %+v", round, a.Upstreams())
			}
		}
		if got := a.Upstreams()[0]; !got.Probing || got.InFlight != 1 || one.executions() != before+1 {
			t.Errorf("round %d: called %d times, %+v", round, one.executions()-before, got)
		}
		close(wait)
		callers.Wait()
	}
	if got := a.Upstreams()[0]; got.Failures != 0 || !got.EjectedUntil.IsZero() || got.Probing {
		t.Errorf("back as %+v", got)
	}
	before := one.executions()
	for range 10 {
		b.call("critic")
	}
	if n := one.executions() - before; n != 5 {
		t.Errorf("back, it gets %d of 10 calls", n)
	}
}

// TestWhatBeganBefore: G13, what was under way when a URL was left out says
// nothing of it any more: it is not left out for longer, and not taken back.
func TestWhatBeganBefore(t *testing.T) {
	t.Parallel()
	statuses, arrived := make(chan int), make(chan struct{}, 8)
	serve := func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case status := <-statuses:
			answerWith(status, completion)(w, r)
		case <-time.After(patience):
		}
	}
	a := several(t, "critic", newAgent(t, "one", serve), gone(t))
	a.Eject = gateway.Eject{Failures: 2, For: 10 * time.Second}
	var c clock
	c.set(a.Target)
	b := newBus(t, nil, a)
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() { b.call("critic") })
	}
	for range 5 {
		<-arrived
	}
	for i, status := range []int{503, 503, 200, 503, 503} {
		statuses <- status
		eventually(t, "answer "+strconv.Itoa(i)+", left out until the 10th second", func() bool {
			u := a.Upstreams()[0]
			return u.InFlight == 4-i && (i == 0 || u.EjectedUntil.Equal(time.Unix(10, 0)))
		})
	}
	callers.Wait()
}

// TestProbeOfAStream: G13, a URL is back when it begins a good answer, however
// long that takes.
func TestProbeOfAStream(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var well atomic.Bool
	one := newAgent(t, "one", func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, helloEvent)
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, loEvent+usageEvent+doneEvent)
	})
	a := several(t, "critic", one, newAgent(t, "two", streamWith(stream)))
	a.Eject = gateway.Eject{Failures: 1, For: 10 * time.Second}
	var c clock
	c.set(a.Target)
	b := newBus(t, nil, a)
	for one.executions() == 0 {
		b.stream("critic")
	}
	well.Store(true)
	c.forward(10 * time.Second)
	var caller sync.WaitGroup
	caller.Go(func() {
		if got := b.stream("critic"); got.body != stream {
			t.Error(got)
		}
	})
	want := gateway.UpstreamState{URL: one.URL.String(), InFlight: 1}
	eventually(t, "the stream has begun", func() bool { return a.Upstreams()[0] == want })
	close(release)
	caller.Wait()
}

// TestAllOut: G13, an agent is never refused for what its URLs were like: with
// all of them left out they are called in turn, and one that is back is found.
func TestAllOut(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			var well atomic.Int64
			well.Store(-1)
			var at []*agent
			for i := range n {
				at = append(at, newAgent(t, strconv.Itoa(i), func(w http.ResponseWriter, r *http.Request) {
					if well.Load() != int64(i) {
						w.WriteHeader(http.StatusBadGateway)
						return
					}
					answerWith(http.StatusOK, completion)(w, r)
				}))
			}
			a := several(t, "critic", at...)
			a.Eject = gateway.Eject{Failures: 1}
			var c clock
			c.set(a.Target)
			b := newBus(t, nil, a)
			const calls = 30
			for range calls {
				if got := b.call("critic"); got.status != http.StatusBadGateway || got.code() != "" { // the agent's own answer
					t.Fatal(got)
				}
			}
			executed := 0
			for _, one := range at {
				if one.executions() < calls/n/2 {
					t.Errorf("agent %s was called %d times of %d", one.Name, one.executions(), calls)
				}
				executed += one.executions()
			}
			if executed != calls {
				t.Errorf("%d executions of %d calls", executed, calls)
			}
			well.Store(int64(n - 1))
			for i := 0; b.call("critic").status != http.StatusOK; i++ {
				if i == 2*n {
					t.Fatal("the one that is back is not found")
				}
			}
			for range 10 {
				if got := b.call("critic"); got.status != http.StatusOK {
					t.Error(got)
				}
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		b := newBus(t, nil, several(t, "critic", gone(t), gone(t)))
		for range 12 {
			refused(t, "call", b.call("critic", turn("r", "t")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
		}
		if r := b.one("r", agentbus.CallVoided); r.Attempts != 12 {
			t.Errorf("recorded as %+v", r)
		}
	})
}

// TestWhatCountsAsFailure: G13, what makes a URL be left out, and what does not.
func TestWhatCountsAsFailure(t *testing.T) {
	t.Parallel()
	status := func(n int) http.HandlerFunc { return answerWith(n, "{}") }
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	begun := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, helloEvent)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	const soon = 50 * time.Millisecond
	for name, c := range map[string]struct {
		serve  http.HandlerFunc
		change func(*gateway.Config, *gateway.Target)
		want   int // failures, of one that had one before
	}{
		"an answer":                {serve: nil, want: 0},
		"200 of no use":            {serve: answerAs("text/html", http.StatusOK, "<html>"), want: 0},
		"400":                      {serve: status(http.StatusBadRequest), want: 0},
		"404":                      {serve: status(http.StatusNotFound), want: 0},
		"429":                      {serve: status(http.StatusTooManyRequests), want: 0},
		"500":                      {serve: status(http.StatusInternalServerError), want: 1},
		"501":                      {serve: status(http.StatusNotImplemented), want: 1},
		"502":                      {serve: status(http.StatusBadGateway), want: 2},
		"503":                      {serve: status(http.StatusServiceUnavailable), want: 2},
		"504":                      {serve: status(http.StatusGatewayTimeout), want: 2},
		"a hang-up":                {serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: 2},
		"a stream without its end": {serve: streamWith(helloEvent), want: 0},
		"an answer that breaks off": {want: 2, serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, "{")
		}},
		"no head in time": {serve: silent, want: 2, change: func(_ *gateway.Config, t *gateway.Target) {
			t.Transport.(*http.Transport).ResponseHeaderTimeout = soon //nolint:errcheck,forcetypeassert // it is one
		}},
		"no head in the time of the call": {serve: silent, want: 2, change: func(c *gateway.Config, _ *gateway.Target) { c.CallTimeout = soon }},
		"silence in a stream":             {serve: begun, want: 2, change: func(c *gateway.Config, _ *gateway.Target) { c.IdleTimeout = soon }},
		"a stream that takes too long":    {serve: begun, want: 1, change: func(c *gateway.Config, _ *gateway.Target) { c.CallTimeout = 3 * time.Second }}, // its head comes in less
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var again atomic.Bool
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !again.Swap(true):
					w.WriteHeader(http.StatusBadGateway)
				case c.serve == nil:
					streamWith(stream)(w, r)
				default:
					c.serve(w, r)
				}
			})
			b := newBus(t, func(cfg *gateway.Config) {
				if c.change != nil {
					c.change(cfg, a.Target)
				}
			}, a)
			b.stream("critic")
			b.stream("critic")
			if diff := cmp.Diff([]int{c.want}, failures(a)); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlaintextOfOneURL: P24 holds for every URL of an agent.
func TestPlaintextOfOneURL(t *testing.T) {
	t.Parallel()
	a := several(t, "critic", newAgent(t, "one", nil))
	far, err := url.Parse("http://agents.example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	a.URLs = append(a.URLs, far)
	b := newBus(t, nil, a)
	refused(t, "call", b.call("critic"), http.StatusForbidden, agentbus.CodeForbidden)
}

func table(agents ...*agent) *gateway.Table {
	targets := make([]*gateway.Target, len(agents))
	for i, a := range agents {
		targets[i] = a.Target
	}
	return gateway.NewTable(targets, nil)
}

// TestInherit: G13, a change of the configuration that keeps a URL keeps what is
// known of it.
func TestInherit(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := newAgent(t, "slow", func(w http.ResponseWriter, r *http.Request) {
		<-release
		answerWith(http.StatusOK, completion)(w, r)
	})
	down, other := gone(t), newAgent(t, "other", nil)
	before, after := several(t, "critic", down, slow), several(t, "critic", other, slow, down)
	before.Eject.Failures = 1
	b := newBus(t, nil, before)
	var call sync.WaitGroup
	call.Go(func() { b.call("critic", turn("r", "t")...) })
	slow.next(t)
	call.Go(func() { b.call("critic", turn("r", "t2")...) }) // one of the two met the URL that is down
	slow.next(t)
	last, next := table(before), table(after, other)
	next.Inherit(last)
	old, now := before.Upstreams(), after.Upstreams()
	if old[0].EjectedUntil.IsZero() || old[1].InFlight != 2 {
		t.Fatalf("before the change: %+v", old)
	}
	if diff := cmp.Diff([]gateway.UpstreamState{{URL: other.URL.String()}, old[1], old[0]}, now); diff != "" {
		t.Errorf("after the change (-want +got):\n%s", diff)
	}
	close(release)
	call.Wait()
	if got := after.Upstreams()[1].InFlight; got != 0 {
		t.Errorf("%d in flight, and all have ended", got)
	}
}

// TestManyCallers: G13, what is counted comes out right whatever happens at once.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	flaky := newAgent(t, "flaky", func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 3 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			panic(http.ErrAbortHandler)
		default:
			answerWith(http.StatusOK, completion)(w, r)
		}
	})
	well := newAgent(t, "well", nil)
	a := several(t, "critic", flaky, gone(t), well)
	a.Eject = gateway.Eject{Failures: 2, For: time.Millisecond, AtMost: 4 * time.Millisecond}
	b := newBus(t, nil, a)
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 4 {
				b.call("critic")
				a.Upstreams()
			}
		})
	}
	callers.Wait()
	for _, u := range a.Upstreams() {
		if u.InFlight != 0 || u.Probing {
			t.Errorf("left as %+v", u)
		}
	}
	if flaky.executions()+well.executions() != 64*4 {
		t.Errorf("%d and %d executions of %d calls", flaky.executions(), well.executions(), 64*4)
	}
}
