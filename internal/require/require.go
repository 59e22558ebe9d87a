// Package require lets a test say what it needs from the machine it runs on.
package require

import (
	"encoding/json"
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

// Module returns the directory of a Go module of test data, named path@version, that
// make suites has fetched: a test itself asks nobody for it. Where it is not there the
// test is skipped, or fails, as with [Tool].
func Module(tb testing.TB, module string) string {
	tb.Helper()
	c := exec.CommandContext(tb.Context(), Tool(tb, "go"), "mod", "download", "-json", module) //nolint:gosec // a test names it
	c.Dir = tb.TempDir()                                                                       // of no module, which would be given it
	c.Env = append(os.Environ(), "GOPROXY=off", "GONOPROXY=none", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off")
	out, err := c.Output()
	if err != nil {
		Missing(tb, module+" (make suites)")
	}
	var found struct {
		Dir string `json:"Dir"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		tb.Fatal(err)
	}
	return found.Dir
}
