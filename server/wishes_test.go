package server_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// G2: an agent that is told messages only is called without the tools that are
// offered to it, and its answer, its replay and its record say so. What its answer
// must be is refused, the agent not called and nothing charged, whatever its kind.
func TestWishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	yaml := fmt.Sprintf(`
keys: [{id: alice, secret_env: ALICE}]
agents:
  echo: {kind: builtin, builtin: echo, price: {call: 1}}
  coder: {kind: exec, dir: %q, command: [cat], price: {call: 1}}
  panel: {kind: conversation, conversation: talk}
conversations: {talk: {participants: [{agent: echo}, {agent: coder}], max_turns: 2}}
`, dir)
	b := serveFile(t, yaml)
	b.write(strings.Replace(yaml, "  panel:", "  critic: {kind: a2a, url: "+b.url+"/a2a/echo, api_key_env: ALICE, price: {call: 1}}\n  panel:", 1))
	if err := b.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	const tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, agent := range []string{"echo", "coder", "panel", "critic"} {
		for _, more := range []string{tools, tools + `,"stream":true`} {
			run := fmt.Sprintf("%s-%d", agent, len(more))
			for _, replay := range []string{"", "hit"} {
				status, h, body := b.wish(agent, run, more)
				if got := h.Get("X-Agentbus-Ignored"); status != http.StatusOK || got != "tools" || h.Get("X-Agentbus-Replay") != replay || !strings.Contains(body, "hello") {
					t.Errorf("%s: %d, ignored %q, replay %q, want %q\n%s", run, status, got, h.Get("X-Agentbus-Replay"), replay, body)
				}
			}
			if c := b.outer(run, agent); !slices.Contains(c.Notes, "ignored:tools") {
				t.Errorf("%s: recorded with %v", run, c.Notes)
			}
		}
		for at, more := range []string{`"response_format":{"type":"json_schema","json_schema":{"name":"s"}}`, tools + `,"tool_choice":"required","stream":true`} {
			run := fmt.Sprintf("%s-refused-%d", agent, at)
			status, h, body := b.wish(agent, run, more)
			if status != http.StatusUnsupportedMediaType || !strings.Contains(body, `"unsupported_content"`) || h.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %d %v %s", run, status, h, body)
			}
			if c := b.outer(run, agent); c.Cost != 0 || c.Usage.OutputTokens != 0 {
				t.Errorf("%s: charged %+v", run, c)
			}
		}
	}
}

// G2: where the operator vouches for the JSON of an agent, what asks for JSON is let
// through, and the answer says that the agent was not told; the rest is refused.
func TestVouchedJSON(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	yaml := fmt.Sprintf(`
keys: [{id: alice, secret_env: ALICE}]
agents:
  echo: {kind: builtin, builtin: echo}
  coder: {kind: exec, dir: %q, command: [echo, '{"ok":1}'], answers_json: true}
  panel: {kind: conversation, conversation: talk, answers_json: true}
conversations: {talk: {participants: [{agent: echo}, {agent: coder}], max_turns: 2}}
`, dir)
	b := serveFile(t, yaml)
	b.write(strings.Replace(yaml, "  panel:", "  critic: {kind: a2a, url: "+b.url+"/a2a/coder, api_key_env: ALICE, answers_json: true}\n  panel:", 1))
	if err := b.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"coder", "panel", "critic"} {
		for kind, want := range map[string]int{"json_object": 200, "json_schema": 200, "grammar": 415} {
			status, h, body := b.wish(agent, agent+kind, `"response_format":{"type":"`+kind+`"}`)
			if ignored := h.Get("X-Agentbus-Ignored"); status != want || want == 200 && (ignored != "response_format" || !strings.Contains(body, `{\"ok\":1}`)) {
				t.Errorf("%s, %s: %d, ignored %q, want %d\n%s", agent, kind, status, ignored, want, body)
			}
		}
		if status, _, body := b.wish(agent, agent+"tool", `"tool_choice":"required"`); status != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d %s", agent, status, body)
		}
	}
}

// An agent of this process lists itself below /agents: clients that are given its
// base URL let people choose among its models.
func TestModelsOfAnAgent(t *testing.T) {
	b := serveFile(t, `
keys: [{id: alice, secret_env: ALICE}]
agents: {echo: {kind: builtin, builtin: echo}}
`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/agents/echo/v1/models", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret")
	if status, body := b.do(r); status != http.StatusOK || body != `{"object":"list","data":[{"id":"echo","object":"model","created":0,"owned_by":"agentbus"}]}` {
		t.Errorf("%d %s", status, body)
	}
}

// wish asks an agent as alice, as a turn of run, with more in the body.
func (b *fileBus) wish(agent, run, more string) (int, http.Header, string) {
	b.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}],%s}`, agent, more)
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret")
	r.Header.Set(agentbus.HeaderRunID, run)
	r.Header.Set(agentbus.HeaderTurnID, run+".t0.x")
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// outer returns the call of run that the caller made itself.
func (b *fileBus) outer(run, agent string) agentbus.CallRecord {
	b.t.Helper()
	calls, err := b.Store().Calls(b.t.Context(), agentbus.RunID(run))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range calls {
		if calls[i].Agent == agent && calls[i].Parent == "" {
			return calls[i]
		}
	}
	b.t.Fatalf("run %s has no call of %s: %+v", run, agent, calls)
	return agentbus.CallRecord{}
}
