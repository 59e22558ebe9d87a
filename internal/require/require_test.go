package require_test

import (
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// recorder keeps how a test ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.ended = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// askFor returns where a test finds the tool that it asks for, and how it ends.
func askFor(tool string) (path, ended string) {
	r, done := &recorder{ended: "ran"}, make(chan struct{})
	go func() {
		defer close(done)
		path = require.Tool(r, tool)
	}()
	<-done
	return path, r.ended
}

func TestTool(t *testing.T) {
	for _, tt := range []struct{ tool, require, want string }{
		{"go", "", "ran"},
		{"go", "all", "ran"},
		{"no-such-tool", "", "skipped: no-such-tool is not here; AGENTBUS_REQUIRE=all makes this a failure"},
		{"no-such-tool", "some", "skipped: no-such-tool is not here; AGENTBUS_REQUIRE=all makes this a failure"},
		{"no-such-tool", "all", "failed: no-such-tool is not here, and AGENTBUS_REQUIRE=all"},
	} {
		t.Setenv("AGENTBUS_REQUIRE", tt.require)
		path, got := askFor(tt.tool)
		if got != tt.want {
			t.Errorf("%s with AGENTBUS_REQUIRE=%q: %q, want %q", tt.tool, tt.require, got, tt.want)
		}
		if tt.want == "ran" && !filepath.IsAbs(path) {
			t.Errorf("%s is at %q", tt.tool, path)
		}
	}
}

// Addresses are free, no two alike, and none that the system would give to another.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		address := require.Address(t)
		_, port, err := net.SplitHostPort(address)
		if n, _ := strconv.Atoi(port); err != nil || n >= 32_768 || seen[address] {
			t.Fatalf("%s: %v", address, err)
		}
		seen[address] = true
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
