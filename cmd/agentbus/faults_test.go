package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

// faulty returns the program, built so that it can be killed at a point. A test of
// it runs processes that are built without the race detector, many of them.
func faulty(t *testing.T) (path string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it kills dozens of processes, which are built without the race detector")
	}
	path, err := buildFaulty()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildFaulty builds it once, for all tests: it takes longer than most of them. The
// directory that it is in goes with the process of the tests.
var buildFaulty = sync.OnceValues(func() (path string, err error) {
	if faultyDir, err = os.MkdirTemp("", "agentbus-faults-"); err != nil {
		return "", err
	}
	path = filepath.Join(faultyDir, "agentbus")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags", "faults", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

var faultyDir string

// A bus that is killed with -9 at any point of a call's life, each time the
// point is passed, keeps every promise once it is started again: an acknowledged
// answer is there to the byte and is not executed again, every other turn is
// executed at most once more, each key is charged once, budgets that pay for
// each call once are enough, and nothing is called beyond the depth limit (G20 to
// G24, G27, G28, I1, I2, I3, I5, I7).
func TestKilledAtEveryPoint(t *testing.T) { //nolint:tparallel // what follows the group waits for all of it
	t.Parallel()
	program := faulty(t)
	killedAtEveryPoint(t, program, func(faults.Point) int { return math.MaxInt }, func(t *testing.T, text string) *killed {
		t.Helper()
		return &killed{path: configure(t, text), died: func() {}}
	})
}

// The same, where the store is a PostgreSQL, killed the first time each point is
// passed, and the first four in a commit; AGENTBUS_SOAK: each time.
func TestKilledAtEveryPointOnPostgres(t *testing.T) { //nolint:tparallel // likewise
	t.Parallel()
	program := faulty(t)
	most := func(p faults.Point) int {
		switch {
		case os.Getenv("AGENTBUS_SOAK") != "":
			return math.MaxInt
		case strings.HasPrefix(string(p), "commit."):
			return 4
		}
		return 1
	}
	killedAtEveryPoint(t, program, most, func(t *testing.T, text string) *killed {
		t.Helper()
		url := stores.Database(t)
		return &killed{path: configureOn(t, url, text), died: func() {
			inDatabase(t, url, "DELETE FROM owners") // as if the time had passed after which the dead are taken for it
		}}
	})
}

func killedAtEveryPoint(t *testing.T, program string, most func(faults.Point) int, on func(t *testing.T, text string) *killed) {
	t.Helper()
	var mu sync.Mutex
	kills := make(map[faults.Point]int, len(faults.Points()))
	t.Run("points", func(t *testing.T) {
		for _, point := range faults.Points() {
			t.Run(string(point), func(t *testing.T) {
				t.Parallel()
				n := 1
				for n <= most(point) && newKilled(t, program, on).at(point, n) {
					n++
				}
				mu.Lock()
				defer mu.Unlock()
				kills[point] = n - 1
			})
		}
	})
	total := 0
	for _, point := range faults.Points() {
		t.Logf("%-15s killed %d times", point, kills[point])
		if total += kills[point]; kills[point] == 0 {
			t.Errorf("%s was never passed", point)
		}
	}
	t.Logf("%d points, %d kills", len(faults.Points()), total)
}

// inDatabase runs a statement in the database at url.
func inDatabase(t *testing.T, url, statement string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }() // it is done
	if _, err := c.Exec(t.Context(), statement); err != nil {
		t.Error(err)
	}
}

// A killed is a bus that is killed in the middle of its calls, and its agent.
type killed struct {
	t       *testing.T
	program string
	path    string // of the configuration
	died    func() // lets those who share the store know that it died
	calls   []*killedCall

	mu       sync.Mutex
	executed map[agentbus.TurnID]int
	deepest  int // depth that the agent saw
}

// A killedCall is a call that is sent until it is answered.
type killedCall struct {
	run    agentbus.RunID
	stream bool
	depth  int
	want   int    // status of its answer
	acked  string // its answer, once it was read to its end
	before int    // executions when it was acknowledged
}

func (c *killedCall) turn() agentbus.TurnID { return c.run.Turn(0, "a") }

func newKilled(t *testing.T, program string, on func(t *testing.T, text string) *killed) *killed {
	t.Helper()
	var k *killed
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { k.answer(w, r) }))
	t.Cleanup(agent.Close)
	k = on(t, fmt.Sprintf("agents: {a: {kind: openai, url: %q, price: {call: 0.01}}}\nkeys: [{id: alice, secret_env: ALICE}]\nbudgets: [{period: run, usd: 0.01}, {period: day, usd: 0.03}]\n", agent.URL+"/v1"))
	k.t, k.program, k.executed = t, program, map[agentbus.TurnID]int{}
	k.calls = []*killedCall{
		{run: "json", want: http.StatusOK},
		{run: "sse", want: http.StatusOK, stream: true},
		{run: "fails-once", want: http.StatusOK},
		{run: "deep", want: http.StatusTooManyRequests, depth: agentbus.DefaultMaxDepth},
		{run: "json", want: http.StatusOK},
	}
	return k
}

// answer is the agent: it fails the first execution of the turn that says so,
// and tells in each answer which execution it is.
func (k *killed) answer(w http.ResponseWriter, r *http.Request) {
	turn := agentbus.TurnID(r.Header.Get(agentbus.HeaderTurnID))
	depth, _ := strconv.Atoi(r.Header.Get(agentbus.HeaderForwardedDepth))
	k.mu.Lock()
	k.executed[turn]++
	n := k.executed[turn]
	k.deepest = max(k.deepest, depth)
	k.mu.Unlock()
	switch {
	case strings.HasPrefix(string(turn), "fails-once") && n == 1:
		http.Error(w, `{"error":{"message":"not now"}}`, http.StatusInternalServerError)
	case strings.HasPrefix(string(turn), "sse"):
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 6 {
			_, _ = fmt.Fprintf(w, "data: {\"execution\":%d,\"event\":%d}\n\n", n, i) // a bus that is gone reads nothing
			_ = http.NewResponseController(w).Flush()
			<-time.After(20 * time.Millisecond) // so that several batches are stored (G21)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	default:
		_, _ = fmt.Fprintf(w, `{"execution":%d,"choices":[{"message":{"role":"assistant","content":"hi"}}]}`, n)
	}
}

func (k *killed) executions(turn agentbus.TurnID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.executed[turn]
}

// at runs the calls against a bus that is killed when it passes point for the
// n-th time, and then against one that is not, and checks what is left. It
// reports whether the first bus was killed.
func (k *killed) at(point faults.Point, n int) bool {
	k.t.Helper()
	died := k.serve("AGENTBUS_FAULT="+string(point)+":"+strconv.Itoa(n), func(url string) bool { return k.sendAll(url) == nil })
	if k.t.Failed() {
		return false
	}
	k.died()
	k.serve("AGENTBUS_FAULT=", func(url string) bool {
		if err := k.sendAll(url); err != nil {
			k.t.Errorf("%s:%d: after the restart: %v", point, n, err)
		}
		return true
	})
	k.check(fmt.Sprintf("%s:%d", point, n))
	return died && !k.t.Failed()
}

// serve runs a bus while use talks to it. It reports whether the bus killed
// itself meanwhile; use says whether it may be alive still.
func (k *killed) serve(fault string, use func(url string) (alive bool)) (died bool) {
	k.t.Helper()
	p := launch(k.t, k.program, filepath.Dir(k.path), []string{"ALICE=" + aliceKey, fault}, "serve", "--quiet", "--config", k.path)
	url := ""
	if p.lines.Scan() {
		url = address(p.lines.Text())
	}
	if alive := url != "" && use(url); alive {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be dying
	}
	code := p.end()
	if code == -1 {
		return true
	}
	if code != 0 {
		k.t.Fatalf("the bus ended with %d: %s", code, p.stderr.String())
	}
	return false
}

// sendAll sends the calls, each until it is answered as it must be, and checks
// those that were answered before.
func (k *killed) sendAll(url string) error {
	for _, c := range k.calls {
		status, body, err := 0, "", error(nil)
		for range 3 { // the failing one needs two
			status, _, body, err = post(k.t.Context(), url, aliceKey, c.body(), c.header())
			if err != nil || status == c.want {
				break
			}
		}
		switch executions := k.executions(c.turn()); {
		case err != nil:
			return err
		case status != c.want:
			return fmt.Errorf("%s: %d %s", c.run, status, body)
		case c.acked == "":
			c.acked, c.before = body, executions
		case c.want == http.StatusOK && (c.acked != body || c.before != executions):
			return fmt.Errorf("%s was answered %q after %d executions, then %q after %d", c.run, c.acked, c.before, body, executions)
		}
	}
	return nil
}

func (c *killedCall) body() string {
	return fmt.Sprintf(`{"model":"a","stream":%t,"messages":[{"role":"user","content":"hello"}]}`, c.stream)
}

func (c *killedCall) header() http.Header {
	return turnHeader(c.run, "a", c.depth)
}

// check reads what the ledger says of it all.
func (k *killed) check(when string) {
	k.t.Helper()
	store := opened(k.t, k.path, map[string]string{"ALICE": aliceKey})
	for _, c := range k.calls {
		records, err := store.Calls(k.t.Context(), c.run)
		if err != nil {
			k.t.Fatal(err)
		}
		charged := agentbus.Micros(0)
		for _, r := range records {
			charged += r.Cost
			if r.State == agentbus.CallExecuting || r.State == agentbus.CallVoided {
				k.t.Errorf("%s: %s is left %s", when, c.run, r.State)
			}
		}
		most := 2 // the one that was cut, and its repetition
		if c.run == "fails-once" {
			most = 3
		}
		switch got := k.executions(c.turn()); {
		case c.want == http.StatusOK && (charged != 10_000 || got > most):
			k.t.Errorf("%s: %s was charged %d after %d executions", when, c.run, charged, got)
		case c.want != http.StatusOK && (charged != 0 || got != 0):
			k.t.Errorf("%s: the refused call was charged %d after %d executions", when, charged, got)
		}
	}
	verdict, err := store.VerifyLedger(k.t.Context()) // its links, and that charges are those of the calls (I1, G28)
	if err != nil || verdict.Bad != nil || verdict.Charged != 30_000 {
		k.t.Errorf("%s: the ledger: %+v, %v", when, verdict, err)
	}
	balances, err := store.Balances(k.t.Context(), "alice")
	if err != nil || len(balances) != 1 || balances[0].Held != 0 || balances[0].Charged != 30_000 { // what a dead bus held is free again (G27)
		k.t.Errorf("%s: the balance: %+v, %v", when, balances, err)
	}
	if k.deepest >= agentbus.DefaultMaxDepth+1 {
		k.t.Errorf("%s: the agent was called at depth %d", when, k.deepest)
	}
}
