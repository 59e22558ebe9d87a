package postgres_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/store/postgres"
)

// request is the n-th call of run.
func request(payer agentbus.Payer, run agentbus.RunID, n int) agentbus.Reservation {
	key := agentbus.TurnKey{Payer: payer, Agent: "critic", Run: run, ID: run.Turn(n, "critic")}
	return agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{
		TurnKey: key, RequestID: "req_" + strconv.Itoa(n), Caller: "alice", Depth: 1, Owner: "host:1", Began: time.Now(),
	}}
}

// answer settles c.
func answer(c agentbus.CallRecord) agentbus.Settlement {
	return agentbus.Settlement{ID: c.ID, Attempt: c.Attempts, Cost: 4_000, Ended: time.Now(), Reply: agentbus.StoredReply{Status: 200, Body: []byte("x")}}
}

// A load makes calls through stores until it is told to end, and counts what
// was acknowledged.
type load struct {
	settled  atomic.Int64 // settlements that were acknowledged
	unknown  atomic.Int64 // settlements that ended with an error: they may have been stored
	refused  atomic.Int64 // that no attempt of ours had a right to
	mu       sync.Mutex
	answered map[agentbus.Digest]bool // keys whose settlement was acknowledged
}

// one reserves and settles a call, again after an error, as a caller does.
func (l *load) one(ctx context.Context, s *postgres.Store, r agentbus.Reservation) {
	for range 40 {
		got, err := s.Reserve(ctx, r)
		if err != nil {
			<-time.After(10 * time.Millisecond) // the server is away
			continue
		}
		if got.Outcome == agentbus.OutcomeSettled {
			return
		}
		if got.Outcome == agentbus.OutcomeInFlight { // ours: its answer was lost
			r.TakeOver = got.Call.Owner
			continue
		}
		switch err := s.Settle(ctx, answer(got.Call)); agentbus.CodeOf(err) {
		case "":
			l.settled.Add(1)
			l.mu.Lock()
			l.answered[r.Key] = true
			l.mu.Unlock()
			return
		case agentbus.CodeLeaseLost:
			l.refused.Add(1)
		default:
			l.unknown.Add(1)
		}
	}
}

// loaded makes n calls for each of several payers at once, until done is closed.
func loaded(t *testing.T, s *postgres.Store, n int) (l *load, done <-chan struct{}) {
	t.Helper()
	l = &load{answered: map[agentbus.Digest]bool{}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.run(t, s, n)
	}()
	return l, over
}

// run makes n calls for each of several payers at once.
func (l *load) run(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			payer, run := agentbus.Payer("payer-"+strconv.Itoa(i%3)), agentbus.RunID("run_"+strconv.Itoa(i))
			for k := range n {
				l.one(t.Context(), s, request(payer, run, k))
			}
		})
	}
	wg.Wait()
}

// check holds what is stored to what was acknowledged.
func (l *load) check(t *testing.T, s *postgres.Store, calls int) { // I1, I2
	t.Helper()
	v, err := s.VerifyLedger(t.Context())
	if err != nil || v.Fault != "" {
		t.Fatalf("the ledger: %s: %+v, %v", v.Fault, v.Bad, err)
	}
	if v.Charged != agentbus.Micros(calls)*4_000 {
		t.Errorf("%d calls are charged %d; %d acknowledged, %d unknown, %d refused", calls, v.Charged, l.settled.Load(), l.unknown.Load(), l.refused.Load())
	}
	for key := range l.answered {
		got, found, err := s.Lookup(t.Context(), key, agentbus.Digest{})
		if err != nil || !found || got.Outcome != agentbus.OutcomeSettled {
			t.Errorf("an acknowledged call is %+v, %v, %v", got, found, err)
		}
	}
}

// TestServerRestarts: the server crashes in the middle of commits and comes
// back. Nothing acknowledged is lost, and nothing is charged twice.
func TestServerRestarts(t *testing.T) { // I1, I2
	t.Parallel()
	server := pgtest.Own(t)
	s := opened(t, server.Database(t))
	defer func() { _ = s.Close() }()
	const n = 40
	l, done := loaded(t, s, n)
	for _, after := range []int64{20, 100} {
		for l.settled.Load() < after {
			<-time.After(time.Millisecond)
		}
		server.Stop()
		server.Start(t)
	}
	<-done
	l.check(t, s, 8*n)
	select {
	case <-s.Broken():
		t.Error("the store is broken")
	default:
	}
}

// A wire passes connections on to a server, and cuts them on demand.
type wire struct {
	net.Listener

	to  string
	mu  sync.Mutex
	all map[net.Conn]bool
	wg  sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to, all: map[net.Conn]bool{}}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		from, err := w.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", w.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.all[from] = true
		w.mu.Unlock()
		w.wg.Go(func() { w.pass(from, to); closeWrite(to) })
		w.wg.Go(func() { w.pass(to, from); _ = from.Close(); _ = to.Close() })
	}
}

func closeWrite(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.CloseWrite() // it may be closed
	}
}

func (w *wire) pass(from io.Reader, to io.Writer) { _, _ = io.Copy(to, from) }

// cut breaks every connection off: what was sent arrives, the answer does not.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		_ = c.Close()
		delete(w.all, c)
	}
}

// TestConnectionsAreCut: the network breaks in the middle of transactions, also
// between a COMMIT and its answer.
func TestConnectionsAreCut(t *testing.T) { // I1, I2
	t.Parallel()
	u, err := url.Parse(stores.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if u.Query().Get("host") == "" {
		require.Missing(t, "a socket of the server that AGENTBUS_TEST_POSTGRES names")
	}
	w := newWire(t, u.Query().Get("host")+"/.s.PGSQL."+u.Query().Get("port"))
	u.Host, u.RawQuery = w.Addr().String(), "sslmode=disable"
	s := opened(t, u.String())
	defer func() { _ = s.Close() }()
	const n = 40
	l, done := loaded(t, s, n)
	cuts := 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(30 * time.Millisecond):
			w.cut()
			cuts++
		}
		if cuts == 40 {
			<-done
			over = true
		}
	}
	l.check(t, s, 8*n)
	if l.unknown.Load() > 0 {
		t.Logf("%d cuts; %d settlements ended with an error", cuts, l.unknown.Load())
	}
}
