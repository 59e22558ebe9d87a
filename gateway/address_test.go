package gateway_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

func address(t *testing.T, s string) agentbus.Address {
	t.Helper()
	a, err := agentbus.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listed is a directory with one agent in it.
func listed(t *testing.T) *a2a.Directory {
	t.Helper()
	d, err := a2a.NewDirectory(a2a.DirectoryConfig{Agents: []a2a.Published{{Address: address(t, "@critic@bots.example.com"), Agent: "critic"}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// C34, C35: an agent is called by its address, in each of its forms; the record
// has it by its name, so that both are one agent to the ledger.
func TestAgentsByAddress(t *testing.T) {
	t.Parallel()
	critic, other := newAgent(t, "critic", nil), newAgent(t, "other", nil)
	critic.Address = address(t, "@Critic@bots.example.com")
	other.aliases = []string{"@alias@bots.example.com"}
	b := newBus(t, nil, critic, other)
	for name, want := range map[string]string{
		"@critic@bots.example.com": "critic", "Critic@BOTS.example.com": "critic", "acct:critic@bots.example.com": "critic", "@alias@bots.example.com": "other",
	} {
		if got := b.send(http.MethodGet, "/v1/models/"+url.PathEscape(name), "", asAlice); gjson.Get(got.body, "id").Str != want {
			t.Errorf("model %s: %v", name, got)
		}
		if got := b.call(name); got.status != http.StatusOK {
			t.Errorf("call %s: %v", name, got)
		}
	}
	if got := b.send(http.MethodPost, "/agents/@critic@bots.example.com/chat/completions", ask("x"), asAlice); got.status != http.StatusOK {
		t.Error(got)
	}
	for _, name := range []string{"@critic@example.com", "@critic@bots.example.com.", "@@bots.example.com", "@critic@localhost", "@nobody@bots.example.com"} {
		got := b.call(name)
		refused(t, name, got, http.StatusNotFound, agentbus.CodeAgentNotFound)
		if strings.Contains(got.body, "@") { // X32
			t.Errorf("%s: %s names somebody", name, got.body)
		}
	}
}

// C36: without a directory nobody is found.
func TestWithoutDirectory(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	for _, path := range []string{"/.well-known/webfinger?resource=acct:critic@bots.example.com", "/.well-known/agent-card/critic"} {
		refused(t, path, b.send(http.MethodGet, path, ""), http.StatusNotFound, agentbus.CodeAgentNotFound)
	}
}
