package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/server"
)

// I1 to I8: three replicas behind a balancer, under calls with duplicates and
// retries and under runs, of which one is killed with -9 every two seconds while
// PostgreSQL is restarted twice. AGENTBUS_SOAK is how long instead of ten
// seconds; make soak has ten minutes. AGENTBUS_CRASH_SEED repeats what is drawn.
func TestReplicasUnderFire(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes most of a minute")
	}
	f := newFire(t)
	load := f.start()
	f.burn()
	f.over.Store(true)
	load.Wait()
	f.finish()
	f.check()
	t.Logf("%d kills, %d restarts of PostgreSQL; %d calls acknowledged %d times, %d refused by their budget, %d tries failed; %d runs; the agent was called %d times",
		f.kills, f.restarts, len(f.acked), f.acks.Load(), f.broke.Load(), f.failed.Load(), len(f.runs), f.agent.total.Load())
}

const (
	fireSecret  = "sk-CANARY-5d0e-" // begins every credential
	fireCallers = 8
	fireEvery   = 2 * time.Second // a replica is killed
)

// A fire is a bus of three replicas that are killed, and what it acknowledged.
type fire struct {
	t        *testing.T
	lasts    time.Duration
	random   *rand.Rand
	database *pgtest.Server
	url      string // of the database
	path     string
	env      map[string]string
	agent    *echo
	talkers  map[agentbus.Speaker]*agent
	front    *balancer
	replicas []*replica
	dead     []*replica
	s        *server.Server
	over     atomic.Bool

	kills, restarts     int
	acks, broke, failed atomic.Int64

	mu    sync.Mutex
	acked map[fireCall]string // the answers
	runs  []agentbus.RunID
	met   map[agentbus.RunID]bool // runs of calls
}

// A fireCall is a call that is sent until it is answered.
type fireCall struct {
	payer  string
	run    agentbus.RunID
	index  int
	stream bool
}

func (c fireCall) key() string { return fireSecret + c.payer }

// said is what the agent says again: no other payer may read it.
func (c fireCall) said() string { return fmt.Sprintf("%s says %s %d", c.payer, c.run, c.index) }

func (c fireCall) body() string {
	return fmt.Sprintf(`{"model":"echo","stream":%t,"messages":[{"role":"user","content":"%s"}]}`, c.stream, c.said())
}

func (c fireCall) header(depth int) http.Header {
	h := http.Header{}
	agentbus.Lineage{Run: c.run, Turn: c.run.Turn(c.index, "echo"), Depth: depth}.SetHeaders(h)
	return h
}

func newFire(t *testing.T) *fire {
	t.Helper()
	f := &fire{
		t: t, lasts: 10 * time.Second, database: pgtest.Own(t), agent: newEcho(t), front: newBalancer(t),
		acked: map[fireCall]string{}, met: map[agentbus.RunID]bool{},
		env:     map[string]string{"ALICE": fireSecret + "alice", "BOB": fireSecret + "bob"},
		talkers: map[agentbus.Speaker]*agent{"a": newAgent(t, "a", time.Millisecond), "b": newAgent(t, "b", time.Millisecond)},
	}
	if d, err := time.ParseDuration(os.Getenv("AGENTBUS_SOAK")); err == nil {
		f.lasts = d
	}
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("AGENTBUS_CRASH_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("AGENTBUS_CRASH_SEED=%d", seed)
	f.random = rand.New(rand.NewPCG(seed, 1))
	f.url = f.database.Database(t)
	f.path = configureOn(t, f.url, talkOf(f.talkers["a"], f.talkers["b"], "")+
		"keys: [{id: alice, secret_env: ALICE}, {id: bob, secret_env: BOB}]\nworkers: {lease: 2s}\nlimits: {budget_wait: 0s}\n"+
		"budgets: [{period: run, usd: 0.05}]\n")
	raw, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, f.path, strings.Replace(string(raw), "agents:\n", fmt.Sprintf("agents:\n  echo: {kind: openai, url: %q, price: {call: 0.02}}\n", f.agent.URL+"/v1"), 1))
	for i := range 3 {
		f.replicas = append(f.replicas, startReplica(t, f.path, f.env))
		f.front.lead(i, f.replicas[i])
	}
	f.s = submitting(t, f.path, f.env)
	return f
}

// start begins the load.
func (f *fire) start() *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range fireCallers {
		wg.Go(func() {
			for n := 0; !f.over.Load(); n++ {
				f.turns(i, n)
			}
		})
	}
	wg.Go(func() {
		for n := 0; !f.over.Load(); n++ {
			f.submit(agentbus.RunID("talk-" + strconv.Itoa(n)))
		}
	})
	return &wg
}

// turns sends the calls of a run of two payers, of which one has money for two of
// its three, each with a duplicate or two.
func (f *fire) turns(caller, n int) {
	run := agentbus.RunID(fmt.Sprintf("calls-%d-%d", caller, n))
	f.mu.Lock()
	f.met[run] = true
	f.mu.Unlock()
	var wg sync.WaitGroup
	for i, c := range []fireCall{{payer: "alice"}, {payer: "bob"}, {payer: "alice", index: 1}, {payer: "alice", index: 2}} {
		c.run, c.stream = run, (n+i)%2 == 0
		for range 1 + (n+i)%3 {
			wg.Go(func() { f.send(c) })
		}
	}
	c := fireCall{payer: "alice", run: run, index: 9}
	if status, _, body, err := post(f.t.Context(), f.front.url(), c.key(), c.body(), c.header(agentbus.DefaultMaxDepth)); err == nil && status < 400 { // I3
		f.t.Errorf("at the depth limit: %d %s", status, body)
	}
	wg.Wait()
}

// send sends a call until it is answered, and holds the answer to those before.
func (f *fire) send(c fireCall) {
	for range 400 {
		ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
		status, _, body, err := post(ctx, f.front.url(), c.key(), c.body(), c.header(1))
		cancel()
		switch {
		case err == nil && status == http.StatusOK:
			f.answered(c, body)
			return
		case err == nil && status == http.StatusPaymentRequired:
			f.broke.Add(1)
			return
		case err == nil && status < 500 && status != http.StatusTooManyRequests && status != http.StatusConflict:
			f.t.Errorf("%+v: %d %s", c, status, body)
			return
		}
		f.failed.Add(1)
		<-time.After(20 * time.Millisecond)
	}
	f.t.Errorf("%+v was never answered", c)
}

// answered notes an acknowledged answer: one that was before has the same bytes
// (I7), and is nobody else's (I4).
func (f *fire) answered(c fireCall, body string) {
	f.acks.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.acked[c]
	if !strings.Contains(body, c.said()+", execution") || known && before != body {
		f.t.Errorf("%+v was answered %q, then %q", c, before, body)
	}
	f.acked[c] = body
}

// submit begins a run, for whichever replica takes it.
func (f *fire) submit(run agentbus.RunID) {
	if _, err := f.s.Submit(f.t.Context(), server.Start{Conversation: "talk", Seed: "go", Run: run}); err != nil {
		f.failed.Add(1) // it may have begun all the same: it is no run that was acknowledged
		<-time.After(50 * time.Millisecond)
		return
	}
	f.mu.Lock()
	f.runs = append(f.runs, run)
	f.mu.Unlock()
	<-time.After(50 * time.Millisecond)
}

// burn kills a replica now and then, and starts another in its place, and
// restarts the database after a third and two thirds of the time.
func (f *fire) burn() {
	f.t.Helper()
	began, every := time.Now(), time.NewTicker(fireEvery)
	defer every.Stop()
	for time.Since(began) < f.lasts || f.restarts < 2 {
		<-every.C
		i := f.random.IntN(len(f.replicas))
		if err := f.replicas[i].cmd.Process.Kill(); err != nil {
			f.t.Fatal(err)
		}
		f.replicas[i].end()
		f.kills++
		if time.Since(began) > time.Duration(f.restarts+1)*f.lasts/3 && f.restarts < 2 {
			f.database.Stop()
			f.database.Start(f.t)
			f.restarts++
		}
		f.dead = append(f.dead, f.replicas[i])
		f.replicas[i] = startReplica(f.t, f.path, f.env)
		f.front.lead(i, f.replicas[i])
	}
}

// finish waits for the runs, asks for every acknowledged answer once more, and
// ends the replicas.
func (f *fire) finish() {
	f.t.Helper()
	for _, run := range f.runs {
		halts(f.t, f.s.Store(), run)
	}
	executed := f.agent.total.Load()
	var wg sync.WaitGroup
	all := make(chan fireCall)
	for range fireCallers {
		wg.Go(func() {
			for c := range all {
				f.send(c)
			}
		})
	}
	f.mu.Lock()
	calls := make([]fireCall, 0, len(f.acked))
	for c := range f.acked {
		calls = append(calls, c)
	}
	f.mu.Unlock()
	for _, c := range calls {
		all <- c
	}
	close(all)
	wg.Wait()
	if again := f.agent.total.Load() - executed; again != 0 { // I2
		f.t.Errorf("%d acknowledged calls were executed again", again)
	}
	for _, r := range f.replicas {
		r.leave(f.t)
	}
}

// check holds what is stored to what was acknowledged.
func (f *fire) check() {
	f.t.Helper()
	v, err := f.s.Store().VerifyLedger(f.t.Context())
	if err != nil || v.Fault != "" {
		f.t.Fatalf("the ledger: %+v, %v", v, err)
	}
	if v.Charged != f.charges() {
		f.t.Errorf("charged %d, and the calls come to %d", v.Charged, f.charges()) // I1
	}
	if d := f.agent.deepest.Load(); d >= agentbus.DefaultMaxDepth+1 {
		f.t.Errorf("the agent was called at depth %d", d) // I3
	}
	for _, run := range f.runs {
		f.ended(run)
	}
	f.leaks()
}

// charges adds up the calls: each key is settled once (I1), each acknowledged
// call is (I2), and nobody more for a run than its budget has (I5).
func (f *fire) charges() (sum agentbus.Micros) {
	f.t.Helper()
	settled := map[fireCall]bool{}
	for _, run := range append(slices.Collect(maps.Keys(f.met)), f.runs...) {
		spent := map[agentbus.Payer]agentbus.Micros{}
		for _, c := range callsOf(f.t, f.s.Store(), run) {
			spent[c.Payer] += c.Cost
			sum += c.Cost
			if c.State != agentbus.CallSettled {
				continue
			}
			of := fireCall{payer: string(c.Payer), run: run, index: c.TurnKey.ID.Index(run), stream: c.Stream}
			if settled[of] {
				f.t.Errorf("%+v is settled twice", of)
			}
			settled[of] = true
		}
		for payer, n := range spent {
			if n > 50_000 {
				f.t.Errorf("%s is charged %d for run %s", payer, n, run)
			}
		}
	}
	for c := range f.acked {
		if !settled[c] {
			f.t.Errorf("%+v was acknowledged, and is not settled", c)
		}
	}
	return sum
}

// ended fails unless a run is done, once, with all its turns (I2, I6).
func (f *fire) ended(run agentbus.RunID) {
	f.t.Helper()
	e, turns, ends := executionOf(f.t, f.s.Store(), run), turnsOf(f.t, f.s.Store(), run), 0
	for event, err := range f.s.Store().Events(f.t.Context(), agentbus.ExecutionID(run), -1) {
		if err != nil {
			f.t.Fatal(err)
		}
		if agentbus.Terminal(event.Type) {
			ends++
		}
	}
	if e.State != agentbus.RunDone || len(turns) != 6 || ends != 1 {
		f.t.Errorf("run %s: %+v, halt %+v, %d turns, ended %d times", run, e, e.Halt, len(turns), ends)
	}
	for i := range turns {
		said := f.talkers[turns[i].Speaker].executions(turns[i].ID)
		if turns[i].Index != i || turns[i].State != agentbus.TurnDone || !slices.Contains(said, turns[i].Reply.Text) {
			f.t.Errorf("run %s: %+v, and its agent said %q", run, turns[i], said)
		}
	}
}

// leaks fails where a credential is in what the replicas said, or in the store (I8).
func (f *fire) leaks() {
	f.t.Helper()
	for _, r := range append(f.dead, f.replicas...) {
		if strings.Contains(r.stderr.String(), fireSecret) {
			f.t.Errorf("a log has a credential: %s", r.stderr.String())
		}
	}
	c, err := pgx.Connect(f.t.Context(), f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = c.Close(f.t.Context()) }() // it has read
	rows, err := c.Query(f.t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'")
	if err != nil {
		f.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		f.t.Fatal(tables, err)
	}
	for _, table := range tables {
		var found int
		err := c.QueryRow(f.t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()+" t WHERE t::text LIKE $1 OR t::text LIKE $2",
			"%"+fireSecret+"%", "%"+hex.EncodeToString([]byte(fireSecret))+"%").Scan(&found)
		if err != nil || found > 0 {
			f.t.Errorf("%d rows of %s have a credential: %v", found, table, err)
		}
	}
}
