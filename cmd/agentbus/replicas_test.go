package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
	"github.com/agentbus/agentbus/store/postgres"
)

// stores are empty stores on PostgreSQL, each in a database of its own.
var stores = pgtest.Pool{Keep: "goose_db_version", Fill: func(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, postgres.Config{URL: url})
	if err != nil {
		return err
	}
	return s.Close()
}}

// configureOn writes a configuration of a bus on the store at url and returns its
// path.
func configureOn(t *testing.T, url, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	save(t, path, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nstore: {url: %q}\n", url)+text)
	return path
}

// submitting opens the bus of a configuration, beside whoever else uses its store:
// one that begins runs and drives none.
func submitting(t *testing.T, path string, env map[string]string) *server.Server {
	t.Helper()
	c, _, err := config.Load(config.Source{Path: path, Env: lookup(env)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Supervisor: supervisor()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A replica is one process of several on one store.
type replica struct {
	*process

	url string
}

func startReplica(t *testing.T, path string, env map[string]string) *replica {
	t.Helper()
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	r := &replica{process: start(t, t.TempDir(), pairs, "serve", "--config", path)}
	r.url, _, _ = r.serves(t)
	return r
}

// leave ends the replica in order.
func (r *replica) leave(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if code := r.end(); code != 0 {
		t.Errorf("a replica ended with %d: %s", code, r.stderr.String())
	}
}

// A balancer passes connections on to replicas in turn, and to the next where one
// does not take it.
type balancer struct {
	net.Listener

	wg   sync.WaitGroup
	mu   sync.Mutex
	next int
	to   []string // addresses
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l}
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		_ = l.Close()
		b.wg.Wait()
	})
	return b
}

func (b *balancer) url() string { return "http://" + b.Addr().String() }

// lead lets the i-th address be that of a replica.
func (b *balancer) lead(i int, r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.to) <= i {
		b.to = append(b.to, "")
	}
	b.to[i] = strings.TrimPrefix(r.url, "http://")
}

func (b *balancer) accept() {
	for {
		c, err := b.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.pass(c) })
	}
}

func (b *balancer) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	b.mu.Lock()
	b.next++
	first, all := b.next, append([]string(nil), b.to...)
	b.mu.Unlock()
	for i := range all {
		to, err := net.Dial("tcp", all[(first+i)%len(all)])
		if err != nil {
			continue
		}
		defer func() { _ = to.Close() }()
		go func() { // ends with its connection
			_, _ = io.Copy(to, from)
			_ = to.(*net.TCPConn).CloseWrite() //nolint:errcheck,forcetypeassert // it was dialled so, and may be closed
		}()
		_, _ = io.Copy(from, to) // whoever reads sees what is missing
		return
	}
}

// A gate is an agent whose first execution of each turn waits until it is let,
// and whose others answer at once.
type gate struct {
	*httptest.Server

	called chan agentbus.TurnID
	let    chan struct{}
	mu     sync.Mutex
	times  map[agentbus.TurnID]int
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{called: make(chan agentbus.TurnID, 16), let: make(chan struct{}), times: map[agentbus.TurnID]int{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		turn := agentbus.TurnID(r.Header.Get(agentbus.HeaderTurnID))
		g.mu.Lock()
		g.times[turn]++
		n := g.times[turn]
		g.mu.Unlock()
		g.called <- turn
		if n == 1 {
			<-g.let
		}
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"execution %d"}}]}`, n)
	}))
	t.Cleanup(g.Close)
	return g
}

// G22, G24, R17, I1: a replica sleeps past its heartbeat and its lease, with a
// call and a run in its hands. Another takes over both. What the first does with
// them when it wakes is neither stored nor charged; with what comes anew it is a
// replica as any other.
func TestSleepingReplicaIsFenced(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits until a replica is taken for dead")
	}
	g := newGate(t)
	path := configureOn(t, stores.Database(t), fmt.Sprintf("keys: [{id: alice, secret_env: ALICE}]\nworkers: {lease: 1s}\n"+
		"agents:\n  a: {kind: openai, url: %[1]q, price: {call: 0.001}}\n  b: {kind: openai, url: %[1]q, price: {call: 0.001}}\n"+
		"conversations: {talk: {participants: [{agent: a}, {agent: b}], max_turns: 1}}\n", g.URL+"/v1"))
	sleeper := startReplica(t, path, aliceEnv)
	s := submitting(t, path, aliceEnv)
	body, header := `{"model":"a","messages":[{"role":"user","content":"hello"}]}`, turnHeader("call", "a", 1)
	first := make(chan string, 1)
	go func() {
		_, _, answer, _ := post(t.Context(), sleeper.url, aliceKey, body, header) // it may be cut
		first <- answer
	}()
	<-g.called
	run, err := s.Submit(t.Context(), server.Start{Conversation: "talk", Seed: "go"})
	if err != nil {
		t.Fatal(err)
	}
	<-g.called // by the only replica that there is
	if err := sleeper.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := startReplica(t, path, aliceEnv)
	status, _, answer := mustPost(t, other.url, aliceKey, body, header) // waits until the sleeper counts as dead
	if status != http.StatusOK || !strings.Contains(answer, "execution 2") {
		t.Fatalf("the duplicate: %d %s", status, answer)
	}
	e := halts(t, s.Store(), run)
	close(g.let)
	if err := sleeper.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if late := <-first; late != answer && strings.Contains(late, "execution 1") {
		t.Errorf("the caller of the sleeper reads %s", late)
	}
	if status, _, again := mustPost(t, sleeper.url, aliceKey, body, header); status != http.StatusOK || again != answer {
		t.Errorf("the sleeper answers from memory: %d %s", status, again)
	}
	if status, _, anew := mustPost(t, sleeper.url, aliceKey, body, turnHeader("call", "b", 1)); status != http.StatusOK {
		t.Errorf("the sleeper answers anew: %d %s", status, anew)
	}
	sleeper.leave(t)
	other.leave(t)
	chargedOnce(t, s.Store(), "call", 2)
	chargedOnce(t, s.Store(), run, 1)
	turns := turnsOf(t, s.Store(), run)
	if now := executionOf(t, s.Store(), run); now.State != agentbus.RunDone || now.Lease.Epoch != e.Lease.Epoch || len(turns) != 1 || turns[0].Reply.Text != "execution 2" {
		t.Errorf("the run: %+v, %+v", now, turns)
	}
	if v, err := s.Store().VerifyLedger(t.Context()); err != nil || v.Fault != "" || v.Charged != 3000 {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

// An echo is an agent that answers what it is told, and which execution of the
// turn it is for its payer.
type echo struct {
	*httptest.Server

	mu      sync.Mutex
	times   map[string]int
	total   atomic.Int64
	deepest atomic.Int64
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{times: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(e.answer))
	t.Cleanup(e.Close)
	return e
}

func (e *echo) answer(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e.total.Add(1)
	depth, _ := strconv.ParseInt(r.Header.Get(agentbus.HeaderForwardedDepth), 10, 64)
	for d := e.deepest.Load(); depth > d && !e.deepest.CompareAndSwap(d, depth); d = e.deepest.Load() {
	}
	_, said, _ := strings.Cut(string(raw), `"content":"`)
	said, _, _ = strings.Cut(said, `"`)
	e.mu.Lock()
	e.times[said]++
	n := e.times[said]
	e.mu.Unlock()
	if !strings.Contains(string(raw), `"stream":true`) {
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"%s, execution %d"}}]}`, said, n)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 4 {
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s, execution %d, piece %d\"}}]}\n\n", said, n, i)
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}
