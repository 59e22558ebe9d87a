package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// told is an agent that remembers what it was told of its chain, and its contexts.
type told struct {
	*httptest.Server
	mu       sync.Mutex
	system   []string
	contexts [][2]string
}

func newTold(t *testing.T) *told {
	t.Helper()
	a := &told{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Messages []struct{ Role, Content string }
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &in)
		a.mu.Lock()
		if len(in.Messages) > 0 && in.Messages[0].Role == "system" {
			a.system = append(a.system, in.Messages[0].Content)
		} else {
			a.system = append(a.system, "")
		}
		a.contexts = append(a.contexts, [2]string{strings.Join(r.Header["X-Kagent-Parent-Context-Id"], "|"), strings.Join(r.Header["X-Kagent-Root-Context-Id"], "|")})
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(a.Close)
	return a
}

// C7, C8, C9, X7: in one process too, every conversation inside another is a hop
// further; its agents are told, and from the last one nobody is called.
func TestC7HopsThroughConversations(t *testing.T) {
	t.Parallel()
	a, b := newTold(t), newTold(t)
	const yaml = `
chain: {max_hops: 2}
agents:
  a: {kind: openai, url: %q}
  b: {kind: openai, url: %q}
  inner: {kind: conversation, conversation: inner}
  deep: {kind: conversation, conversation: deep}
conversations:
  inner: {participants: [{agent: b}, {agent: deep}], max_turns: 2}
  deep: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  outer: {participants: [{agent: a}, {agent: inner}], max_turns: 2}
`
	s := open(t, fmt.Sprintf(yaml, a.URL, b.URL))
	r := converse(t, s, server.Start{Conversation: "outer", Seed: "x", Run: "run", Authorization: agentbus.NewCredential("Bearer user-secret")})
	if r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeChainFinal {
		t.Errorf("halted with %+v", r.Halt)
	}
	const last = "You are responding as the FINAL hop (2 of 2). Synthesize a conclusion \u2014 do not invite another agent."
	if diff := cmp.Diff([][]string{{""}, {last}}, [][]string{a.system, b.system}); diff != "" {
		t.Errorf("cues (-want +got):\n%s", diff)
	}
}

// C8, C9, X7, X8: a program is told where it answers; at the final hop the token
// of its turn calls nobody.
func TestX7AProgramAtTheFinalHop(t *testing.T) {
	require.Tool(t, "curl")
	const yaml = `
keys: [{id: alice, secret_env: ALICE}]
chain: {max_hops: 1}
agents:
  coder: {kind: exec, dir: %q, command: [sh, -c, 'head -1; curl -s -H "Authorization: Bearer $AGENTBUS_TOKEN" -d "{\"model\":\"echo\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}" $AGENTBUS_URL/v1/chat/completions']}
  echo: {kind: builtin, builtin: echo}
  talk: {kind: conversation, conversation: talk}
conversations:
  talk: {participants: [{agent: coder}, {agent: echo}], max_turns: 1}
`
	b := serveFile(t, fmt.Sprintf(yaml, filepath.Join(t.TempDir(), "work")))
	status, body := b.post("alice-secret", "talk", "run")
	if status != http.StatusOK || !strings.Contains(body, "FINAL hop (1 of 1)") || !strings.Contains(body, string(agentbus.CodeChainFinal)) {
		t.Errorf("%d %s", status, body)
	}
	calls, err := b.Store().Calls(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.Agent == "echo" && c.State != agentbus.CallRefused {
			t.Errorf("the echo was called: %+v", c)
		}
	}
}

// K-6: three buses over real HTTP: each tells its own session as the parent, and
// all the first one's as the root, one value each.
func TestK6ThreeAgentsOverHTTP(t *testing.T) {
	t.Parallel()
	leaf := newTold(t)
	const yaml = `
agents:
  next: {kind: openai, url: %q, model: talk}
  echo: {kind: builtin, builtin: echo}
  talk: {kind: conversation, conversation: talk}
conversations:
  talk: {participants: [{agent: next}, {agent: echo}], max_turns: 1}
`
	below := leaf.URL
	contexts := [][2]string{}
	var mu sync.Mutex
	for range 2 {
		bus := open(t, "limits: {max_depth: 20}\n"+fmt.Sprintf(yaml, below))
		h := bus.Handler()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			contexts = append(contexts, [2]string{strings.Join(r.Header["X-Kagent-Parent-Context-Id"], "|"), strings.Join(r.Header["X-Kagent-Root-Context-Id"], "|")})
			mu.Unlock()
			r.Header.Set("Authorization", "Bearer user-secret")
			r.Header.Del("X-Tangle-Forwarded-Authorization")
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		below = srv.URL + "/v1"
	}
	s := open(t, fmt.Sprintf(yaml, below))
	r := converse(t, s, server.Start{Conversation: "talk", Seed: "x", Run: "chat-1", Authorization: agentbus.NewCredential("Bearer user-secret")})
	if r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("halted with %+v", r.Halt)
	}
	all := slices.Concat(contexts, leaf.contexts)
	parents := map[string]bool{}
	for _, c := range all {
		parents[c[0]] = true
		if c[1] != "chat-1" || c[0] == "" || strings.Contains(c[0], "|") {
			t.Errorf("told %q", c)
		}
	}
	if len(all) != 3 || len(parents) != 3 || all[0][0] != "chat-1" {
		t.Errorf("told %q", all)
	}
}

// C16: the signed hops of a run prove who called whom and who paid; one that was
// changed, or is of another run, is named.
func TestC16VerifyHops(t *testing.T) {
	t.Parallel()
	a := newTold(t)
	const yaml = `
trust: {issuer: "http://127.0.0.1:1", key_env: KEY, signed_hops: true}
agents:
  a: {kind: openai, url: %q}
  b: {kind: builtin, builtin: echo}
  inner: {kind: conversation, conversation: inner}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  outer: {participants: [{agent: a}, {agent: inner}], max_turns: 2}
`
	text := fmt.Sprintf("store: {url: %q}\n", "sqlite:"+sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))) + fmt.Sprintf(yaml, a.URL)
	c, _, err := config.Parse("test", []byte(text), config.Source{Dev: true, Env: func(name string) (string, bool) { return strings.Repeat("a1", 32), name == "KEY" }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	if r := converse(t, s, server.Start{Conversation: "outer", Seed: "x", Run: "run"}); r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("halted with %+v", r.Halt)
	}
	v, err := s.VerifyHops(t.Context(), "run")
	if err != nil || v.Fault != "" || len(v.Hops) != 4 || v.Unsigned != 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	type who struct {
		Caller, Agent string
		Hop           int
		Follows       bool
	}
	var got []who
	for _, h := range v.Hops {
		got = append(got, who{h.Caller[strings.LastIndexByte(h.Caller, '#')+1:], h.Agent, h.Hop, h.Before != ""})
		if h.Payer != server.LocalPayer {
			t.Errorf("paid by %s", h.Payer)
		}
	}
	want := []who{{"conversation:outer", "a", 1, false}, {"conversation:outer", "inner", 1, false}, {"conversation:inner", "a", 2, true}, {"conversation:inner", "b", 2, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hops (-want +got):\n%s", diff)
	}
	kept, err := s.Store().HopTokens(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	forged := kept[0]
	forged.RequestID, forged.Token = kept[1].RequestID, kept[0].Token[:len(kept[0].Token)-8]+"AAAAAAAA"
	if err := s.Store().KeepHop(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if v, err := s.VerifyHops(t.Context(), "run"); err != nil || !strings.Contains(v.Fault, forged.RequestID) {
		t.Errorf("a forged hop: %+v, %v", v, err)
	}
	if v, err := s.VerifyHops(t.Context(), "another"); agentbus.CodeOf(err) != agentbus.CodeRunNotFound {
		t.Errorf("a run that was not: %+v, %v", v, err)
	}
}
