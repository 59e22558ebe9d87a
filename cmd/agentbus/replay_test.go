package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// replayable replays every run of a store, and fails for one that was not
// reproduced or if anybody was called for it (R23). A run whose conversation the
// test has changed since says so. path may be "", for a configuration that env
// names.
func replayable(t *testing.T, path string, env map[string]string) {
	t.Helper()
	secrets := func(name string) (string, bool) {
		if v, ok := env[name]; ok || strings.HasPrefix(name, "AGENTBUS_") || strings.HasPrefix(name, "CLI_BRIDGE_") {
			return v, ok
		}
		return "a secret of its own for " + name, true
	}
	c, _, err := config.Load(config.Source{Path: path, Env: secrets})
	if err != nil {
		return // the test has made a fault on purpose
	}
	ctx := context.Background()
	s, err := server.New(ctx, server.Config{Config: c})
	if err != nil {
		return // likewise
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	agentbustest.Replay(t, s)
}

// R23: a replay needs no agent: with all of them gone it is as recorded. A fork
// goes on from its turn, at the cost of the turns behind it.
func TestReplayAndFork(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ""))
	_, first, _ := drove(t, path, "run", "talk", "go")
	code, fork, stderr := drove(t, path, "replay", string(first.Run), "--from", "4")
	if code != 0 || len(fork.Turns) != 6 || fork.Cost != 2000 || fork.Run == first.Run {
		t.Fatalf("exit %d, %+v, %s", code, fork, stderr)
	}
	for i := range fork.Turns {
		f := &fork.Turns[i]
		if copied := i < 4; f.Reply.Replayed != copied || copied != (f.Reply.Text == first.Turns[i].Reply.Text && f.Cost == 0) || f.ID != fork.Run.Turn(i, f.Speaker) {
			t.Errorf("turn %d is %+v", i, f)
		}
	}
	if calls := callsOf(t, opened(t, path, nil), fork.Run); len(calls) != 2 {
		t.Errorf("the fork made %d calls", len(calls))
	}
	a.Close()
	b.Close()
	for _, r := range []ran{first, fork} {
		code, stdout, stderr := outcome(t.Context(), "replay", string(r.Run), "--config", path)
		want := fmt.Sprintf(`^conversation talk  %s  6 turns, \d\d events  as recorded\n$`, r.Run) // a slow answer is told in more of them
		if code != 0 || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("exit %d, %q, %s", code, stdout, stderr)
		}
	}
	code, stdout, stderr := outcome(t.Context(), "replay", string(first.Run), "--diff", string(fork.Run), "--config", path)
	want := fmt.Sprintf("the same 6 turns\n%s  ends there\n%s  ends there\n", first.Run, fork.Run)
	if code != 0 || stdout != want {
		t.Errorf("exit %d, %s, %s", code, stdout, stderr)
	}
	_, other, _ := drove(t, path, "run", "talk", "go", "--max-usd", "0")
	code, stdout, _ = outcome(t.Context(), "replay", string(first.Run), "--diff", string(other.Run), "--config", path)
	want = fmt.Sprintf("the same 0 turns\n%s  turn 0  [a] a answers turn 0 as execution 1 of it\n%s  ends there\n", first.Run, other.Run)
	if code != int(exitFailed) || stdout != want {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

// R15, R23: a changed definition is named; what cannot be done is a fault of the
// command line.
func TestReplayRefusals(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ""))
	_, r, _ := drove(t, path, "run", "talk", "go", "--max-turns", "2")
	for _, x := range []struct {
		args []string
		exit exitCode
		want string
	}{
		{[]string{"replay", "run_x"}, exitUsage, "no driver of this store ran run_x"},
		{[]string{"events", "run_x"}, exitUsage, "no driver of this store ran run_x"},
		{[]string{"trace", "--follow", "run_x"}, exitUsage, "no driver of this store ran run_x"},
		{[]string{"replay", "run_x", "--from", "0"}, exitUsage, "no driver of this store ran run_x"},
		{[]string{"replay", string(r.Run), "--from", "3"}, exitUsage, "fork it at 0 to 2"},
		{[]string{"replay", string(r.Run), "--from", "1", "--diff", "run_x"}, exitUsage, "exclude each other"},
		{[]string{"replay", string(r.Run), "--max-usd", "1"}, exitUsage, "--max-usd needs --from"},
	} {
		code, stdout, stderr := outcome(t.Context(), append(x.args, "--config", path)...)
		if code != int(x.exit) || !strings.Contains(stderr, x.want) || stdout != "" {
			t.Errorf("%q: exit %d, %s%s", x.args, code, stdout, stderr)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.Replace(string(text), "{agent: b}", "{agent: b, label: B}", 1))
	code, _, stderr := outcome(t.Context(), "replay", string(r.Run), "--config", path)
	if code != int(exitFailed) || !strings.Contains(stderr, "was begun with another definition") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// A follower in another process sees each event once, as it happens, and ends
// as the run does.
func TestTraceFollows(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 5*time.Millisecond), newAgent(t, "b", 5*time.Millisecond)
	a.begun = make(chan agentbus.TurnID, 8)
	path := configure(t, talkOf(a, b, ", budget_usd: 0.004"))
	driver := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	run := strings.TrimSuffix(string(<-a.begun), ".t0.a")
	code, said, stderr := program(t, t.TempDir(), nil, "trace", "--follow", run, "--config", path)
	driver.rest()
	if driven := driver.end(); driven != int(exitBudget) || code != driven || !strings.Contains(stderr, "agentbus resume "+run) {
		t.Fatalf("the driver ended with %d, the follower with %d: %s", driven, code, stderr)
	}
	want := `talk  run.started  
t0.a  node.completed  tokens 10→9  $0.001000
t1.b  node.completed  tokens 10→9  $0.001000
t2.a  node.completed  tokens 10→9  $0.001000
t3.b  node.completed  tokens 10→9  $0.001000
talk  cap.breached  
talk  run.paused  budget ($0.004000 of $0.004000)
run ` + run + "\n"
	if !strings.HasPrefix(said, want) || !strings.Contains(said, "\n4 calls ·") {
		t.Errorf("%s\nwant\n%s", said, want)
	}
	_, stdout, _ := outcome(t.Context(), "events", run, "--json", "--config", path)
	var types []string
	for line := range strings.Lines(stdout) {
		var e agentbus.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || int(e.Position) != len(types) {
			t.Errorf("%q: %v", line, err)
		}
		types = append(types, e.Type)
	}
	events := len(types)
	types = slices.CompactFunc(types, func(a, b string) bool { return a == agentbus.EventOutputChunk && b == a }) // of a slow answer there are several
	want = "run.started conversation.opened " + strings.Repeat("node.started agent.invocation.started output.chunk agent.invocation.completed "+
		"provider.usage conversation.exchanged channel.written node.completed ", 4) + "cap.breached run.paused"
	if diff := cmp.Diff(want, strings.Join(types, " ")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	_, stdout, _ = outcome(t.Context(), "events", run, "--config", path)
	if lines := strings.Split(stdout, "\n"); len(lines) != events+1 || !strings.Contains(lines[2], "Z  2  node.started  {\"nodeId\":\"a\"") {
		t.Errorf("%s", stdout)
	}
}

// Ctrl-C ends a follower, and not the run.
func TestFollowerIsInterrupted(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), &agent{Server: httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees its client leave
		<-r.Context().Done()
	}))}
	t.Cleanup(b.Close)
	path := configure(t, talkOf(a, b, ""))
	driver := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	for driver.lines.Scan() && !strings.HasPrefix(driver.lines.Text(), "[a]") {
		continue
	}
	runs, err := opened(t, path, nil).RunSummaries(t.Context(), agentbus.RunFilter{}, 1, "")
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	f := start(t, t.TempDir(), nil, "trace", "--follow", string(runs[0].Run), "--config", path)
	var lines []string
	for f.lines.Scan() {
		if lines = append(lines, f.lines.Text()); len(lines) == 2 {
			break
		}
	}
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	more := f.rest()
	if code := f.end(); code != int(exitInterrupted) || len(more) > 0 || f.stderr.String() != "agentbus: interrupted\n" {
		t.Errorf("exit %d, %q then %q, %s", code, lines, more, f.stderr.String())
	}
	if err := driver.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	driver.rest()
	if code := driver.end(); code != int(exitInterrupted) {
		t.Errorf("the driver ended with %d", code)
	}
}

// R23: executions nested in a run by way of the bus are replayed too.
func TestReplayOfNestedRuns(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, fmt.Sprintf(`agents:
  a: {kind: openai, url: %q, price: {call: 0.001}}
  b: {kind: openai, url: %q, price: {call: 0.001}}
  panel: {kind: conversation, conversation: inner}
  deep: {kind: conversation, conversation: middle}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  middle: {participants: [{agent: panel}, {agent: a}], max_turns: 2}
  outer: {participants: [{agent: deep}, {agent: b}], max_turns: 3}
`, a.URL+"/v1", b.URL+"/v1")+"limits: {max_depth: 9}\n")
	code, r, stderr := drove(t, path, "run", "outer", "go")
	if code != 0 {
		t.Fatal(code, stderr)
	}
	_, stdout, stderr := outcome(t.Context(), "replay", string(r.Run), "--json", "--config", path)
	var report struct {
		Identical  bool
		Executions []server.Replay
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || !report.Identical {
		t.Fatalf("%s, %v, %s", stdout, err, stderr)
	}
	var names []string
	for _, e := range report.Executions {
		names = append(names, e.Conversation)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"inner", "inner", "middle", "middle", "outer"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	_, stdout, _ = outcome(t.Context(), "trace", "--follow", string(r.Run), "--config", path)
	s := bufio.NewScanner(strings.NewReader(stdout))
	deepest := ""
	for s.Scan() && !strings.HasPrefix(s.Text(), "run ") {
		if trimmed := strings.TrimLeft(s.Text(), " "); len(s.Text())-len(trimmed) > len(deepest) {
			deepest = s.Text()[:len(s.Text())-len(trimmed)]
		}
	}
	if len(deepest) != 4 { // the innermost serves a call of depth 2
		t.Errorf("%s", stdout)
	}
}
