package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// ran is what run and resume print under --json.
type ran struct {
	Run   agentbus.RunID  `json:"run"`
	Halt  agentbus.Halt   `json:"halt"`
	Turns []agentbus.Turn `json:"turns"`
	Cost  agentbus.Micros `json:"cost_micros"`
}

// drove runs a driving verb with --json and returns its exit code and result.
func drove(t *testing.T, path string, args ...string) (code int, r ran, stderr string) {
	t.Helper()
	code, stdout, stderr := outcome(t.Context(), append(args, "--json", "--config", path)...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%q printed %q: %v: %s", args, stdout, err, stderr)
	}
	return code, r, stderr
}

// talkOf is the configuration of two agents that talk, at $0.001 a turn.
func talkOf(a, b *agent, more string) string {
	return fmt.Sprintf(`agents:
  a: {kind: openai, url: %q, price: {call: 0.001}}
  b: {kind: openai, url: %q, price: {call: 0.001}}
conversations:
  talk: {participants: [{agent: a}, {agent: b}], max_turns: 6%s}
`, a.URL+"/v1", b.URL+"/v1", more)
}

// onceEach fails unless each turn was executed once.
func onceEach(t *testing.T, turns []agentbus.Turn, agents map[agentbus.Speaker]*agent) {
	t.Helper()
	for _, turn := range turns {
		if n := len(agents[turn.Speaker].executions(turn.ID)); n != 1 {
			t.Errorf("turn %s was executed %d times", turn.ID, n)
		}
	}
}

// R1, R3: an agent that takes part more than once is as many participants, under
// any plan: each with a slug, a label and a share of the turns of its own.
func TestOneAgentTwice(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", 0)
	for plan, want := range map[string]string{
		"plan: round-robin, max_turns: 4":    "a t0.a, Second t1.second, a t2.a, Second t3.second",
		"plan: fan-out, synthesizer: judge":  "a t0.a, Second t1.second, judge t2.judge",
		"plan: moderator, moderator: second": "Second t0.second, a t1.a, Second t2.second, a t3.a, Second t4.second",
		"plan: fan-out, synthesizer: second": "a t0.a, judge t1.judge, Second t2.second",
		"plan: alternate, max_turns: 3":      "a t0.a, Second t1.second, a t2.a",
	} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			judge := ""
			if strings.Contains(plan, "fan-out") {
				judge = ", {agent: a, slug: judge}"
			}
			if strings.Contains(plan, "moderator") {
				plan += ", max_turns: 5"
			}
			path := configure(t, fmt.Sprintf("agents: {a: {kind: openai, url: %q}}\nconversations: {c: {participants: [{agent: a, slug: a}, {agent: a, slug: second, label: Second}%s], %s}}\n",
				a.URL+"/v1", judge, plan))
			code, r, stderr := drove(t, path, "run", "c", "go")
			if code != 0 {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			labels := map[agentbus.Speaker]string{"a": "a", "second": "Second", "judge": "judge"}
			var got []string
			for _, turn := range r.Turns {
				got = append(got, labels[turn.Speaker]+" "+strings.TrimPrefix(string(turn.ID), string(r.Run)+"."))
				if turn.Agent != "a" {
					t.Errorf("%s was spoken by %s", turn.ID, turn.Agent)
				}
			}
			if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A run that has spent its budget ends with 4; with more it goes on from there
// (R8, R16).
func TestBudgetPausesARunUntilThereIsMore(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ""))
	code, paused, stderr := drove(t, path, "run", "talk", "go", "--max-usd", "0.003")
	if code != int(exitBudget) || paused.Halt.Kind != agentbus.HaltBudget || len(paused.Turns) != 3 || paused.Cost != 3000 {
		t.Fatalf("exit %d, %+v, %s", code, paused, stderr)
	}
	var told struct{ Error problem }
	if err := json.Unmarshal([]byte(stderr), &told); err != nil || told.Error.Next != "agentbus resume "+string(paused.Run)+" --max-usd USD, with more than that" {
		t.Errorf("stderr is %s: %v", stderr, err)
	}
	id := string(paused.Run)
	if code, still, _ := drove(t, path, "resume", id); code != int(exitBudget) || len(still.Turns) != 3 {
		t.Errorf("resumed with the same budget: exit %d, %+v", code, still)
	}
	code, done, stderr := drove(t, path, "resume", id, "--max-usd", "1")
	if code != 0 || done.Halt.Kind != agentbus.HaltMaxTurns || len(done.Turns) != 6 || done.Cost != 6000 {
		t.Errorf("exit %d, %+v, %s", code, done, stderr)
	}
	onceEach(t, done.Turns, map[agentbus.Speaker]*agent{"a": a, "b": b})
}

// A budget of the configuration can be raised there.
func TestBudgetRaisedInTheFile(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ", budget_usd: 0.002"))
	code, paused, stderr := drove(t, path, "run", "talk", "go")
	if code != int(exitBudget) || len(paused.Turns) != 2 {
		t.Fatalf("exit %d, %+v, %s", code, paused, stderr)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.Replace(string(text), "budget_usd: 0.002", "budget_usd: 0.02", 1))
	if code, done, stderr := drove(t, path, "resume", string(paused.Run)); code != 0 || len(done.Turns) != 6 {
		t.Errorf("exit %d, %+v, %s", code, done, stderr)
	}
}

// A run whose conversation has changed is resumed when it is forced to be (R15).
func TestResumeOfAnotherDefinition(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ", budget_usd: 0.002"))
	_, paused, _ := drove(t, path, "run", "talk", "go")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.Replace(string(text), "max_turns: 6, budget_usd: 0.002", "max_turns: 4", 1))
	code, _, stderr := outcome(t.Context(), "resume", string(paused.Run), "--config", path)
	if code != int(exitFailed) || !strings.Contains(stderr, "was begun with another definition") || !strings.Contains(stderr, "force") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, done, stderr := drove(t, path, "resume", string(paused.Run), "--force"); code != 0 || len(done.Turns) != 4 {
		t.Errorf("exit %d, %+v, %s", code, done, stderr)
	}
}

// Ctrl-C pauses a run: 130, and resume goes on from the turn that was cut (R9,
// R16).
func TestInterruptedRunIsResumed(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 5*time.Millisecond), newAgent(t, "b", 40*time.Millisecond)
	b.begun = make(chan agentbus.TurnID, 8)
	b.holds.Store(true)
	path := configure(t, talkOf(a, b, ""))
	p := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	cut := <-b.begun
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(p.rest(), "\n")
	code := p.end()
	b.holds.Store(false)
	run := agentbus.RunID(strings.TrimSuffix(string(cut), ".t1.b"))
	if code != int(exitInterrupted) || !strings.Contains(said, "run "+string(run)) || !strings.Contains(said, "[a] a answers turn 0") {
		t.Errorf("exit %d, %s, %s", code, said, p.stderr.String())
	}
	if want := "agentbus: paused: abort\n  next: agentbus resume " + string(run) + "\n"; !strings.HasSuffix(p.stderr.String(), want) {
		t.Errorf("stderr ends with %q, want %q", p.stderr.String(), want)
	}
	code, done, stderr := drove(t, path, "resume", string(run))
	if code != 0 || len(done.Turns) != 6 {
		t.Fatalf("exit %d, %+v, %s", code, done, stderr)
	}
	onceEach(t, append(done.Turns[:1:1], done.Turns[2:]...), map[agentbus.Speaker]*agent{"a": a, "b": b})
	if n := len(b.executions(cut)); n != 2 || done.Turns[1].Reply.Text != b.executions(cut)[1] {
		t.Errorf("the turn that was cut was executed %d times and is %+v", n, done.Turns[1])
	}
	for _, c := range callsOf(t, opened(t, path, nil), run) {
		if c.State != agentbus.CallSettled || c.Cost != 1000 {
			t.Errorf("%+v", c)
		}
	}
}

// The runs of a store, and one of them, as people and programs read them.
func TestRunsAndTrace(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ""))
	var ids []string
	for range 3 {
		_, r, _ := drove(t, path, "run", "talk", "go", "--max-turns", "2")
		ids = append(ids, string(r.Run))
	}
	_, stdout, _ := outcome(t.Context(), "runs", "--json", "--config", path, "--limit", "2")
	var page []agentbus.RunSummary
	if err := json.Unmarshal([]byte(stdout), &page); err != nil || len(page) != 2 || string(page[0].Run) != ids[2] || string(page[1].Run) != ids[1] {
		t.Fatalf("%s, %v, want %q, newest first", stdout, err, ids)
	}
	if page[0].Cost != 2000 || page[0].Turns != 2 || page[0].Calls != 2 || page[0].Payer != "local" || page[0].MaxDepth != 1 {
		t.Errorf("%+v", page[0])
	}
	_, stdout, _ = outcome(t.Context(), "runs", "--config", path, "--before", ids[1])
	if lines := strings.Split(strings.TrimSpace(stdout), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], ids[0]+"  done   talk") {
		t.Errorf("the last page is\n%s", stdout)
	}
	_, stdout, _ = outcome(t.Context(), "trace", ids[0], "--config", path)
	want := "run " + ids[0] + `
conversation talk  2 turns  done: max_turns (2)
├─ a  t0.a  depth 1  200  tokens 10→9  $0.001000  payer local
└─ b  t1.b  depth 1  200  tokens 10→9  $0.001000  payer local
2 calls · 0 refusals · 0 answered from memory · tokens 20 in, 18 out · $0.002000 charged · paid by local $0.002000
`
	if diff := cmp.Diff(want, stdout); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

// An agent of --agent gets the key of --key-env, or none when that is not set;
// never the payer's (P22).
func TestAgentsOfTheCommandLineGetTheirOwnKey(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 4)
	agents := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(agents.Close)
	path := configure(t, "keys: [{id: alice, secret_env: ALICE}]\n")
	for name, want := range map[string]string{"OWN": "Bearer own", "NOT_SET": ""} {
		env := map[string]string{"OWN": "own", "ALICE": aliceKey, "AGENTBUS_TOKEN": aliceKey}
		args := []string{"run", "--config", path, "--key-env", name, "--agent", agents.URL + "#a", "--agent", agents.URL + "#b", "--max-turns", "2", "go"}
		var complaint strings.Builder
		if code := run(t.Context(), args, strings.NewReader(""), io.Discard, &complaint, lookup(env)); code != 0 {
			t.Fatal(code, complaint.String())
		}
		for range 2 {
			if h := <-got; h.Get("Authorization") != want || h.Get(agentbus.HeaderForwardedAuthorization) != "Bearer "+aliceKey {
				t.Errorf("with --key-env %s an agent gets %v", name, h)
			}
		}
	}
}

// Why an agent did not answer is part of the error, and --json prints JSON only.
func TestAgentThatIsDownSaysWhy(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(nil)
	down.Close()
	path := configure(t, "")
	args := []string{"run", "--agent", down.URL + "/v1#a", "--agent", down.URL + "/v1#b", "go"}
	code, r, stderr := drove(t, path, args...)
	var told struct{ Error problem }
	if err := json.Unmarshal([]byte(stderr), &told); err != nil {
		t.Fatalf("%v in %s", err, stderr)
	}
	want := problem{
		Exit: exitAgent, What: "paused: participant_error[a]: the agent could not be reached, or its answer broke off",
		Why: "dial tcp " + strings.TrimPrefix(down.URL, "http://") + ": connect: connection refused", Next: "agentbus resume " + string(r.Run),
	}
	if diff := cmp.Diff(want, told.Error); diff != "" || code != int(exitAgent) {
		t.Errorf("exit %d (-want +got):\n%s", code, diff)
	}
}

// What is told to be typed is about the run, however a caller named that.
func TestHintsOfOddlyNamedRuns(t *testing.T) {
	t.Parallel()
	const run = "-it's"
	const typed = `-- '-it'\''s'`
	for command, h := range map[string]agentbus.Halt{
		"agentbus resume " + typed:                 {Kind: agentbus.HaltAbort},
		"agentbus resume --max-usd USD " + typed:   {Kind: agentbus.HaltBudget},
		"; then agentbus resume " + typed:          {Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{Interrupts: []agentbus.InterruptID{"int_1"}}},
		"see agentbus trace " + typed:              {Kind: agentbus.HaltDeadline},
		"see agentbus trace " + typed + "; run it": {Kind: agentbus.HaltRecursionLimit},
	} {
		if p := describe(halted(t.Context(), &conversation.Result{Run: run, Halt: h}, "", "")); !strings.Contains(p.Next, command) {
			t.Errorf("%s: told to type %q, want %q", h.Kind, p.Next, command)
		}
	}
	if told := summed(run, &agentbus.Halt{Kind: agentbus.HaltDone}, 1, agentbus.Usage{}, 0); !strings.HasSuffix(told, "agentbus trace "+typed) {
		t.Error(told)
	}
}
