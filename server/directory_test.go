package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// U14: a drained agent stays drained over a restart, its callers are told, and
// who drained it is known. A probe says what answers. U12, U16: the graph and the
// health of a bus are what it did.
func TestOperatedAgents(t *testing.T) {
	t.Parallel()
	a, path := newAgent(t, "a"), filepath.Join(t.TempDir(), "bus.db")
	yaml := withAdmin + fmt.Sprintf("agents: {a: {kind: openai, url: %q, concurrency: 2, queue: 3, price: {call: 0.01}}, e: {kind: builtin, builtin: echo}}\n", a.URL+"/v1") +
		"budgets: [{payer: user-123, period: day, usd: 2}]\nconversations: {review: {participants: [{agent: a}, {agent: e}], call_policy: {breaker: {failures: 3}}}}\n"
	s := openAt(t, path, yaml)
	url := operated(t, s) + "/admin/v1"
	public := serveOn(t, s)
	do := func(method, path string) map[string]any {
		t.Helper()
		status, answer := asAdmin(t, "secret-of-ops", method, url+path)
		if status != http.StatusOK {
			t.Fatalf("%s %s: %d %v", method, path, status, answer)
		}
		return answer
	}
	if got := postTo(t, public, "a"); got != http.StatusOK {
		t.Errorf("before: %d", got)
	}
	drained := do("POST", "/agents/a/drain")
	if by := fmt.Sprint(drained["drained"]); !strings.Contains(by, "by:ops") || fmt.Sprint(drained["limit"], drained["queue"], drained["trust"]) != "2 3 map[sent:[the payer's credential, as it came] verbatim:true]" {
		t.Errorf("drained: %v", drained)
	}
	if breakers := fmt.Sprint(drained["breakers"]); breakers != "[map[conversation:review state:closed]]" {
		t.Errorf("breakers: %s", breakers)
	}
	if got := postTo(t, public, "a"); got != http.StatusServiceUnavailable {
		t.Errorf("drained: %d", got)
	}
	again := openAt(t, path, yaml)
	public = serveOn(t, again)
	if got := postTo(t, public, "a"); got != http.StatusServiceUnavailable {
		t.Errorf("drained, after a restart: %d", got)
	}
	url = operated(t, again) + "/admin/v1"
	do("POST", "/agents/a/enable")
	if got := postTo(t, public, "a"); got != http.StatusOK {
		t.Errorf("enabled: %d", got)
	}
	if found := fmt.Sprint(do("POST", "/agents/a/probe")["probes"]); !strings.Contains(found, "ok:true") {
		t.Errorf("probe: %s", found)
	}
	soon(t, "an edge of two calls and two refusals, which are kept behind their answers", func() bool {
		edges := fmt.Sprint(do("GET", "/graph")["edges"])
		return strings.Contains(edges, "from:user-123") && strings.Contains(edges, "calls:2") && strings.Contains(edges, "refused:2")
	})
	if caps := fmt.Sprint(do("GET", "/payers/user-123")["caps"]); !strings.Contains(caps, "limit_usd:2.000000") || !strings.Contains(caps, "period:day") {
		t.Errorf("caps: %s", caps)
	}
	health := do("GET", "/health")
	store, _ := health["store"].(map[string]any)
	if p50, _ := store["commit_p50_ms"].(float64); p50 <= 0 || fmt.Sprint(health["replicas"]) != "["+again.Owner()+"]" || !strings.Contains(fmt.Sprint(health["config"]), "valid:true") {
		t.Errorf("health: %v", health)
	}
	actions, err := again.Store().Actions(t.Context(), agentbus.ActionQuery{Object: "a", Limit: 10})
	if err != nil || len(actions) != 3 || actions[2].Kind != "agent.drain" || actions[1].Kind != "agent.enable" || actions[0].Kind != "agent.probe" || actions[0].By != "ops" {
		t.Errorf("actions: %+v, %v", actions, err)
	}
}
