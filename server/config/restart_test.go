package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/server/config"
)

// TestWaitsForRestart: G30, what is bound to a socket or a file when the bus
// starts waits for a restart; agents, keys, prices and limits do not.
func TestWaitsForRestart(t *testing.T) {
	t.Parallel()
	env := source(map[string]string{"SET": "canary-1"})
	running, _ := parse(t, twoAgents, env)
	for text, want := range map[string][]string{
		twoAgents: nil,
		"agents: {a: {kind: builtin, builtin: echo, price: {call: 1}}}\nkeys: [{id: x, secret_env: SET}]\nlimits: {max_depth: 2, max_body: 1KiB, in_flight: 1}\ndrain_timeout: 1s\ndetach: {timeout: 1s}\n": nil,
		"listen: 127.0.0.1:1\nstore: {url: 'sqlite:x.db'}\ntelemetry: {otlp: 'http://127.0.0.1:4318'}\nstrict_http: false\n" +
			"limits: {max_header: 1KiB, max_depth: 2}\ndetach: {max: 1}\n": {"listen", "store.url", "limits.max_header", "detach.max", "telemetry.otlp", "strict_http"},
	} {
		next, _ := parse(t, text, env)
		if diff := cmp.Diff(want, config.WaitsForRestart(running, next)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
