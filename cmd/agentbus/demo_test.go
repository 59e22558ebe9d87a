package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

// played is what agentbus demo --json says of its runs and of its store.
type played struct {
	Claims []claim `json:"claims"`
	Runs   []struct {
		Run    agentbus.RunID `json:"run"`
		Totals totals         `json:"totals"`
	} `json:"runs"`
	Store string `json:"store"`
}

// What the demo claims is in its store, whoever reads it.
func TestDemoClaimsNothingThatTheStoreDoesNotHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, stdout, stderr := program(t, dir, nil, "demo", "--dir", dir, "--json")
	if code != 0 {
		t.Fatal(code, stderr)
	}
	var p played
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || len(p.Runs) != 3 {
		t.Fatalf("%s: %v", stdout, err)
	}
	for _, c := range p.Claims {
		if !c.Holds {
			t.Errorf("the demo says itself that it is not true that %s", c.Text)
		}
	}
	if p.Store != filepath.Join(dir, demoStore) {
		t.Errorf("the store is %s", p.Store)
	}
	s := opened(t, "", map[string]string{"AGENTBUS_STORE_URL": "sqlite:" + p.Store})
	demoTalk(t, s, p.Runs[0].Run)
	demoReplay(t, s, p.Runs[0].Run)
	demoLoop(t, s, p.Runs[1].Run)
	demoRetry(t, s, p.Runs[2].Run)
	for _, r := range p.Runs {
		demoBill(t, s, r.Run, r.Totals)
	}
}

// demoTalk: the driver was killed in the middle of a turn, another process went
// on, no turn was lost or executed twice, and the nested calls stand inside
// those they were made in.
func demoTalk(t *testing.T, s server.Store, run agentbus.RunID) {
	t.Helper()
	e, found, err := s.Execution(t.Context(), agentbus.ExecutionID(run))
	if err != nil || !found || e.State != agentbus.RunDone || e.Turns != demoTurns || e.Payer != demoUser || e.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("execution %+v, %v, %v", e, found, err)
	}
	if e.Lease.Epoch != 2 {
		t.Errorf("the run was claimed %d times, want by the driver that was killed and by the one that went on", e.Lease.Epoch)
	}
	turns := turnsOf(t, s, run)
	speakers := []agentbus.Speaker{"researcher", "critic"}
	for i, turn := range turns {
		epoch := uint64(1) // of who finished it
		if i >= killAt {
			epoch = 2
		}
		if turn.State != agentbus.TurnDone || turn.ID != run.Turn(i, speakers[i%2]) || turn.Epoch != epoch || turn.Reply.Text == "" {
			t.Errorf("turn %d is %+v", i, turn)
		}
		if turn.Reply.Replayed != (i == killAt) {
			t.Errorf("turn %d replayed: %t; the one that was cut off is %d", i, turn.Reply.Replayed, killAt)
		}
	}
	calls := callsOf(t, s, run)
	if len(turns) != demoTurns || len(calls) != demoTurns+demoTurns/2 {
		t.Fatalf("%d turns and %d calls, want %d and %d", len(turns), len(calls), demoTurns, demoTurns+demoTurns/2)
	}
	for _, c := range calls {
		if c.State != agentbus.CallSettled || c.Attempts != 1 {
			t.Errorf("%s was executed %d times: %+v", c.TurnKey.ID, c.Attempts, c)
		}
		if c.Agent != "checker" {
			if c.Parent != "" || c.Depth != 1 || (c.Replays > 0) != (c.TurnKey.ID.Index(run) == killAt) {
				t.Errorf("a turn of the conversation is %+v", c)
			}
			continue
		}
		outer := slices.IndexFunc(calls, func(o agentbus.CallRecord) bool { return o.TurnKey.ID == c.Parent && o.Agent == "critic" })
		sum := sha256.Sum256([]byte(string(c.Parent))) // P8: of a turn without path and parent
		if outer < 0 || c.Depth != 3 || c.Caller != "agents" || c.Path != hex.EncodeToString(sum[:8]) {
			t.Errorf("a call of the checker stands nowhere: %+v", c)
		}
	}
}

// demoLoop: depths 0 and 2 were served, 4 was refused, once, for nothing (P10).
func demoLoop(t *testing.T, s server.Store, run agentbus.RunID) {
	t.Helper()
	var got []string
	for _, c := range callsOf(t, s, run) {
		got = append(got, fmt.Sprint(c.Depth, " ", c.State, " ", c.Code, " ", c.Status))
		if c.State == agentbus.CallRefused && (c.Cost != 0 || c.Attempts != 0 || c.Repeats != 0) {
			t.Errorf("the refusal is %+v", c)
		}
	}
	slices.Sort(got)
	if want := []string{"0 settled  200", "2 settled  200", "4 refused bridge_depth_exceeded 429"}; !slices.Equal(got, want) {
		t.Errorf("the loop's calls are %q, want %q", got, want)
	}
}

// demoRetry: a turn that was asked twice was executed and charged once (G23).
func demoRetry(t *testing.T, s server.Store, run agentbus.RunID) {
	t.Helper()
	calls := callsOf(t, s, run)
	if len(calls) != 1 || calls[0].State != agentbus.CallSettled || calls[0].Attempts != 1 || calls[0].Replays != 1 || calls[0].Cost <= 0 {
		t.Errorf("the retried turn is %+v", calls)
	}
}

// demoBill: one payer, and the run costs what its settled calls do (G26, P20).
func demoBill(t *testing.T, s server.Store, run agentbus.RunID, told totals) {
	t.Helper()
	var sum agentbus.Micros
	for _, c := range callsOf(t, s, run) {
		if c.Payer != demoUser {
			t.Errorf("%s pays for %s", c.Payer, c.TurnKey.ID)
		}
		if c.State == agentbus.CallSettled {
			// As the demo prices its agents: 0.15 and 0.60 a million, 0.001 a call, rounded up.
			if want := agentbus.Micros(1000 + (15*c.Usage.InputTokens+60*c.Usage.OutputTokens+99)/100); c.Cost != want {
				t.Errorf("%s was charged %d for %+v, want %d", c.TurnKey.ID, c.Cost, c.Usage, want)
			}
			sum += c.Cost
		}
	}
	if sum <= 0 || told.Cost != sum || len(told.ByPayer) != 1 || told.ByPayer[demoUser] != sum {
		t.Errorf("the calls of %s come to %d, and the demo told %+v", run, sum, told)
	}
}

func callsOf(t *testing.T, s server.Store, run agentbus.RunID) []agentbus.CallRecord {
	t.Helper()
	calls, err := s.Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// People see the trees, the totals and how long it took, and nothing is left.
func TestDemoShowsTreesAndTotals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, stdout, stderr := program(t, dir, []string{"TMPDIR=" + dir}, "demo", "Is it safe?")
	if code != 0 {
		t.Fatal(code, stderr)
	}
	for _, want := range []string{
		"kill -9; the run is resumed by another process",
		"│  └─ checker  t0.checker  depth 3  200",
		"refused bridge_depth_exceeded",
		"asked 2 times, charged once",
		"6 calls · 0 refusals · 1 answered from memory",
		"2 calls · 1 refusal · 0 answered from memory",
		"paid by user-123 $",
		"[researcher] Is it safe?",
		"done in ",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the demo does not show %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "NO ") {
		t.Errorf("something does not hold:\n%s", stdout)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("the demo left %q, %v", left, err)
	}
}

// demoReplay: the conversation that was killed in between is replayed as it was
// (R23).
func demoReplay(t *testing.T, s server.Store, run agentbus.RunID) {
	t.Helper()
	c, err := demoConversation("http://127.0.0.1:1/v1", agentbus.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	e, found, err := s.Execution(t.Context(), agentbus.ExecutionID(run))
	if err != nil || !found {
		t.Fatal(found, err)
	}
	rec := conversation.Record{Execution: e, Turns: turnsOf(t, s, run)}
	for event, err := range s.Events(t.Context(), e.ID, -1) {
		if err != nil {
			t.Fatal(err)
		}
		rec.Events = append(rec.Events, event)
	}
	got, err := conversation.Replay(t.Context(), c, rec)
	if err != nil || got.Divergence != nil || len(got.Events) != len(rec.Events) {
		t.Errorf("%v, %v", got.Divergence, err)
	}
}
