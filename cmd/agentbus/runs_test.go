package main

import (
	"maps"
	"strings"
	"testing"
)

// A run that nobody drives here stands as its calls do, and is of the agent that
// was called.
func TestRunsOfCalls(t *testing.T) {
	t.Parallel()
	path := configure(t, `
keys: [{id: alice, secret_env: ALICE}]
agents: {echo: {kind: builtin, builtin: echo}, flaky: {kind: builtin, builtin: flaky}}
`)
	env := map[string]string{"ALICE": aliceKey, "AGENTBUS_TOKEN": aliceKey}
	b := serving(t, path, maps.Clone(env), "--quiet")
	verb := func(args ...string) (stdout string) {
		var out, diag strings.Builder
		run(t.Context(), append(args, "--config", path), strings.NewReader(""), &out, &diag, lookup(env))
		return out.String() + diag.String()
	}
	for _, agent := range []string{"echo", "flaky"} {
		verb("call", agent, "hello", "--server", b.url)
	}
	got := verb("runs")
	for _, want := range []string{"  done    call of echo ", "  failed  call of flaky "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
