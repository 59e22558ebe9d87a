package gateway_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// twoBuses are two buses on one store that tell each other streams, and know of
// each other that they live while alive says so.
func twoBuses(t *testing.T, alive *atomic.Bool, agents ...*agent) (one, two *bus) {
	t.Helper()
	return twoBusesOver(t, alive, func(s gateway.Streams) gateway.Streams { return s }, agents...)
}

// twoBusesOver is twoBuses, of which the second reads what is told through.
func twoBusesOver(t *testing.T, alive *atomic.Bool, through func(gateway.Streams) gateway.Streams, agents ...*agent) (one, two *bus) {
	t.Helper()
	alive.Store(true)
	path := filepath.Join(t.TempDir(), "bus.db")
	store := openStore(t, path)
	ctx, stop := context.WithCancel(t.Context())
	var telling sync.WaitGroup
	t.Cleanup(func() { stop(); telling.Wait() })
	join := func(owner string, streams gateway.Streams) *bus {
		b := busOver(t, store, path, func(c *gateway.Config) {
			c.Owner, c.Streams, c.Alive = owner, streams, func(string) bool { return alive.Load() }
		}, agents...)
		telling.Go(func() { b.TellStreams(ctx) })
		return b
	}
	return join("one", store), join("two", through(store))
}

// streamUntil is an agent that says hello, and more once more is closed.
func streamUntil(more <-chan struct{}, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, helloEvent)
		_ = http.NewResponseController(w).Flush()
		<-more
		then(w, r)
	}
}

// TestFollowElsewhere: G22, a duplicate of a stream that another process executes
// receives the frames so far and then the live ones, and so do those who attach to
// it; the next one reads the same bytes from memory.
func TestFollowElsewhere(t *testing.T) {
	t.Parallel()
	const rest = loEvent + usageEvent + doneEvent
	first, last := make(chan struct{}), make(chan struct{})
	large := strings.Repeat(loEvent, 2000) // several pieces
	a := newAgent(t, "critic", streamUntil(first, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, large)
		_ = http.NewResponseController(w).Flush()
		<-last
		_, _ = io.WriteString(w, rest)
	}))
	one, two := twoBuses(t, new(atomic.Bool), a)
	streams := []*reading{one.openStream("critic", turn("r", "t")...), two.openStream("critic", turn("r", "t")...), two.openStream("critic", turn("r", "t")...)}
	for _, s := range streams {
		s.reads(helloEvent)
	}
	close(first)
	for _, s := range streams {
		s.reads(large)
	}
	close(last)
	for i, s := range streams {
		s.reads(rest)
		s.ends()
		if got, want := s.header.Get("X-Agentbus-Replay"), []string{"", "attached", "attached"}[i]; got != want {
			t.Errorf("stream %d, x-agentbus-replay: %q", i, got)
		}
	}
	if got := two.stream("critic", turn("r", "t")...); got.body != helloEvent+large+rest || got.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("from memory: %v", got)
	}
	if r := two.one("r", agentbus.CallSettled); r.Attempts != 1 || r.Replays != 3 || a.executions() != 1 {
		t.Errorf("%d executions, recorded as %+v", a.executions(), r)
	}
}

// TestFollowerLeaves: G22, those who attached to a duplicate that follows a stream
// elsewhere read it to its end, although that one leaves.
func TestFollowerLeaves(t *testing.T) {
	t.Parallel()
	const rest = loEvent + usageEvent + doneEvent
	first, last := make(chan struct{}), make(chan struct{})
	a := newAgent(t, "critic", streamUntil(first, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, loEvent)
		_ = http.NewResponseController(w).Flush()
		<-last
		_, _ = io.WriteString(w, rest)
	}))
	one, two := twoBuses(t, new(atomic.Bool), a)
	one.openStream("critic", turn("r", "t")...).reads(helloEvent)
	leaves := two.openStream("critic", turn("r", "t")...)
	leaves.reads(helloEvent)
	stays := two.openStream("critic", turn("r", "t")...)
	stays.reads(helloEvent)
	_ = leaves.Body.Close()
	close(first)
	stays.reads(loEvent)
	close(last)
	stays.reads(rest)
	stays.ends()
	if r := two.one("r", agentbus.CallSettled); a.executions() != 1 || r.Attempts != 1 {
		t.Errorf("%d executions, recorded as %+v", a.executions(), r)
	}
	two.await("r", func([]agentbus.CallRecord) bool { return two.InFlight() == 0 })
}

// toldOnce shows only once that a stream is told: it ended, and what was told was
// removed, before it could be read.
type toldOnce struct {
	gateway.Streams

	once  sync.Once
	shown chan struct{} // closed then
}

func (f *toldOnce) ToldStream(ctx context.Context, call int64, attempt, from int) (told []agentbus.StreamPiece, err error) {
	pieces, err := f.Streams.ToldStream(ctx, call, attempt, from)
	if len(pieces) > 0 {
		f.once.Do(func() { told = pieces; close(f.shown) })
	}
	return told, err
}

// TestFollowTooLate: G22, G23, a duplicate that finds nothing of what was told any
// more reads the whole answer, with its head, from the ledger.
func TestFollowTooLate(t *testing.T) {
	t.Parallel()
	more, streams := make(chan struct{}), &toldOnce{shown: make(chan struct{})}
	a := newAgent(t, "critic", streamUntil(more, streamRest(loEvent+usageEvent+doneEvent)))
	one, two := twoBusesOver(t, new(atomic.Bool), func(s gateway.Streams) gateway.Streams { streams.Streams = s; return streams }, a)
	first := one.openStream("critic", turn("r", "t")...)
	first.reads(helloEvent)
	go func() {
		<-streams.shown
		close(more)
	}()
	got := two.stream("critic", turn("r", "t")...)
	if got.status != http.StatusOK || got.body != helloEvent+loEvent+usageEvent+doneEvent || got.header.Get("Content-Type") != first.header.Get("Content-Type") ||
		got.header.Get("X-Agentbus-Replay") != "attached" || got.header.Get("X-Request-Id") != first.header.Get("X-Request-Id") {
		t.Errorf("read %v %v", got, got.header)
	}
}

// streamRest says the rest of a stream.
func streamRest(rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, rest) }
}

// TestFollowedFails: G22, G24, a stream that breaks off elsewhere, or whose
// process dies, breaks off for who follows it; nothing is voided for that, and the
// turn can be sent again.
func TestFollowedFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(alive *atomic.Bool, more chan struct{}){
		"the agent breaks off": func(_ *atomic.Bool, more chan struct{}) { close(more) },
		"the process dies":     func(alive *atomic.Bool, _ chan struct{}) { alive.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more, calls := make(chan struct{}), atomic.Int64{}
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > 1 {
					streamWith(stream)(w, r)
					return
				}
				streamUntil(more, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })(w, r)
			})
			alive := new(atomic.Bool)
			one, two := twoBuses(t, alive, a)
			first := one.openStream("critic", turn("r", "t")...)
			first.reads(helloEvent)
			second := two.openStream("critic", turn("r", "t")...)
			second.reads(helloEvent)
			fail(alive, more)
			if got, err := io.ReadAll(second.Body); err == nil || !strings.Contains(string(got), `"code":"agent_unavailable"`) { // G15
				t.Errorf("the duplicate reads %q, %v", got, err)
			}
			if got := two.stream("critic", turn("r", "t")...); got.body != stream || got.header.Get("X-Agentbus-Attempts") != "2" {
				t.Errorf("the retry: %v", got)
			}
			if name == "the process dies" {
				close(more) // so that it ends here
			}
			if r := two.one("r", agentbus.CallSettled); r.Attempts != 2 {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}

// TestFollowersStop: G14, G22, who follows a run that is stopped reads so.
func TestFollowersStop(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	defer close(more)
	a := newAgent(t, "critic", streamUntil(more, func(http.ResponseWriter, *http.Request) {}))
	one, two := twoBuses(t, new(atomic.Bool), a)
	first := one.openStream("critic", turn("r", "t")...)
	first.reads(helloEvent)
	second := two.openStream("critic", turn("r", "t")...)
	second.reads(helloEvent)
	one.Stop("r")
	two.Stop("r")
	if _, err := io.ReadAll(second.Body); err == nil {
		t.Error("the duplicate looks whole")
	}
	two.one("r", agentbus.CallVoided)
}

// A shortLedger says of a call, once, that calls in flight hold what it needs, and
// counts how often it was asked.
type shortLedger struct {
	gateway.Ledger

	short atomic.Bool
	asked atomic.Int64
}

func (l *shortLedger) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	l.asked.Add(1)
	if l.short.CompareAndSwap(true, false) {
		return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Short: &agentbus.Shortage{Budget: r.Hold.Budgets[0], Passing: true}}, nil
	}
	return l.Ledger.Reserve(ctx, r)
}

// TestElsewhereBehindABudget: G22, G27, a call that waits for its budget until another
// process executes it waits for that one as long as its caller does, out of the line.
func TestElsewhereBehindABudget(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(strconv.FormatBool(stops), func(t *testing.T) {
			t.Parallel()
			g := newTurnstile(t, "critic")
			priceOf(g.agent, 10)
			path := filepath.Join(t.TempDir(), "bus.db")
			store := openStore(t, path)
			ledger := &shortLedger{Ledger: store}
			join := func(owner string, ledger gateway.Ledger) *bus {
				return busOver(t, store, path, func(c *gateway.Config) {
					under(total(100, true))(c)
					c.Owner, c.Ledger, c.Alive, c.BudgetWait = owner, ledger, func(string) bool { return true }, 100*time.Millisecond
				}, g.agent)
			}
			one, two := join("one", store), join("two", ledger)
			t.Cleanup(func() { close(g.open) })
			first := make(chan answer, 1)
			go func() { first <- one.call("critic", turn("r", "t")...) }()
			g.next(t)
			second := make(chan answer, 1)
			send := func() {
				ledger.short.Store(true)
				ledger.asked.Store(0)
				go func() { second <- two.call("critic", turn("r", "t")...) }()
			}
			send()
			two.await("r", func([]agentbus.CallRecord) bool { // it asks less and less often: BudgetWait is over
				select {
				case got := <-second:
					if got.code() != agentbus.CodeBudgetExceeded { // it was, before it could ask
						t.Fatal(got)
					}
					send()
				default:
				}
				return ledger.asked.Load() > 6
			})
			if n := two.Waiting(); n > 0 {
				t.Errorf("%d stand in line", n)
			}
			if stops {
				two.Stop("r")
				refused(t, "stopped", <-second, http.StatusForbidden, agentbus.CodeRunStopped)
			}
			g.open <- struct{}{}
			<-first
			if !stops {
				if got := <-second; got.status != http.StatusOK || got.header.Get("X-Agentbus-Replay") != "hit" {
					t.Error(got)
				}
			}
		})
	}
}
