package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// canary begins every credential of the bus of TestNoCredentialIsLeft.
const canary = "sk-CANARY-7f3a"

// I8, P19: no credential is in anything that a bus leaves behind: its output,
// its log, its store, its errors, its figures, its admin API and what the verbs
// print; also when agents fail, and say what they were sent in their errors, and
// when requests are recorded that have credentials in their bodies (U11).
func TestNoCredentialIsLeft(t *testing.T) {
	t.Parallel()
	leaky := httptest.NewServer(http.HandlerFunc(leak))
	t.Cleanup(leaky.Close)
	path := configure(t, fmt.Sprintf(`agents:
  echo: {kind: builtin, builtin: echo, price: {call: 0.01}}
  loop: {kind: builtin, builtin: loop}
  flaky: {kind: builtin, builtin: flaky}
  panel: {kind: conversation, conversation: talk}
  leaky: {kind: openai, url: %q, api_key_env: AGENT, headers: {x-extra: "${EXTRA}"}}
conversations: {talk: {participants: [{agent: echo}, {agent: leaky}], max_turns: 4}}
recording: {requests: true}
keys: [{id: alice, secret_env: ALICE}, {id: relay, secret_env: RELAY, inter_agent: true}, {id: ops, secret_env: OPS, role: admin}]
`, leaky.URL+"/v1"))
	save(t, path, strings.Replace(read(t, path), "admin: {", "admin: {content: true, ", 1))
	env := map[string]string{"ALICE": canary + "-alice", "RELAY": canary + "-relay", "OPS": canary + "-ops", "AGENT": canary + "-agent", "EXTRA": canary + "-extra", "AGENTBUS_TOKEN": canary + "-ops"}
	var set []string
	for name, value := range env {
		set = append(set, name+"="+value)
	}
	p := start(t, filepath.Dir(path), set, "serve", "--config", path)
	url, admin, said := p.serves(t)
	left := map[string]string{}
	callEverything(t, url, left)
	for _, route := range []string{
		"/admin/v1/runs", "/admin/v1/runs/leaky", "/admin/v1/runs/leaky/calls", "/admin/v1/runs/telling/calls", "/admin/v1/runs/panel/executions", "/admin/v1/calls/live",
		"/admin/v1/calls/unfinished", "/admin/v1/agents", "/admin/v1/keys", "/admin/v1/budgets", "/admin/v1/ledger/balances",
		"/admin/v1/ledger/export?payer=alice", "/admin/v1/status", "/metrics", "/openapi.json",
	} {
		left[route] = get(t, admin+route, env["OPS"])
	}
	call := regexp.MustCompile(`"id":([0-9]+)`).FindStringSubmatch(left["/admin/v1/runs/telling/calls"])[1]
	recorded := get(t, admin+"/admin/v1/calls/"+call+"/recording", env["OPS"])
	if left["a recording"] = recorded; !strings.Contains(recorded, "hello [redacted]") || !strings.Contains(recorded, "bad key [redacted]") || !strings.Contains(recorded, "x-tangle-runid") {
		t.Errorf("recorded was %s", recorded)
	}
	for _, verb := range [][]string{
		{"runs"},
		{"runs", "--json"},
		{"trace", "leaky"},
		{"trace", "panel", "--json"},
		{"keys", "list"},
		{"ledger", "export"},
		{"ledger", "balance"},
		{"config", "explain"},
		{"config", "explain", "--json"},
		{"config", "check"},
		{"agents"},
	} {
		code, stdout, stderr := program(t, filepath.Dir(path), set, append(verb, "--config", path)...)
		if left[strings.Join(verb, " ")] = stdout + stderr; code != 0 {
			t.Errorf("%v: %d %s", verb, code, stderr)
		}
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it ends in order
	said = append(said, p.rest()...)
	if code := p.end(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
	left["output"], left["log"] = strings.Join(said, "\n"), p.stderr.String()
	for _, name := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "bus.db"+name))
		if err != nil && name == "" {
			t.Error(err)
		}
		left["bus.db"+name] = string(b)
	}
	if !strings.Contains(left["log"], `"agent":"leaky"`) {
		t.Error("the log tells nothing of the leaky agent")
	}
	for what, text := range left {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("%s holds a credential: …%q", what, text[max(0, at-120):min(len(text), at+60)])
		}
	}
}

// leak fails, and says in its error what it was sent.
func leak(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s for %s, %s"}}`, r.Header.Get("Authorization"), r.Header.Get(agentbus.HeaderForwardedAuthorization), r.Header.Get("X-Extra"))
}

// callEverything calls each agent in every way that ends differently, and keeps
// the answers that are the bus's own.
func callEverything(t *testing.T, url string, left map[string]string) {
	t.Helper()
	forwarded := http.Header{"X-Tangle-Forwarded-Authorization": {"Bearer " + canary + "-alice"}}
	for _, c := range []struct {
		what, model, key string
		depth            int
		stream           bool
		header           http.Header
	}{
		{"answered", "echo", "-alice", 0, false, nil},
		{"streamed", "echo", "-alice", 0, true, nil},
		{"billed to another", "echo", "-relay", 0, false, forwarded},
		{"not the forwarder", "echo", "-alice", 0, false, http.Header{"X-Tangle-Forwarded-Authorization": {"Bearer " + canary + "-other"}}},
		{"a bad origin", "echo", "-relay", 0, false, http.Header{"X-Tangle-Forwarded-Authorization": {"Bearer " + canary + "-nobody"}}},
		{"unknown", "echo", "-nobody", 0, false, nil},
		{"too deep", "echo", "-alice", 4, false, nil},
		{"a loop", "loop", "-alice", 0, false, nil},
		{"flaky", "flaky", "-alice", 0, false, nil},
		{"leaky", "leaky", "-alice", 0, false, nil},
		{"panel", "panel", "-alice", 0, false, nil},
		{"telling", "leaky", "-alice", 0, false, nil},
		{"no such agent", "nobody", "-alice", 0, false, nil},
	} {
		h := turnHeader(agentbus.RunID(strings.ReplaceAll(c.what, " ", "-")), "x", c.depth)
		maps.Copy(h, c.header)
		said := "hello"
		if c.what == "telling" {
			said += " " + canary + c.key + ", " + canary + "-agent " + canary + "-ops"
		}
		body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, c.model, c.stream, said)
		_, head, answer, err := post(t.Context(), url, canary+c.key, body, h)
		if err != nil {
			t.Error(err)
		}
		left[c.what] = fmt.Sprint(head) + answer
	}
}

func get(t *testing.T, url, key string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := httpClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %s %v", url, resp.StatusCode, b, err)
	}
	return fmt.Sprint(resp.Header) + string(b)
}
