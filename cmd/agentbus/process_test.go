package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
)

// asProgram in the environment makes the test binary the program: what the
// tests start, kill and start again is the real one.
const asProgram = "AGENTBUS_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == superviseArg {
		if os.Getenv(breakable) != "" {
			go breakDisk()
		}
		main()
	}
	forgetUser()
	time.Local = time.FixedZone("elsewhere", 19800) //nolint:reassign // what is printed as JSON is in UTC wherever it is
	code := pgtest.Main(m)
	if faultyDir != "" {
		_ = os.RemoveAll(faultyDir) // what is left is the system's to sweep
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// forgetUser takes out of the environment what whoever runs the tests has set for
// agentbus and for traces of their own; what is said to the tests stays.
func forgetUser() {
	ours := []string{"AGENTBUS_REQUIRE", "AGENTBUS_SOAK", "AGENTBUS_CRASH_SEED", "AGENTBUS_TEST_POSTGRES"}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AGENTBUS_") && !slices.Contains(ours, name) || strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name) // it is a name: it was there
		}
	}
}

// A process is the program as a process of its own.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner // of its stdout
	stderr bytes.Buffer   // to be read once it has ended
}

// start starts the program in dir. It is killed when the test ends.
func start(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, self, dir, env, args...)
}

// launch starts a program in dir. It is killed when the test ends.
func launch(t *testing.T, path, dir string, env []string, args ...string) *process {
	t.Helper()
	return started(t, exec.CommandContext(t.Context(), path, args...), dir, env)
}

// started starts cmd in dir. It is killed when the test ends.
func started(t *testing.T, cmd *exec.Cmd, dir string, env []string) *process {
	t.Helper()
	p := &process{cmd: cmd}
	p.cmd.Dir, p.cmd.Stderr = dir, &p.stderr
	p.cmd.Env = append(os.Environ(), append([]string{asProgram + "=1", "NO_COLOR=1"}, env...)...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // nobody has waited for it
			_ = p.cmd.Process.Kill() // it may have ended
			p.end()
		}
	})
	p.lines = bufio.NewScanner(out)
	p.lines.Buffer(nil, 1<<20)
	return p
}

// end waits for the process and returns its exit code: -1 when it was killed.
func (p *process) end() int {
	_ = p.cmd.Wait() // the exit code tells
	return p.cmd.ProcessState.ExitCode()
}

// killedAmid starts a bus and asks it something; it is killed with -9 once its agent
// has been called, and answers nothing.
func killedAmid(t *testing.T, path string, env []string, called <-chan struct{}, ask func(url string) error) {
	t.Helper()
	p := start(t, filepath.Dir(path), env, "serve", "--quiet", "--config", path)
	if !p.lines.Scan() {
		t.Fatal("serve said nothing")
	}
	cut := make(chan error, 1)
	url := address(p.lines.Text())
	go func() { cut <- ask(url) }()
	<-called
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != -1 {
		t.Fatalf("the bus ended with %d", code)
	}
	if err := <-cut; err == nil {
		t.Error("a bus that was killed has answered")
	}
}

// rest reads the stdout that is left, to its end.
func (p *process) rest() (lines []string) {
	for p.lines.Scan() {
		lines = append(lines, p.lines.Text())
	}
	return lines
}

// serves waits until a bus serves, and returns the URLs of its two listeners and
// what it said.
func (p *process) serves(t *testing.T) (url, admin string, said []string) {
	t.Helper()
	for url == "" || admin == "" {
		if !p.lines.Scan() {
			t.Fatalf("%q: %s", said, p.stderr.String())
		}
		said = append(said, p.lines.Text())
		if at := address(p.lines.Text()); strings.Contains(p.lines.Text(), "admin") {
			admin = at
		} else {
			url = at
		}
	}
	return url, admin, said
}

// program runs the program to its end.
func program(t *testing.T, dir string, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, dir, env, args...)
	lines := p.rest()
	code = p.end()
	return code, strings.Join(lines, "\n"), p.stderr.String()
}

// configure writes a configuration and returns its path. The store is bus.db
// beside it, and all its runs are replayed when the test ends.
func configure(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	text = fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nstore: {url: %q}\n", "sqlite:"+sqlitetest.Prepare(t, filepath.Join(filepath.Dir(path), "bus.db"))) + text
	save(t, path, text)
	t.Cleanup(func() { replayable(t, path, nil) })
	return path
}

// opened opens the store of a configuration beside whoever else uses it. path
// may be "", for one that the environment names.
func opened(t *testing.T, path string, env map[string]string) server.Store {
	t.Helper()
	return submitting(t, path, env).Store()
}

// turnsOf returns the turns of a top-level run.
func turnsOf(t *testing.T, s server.Store, run agentbus.RunID) (turns []agentbus.Turn) {
	t.Helper()
	for turn, err := range s.Turns(t.Context(), agentbus.ExecutionID(run)) {
		if err != nil {
			t.Fatal(err)
		}
		turns = append(turns, turn)
	}
	return turns
}

// A busProcess serves in the process of the test.
type busProcess struct {
	url    string
	admin  string // the URL of its admin listener
	stop   context.CancelFunc
	exited chan int
	stderr bytes.Buffer // to be read once it has ended
}

// serving runs agentbus serve until the test ends, when it must end in order.
func serving(t *testing.T, path string, env map[string]string, args ...string) *busProcess {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &busProcess{stop: stop, exited: make(chan int, 1)}
	r, w := io.Pipe()
	go func() {
		b.exited <- run(ctx, append([]string{"serve", "--config", path}, args...), strings.NewReader(""), w, &b.stderr, lookup(env))
		_ = w.Close() // never fails
	}()
	t.Cleanup(func() {
		stop()
		if code := <-b.exited; code != 0 {
			t.Errorf("serve ended with %d: %s", code, b.stderr.String())
		}
	})
	out := bufio.NewReader(r)
	for _, url := range []*string{&b.url, &b.admin} {
		line, err := out.ReadString('\n')
		if *url = address(line); err != nil || *url == "" {
			t.Fatalf("serve said %q: %v: %s", line, err, b.stderr.String())
		}
	}
	return b
}

var served = regexp.MustCompile(` on (https?://\S+)`)

// address finds where a bus serves in what it says.
func address(line string) string {
	if m := served.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

// httpClient keeps no connection: none is left when a test ends.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a chat completion and returns the status and the body.
func post(ctx context.Context, bus, key, body string, header http.Header) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, bus+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	for name, values := range header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := httpClient.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(got), err
}

// An agent is an OpenAI-compatible server that streams a word at a time and
// keeps what it was asked for each turn.
type agent struct {
	*httptest.Server
	pause time.Duration // before each word

	mu    sync.Mutex
	told  map[agentbus.TurnID][]string // what each execution of a turn said, or was about to say
	begun chan agentbus.TurnID         // gets each turn as its first word is out; nil: nobody asks
	holds atomic.Bool                  // says no second word as long as this stands, or until its caller leaves
}

func newAgent(t *testing.T, name string, pause time.Duration) *agent {
	t.Helper()
	a := &agent{pause: pause, told: map[agentbus.TurnID][]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.answer(name, w, r) }))
	t.Cleanup(a.Close)
	return a
}

func (a *agent) answer(name string, w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the caller leave
	turn := agentbus.TurnID(r.Header.Get(agentbus.HeaderTurnID))
	a.mu.Lock()
	words := fmt.Sprintf("%s answers turn %d as execution %d of it", name, turn.Index(agentbus.RunID(r.Header.Get(agentbus.HeaderRunID))), len(a.told[turn])+1)
	a.told[turn] = append(a.told[turn], words)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(max(a.pause, time.Millisecond))
	defer tick.Stop()
	n := 0
	for word := range strings.SplitAfterSeq(words, " ") {
		if n++; a.pause > 0 {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		text, _ := json.Marshal(word)
		_, err := fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}`+"\n\n", text)
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		if n == 1 && a.begun != nil {
			a.begun <- turn
		}
		for a.holds.Load() {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
	_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n", n)
}

// executions returns what each execution of a turn was answered.
func (a *agent) executions(turn agentbus.TurnID) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.told[turn])
}
