// Package require lets a test say what it needs from the machine it runs on.
package require

import (
	"os"
	"os/exec"
	"testing"
)

// Tool returns the path of the named program. Where it is not installed, the
// test is skipped with its name; with AGENTBUS_REQUIRE=all in the environment,
// as in .ci/run, it fails instead.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(tb, name)
	}
	return path
}

// Missing ends a test that cannot run because this machine has no such thing,
// as [Tool] does. It is for what is not a program: a database that answers, a
// right, a file system.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("AGENTBUS_REQUIRE") == "all" {
		tb.Fatalf("%s is not here, and AGENTBUS_REQUIRE=all", what)
	}
	tb.Skipf("%s is not here; AGENTBUS_REQUIRE=all makes this a failure", what)
}
