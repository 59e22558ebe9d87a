package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
)

const superviseArg = "supervise"

// supervisor is this test as the supervisor of programs; see TestMain.
func supervisor(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, superviseArg}
}

// E60, B2: what a program sends to A2A agents with the token of its turn, and no
// lineage, are tasks of their own in the run of that turn, however it was called.
func TestB2ProgramsSendMessages(t *testing.T) {
	require.Tool(t, "curl")
	const yaml = `
keys: [{id: alice, secret_env: ALICE}]
agents:
  coder: {kind: exec, dir: %q, command: [sh, -c, 'for i in 1 2; do curl -s -H "Authorization: Bearer $AGENTBUS_TOKEN" -H "A2A-Version: 1.0" -H "Content-Type: application/json" -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{\"message\":{\"messageId\":\"$i-$AGENTBUS_RUN_ID\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"x\"}]}}}" $AGENTBUS_URL/a2a/echo; done']}
  echo: {kind: builtin, builtin: echo}
`
	b := serveFile(t, fmt.Sprintf(yaml, filepath.Join(t.TempDir(), "work")))
	_, said := b.post("alice-secret", "coder", "run")
	said = gjson.Get(said, "choices.0.message.content").Str
	task := sendCoder(t, b)
	seen := map[string]bool{"run": true, task.Get("id").Str: true}
	for from, text := range map[string]string{"run": said, task.Get("id").Str: task.Get("artifacts.0.parts.0.text").Str} {
		for line := range strings.Lines(text) {
			inner := gjson.Get(line, "result.task")
			if id := inner.Get("id").Str; seen[id] || inner.Get("status.state").Str != "TASK_STATE_COMPLETED" || inner.Get("metadata.agentbus.run").Str != from {
				t.Errorf("in %s: %s", from, line)
			}
			seen[inner.Get("id").Str] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d tasks and runs: %s", len(seen), task)
	}
}

// G6, B2: a program names the run of its turn to A2A agents, also where who called it
// may name none.
func TestB2ProgramsNameTheirRun(t *testing.T) {
	require.Tool(t, "curl")
	const yaml = `
keys: [{id: alice, secret_env: ALICE, no_run_ids: true}]
agents:
  coder: {kind: exec, dir: %q, command: [sh, -c, 'curl -s -H "Authorization: Bearer $AGENTBUS_TOKEN" -H "A2A-Version: 1.0" -H "Content-Type: application/json" -H "x-tangle-runid: $AGENTBUS_RUN_ID" -H "x-tangle-parent-turnid: $AGENTBUS_TURN_ID" -H "x-tangle-forwarded-depth: $((AGENTBUS_DEPTH+1))" -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"x\"}]}}}" $AGENTBUS_URL/a2a/echo']}
  echo: {kind: builtin, builtin: echo}
`
	b := serveFile(t, fmt.Sprintf(yaml, filepath.Join(t.TempDir(), "work")))
	task := sendCoder(t, b)
	inner := gjson.Get(task.Get("artifacts.0.parts.0.text").Str, "result.task")
	if inner.Get("status.state").Str != "TASK_STATE_COMPLETED" || inner.Get("id").Str == task.Get("id").Str || inner.Get("metadata.agentbus.run").Str != task.Get("id").Str {
		t.Error(task)
	}
}

// sendCoder sends a message to the coder over A2A and returns its task.
func sendCoder(t *testing.T, b *fileBus) gjson.Result {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/a2a/coder", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret")
	r.Header.Set("A2A-Version", "1.0")
	r.Header.Set("Content-Type", "application/json")
	_, body := b.do(r)
	return gjson.Get(body, "result.task")
}

// B4, G30: the workers of a program outlast a change of the configuration that is
// not about the program, and end with one that is.
func TestReloadKeepsWorkers(t *testing.T) {
	const yaml = `
keys: [{id: alice, secret_env: ALICE}]
limits: {call_timeout: %s}
agents:
  coder: {kind: exec, mode: worker, affinity: conversation, dir: %q, kill_after: %s, command: [sh, -c, 'while read -r l; do echo "{\"text\":\"$$\",\"done\":true}"; done']}
`
	dir := filepath.Join(t.TempDir(), "work")
	b := serveFile(t, fmt.Sprintf(yaml, "1m", dir, "1s"))
	ask := func(contextHeader string) string {
		t.Helper()
		return askCoder(t, b, contextHeader)
	}
	reload := func(yaml string) {
		t.Helper()
		b.write(yaml)
		if err := b.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const root, parent = agentbus.RootContextIDHeader, agentbus.ParentContextIDHeader
	first := ask(root)
	if reload(fmt.Sprintf(yaml, "2m", dir, "1s")); ask(root) != first {
		t.Error("another worker, although the program is as it was")
	}
	if ask(parent) != first { // K2, K10
		t.Error("a parent context without a root is not the root")
	}
	if reload(fmt.Sprintf(yaml, "2m", dir, "2s")); ask(root) == first {
		t.Error("the same worker, although the program has changed")
	}
	if reload(fmt.Sprintf(yaml, "2m", dir, "2s") + "lineage: {legacy_parent_fallback: false}\n"); ask(parent) == ask(root) {
		t.Error("without the fallback, a parent context without a root is the root")
	}
}

// askCoder asks the program of a bus in a conversation, and returns what it answers.
func askCoder(t *testing.T, b *fileBus, contextHeader string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(`{"model":"coder","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret")
	r.Header.Set(contextHeader, "root")
	status, body := b.do(r)
	_, text, _ := strings.Cut(body, `"content":"`)
	if text, _, _ = strings.Cut(text, `"`); status != 200 || text == "" {
		t.Fatalf("status %d: %s", status, body)
	}
	return text
}

// P19, K10: installations that share an install key name a conversation alike; the
// key that is made with a store is nobody else's.
func TestInstallKeyFile(t *testing.T) {
	key := filepath.Join(t.TempDir(), "install.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	room := func(more string) string {
		b := serveFile(t, more+fmt.Sprintf(`
keys: [{id: alice, secret_env: ALICE}]
agents:
  coder: {kind: exec, affinity: conversation, dir: %q, command: [sh, -c, 'cat >/dev/null; basename "$PWD"']}
`, filepath.Join(t.TempDir(), "work")))
		return askCoder(t, b, agentbus.RootContextIDHeader)
	}
	shared := fmt.Sprintf("install_key_file: %q", key)
	first := room(shared)
	if again := room(shared); again != first {
		t.Errorf("%s and %s under one key", first, again)
	}
	if own := room(""); own == first {
		t.Errorf("%s without the key too", own)
	}
}
