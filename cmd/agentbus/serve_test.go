package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

const (
	aliceKey = "secret-of-alice"
	hello    = `{"model":"echo","messages":[{"role":"user","content":"hello"}]}`
	echoBus  = "agents: {echo: {kind: builtin, builtin: echo}}\nkeys: [{id: alice, secret_env: ALICE}]\n"
)

var aliceEnv = map[string]string{"ALICE": aliceKey}

// mustPost posts and fails the test when there is no answer.
func mustPost(t *testing.T, bus, key, body string, header http.Header) (status int, head http.Header, answer string) {
	t.Helper()
	status, head, answer, err := post(t.Context(), bus, key, body, header)
	if err != nil {
		t.Fatal(err)
	}
	return status, head, answer
}

// turnHeader is the lineage of the first turn of a run.
func turnHeader(run agentbus.RunID, speaker agentbus.Speaker, depth int) http.Header {
	h := http.Header{}
	agentbus.Lineage{Run: run, Turn: run.Turn(0, speaker), Depth: depth}.SetHeaders(h)
	return h
}

// P10: the limit is the flag's, else the environment's, else the
// configuration's, else 4.
func TestServeTakesTheDepthLimitFromFlagThenEnvironmentThenFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, flag, env, file string
		limit                 int
	}{
		{"nothing set", "", "", "", 4},
		{"file", "", "", "3", 3},
		{"environment before file", "", "2", "3", 2},
		{"flag before environment and file", "1", "2", "3", 1},
		{"flag above all", "6", "2", "", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, env, args := echoBus, map[string]string{"ALICE": aliceKey}, []string{"--quiet"}
			if tt.file != "" {
				text += "limits: {max_depth: " + tt.file + "}\n"
			}
			if tt.env != "" {
				env["CLI_BRIDGE_MAX_DEPTH"] = tt.env
			}
			if tt.flag != "" {
				args = append(args, "--max-depth", tt.flag)
			}
			b := serving(t, configure(t, text), env, args...)
			if status, _, body := mustPost(t, b.url, aliceKey, hello, turnHeader("r1", "echo", tt.limit-1)); status != http.StatusOK {
				t.Errorf("depth %d: %d %s", tt.limit-1, status, body)
			}
			status, _, body := mustPost(t, b.url, aliceKey, hello, turnHeader("r2", "echo", tt.limit))
			if status != http.StatusTooManyRequests || !strings.Contains(body, "depth "+strconv.Itoa(tt.limit)+" reaches the limit of "+strconv.Itoa(tt.limit)) {
				t.Errorf("depth %d: %d %s", tt.limit, status, body)
			}
		})
	}
}

// G4: a key is in force from when it was made until it is revoked, also for a
// bus that serves meanwhile. Its secret is shown once and kept nowhere.
func TestKeysOfAServingBus(t *testing.T) {
	t.Parallel()
	path := configure(t, "agents: {echo: {kind: builtin, builtin: echo}}\n")
	b := serving(t, path, nil, "--quiet")
	keys := func(args ...string) (stdout string) {
		t.Helper()
		code, stdout, stderr := outcome(t.Context(), append([]string{"keys", "--config", path}, args...)...)
		if code != 0 {
			t.Fatal(code, stderr)
		}
		return stdout
	}
	var made [2]struct{ Handle, Secret string }
	for i := range made {
		if err := json.Unmarshal([]byte(keys("create", "bob", "--json")), &made[i]); err != nil {
			t.Fatal(err)
		}
		if status, _, body := mustPost(t, b.url, made[i].Secret, hello, nil); status != http.StatusOK {
			t.Errorf("a new key gets %d %s", status, body)
		}
	}
	for _, k := range made {
		keys("revoke", k.Handle)
		status, header, body := mustPost(t, b.url, k.Secret, hello, nil)
		if status != http.StatusUnauthorized || header.Get("WWW-Authenticate") == "" || strings.Contains(body, k.Secret) {
			t.Errorf("a revoked key gets %d %s", status, body)
		}
	}
	list := keys("list")
	for _, k := range made {
		if !strings.Contains(list, k.Handle) || strings.Contains(list, k.Secret) {
			t.Errorf("the list is\n%s", list)
		}
	}
	code, _, stderr := outcome(t.Context(), "keys", "revoke", "bob", "--config", path)
	if code != int(exitUsage) || !strings.Contains(stderr, "no key in force is called bob") {
		t.Errorf("revoking revoked keys: %d %s", code, stderr)
	}
}

func TestServeOnATakenPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	path := configure(t, "")
	env := map[string]string{"AGENTBUS_LISTEN": l.Addr().String()}
	var out, complaint strings.Builder
	code := run(t.Context(), []string{"serve", "--quiet", "--config", path}, strings.NewReader(""), &out, &complaint, lookup(env))
	want := "agentbus: cannot listen on " + l.Addr().String() + "\n  why: bind: address already in use\n" +
		"  next: stop what listens there, or set listen in the configuration (AGENTBUS_LISTEN)\n"
	if code != int(exitFailed) || complaint.String() != want || out.Len() > 0 {
		t.Errorf("exit %d, %q, %q, want 1, %q", code, out.String(), complaint.String(), want)
	}
}

// serveProcess serves as a process of its own.
func serveProcess(t *testing.T, path string) (p *process, url string) {
	t.Helper()
	p = start(t, t.TempDir(), []string{"ALICE=" + aliceKey}, "serve", "--quiet", "--config", path)
	if !p.lines.Scan() {
		t.Fatalf("serve ended with %d: %s", p.end(), p.stderr.String())
	}
	return p, address(p.lines.Text())
}

// An outcomeOf is what a caller got, some time.
type outcomeOf struct {
	status int
	header http.Header
	body   string
	err    error
}

func postLater(ctx context.Context, bus, body string, header http.Header) <-chan outcomeOf {
	done := make(chan outcomeOf, 1)
	go func() {
		var o outcomeOf
		o.status, o.header, o.body, o.err = post(ctx, bus, aliceKey, body, header)
		done <- o
	}()
	return done
}

// slowBus is the configuration of a bus before a slow agent.
func slowBus(a *agent) string {
	return fmt.Sprintf("agents: {slow: {kind: openai, url: %q, price: {call: 0.001}}}\nkeys: [{id: alice, secret_env: ALICE}]\n", a.URL+"/v1")
}

const askSlow = `{"model":"slow","stream":true,"messages":[{"role":"user","content":"hello"}]}`

// G31: after SIGTERM a live call is answered to its end, nothing new is let in,
// and the process ends with 0.
func TestServeDrainsOnSIGTERM(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "slow", 20*time.Millisecond)
	a.begun = make(chan agentbus.TurnID, 1)
	a.holds.Store(true)
	path := configure(t, slowBus(a))
	p, url := serveProcess(t, path)
	live := postLater(t.Context(), url, askSlow, turnHeader("r1", "slow", 0))
	<-a.begun
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	drains(t, url)
	a.holds.Store(false)
	got := <-live
	if got.err != nil || got.status != http.StatusOK || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("the live call got %d %s %v", got.status, got.body, got.err)
	}
	p.rest()
	if code := p.end(); code != 0 {
		t.Errorf("serve ended with %d: %s", code, p.stderr.String())
	}
	if _, _, _, err := post(t.Context(), url, aliceKey, askSlow, nil); err == nil {
		t.Error("a call was let in afterwards")
	}
	if calls := callsOf(t, opened(t, path, aliceEnv), "r1"); len(calls) != 1 || calls[0].State != agentbus.CallSettled {
		t.Errorf("the call is %+v", calls)
	}
}

// G31: what outlasts the drain is cut, and its caller reads why, once: the bus is
// shutting down, and the turn may be sent again.
func TestServeCutsWhatOutlastsItsDrain(t *testing.T) {
	t.Parallel()
	b := serving(t, configure(t, "agents: {slow: {kind: builtin, builtin: slow}}\nkeys: [{id: alice, secret_env: ALICE}]\ndrain_timeout: 1ms\n"), aliceEnv, "--quiet")
	body := `{"model":"slow","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 500) + `"}]}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	resp, err := httpClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := bufio.NewReader(resp.Body)
	if _, err := answer.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	b.stop()
	rest, err := io.ReadAll(answer)
	if err == nil || strings.Count(string(rest), `"error":`) != 1 || !strings.Contains(string(rest), `"code":"draining"`) || !strings.Contains(string(rest), `"retryable":true`) {
		t.Errorf("the call ended with %v: %s", err, rest)
	}
}

// G21, G23, G24: what was answered before kill -9 is answered again from memory,
// what was cut is executed again under the same turn, and each is charged once.
func TestKilledBusAnswersOnceAndChargesOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "slow", time.Millisecond)
	a.begun = make(chan agentbus.TurnID, 8)
	path := configure(t, slowBus(a))
	p, url := serveProcess(t, path)
	_, _, first := mustPost(t, url, aliceKey, askSlow, turnHeader("r1", "slow", 0))
	<-a.begun
	a.holds.Store(true)
	cut := postLater(t.Context(), url, askSlow, turnHeader("r2", "slow", 0))
	<-a.begun
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	before := <-cut
	p.end()
	a.holds.Store(false)

	_, url = serveProcess(t, path)
	status, header, again := mustPost(t, url, aliceKey, askSlow, turnHeader("r1", "slow", 0))
	if status != http.StatusOK || again != first || header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("the answered turn got %d %v\n%s\nwant\n%s", status, header, again, first)
	}
	status, header, again = mustPost(t, url, aliceKey, askSlow, turnHeader("r2", "slow", 0))
	if status != http.StatusOK || !strings.HasSuffix(again, "data: [DONE]\n\n") {
		t.Errorf("the turn that was cut got %d %s", status, again)
	}
	if n := len(a.executions("r2.t0.slow")); before.err == nil || n != 2 || len(a.executions("r1.t0.slow")) != 1 {
		t.Errorf("the turn that was cut (%v) was executed %d times, want 2 (%v)", before.err, n, header)
	}
	store := opened(t, path, aliceEnv)
	for _, run := range []agentbus.RunID{"r1", "r2"} {
		if calls := callsOf(t, store, run); len(calls) != 1 || calls[0].State != agentbus.CallSettled || calls[0].Cost != 1000 { // I1
			t.Errorf("%s was charged %+v", run, calls)
		}
	}
}

// G6: what a key may do is kept with it.
func TestKeysWithGrants(t *testing.T) {
	t.Parallel()
	path := configure(t, "agents: {echo: {kind: builtin, builtin: echo}, eliza: {kind: builtin, builtin: eliza}}\n")
	keys := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := outcome(t.Context(), append([]string{"keys", "--config", path, "--json"}, args...)...)
		if code != 0 {
			t.Fatal(code, stderr)
		}
		return stdout
	}
	keys("create", "intern", "--agents", "echo,eliza", "--no-run-ids", "--per-second", "0.5", "--burst", "3")
	keys("create", "free")
	var list []agentbus.APIKey
	if err := json.Unmarshal([]byte(keys("list")), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]*agentbus.Grants{}
	for _, k := range list {
		got[k.Principal.ID] = k.Principal.Grants
	}
	want := map[string]*agentbus.Grants{"free": nil, "intern": {Agents: []string{"echo", "eliza"}, NoRunIDs: true, PerSecond: 0.5, Burst: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

// G31: whoever asks twice waits for nobody, not even for who should read the log.
func TestSecondSignalWithoutWhoReadsTheLog(t *testing.T) {
	t.Parallel()
	log, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // nothing is read from it
	defer w.Close()   //nolint:errcheck // nor is more written
	fill(t, w)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "serve", "--config", configure(t, echoBus))
	cmd.Env = append(os.Environ(), asProgram+"=1", "ALICE="+aliceKey)
	cmd.Stderr = w
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Error("it does not serve")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its exit code tells
	}()
	eventually(t, "the end", func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) {
		t.Errorf("it ends with %d (%v)", code, cmd.ProcessState)
	}
}

// fill writes to a pipe that nobody reads until it takes no more.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		if err = syscall.SetNonblock(int(fd), true); err != nil {
			return
		}
		for err == nil || errors.Is(err, syscall.EINTR) {
			_, err = syscall.Write(int(fd), make([]byte, 4096))
		}
	}); e != nil || !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(e, err)
	}
}
