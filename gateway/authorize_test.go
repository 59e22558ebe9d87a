package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// granting gives principals their grants.
type granting struct {
	gateway.Identifier
	grants map[string]*agentbus.Grants
}

func (g granting) Identify(ctx context.Context, a agentbus.Credential) (agentbus.Principal, error) {
	p, err := g.Identifier.Identify(ctx, a)
	p.Grants = g.grants[p.ID]
	return p, err
}

// grant bounds what alice may do.
func grant(g agentbus.Grants) func(*gateway.Config) {
	return func(c *gateway.Config) {
		c.Identifier = granting{c.Identifier, map[string]*agentbus.Grants{"alice": &g}}
	}
}

// TestList: G6 and G1, a caller with a list may call what is on it, under any
// name, and finds nothing else: an agent it may not call and one that is not
// there look alike. Others are not bounded.
func TestList(t *testing.T) {
	t.Parallel()
	critic, secret := newAgent(t, "critic", nil), newAgent(t, "secret", nil)
	secret.aliases, secret.Authorization = []string{"hidden"}, agentbus.NewCredential("Bearer "+agentKey)
	secret.URL.Host = strings.Replace(secret.URL.Host, "127.0.0.1", "0.0.0.0", 1) // P24 would name it
	b := newBus(t, grant(agentbus.Grants{Agents: []string{"critic"}}), critic, secret)
	for _, name := range []string{"critic", "agent/critic", "bridge/sandbox/critic"} {
		if got := b.call(name); got.status != http.StatusOK {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, route := range []string{chatRoute, "/agents/NAME/chat/completions"} {
		want := ""
		for _, name := range []string{"secret", "hidden", "nobody", "agent/secret"} {
			if strings.Contains(route, "NAME") && strings.Contains(name, "/") {
				continue
			}
			got := b.send(http.MethodPost, strings.Replace(route, "NAME", name, 1), ask(name), append(turn("r", "t."+name), asAlice)...)
			refused(t, name, got, http.StatusForbidden, agentbus.CodeForbidden)
			body := strings.ReplaceAll(got.body, name, "NAME")
			if want == "" {
				want = body
			}
			if body != want || gjson.Get(body, "error.explain.supported").Raw != `["critic"]` {
				t.Errorf("%s can be told from others:\n%s\n%s", name, body, want)
			}
		}
	}
	for _, c := range b.calls("r") {
		if c.State != agentbus.CallRefused || c.Payer != "alice" || c.Agent == "" {
			t.Errorf("recorded as %+v", c)
		}
	}
	if got := b.send(http.MethodGet, "/v1/models", "", asAlice); gjson.Get(got.body, "data.#.id").Raw != `["critic"]` {
		t.Errorf("models: %v", got)
	}
	for _, name := range []string{"secret", "hidden", "nobody"} {
		got := b.send(http.MethodGet, "/v1/models/"+name, "", asAlice)
		refused(t, name, got, http.StatusNotFound, agentbus.CodeAgentNotFound)
		if gjson.Get(got.body, "error.explain.supported").Raw != `["critic"]` {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := b.send(http.MethodGet, "/v1/models", "", asBob); gjson.Get(got.body, "data.#.id").Raw != `["critic","secret"]` {
		t.Errorf("models of bob: %v", got)
	}
	refused(t, "bob", b.send(http.MethodPost, chatRoute, ask("nobody"), asBob), http.StatusNotFound, agentbus.CodeAgentNotFound)
	if n := secret.executions(); n != 0 {
		t.Errorf("%d executions of what may not be called", n)
	}
}

// TestEmptyList: G6, a list without an agent is none at all.
func TestEmptyList(t *testing.T) {
	t.Parallel()
	b := newBus(t, grant(agentbus.Grants{Agents: []string{}}), newAgent(t, "critic", nil))
	refused(t, "empty list", b.call("critic"), http.StatusForbidden, agentbus.CodeForbidden)
}

// TestNoRunIDs: G6, a caller that may not name runs gets one for each call.
func TestNoRunIDs(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, grant(agentbus.Grants{NoRunIDs: true}), a)
	refused(t, "named", b.call("critic", turn("r", "t")...), http.StatusForbidden, agentbus.CodeForbidden)
	refused(t, "named, no turn", b.call("critic", run+"r"), http.StatusForbidden, agentbus.CodeForbidden)
	if got := b.call("critic"); got.status != http.StatusOK || got.header.Get("x-tangle-runid") == "" {
		t.Errorf("minted: %v", got)
	}
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}

// TestDriversOfListed: G6, a list bounds what a driver of this process calls on
// behalf of its caller, but for whom the configuration names; its rate and its
// runs are the bus's own.
func TestDriversOfListed(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	mark := gateway.InProcess{Payer: "alice", Caller: agentbus.Principal{
		ID: "agent:x", Grants: &agentbus.Grants{Agents: []string{"x"}, NoRunIDs: true, PerSecond: 1e-9},
	}}
	l := agentbus.Lineage{Run: "r", Turn: "t", Depth: 1}
	refused(t, "of its own will", b.inProcess(gateway.WithInProcess(t.Context(), mark), ask("critic"), l), http.StatusForbidden, agentbus.CodeForbidden)
	mark.Declared = true
	for _, turn := range []agentbus.TurnID{"t", "t2"} {
		l.Turn = turn
		if got := b.inProcess(gateway.WithInProcess(t.Context(), mark), ask("critic"), l); got.status != http.StatusOK {
			t.Errorf("as declared: %v", got)
		}
	}
}
