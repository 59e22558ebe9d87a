package docs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus/internal/require"
)

// program builds agentbus, once for all pages, and returns its folder.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentbus-docs-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "agentbus"), "./cmd/agentbus")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := program(); err == nil {
		_ = os.RemoveAll(dir) // a copy
	}
	os.Exit(code)
}

// A session is a reader at a terminal: a directory, and variables that stay from
// one block to the next.
type session struct {
	dir   string
	env   []string
	ports *strings.Replacer // the addresses of the documents, and free ones
	bus   string            // where a bus listens once one was started
}

// newSession begins one in dir.
func newSession(t *testing.T, dir string) *session {
	t.Helper()
	require.Tool(t, "bash")
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	listen, adminListen := require.Address(t), require.Address(t)
	s := &session{dir: dir, bus: listen, ports: replacer(map[string]string{
		"8080": listen, "8081": adminListen, "8443": require.Address(t), "8444": require.Address(t), "9099": require.Address(t),
	})}
	interop := filepath.Join(root, "interop")
	path := bin + ":" + filepath.Join(interop, ".venv", "bin") + ":" + os.Getenv("PATH") + ":/usr/sbin"
	s.env = []string{
		"PATH=" + path, "HOME=" + dir, "XDG_CACHE_HOME=" + filepath.Join(dir, ".cache"), "AGENTBUS_LISTEN=" + listen, "AGENTBUS_ADMIN_LISTEN=" + adminListen,
		"GOCACHE=" + output(t, root, "go", "env", "GOCACHE"), "GOMODCACHE=" + output(t, root, "go", "env", "GOMODCACHE"),
		"CGO_ENABLED=" + output(t, root, "go", "env", "CGO_ENABLED"), // as the tests are built: all of it is in the cache
		"ANONYMIZED_TELEMETRY=false", "DO_NOT_TRACK=1", "MASTRA_TELEMETRY_DISABLED=1", "LITELLM_LOCAL_MODEL_COST_MAP=True",
		"INTEROP=" + interop, // for the scripts in testdata
	}
	_ = os.Symlink(filepath.Join(interop, "node_modules"), filepath.Join(dir, "node_modules")) // for pages in JavaScript
	return s
}

// replacer puts addresses in the place of those with the ports of the documents,
// which Envoy writes as two fields.
func replacer(addresses map[string]string) *strings.Replacer {
	var pairs []string
	for port, address := range addresses {
		host, other, _ := strings.Cut(address, ":")
		pairs = append(pairs, "127.0.0.1:"+port, address, "address: 127.0.0.1, port_value: "+port, "address: "+host+", port_value: "+other)
	}
	return strings.NewReplacer(pairs...)
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(name, args, err)
	}
	return strings.TrimSpace(string(out))
}

// save writes a file that a page shows.
func (s *session) save(t *testing.T, b block) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, b.file), []byte(s.ports.Replace(b.text)), 0o700); err != nil {
		t.Fatal(err)
	}
}

// run types the commands of a block and returns what they print. The one that
// serves goes on in the background.
func (s *session) run(t *testing.T, script string) string {
	t.Helper()
	script = s.ports.Replace(script)
	before, serve, serves := cutServe(script)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // that of the README builds the program
	defer cancel()
	cmd := s.command(ctx, before+"\nexport -p >.session\n")
	cmd.WaitDelay = 10 * time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\nprinted %s\n%s", err, script, out.String(), complaint.String())
	}
	if serves {
		s.serve(t, serve)
	}
	return out.String()
}

// cutServe splits a script at the line that serves.
func cutServe(script string) (before, serve string, found bool) {
	var b strings.Builder
	for line := range strings.Lines(script) {
		command, _, _ := strings.Cut(line, "#")
		if f := strings.Fields(command); len(f) > 1 && filepath.Base(f[0]) == "agentbus" && f[1] == "serve" {
			return b.String(), strings.TrimSpace(command), true
		}
		b.WriteString(line)
	}
	return b.String(), "", false
}

func (s *session) command(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "if [ -e .session ]; then . ./.session; fi\n"+script)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// serve starts what a page serves with, waits until it does, and ends it with
// the test, in order.
func (s *session) serve(t *testing.T, command string) {
	t.Helper()
	cmd := s.command(context.WithoutCancel(t.Context()), "exec "+command)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !ready(t, "http://"+s.bus+"/readyz") && !ready(t, "https://"+s.bus+"/readyz") {
		select {
		case err := <-ended:
			t.Fatalf("%s: %v: %s", command, err, complaint.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // what became of it is told below
		if err := <-ended; err != nil {
			t.Errorf("%s: %v: %s", command, err, complaint.String())
		}
	})
}

func ready(t *testing.T, url string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // whether it serves, not who it is
	resp, err := client.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // only its status counts
	return resp.StatusCode == http.StatusOK
}
