package require_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// ask returns where a test finds what it asks for, and how it ends.
func ask(t *testing.T, find func(testing.TB) string) (path, ended string) {
	t.Helper()
	r, done := &recorder{TB: t, ended: "ran"}, make(chan struct{})
	go func() {
		defer close(done)
		path = find(r)
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
		path, got := ask(t, func(tb testing.TB) string { tb.Helper(); return require.Tool(tb, tt.tool) })
		if got != tt.want {
			t.Errorf("%s with AGENTBUS_REQUIRE=%q: %q, want %q", tt.tool, tt.require, got, tt.want)
		}
		if tt.want == "ran" && !filepath.IsAbs(path) {
			t.Errorf("%s is at %q", tt.tool, path)
		}
	}
}

// A module that was fetched is found without asking anybody, whatever whoever runs the
// tests has set for Go; one that was not is missing.
func TestModule(t *testing.T) {
	const name, version = "module.example/data", "v1.0.0"
	proxy := t.TempDir()
	dir := filepath.Join(proxy, "module.example", "data", "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	if _, err := z.Create(name + "@" + version + "/data.json"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for end, content := range map[string]string{".info": `{"Version":"` + version + `"}`, ".mod": "module " + name + "\n", ".zip": archive.String()} {
		if err := os.WriteFile(filepath.Join(dir, version+end), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{
		"GOMODCACHE": t.TempDir(), "GOFLAGS": "-modcacherw", "GOSUMDB": "nobody.example", // which is none
		"GOPROXY": "file://" + filepath.ToSlash(proxy), "GONOSUMDB": "none", "GONOPROXY": "module.example", "AGENTBUS_REQUIRE": "",
	} {
		t.Setenv(key, value)
	}
	find := func() (path, ended string) {
		return ask(t, func(tb testing.TB) string { tb.Helper(); return require.Module(tb, name+"@"+version) })
	}
	if _, ended := find(); ended != "skipped: "+name+"@"+version+" (make suites) is not here; AGENTBUS_REQUIRE=all makes this a failure" {
		t.Error(ended)
	}
	c := exec.CommandContext(t.Context(), "go", "mod", "download", name+"@"+version)
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), "GOSUMDB=off", "GONOPROXY=none")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path, ended := find()
	if _, err := os.Stat(filepath.Join(path, "data.json")); ended != "ran" || err != nil {
		t.Error(ended, err)
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
