package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

const (
	crashKills = 20
	crashTurns = 12
)

// A run that is killed with -9 at twenty random moments loses no turn that it
// acknowledged, performs no finished turn again, and is charged once per turn
// (R14, R15, R17, G21, G24, I1). AGENTBUS_CRASH_SEED repeats a failure as far as
// time can be repeated.
func TestKilledRunsLoseNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("AGENTBUS_CRASH_SEED"); v != "" {
		seed, _ = strconv.ParseUint(v, 10, 64)
	}
	t.Logf("AGENTBUS_CRASH_SEED=%d", seed)
	c := newCrash(t, rand.New(rand.NewPCG(seed, 1)))
	for c.kills < crashKills {
		c.drive(true)
	}
	if c.run != "" {
		c.drive(false)
	}
	t.Logf("%d kills, %d of them in the middle of a turn, over %d runs; %d turns were executed again; %d answered from memory",
		c.kills, c.midTurn, len(c.finished), c.repeated, c.replayed)
	if c.midTurn == 0 {
		t.Error("no kill hit the middle of a turn")
	}
}

// A crash is a series of runs and their killers.
type crash struct {
	t      *testing.T
	random *rand.Rand
	path   string // of the configuration
	store  server.Store
	agents map[agentbus.Speaker]*agent

	// Of the run that is being driven; "" when the last one has finished.
	run      agentbus.RunID
	acked    []string                // the lines of its turns, as its drivers said them
	done     []agentbus.Turn         // as the store had them after the last kill
	executed map[agentbus.TurnID]int // how often each of these had been executed then

	finished                           map[agentbus.RunID]bool
	kills, midTurn, repeated, replayed int
}

func newCrash(t *testing.T, random *rand.Rand) *crash {
	t.Helper()
	c := &crash{t: t, random: random, finished: map[agentbus.RunID]bool{}, agents: map[agentbus.Speaker]*agent{}}
	var text strings.Builder
	text.WriteString("agents:\n")
	for _, name := range []agentbus.Speaker{"researcher", "critic"} {
		c.agents[name] = newAgent(t, string(name), 2*time.Millisecond)
		fmt.Fprintf(&text, "  %s: {kind: openai, url: %q, price: {input: 1, output: 3, call: 0.001}}\n", name, c.agents[name].URL+"/v1")
	}
	fmt.Fprintf(&text, "conversations:\n  talk: {participants: [{agent: researcher}, {agent: critic}], max_turns: %d}\n", crashTurns)
	c.path = configure(t, text.String())
	c.store = opened(t, c.path, nil)
	return c
}

// drive starts a driver, on the unfinished run if there is one, lets it run to
// its end or kills it, and checks what it leaves.
func (c *crash) drive(kill bool) {
	c.t.Helper()
	args := []string{"run", "talk", "go", "--config", c.path}
	if c.run != "" {
		args = []string{"resume", string(c.run), "--config", c.path}
	}
	p := start(c.t, c.t.TempDir(), nil, args...)
	killed := make(chan bool, 1)
	begun := make(chan struct{})
	after := time.Duration(c.random.Int64N(int64(250 * time.Millisecond)))
	early := c.random.IntN(4) == 0 // at any moment of its life; else once it drives
	go func() {
		if !kill {
			killed <- false
			return
		}
		if !early {
			<-begun
		}
		timer := time.NewTimer(after)
		defer timer.Stop()
		<-timer.C
		killed <- p.cmd.Process.Kill() == nil
	}()
	said := c.listen(p, begun)
	hit := <-killed
	code := p.end()
	switch {
	case code == 0:
		c.check(said)
		c.complete()
		return
	case code == -1 && hit:
		c.kills++
		c.check(said)
		return
	}
	c.t.Fatalf("the driver ended with %d: %s", code, p.stderr.String())
}

// listen reads what a driver says until it ends, closes begun once it drives,
// and returns the lines of its turns.
func (c *crash) listen(p *process, begun chan<- struct{}) (turns []string) {
	first := true
	for p.lines.Scan() {
		line := p.lines.Text()
		if rest, ok := strings.CutPrefix(line, "run "); ok && first {
			id, _, _ := strings.Cut(rest, " ")
			c.run = agentbus.RunID(id)
		}
		if strings.HasPrefix(line, "[") {
			turns = append(turns, line)
		}
		if first {
			close(begun)
		}
		first = false
	}
	if first {
		close(begun)
	}
	return turns
}

// check compares the store with what was acknowledged before, and keeps what it
// holds now.
func (c *crash) check(said []string) {
	c.t.Helper()
	c.found()
	for i, line := range said {
		if i < len(c.acked) && c.acked[i] != line {
			c.t.Fatalf("turn %d was acknowledged as %q, then told as %q", i, c.acked[i], line)
		}
		if i >= len(c.acked) {
			c.acked = append(c.acked, line)
		}
	}
	if c.run == "" {
		return // killed before it began anything
	}
	turns := turnsOf(c.t, c.store, c.run)
	var done []agentbus.Turn
	for i := range turns {
		if turns[i].Index != i {
			c.t.Fatalf("turn %d stands at %d", turns[i].Index, i)
		}
		switch {
		case turns[i].State == agentbus.TurnDone:
			done = append(done, turns[i])
		case i < len(turns)-1:
			c.t.Fatalf("turn %d is %s, and turn %d stands behind it", i, turns[i].State, i+1)
		case len(c.executions(&turns[i])) > 0:
			c.midTurn++
		}
	}
	for i, line := range c.acked {
		if i >= len(done) || line != fmt.Sprintf("[%s] %s", done[i].Speaker, done[i].Reply.Text) {
			c.t.Fatalf("turn %d was acknowledged as %q, and the store has %+v", i, line, turns)
		}
	}
	c.same(done)
	c.done, c.executed = done, map[agentbus.TurnID]int{}
	for i := range done {
		c.executed[done[i].ID] = len(c.executions(&done[i]))
	}
}

// found looks for a run whose driver was killed before it could tell its id.
func (c *crash) found() {
	c.t.Helper()
	if c.run != "" {
		return
	}
	runs, err := c.store.RunSummaries(c.t.Context(), agentbus.RunFilter{}, 1, "")
	if err != nil {
		c.t.Fatal(err)
	}
	if len(runs) > 0 && !c.finished[runs[0].Run] {
		c.run = runs[0].Run
	}
}

// same asserts that the turns that were done after the last kill are unchanged,
// and that nobody performed them again.
func (c *crash) same(done []agentbus.Turn) {
	c.t.Helper()
	for i := range c.done {
		before := &c.done[i]
		if i >= len(done) || done[i].Reply.Text != before.Reply.Text || done[i].Attempts != before.Attempts || done[i].Cost != before.Cost ||
			done[i].ID != before.ID || done[i].Epoch != before.Epoch || !done[i].Ended.Equal(before.Ended) {
			c.t.Fatalf("a done turn changed: %+v became %+v", before, done[min(i, len(done)-1)])
		}
		if n := len(c.executions(before)); n != c.executed[before.ID] {
			c.t.Fatalf("turn %s was done after %d executions, and now it was executed %d times", before.ID, c.executed[before.ID], n)
		}
	}
}

func (c *crash) executions(turn *agentbus.Turn) []string {
	return c.agents[turn.Speaker].executions(turn.ID)
}

// complete checks a run that has finished, from the journal to the bill.
func (c *crash) complete() {
	c.t.Helper()
	if len(c.done) != crashTurns || len(c.acked) != crashTurns {
		c.t.Fatalf("%d turns are done and %d were told, want %d", len(c.done), len(c.acked), crashTurns)
	}
	calls, err := c.store.Calls(c.t.Context(), c.run)
	if err != nil {
		c.t.Fatal(err)
	}
	byTurn := map[agentbus.TurnID]agentbus.CallRecord{}
	var charged agentbus.Micros
	for i := range calls {
		if _, twice := byTurn[calls[i].TurnKey.ID]; twice || calls[i].State != agentbus.CallSettled {
			c.t.Errorf("turn %s has a second call, or one that is not settled: %+v", calls[i].TurnKey.ID, calls[i]) // I1
		}
		byTurn[calls[i].TurnKey.ID] = calls[i]
		charged += calls[i].Cost
		c.replayed += calls[i].Replays
	}
	var cost agentbus.Micros
	for i := range c.done {
		turn := &c.done[i]
		told := c.executions(turn)
		c.repeated += len(told) - 1
		call := byTurn[turn.ID]
		if turn.ID != c.run.Turn(i, turn.Speaker) || len(told) == 0 || turn.Reply.Text != told[len(told)-1] {
			c.t.Errorf("turn %d is %s %q, and its agent said %q", i, turn.ID, turn.Reply.Text, told)
		}
		// The ledger knows of each execution, but for those that were killed
		// before they reached the agent.
		if call.Attempts < len(told) || call.Cost == 0 || call.Cost != turn.Cost {
			c.t.Errorf("turn %s was executed %d times and cost %d; its call is %+v", turn.ID, len(told), turn.Cost, call)
		}
		cost += turn.Cost
	}
	runs, err := c.store.RunSummaries(c.t.Context(), agentbus.RunFilter{}, 1, "")
	if err != nil || runs[0].Run != c.run || runs[0].State != agentbus.RunDone || runs[0].Turns != crashTurns {
		c.t.Fatalf("%+v, %v, want run %s done", runs, err, c.run)
	}
	if charged != cost || runs[0].Cost != charged || charged <= 0 {
		c.t.Errorf("the calls were charged %d, the turns cost %d, the run %d", charged, cost, runs[0].Cost)
	}
	c.finished[c.run] = true
	c.run, c.acked, c.done, c.executed = "", nil, nil, nil
}
