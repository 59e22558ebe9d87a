package agentbus_test

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// E21: what may be the id of a manifest, and how running agents are called that
// have none.
func TestAgentIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"core.openwop.chat": true, "vendor.acme.review_bot": true, "private.a.bC9-d.e": true, "local.x-y.z": true,
		"core.chat": false, "host:writer": false, "Core.openwop.chat": false, "core..chat": false, "core.openwop.": false, "acme.x.y": false,
		"core.oPen.chat": false, "core.openwop.9chat": false, "https://example.com/a.b.c": false, "core.openwop." + strings.Repeat("a", 256): false,
	} {
		if got := agentbus.ManifestID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
	if r := agentbus.HostAgent("The Critic"); r.AgentID != "host:the-critic" || r.Name != "The Critic" || !r.Valid() || agentbus.ManifestID(r.AgentID) {
		t.Errorf("%+v", r)
	}
	if id := agentbus.PeerAgent("agents.example.com", "critic"); id != "host:a2a:agents.example.com:critic" {
		t.Error(id)
	}
	if r := (agentbus.AgentRef{AgentID: "core.a.b", Version: "1", Channel: "beta"}); r.Valid() {
		t.Error("it pins a version and a channel") // E20
	}
}

// E44, E45: a message is named by its conversation, its place and who speaks; a
// conversation by where its line of forks began.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	id := agentbus.ConversationID("run_x", "talk", 0)
	if !strings.HasPrefix(id, "conv_") || len(id) != len("conv_")+16 || id != agentbus.ConversationID("run_x", "talk", 0) || id == agentbus.ConversationID("run_y", "talk", 0) {
		t.Error(id)
	}
	if got := agentbus.MessageID(id, 3, agentbus.TurnRoleAgent); got != id+":3:agent" {
		t.Error(got)
	}
}

// E27: an agent may use the tools of its list, and what cannot be decided is denied.
func TestFilterTools(t *testing.T) {
	t.Parallel()
	role := agentbus.HarnessRole{Agent: "host:writer", Allowed: []string{"openwop:echo", "mcp:search", ""}}
	allowed, denied := agentbus.FilterTools(role, []string{"mcp:search", "openwop:rm", "", "echo", "openwop:echo", "MCP:search"})
	if got := strings.Join(allowed, " ") + " | " + strings.Join(denied, " "); got != "mcp:search openwop:echo | openwop:rm  echo MCP:search" {
		t.Error(got)
	}
	if allowed, _ := agentbus.FilterTools(agentbus.HarnessRole{}, []string{"openwop:echo"}); allowed != nil {
		t.Errorf("without a list: %v", allowed)
	}
}
