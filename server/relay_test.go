package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// C7, C14, X7: under plan relay an A2A agent is told that its mentions are
// relayed; whom a reply mentions, by its address, is called next, a hop further and inside of that turn, as the
// ledger has it too; the mention of a final hop is not called, and told in the journal.
func TestC14ARelayedMention(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Let us ask @helper@bots.example.com."},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(model.Close)
	var mu sync.Mutex
	var heard []string
	var agent *httptest.Server
	agent = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprintf(w, `{"name":"helper","supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{}}`, agent.URL)
			return
		}
		body, _ := io.ReadAll(r.Body)
		m := gjson.GetBytes(body, "params.message.metadata.mentionable")
		mu.Lock()
		heard = append(heard, fmt.Sprintf("%s of %s, %s", m.Get("agent_chain.hop"), m.Get("agent_chain.max_hops"), m.Get("recipient_capabilities.mention_relay.kind")))
		mu.Unlock()
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"id":"t%d","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"And I ask @lead."}]}]}}}`,
			gjson.GetBytes(body, "id").Raw, len(heard))
	}))
	t.Cleanup(agent.Close)
	const yaml = `
public_url: https://bots.example.com
chain: {max_hops: 2}
agents:
  lead: {kind: openai, url: %q}
  helper: {kind: a2a, url: %q, address: "@Helper@bots.example.com"}
  other: {kind: builtin, builtin: echo}
conversations:
  talk: {participants: [{agent: lead}, {agent: other}, {agent: helper}], plan: relay, max_turns: 3}
`
	s := open(t, fmt.Sprintf(yaml, model.URL, agent.URL))
	r := converse(t, s, server.Start{Conversation: "talk", Seed: "x", Run: "run", Authorization: agentbus.NewCredential("Bearer user-secret")})
	if r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("halted with %+v, %+v", r.Halt, r.Halt.Error)
	}
	var turns []string
	for i := range r.Turns {
		turns = append(turns, string(r.Turns[i].Parent)+" > "+string(r.Turns[i].ID))
	}
	if diff := cmp.Diff([]string{" > run.t0.lead", "run.t0.lead > run.t1.helper-relayed", " > run.t2.lead"}, turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2 of 2, inline"}, heard); diff != "" {
		t.Errorf("the agent was told (-want +got):\n%s", diff)
	}
	calls, err := s.Store().Calls(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		want := 1
		if c.Agent == "helper" {
			want = 2
		}
		if c.Chain == nil || c.Chain.Hop != want || c.Depth != want || c.Agent == "other" {
			t.Errorf("%s at depth %d: %+v", c.Agent, c.Depth, c.Chain)
		}
	}
	var refused []string
	for e, err := range s.Store().Events(t.Context(), agentbus.ExecutionID("run"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == agentbus.EventMentionRefused {
			refused = append(refused, string(e.Turn)+string(e.Data))
		}
	}
	if len(refused) != 1 || !strings.Contains(refused[0], `run.t1.helper-relayed{"speaker":"helper","mentioned":"lead","code":"chain_final"}`) {
		t.Errorf("events: %q", refused)
	}
}
