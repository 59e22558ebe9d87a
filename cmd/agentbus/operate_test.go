package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

const opsKey = "secret-of-ops"

const operatedBus = `agents:
  echo: {kind: builtin, builtin: echo, price: {call: 0.001}, aliases: [e]}
  far: {kind: openai, url: "https://agents.example.com/v1", price: {input: 0.15, output: 0.60}}
keys: [{id: alice, secret_env: ALICE}, {id: ops, secret_env: OPS, role: admin}]
`

// operate runs a verb with the environment of an operator.
func operate(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, diag bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &diag, lookup(env))
	return code, out.String(), diag.String()
}

// The agents of a serving bus, and of a configuration without one.
func TestAgents(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "OPS": opsKey, "AGENTBUS_TOKEN": opsKey}
	path := configure(t, operatedBus)
	b := serving(t, path, env, "--quiet")
	const running = "NAME  KIND     URL                            HEALTH  IN FLIGHT  PRICE\n" +
		"echo  builtin  -                              -       0          $0.001 a call\n" +
		"far   openai   https://agents.example.com/v1  good    0          $0.15 in, $0.6 out\n"
	if code, stdout, stderr := operate(t, env, "agents", "--server", b.admin); code != 0 || stdout != running {
		t.Errorf("%d %s\n%s\nwant\n%s", code, stderr, stdout, running)
	}
	// AGENTBUS_URL may be either listener; AGENTBUS_ADMIN_URL goes before it.
	env["AGENTBUS_URL"] = b.url
	if code, _, stderr := operate(t, env, "agents"); code != int(exitUsage) || !strings.Contains(stderr, "is the public surface of a bus") || !strings.Contains(stderr, "AGENTBUS_ADMIN_URL") {
		t.Errorf("%d %s", code, stderr)
	}
	env["AGENTBUS_ADMIN_URL"] = b.admin
	if code, stdout, stderr := operate(t, env, "agents"); code != 0 || stdout != running {
		t.Errorf("%d %s\n%s\nwant\n%s", code, stderr, stdout, running)
	}
	delete(env, "AGENTBUS_ADMIN_URL")
	env["AGENTBUS_URL"] = b.admin + "/"
	if code, stdout, stderr := operate(t, env, "agents"); code != 0 || stdout != running {
		t.Errorf("%d %s\n%s\nwant\n%s", code, stderr, stdout, running)
	}
	_, asJSON, _ := operate(t, env, "agents", "--json")
	var agents []struct {
		Name  string
		Price agentbus.Price
	}
	if err := json.Unmarshal([]byte(asJSON), &agents); err != nil || len(agents) != 2 || agents[0].Price.Call != 1000 {
		t.Errorf("%v: %s", err, asJSON)
	}
	delete(env, "AGENTBUS_URL")
	if code, stdout, _ := operate(t, env, "agents", "--config", path); code != 0 || !strings.Contains(stdout, "https://agents.example.com/v1  -       -          $0.15 in") {
		t.Errorf("%d\n%s", code, stdout)
	}
	empty := configure(t, "")
	if code, stdout, _ := operate(t, env, "agents", "list", "--config", empty); code != 0 || !strings.HasPrefix(stdout, "there are no agents; next: ") {
		t.Errorf("%d\n%s", code, stdout)
	}
}

// G14: stop reaches the bus that serves, by its URL or by the configuration.
func TestStop(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "OPS": opsKey, "AGENTBUS_TOKEN": opsKey}
	path := configure(t, operatedBus)
	b := serving(t, path, env, "--quiet")
	if status, _, body := mustPost(t, b.url, aliceKey, hello, turnHeader("r1", "echo", 0)); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	env["AGENTBUS_ADMIN_LISTEN"] = strings.TrimPrefix(b.admin, "http://")
	if code, stdout, stderr := operate(t, env, "stop", "r1", "--config", path); code != 0 || stdout != "stopped r1: 0 live calls cancelled, new ones are refused\n" {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if code, stdout, _ := operate(t, env, "stop", "a/b", "--server", b.admin, "--json"); code != 0 || !strings.Contains(stdout, `"run": "a/b"`) || !strings.Contains(stdout, `"known": false`) {
		t.Errorf("%d %s", code, stdout)
	}
	runs, err := opened(t, path, env).StoppedRuns(t.Context())
	if err != nil || len(runs) != 2 {
		t.Errorf("stopped: %v, %v", runs, err)
	}
	b.stop()
	if code := <-b.exited; code != 0 || !strings.Contains(b.stderr.String(), `"object":"r1","by":"ops"`) {
		t.Errorf("%d, the log is %s", code, b.stderr.String())
	}
	b.exited <- 0 // for the end of the test
}

// G14: stop ends the calls of a run that are under way, and refuses those that
// come.
func TestStopEndsLiveCalls(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "OPS": opsKey, "AGENTBUS_TOKEN": opsKey}
	b := serving(t, configure(t, strings.Replace(operatedBus, "agents:", "agents:\n  slow: {kind: builtin, builtin: slow}", 1)), env, "--quiet")
	long := `{"model":"slow","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 500) + `"}]}`
	live := make(chan error)
	go func() {
		_, _, _, err := post(t.Context(), b.url, aliceKey, long, turnHeader("r1", "slow", 0))
		live <- err
	}()
	for stopped := ""; stopped != "stopped r1: 1 live call cancelled, new ones are refused\n"; {
		code, list, stderr := operate(t, env, "agents", "--server", b.admin, "--json") // until the call is there
		if code != 0 || t.Context().Err() != nil {
			t.Fatal(code, stderr)
		}
		if strings.Contains(list, `"in_flight": 1`) {
			_, stopped, _ = operate(t, env, "stop", "r1", "--server", b.admin)
		}
	}
	if err := <-live; err == nil {
		t.Error("the stream ended as if nothing was")
	}
	if status, _, body := mustPost(t, b.url, aliceKey, long, turnHeader("r1", "slow", 0)); status != http.StatusForbidden || !strings.Contains(body, "run_stopped") {
		t.Errorf("after the stop: %d %s", status, body)
	}
}

// Each thing that can be wrong is told with what to do.
func TestOperatingGoesWrong(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "OPS": opsKey}
	b := serving(t, configure(t, operatedBus), env, "--quiet")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + silent.Addr().String()
	_ = silent.Close()
	off := filepath.Join(t.TempDir(), "off.yaml")
	save(t, off, "admin: {listen: ''}\n")
	elsewhere := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	for _, tt := range []struct {
		name, token string
		args        []string
		code        exitCode
		want        string
	}{
		{"not running", opsKey, []string{"--server", nobody}, exitFailed, "agentbus: no bus answers at " + nobody + "\n  why: connect: connection refused\n  next: start it with agentbus serve, or name its admin listener with --server or AGENTBUS_ADMIN_URL\n"},
		{"the public surface", opsKey, []string{"--server", b.url}, exitUsage, "agentbus: " + b.url + " is the public surface of a bus, not its admin listener\n  next: name its admin listener, the address that agentbus serve prints for its admin API, with --server or AGENTBUS_ADMIN_URL\n"},
		{"TLS, and it has none", opsKey, []string{"--server", "https" + strings.TrimPrefix(b.admin, "http")}, exitFailed, "\n  why: it answers in plain HTTP; its URL begins with http://\n"},
		{"a redirect", opsKey, []string{"--server", elsewhere.URL}, exitFailed, "is not the admin listener of a bus\n  why: it said 307 Temporary Redirect\n"},
		{"no key", "", []string{"--server", b.admin}, exitUsage, "agentbus: there is no key to operate the bus with\n  next: set AGENTBUS_TOKEN to the key of an admin; agentbus keys create NAME --role admin makes one\n"},
		{"unknown key", "canary", []string{"--server", b.admin}, exitRefused, "\n  next: set AGENTBUS_TOKEN to the key of an admin; agentbus keys create NAME --role admin makes one\n"},
		{"key of a user", aliceKey, []string{"--server", b.admin}, exitRefused, "agentbus: this key may not operate the bus\n  next: set AGENTBUS_TOKEN to the key of an admin"},
		{"no URL", opsKey, []string{"--server", "127.0.0.1:8081"}, exitUsage, "agentbus: this is not the URL of an admin listener\n  next: write it as http://127.0.0.1:8081\n"},
		{"no listener", opsKey, []string{"--config", off}, exitUsage, "agentbus: this configuration has no admin listener\n"},
	} {
		e := map[string]string{"AGENTBUS_TOKEN": tt.token}
		code, stdout, stderr := operate(t, e, append([]string{"stop", "r1"}, tt.args...)...)
		if code != int(tt.code) || !strings.Contains(stderr, tt.want) || stdout != "" || strings.Contains(stderr, "canary") || strings.Contains(stderr, "secret-of") {
			t.Errorf("%s: exit %d, %s%s\nwant %d, %s", tt.name, code, stdout, stderr, tt.code, tt.want)
		}
	}
}

// The token of the configuration opens its admin listener, and nothing else.
func TestAdminToken(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "ADMIN": "secret-of-admin"}
	path := configure(t, echoBus)
	text := strings.Replace(read(t, path), "admin: {listen: '127.0.0.1:0'}", "admin: {listen: '127.0.0.1:0', token_env: ADMIN}", 1)
	save(t, path, text)
	b := serving(t, path, env, "--quiet")
	env["AGENTBUS_ADMIN_LISTEN"] = strings.TrimPrefix(b.admin, "http://")
	if code, _, stderr := operate(t, env, "stop", "r1", "--config", path); code != 0 {
		t.Errorf("%d %s", code, stderr)
	}
	if status, _, body := mustPost(t, b.url, "secret-of-admin", hello, nil); status != http.StatusUnauthorized {
		t.Errorf("on the public surface it gets %d %s", status, body)
	}
}

func TestServeOnATakenAdminPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	env := map[string]string{"AGENTBUS_ADMIN_LISTEN": l.Addr().String()}
	code, stdout, stderr := operate(t, env, "serve", "--quiet", "--config", configure(t, ""))
	want := "agentbus: cannot listen on " + l.Addr().String() + "\n  why: bind: address already in use\n" +
		"  next: stop what listens there, or set admin.listen in the configuration (AGENTBUS_ADMIN_LISTEN); \"\" there turns the admin listener off\n"
	if code != int(exitFailed) || stderr != want || stdout != "" {
		t.Errorf("exit %d, %q, %q, want 1, %q", code, stdout, stderr, want)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
