package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// measuredBy runs agentbus bench and returns what it measured, by target.
func measuredBy(t *testing.T, env map[string]string, args ...string) (code int, b benched, of map[string]*target, stderr string) {
	t.Helper()
	code, stdout, stderr := operate(t, env, append([]string{"bench", "--json", "--calls", "25", "--clients", "2", "--duration", "1m"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &b); err != nil && stdout != "" {
		t.Fatalf("%s: %v", stdout, err)
	}
	of = map[string]*target{}
	for _, one := range b.Targets {
		of[one.Name] = one
	}
	return code, b, of, stderr
}

// A bus of its own: every call is answered, duplicates from memory, the ratios
// are there, and nothing is left behind.
func TestBenchOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"AGENTBUS_STORE_URL": "sqlite:" + filepath.Join(dir, "bus.db")}
	code, b, of, stderr := measuredBy(t, env)
	if code != 0 || len(of) != 3 || len(b.Rate) != benchRounds || len(b.Syncs) != benchRounds {
		t.Fatalf("exit %d: %+v: %s", code, b, stderr)
	}
	for name, calls := range map[string]int{"agent": 25, "bus": 25, "duplicates": 25} {
		if got := of[name]; got.Calls != calls || got.Failed != nil || got.P50 <= 0 || got.Max < got.P99 || len(got.PerSec) != benchRounds {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if of["duplicates"].Memory < 25 || of["bus"].Memory > 0 || of["agent"].Memory > 0 {
		t.Errorf("from memory: %d, %d, %d", of["duplicates"].Memory, of["bus"].Memory, of["agent"].Memory)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	code, text, _ := operate(t, env, "bench", "--calls", "5", "--clients", "1")
	if code != 0 || !strings.Contains(text, "through the bus, of those of the agent itself") || !strings.Contains(text, "in fsyncs of this disk") {
		t.Errorf("exit %d: %s", code, text)
	}
}

// A bus that serves, next to its agent; one that fails is told by its code.
func TestBenchOfABusThatServes(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", 0)
	path := configure(t, "keys: [{id: alice, secret_env: ALICE}]\nagents: {a: {kind: openai, url: '"+a.URL+"/v1'}, gone: {kind: openai, url: 'http://127.0.0.1:1/v1'}}\n")
	bus := serving(t, path, map[string]string{"ALICE": "alice-secret"})
	env := map[string]string{"AGENTBUS_TOKEN": "alice-secret"}
	code, b, of, stderr := measuredBy(t, env, "--server", bus.url, "--direct", a.URL+"/v1#m", "a")
	if code != 0 || of["bus"].Calls != 25 || of["agent"].Calls != 25 || len(b.Rate) != benchRounds || b.Syncs != nil {
		t.Errorf("exit %d: %+v: %s", code, b, stderr)
	}
	code, _, of, stderr = measuredBy(t, env, "--server", bus.url, "gone")
	if code != int(exitAgent) || of["bus"].Failed[agentbus.CodeAgentUnavailable] == 0 || !strings.Contains(stderr, "agent_unavailable") {
		t.Errorf("exit %d: %+v: %s", code, of["bus"], stderr)
	}
	if code, _, _, stderr = measuredBy(t, nil, "--server", bus.url, "a"); code != int(exitRefused) {
		t.Errorf("without a key: exit %d: %s", code, stderr)
	}
}

func TestBenchIsBounded(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--server", "http://192.0.2.1:8080", "a"},
		{"--direct", "http://192.0.2.1/v1#m"},
		{"--direct", "http://127.0.0.1"},
		{"a"},
		{"--server", "http://127.0.0.1:1"},
		{"--calls", "0"},
		{"--calls", "2000000"},
		{"--clients", "5000"},
		{"--duration", "48h"},
	} {
		if code, _, stderr := operate(t, nil, append([]string{"bench"}, args...)...); code != int(exitUsage) || !strings.Contains(stderr, "next:") {
			t.Errorf("%s: exit %d: %s", args, code, stderr)
		}
	}
}
