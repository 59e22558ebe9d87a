package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/otlptest"
)

// G34, P2: the trace of a caller goes on as a child at every hop: through a router,
// a bus that is a process of its own, to the gateway, to a conversation, through its
// driver to a program, through the program, a process that only has its environment,
// back to the gateway, and to an agent over HTTP. All over real sockets; the spans of
// both buses come to one collector as OTLP.
func TestOneTraceThroughEverything(t *testing.T) {
	t.Parallel()
	const caller, trace = "b7ad6b7169203331", "0af7651916cd43dd8448eb211c80319c"
	heard := make(chan string, 1)
	leaf := newAgent(t, "leaf", 0)
	answer := leaf.Config.Handler
	leaf.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get(agentbus.HeaderTraceParent)
		answer.ServeHTTP(w, r)
	})
	spans := otlptest.New(t)
	path, env := scripted(t, "limits: {max_depth: 9}\ntelemetry: {otlp: '"+spans.URL+"'}\nconversations: {talk: {participants: [{agent: coder}, {agent: echo}], max_turns: 1}}\n",
		map[string]string{"coder": "\nagentbus call leaf \"$(cat)\"\n"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, string(text)+"  panel: {kind: conversation, conversation: talk}\n  echo: {kind: builtin, builtin: echo}\n  leaf: {kind: openai, url: '"+leaf.URL+"/v1'}\n")
	bus := serving(t, path, env)
	routes := configure(t, fmt.Sprintf(`limits: {max_depth: 9}
telemetry: {otlp: %q}
keys: [{id: alice, secret_env: ALICE}]
agents: {team: {kind: openai, url: %q, model: panel, api_key_env: ALICE}}
`, spans.URL, bus.url+"/v1"))
	router := start(t, t.TempDir(), []string{"ALICE=alice-secret"}, "serve", "--quiet", "--config", routes)
	front, _, _ := router.serves(t)
	status, _, body, err := post(t.Context(), front, "alice-secret", `{"model":"team","messages":[{"role":"user","content":"hello"}]}`,
		http.Header{agentbus.HeaderTraceParent: {"00-" + trace + "-" + caller + "-01"}})
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %v: %s", status, err, body)
	}
	told, ok := agentbus.ParseTraceParent(<-heard)
	if !ok || hex.EncodeToString(told.Trace[:]) != trace {
		t.Fatalf("the last agent is told of trace %x", told.Trace)
	}
	want := []string{
		"invoke_agent leaf", "POST /v1/chat/completions", // from the program
		"invoke_agent coder", "POST /v1/chat/completions", // from the driver of the conversation
		"invoke_agent panel", "POST /v1/chat/completions", // from the router
		"invoke_agent team", "POST /v1/chat/completions", // from the caller, in the router
		caller,
	}
	last := hex.EncodeToString(told.Span[:])
	within(t, time.Minute, "the spans of all hops have come", func() bool { return len(spans.Chain(last)) >= len(want) })
	if diff := cmp.Diff(want, spans.Chain(last)); diff != "" {
		t.Errorf("from the last agent up to the caller (-want +got):\n%s", diff)
	}
	for _, s := range spans.Spans() {
		if hex.EncodeToString(s.GetTraceId()) != trace {
			t.Errorf("%s is of another trace", s.GetName())
		}
	}
	if strings.Contains(string(spans.Raw()), "secret") {
		t.Error("a credential was exported")
	}
}

// G14: a call that ended because its caller left tells nothing against its agent.
func TestTraceTellsWhoLeft(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{agentbus.StatusCallerLeft: "stopped", http.StatusBadGateway: "failed agent_unavailable"} {
		c := &agentbus.CallRecord{TurnKey: agentbus.TurnKey{Agent: "critic", ID: "t"}, State: agentbus.CallVoided, Status: status, Code: agentbus.CodeAgentUnavailable, Message: "why", Attempts: 1}
		if got := line(false, c); got != "critic  t  depth 0  "+want+"  why  not charged" {
			t.Errorf("%d: %q", status, got)
		}
	}
}
