package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// newGated returns an agent that answers once open is closed. Each request that
// has to wait is told to waiting.
func newGated(t *testing.T, name string, open <-chan struct{}, waiting chan<- agentbus.TurnID) *agent {
	t.Helper()
	a := &agent{told: map[agentbus.TurnID][]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it seen that the caller has left
		select {
		case <-open:
		default:
			waiting <- agentbus.TurnID(r.Header.Get(agentbus.HeaderTurnID))
			select {
			case <-open:
			case <-r.Context().Done():
				return
			}
		}
		a.answer(name, w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// fanOf configures a fan-out of as many agents, each served by the one that at
// returns, with a synthesis by the first of them.
func fanOf(width int, at func(i int) *agent, more string) string {
	var agents, names strings.Builder
	for i := range width {
		fmt.Fprintf(&agents, "  p%d: {kind: openai, url: %q, price: {call: 0.001}}\n", i, at(i).URL+"/v1")
		fmt.Fprintf(&names, "{agent: p%d}, ", i)
	}
	return fmt.Sprintf("agents:\n%s  boss: {kind: openai, url: %q, price: {call: 0.001}}\nconversations:\n"+
		"  panel: {participants: [%s{agent: boss}], plan: fan-out, synthesizer: boss%s}\n", agents.String(), at(0).URL+"/v1", names.String(), more)
}

// happenings are the events of a run, one a line: type and turn.
func happenings(t *testing.T, s server.Store, run agentbus.RunID) (lines []string) {
	t.Helper()
	var next agentbus.Position
	for e, err := range s.Events(t.Context(), agentbus.ExecutionID(run), -1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position != next {
			t.Errorf("event %s stands at %d, want %d", e.Type, e.Position, next)
		}
		next++
		switch e.Type { // of a turn its end, of a run its beginnings and its end
		case agentbus.EventRunStarted, agentbus.EventRunResumed, agentbus.EventNodeCompleted, agentbus.EventNodeCancelled, agentbus.EventJoined, agentbus.EventRunCompleted:
		default:
			continue
		}
		line := strings.TrimPrefix(e.Type, "agentbus.")
		if e.Turn != "" {
			line += " " + strings.TrimPrefix(string(e.Turn), string(run)+".")
		}
		lines = append(lines, line)
	}
	return lines
}

// R14, R20: a run that is killed with branches open asks only those again when
// it is resumed, is charged once for each, and its events stand in the order of
// the plan.
func TestKilledFanOut(t *testing.T) {
	t.Parallel()
	const width = 12
	open, waiting := make(chan struct{}), make(chan agentbus.TurnID, 2*width)
	fast := newAgent(t, "fast", 0)
	slow := newGated(t, "slow", open, waiting)
	agents := []*agent{fast, slow}
	path := configure(t, fanOf(width, func(i int) *agent { return agents[i%2] }, ""))
	store := opened(t, path, nil)

	p := start(t, t.TempDir(), nil, "run", "panel", "go", "--config", path)
	var run agentbus.RunID
	for said := 0; said < width/2 && p.lines.Scan(); {
		line := p.lines.Text()
		if id, ok := strings.CutPrefix(line, "run "); ok {
			run = agentbus.RunID(id)
		}
		if strings.HasPrefix(line, "[") {
			said++
		}
	}
	kill := func(p *process, events ...string) {
		t.Helper()
		for range width / 2 {
			<-waiting // every open branch has reached its agent
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.rest()
		if code := p.end(); code != -1 {
			t.Fatalf("it ended with %d: %s", code, p.stderr.String())
		}
		for i, turn := range turnsOf(t, store, run) {
			want := []agentbus.TurnState{agentbus.TurnDone, agentbus.TurnPending}[i%2]
			if turn.Index != i || turn.State != want {
				t.Errorf("turn %d at %d is %s, want %s", turn.Index, i, turn.State, want)
			}
		}
		if diff := cmp.Diff(events, happenings(t, store, run)); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
	}
	kill(p, "run.started")
	want := []string{"run.started"}
	for i := 0; i < width; i += 2 {
		want = append(want, fmt.Sprintf("node.completed t%d.p%d", i, i))
	}
	want = append(want, "run.resumed")
	kill(start(t, t.TempDir(), nil, "resume", string(run), "--config", path), want...)
	close(open)
	code, r, stderr := drove(t, path, "resume", string(run))
	if code != 0 || r.Halt.Kind != agentbus.HaltDone || len(r.Turns) != width+1 || r.Cost != (width+1)*1000 {
		t.Fatalf("exit %d: %+v: %s", code, r, stderr)
	}
	for i := 0; i < width; i += 2 {
		if n := len(fast.executions(r.Turns[i].ID)); n != 1 || r.Turns[i].Attempts != 1 {
			t.Errorf("turn %d was done before the kill, and then executed %d times, attempts %d", i, n, r.Turns[i].Attempts)
		}
	}
	calls, err := store.Calls(t.Context(), run)
	if err != nil || len(calls) != width+1 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
	want = append(want, "run.resumed")
	for i := 1; i < width; i += 2 {
		want = append(want, fmt.Sprintf("node.completed t%d.p%d", i, i))
	}
	want = append(want, "fanout.joined", "node.completed t12.boss", "run.completed")
	if diff := cmp.Diff(want, happenings(t, store, run)); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

// R9, R20: who leaves stops fifty calls over HTTP, and the run can be resumed.
// That no goroutine is left is seen at the end of all tests.
func TestFiftyBranchesAreLeft(t *testing.T) {
	t.Parallel()
	const width = 50
	open, waiting := make(chan struct{}), make(chan agentbus.TurnID, width)
	slow := newGated(t, "slow", open, waiting)
	path := configure(t, fanOf(width, func(int) *agent { return slow }, ""))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range width {
			<-waiting
		}
		cancel()
	}()
	code, stdout, stderr := outcome(ctx, "run", "panel", "go", "--json", "--config", path)
	var r ran
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != int(exitInterrupted) || r.Halt.Kind != agentbus.HaltAbort || len(r.Turns) != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	close(open)
	code, r, stderr = drove(t, path, "resume", string(r.Run))
	if code != 0 || len(r.Turns) != width+1 || r.Cost != (width+1)*1000 {
		t.Fatalf("exit %d: %+v: %s", code, r.Halt, stderr)
	}
}

// R20: whoever is faster, the events stand in the order of the plan; what was
// not needed is told as cancelled, and shown under one line of the trace.
func TestTraceOfAFanOut(t *testing.T) {
	t.Parallel()
	open, waiting := make(chan struct{}), make(chan agentbus.TurnID, 9)
	defer close(open)
	fast, slow := newAgent(t, "fast", time.Millisecond), newGated(t, "slow", open, waiting)
	path := configure(t, fanOf(3, func(i int) *agent {
		if i == 1 {
			return slow
		}
		return fast
	}, ", join: quorum:2"))
	code, stdout, stderr := outcome(t.Context(), "run", "panel", "go", "--config", path)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || !slices.Contains(lines, "[p1] cancelled: it was not needed any more") || !strings.HasPrefix(lines[len(lines)-1], "done · 3 turns · ") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	run := strings.TrimPrefix(lines[0], "run ")
	want := []string{"run.started", "node.completed t0.p0", "node.cancelled t1.p1", "node.completed t2.p2", "fanout.joined", "node.completed t3.boss", "run.completed"}
	if diff := cmp.Diff(want, happenings(t, opened(t, path, nil), agentbus.RunID(run))); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	_, text, _ := outcome(t.Context(), "trace", run, "--config", path)
	var tree []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "─ ") {
			line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), "  ")
			tree = append(tree, line)
		}
	}
	want = []string{"├─ at once: quorum:2 of 3: 2 done, 1 cancelled", "│", "│", "│", "└─ boss"}
	for i := range want[1:4] { // their line begins with two spaces
		if !strings.HasPrefix(tree[i+1], "│") {
			t.Errorf("%s", text)
		}
		tree[i+1] = "│"
	}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
	var told trace
	if _, text, _ = outcome(t.Context(), "trace", run, "--json", "--config", path); json.Unmarshal([]byte(text), &told) != nil || len(told.FanOuts) != 1 || len(told.FanOuts[0].Turns) != 3 {
		t.Errorf("%s", text)
	}
}

// R14: the events of a run are printed in their order, also where those of a fan-out
// happened in another one.
func TestEventsArePrintedInTheirOrder(t *testing.T) {
	t.Parallel()
	path := configure(t, fanOf(3, func(int) *agent { return newAgent(t, "a", 0) }, ""))
	p := start(t, t.TempDir(), nil, "run", "panel", "go", "--json", "--config", path)
	said := strings.Join(p.rest(), "\n")
	if code := p.end(); code != 0 {
		t.Fatalf("it ended with %d: %s", code, p.stderr.String())
	}
	var r struct{ Run string }
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := outcome(t.Context(), "events", r.Run, "--json", "--config", path)
	next := agentbus.Position(0)
	for line := range strings.Lines(stdout) {
		var e agentbus.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Position != next {
			t.Errorf("%s at %d, want %d: %v", e.Type, e.Position, next, err)
		}
		next++
	}
	if next == 0 {
		t.Error("nothing was printed")
	}
}

// joinedIn is a store of one event, that a fan-out came together.
type joinedIn struct {
	tracer

	event agentbus.Event
}

func (s joinedIn) Events(context.Context, agentbus.ExecutionID, agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) { yield(s.event, nil) }
}

// E9: the turns that came together stand without their run, and in older stores with it;
// also where a caller has named its run as the turns of others begin.
func TestTurnsThatCameTogether(t *testing.T) {
	t.Parallel()
	for _, run := range []agentbus.RunID{"r", "t0", "t1"} {
		want := []agentbus.TurnID{run.Turn(0, "a"), run.Turn(1, "t2")}
		for form, turns := range map[string]any{"without it": []string{"t0.a", "t1.t2"}, "with it": want} {
			data, err := json.Marshal(map[string]any{"turns": turns})
			if err != nil {
				t.Fatal(err)
			}
			fans, err := fanOutsOf(t.Context(), joinedIn{event: agentbus.Event{Type: agentbus.EventJoined, Run: run, Data: data}}, make([]agentbus.Execution, 1))
			if err != nil || len(fans) != 1 || !slices.Equal(fans[0].Turns, want) {
				t.Errorf("run %s, %s: %+v, %v", run, form, fans, err)
			}
		}
	}
}
