package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
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
