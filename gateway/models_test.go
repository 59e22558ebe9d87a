package gateway_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestModels: the agents as models of the OpenAI dialect, for those who are
// authenticated.
func TestModels(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil), newAgent(t, "writer", nil))
	if got := b.send(http.MethodGet, "/v1/models", "", asAlice); gjson.Get(got.body, "data.#.id").Raw != `["critic","writer"]` || gjson.Get(got.body, "object").Str != "list" {
		t.Errorf("models: %v", got)
	}
	for _, name := range []string{"critic", "agent/critic", "bridge/sandbox/critic", "bridge%2Fsandbox%2Fcritic"} {
		if got := b.send(http.MethodGet, "/v1/models/"+name, "", asAlice); gjson.Get(got.body, "id").Str != "critic" {
			t.Errorf("model %s: %v", name, got)
		}
	}
	refused(t, "unknown", b.send(http.MethodGet, "/v1/models/nobody", "", asAlice), http.StatusNotFound, agentbus.CodeAgentNotFound)
	refused(t, "anonymous", b.send(http.MethodGet, "/v1/models", ""), http.StatusUnauthorized, agentbus.CodeUnauthenticated)
	refused(t, "anonymous", b.send(http.MethodGet, "/v1/models/critic", ""), http.StatusUnauthorized, agentbus.CodeUnauthenticated)
}

// TestHealth: alive, ready and version need no key; readiness follows the store
// and the drain (G31).
func TestHealth(t *testing.T) {
	t.Parallel()
	var broken error
	b := newBus(t, func(c *gateway.Config) {
		c.Version, c.Ready = "1.2.3", func(context.Context) error { return broken }
	}, newAgent(t, "critic", nil))
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`, "/version": `{"name":"agentbus","protocol":"0","version":"1.2.3"}`,
	} {
		if got := b.send(http.MethodGet, path, ""); got.status != http.StatusOK || got.body != want+"\n" {
			t.Errorf("%s: %v", path, got)
		}
	}
	broken = &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "the disk is full"}
	refused(t, "store", b.send(http.MethodGet, "/readyz", ""), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	broken = nil
	b.Drain()
	refused(t, "drain", b.send(http.MethodGet, "/readyz", ""), http.StatusServiceUnavailable, agentbus.CodeDraining)
	refused(t, "call while draining", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeDraining)
	if got := b.send(http.MethodGet, "/healthz", ""); got.status != http.StatusOK {
		t.Errorf("healthz while draining: %v", got)
	}
}
