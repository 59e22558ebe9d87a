package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
)

// A pane is a real terminal, of tmux, in which a shell runs.
type pane struct {
	t      *testing.T
	tmux   string
	dir    string
	socket string // the folder of it
}

func newPane(t *testing.T, width, height int) *pane {
	t.Helper()
	p := &pane{t: t, tmux: require.Tool(t, "tmux"), dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(p.dir, "agentbus")); err != nil {
		t.Fatal(err)
	}
	if p.socket, err = os.MkdirTemp("/tmp", "agentbus-tmux-"); err != nil { //nolint:usetesting // a socket's path must be short
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.command("kill-server").Run() // it may have ended with its shell
		_ = os.RemoveAll(p.socket)         // nothing is in it
	})
	p.do("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "env", asProgram+"=1", "PATH="+p.dir+":"+os.Getenv("PATH"), "PS1=> ", "NO_COLOR=", "sh")
	return p
}

func (p *pane) command(args ...string) *exec.Cmd {
	c := exec.Command(p.tmux, append([]string{"-L", "agentbus"}, args...)...)
	c.Env = append(os.Environ(), "TMUX_TMPDIR="+p.socket, "LC_ALL=C.UTF-8", "TERM=xterm-256color")
	return c
}

func (p *pane) do(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %s: %v: %s", args, err, out)
	}
	return string(out)
}

// keys types.
func (p *pane) keys(keys ...string) {
	p.t.Helper()
	p.do(append([]string{"send-keys"}, keys...)...)
}

// shows waits until all texts stand on the screen, and returns it.
func (p *pane) shows(texts ...string) string {
	p.t.Helper()
	screen := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		screen = p.do("capture-pane", "-p", "-e")
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(screen, text)
		}
		if !missing {
			return screen
		}
	}
	p.t.Fatalf("there is no %q on the screen:\n%s", texts, screen)
	return ""
}

// In a real terminal: a tree of the calls that are being made, with elapsed time,
// tokens and money of the cap, redrawn in place; then what was said, once; then
// Ctrl-C, which settles, says how to go on, and ends with 130.
func TestLiveInATerminal(t *testing.T) {
	t.Parallel()
	open := make(chan struct{}, 8)
	gated := newAgentServer(t, open)
	path := configure(t, fmt.Sprintf(`agents:
  a: {kind: openai, url: %q, price: {call: 0.001}}
  b: {kind: openai, url: %q, price: {call: 0.001}}
  panel: {kind: conversation, conversation: inner}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 1}
  talk: {participants: [{agent: panel}, {agent: a}], max_turns: 2, budget_usd: 0.5}
`, gated, gated))
	p := newPane(t, 100, 24)
	p.keys("agentbus run talk hello --config '"+path+"'; echo exit $?", "Enter")
	p.shows("└─", "panel", "   └─", "depth 2", "0 turns", "$0.000000 of $0.500000")
	open <- struct{}{}
	open <- struct{}{}
	screen := p.shows("exit 0", "max_turns (2)")
	for text, times := range map[string]int{"the answer": 2, "└─": 0, "of $0.500000": 0, "[panel]": 1} { // of the region nothing is left
		if n := strings.Count(screen, text); n != times {
			t.Errorf("%q stands there %d times, not %d:\n%s", text, n, times, screen)
		}
	}
	if !strings.Contains(screen, "\x1b[2mrun run_") {
		t.Errorf("there are no colours:\n%q", screen)
	}
	p.keys("clear; NO_COLOR=1 agentbus run talk hello --config '"+path+"'; echo exit $?", "Enter")
	p.shows("of $0.500000")
	p.keys("C-c")
	screen = p.shows("exit 130", "press Ctrl-C again", "next: agentbus resume run_")
	if strings.Contains(screen, "\x1b[2m") {
		t.Errorf("there are colours:\n%q", screen)
	}
}

// The same tree is drawn of a run that a bus drives, by who began it there and by
// who follows it over the store: nested calls, elapsed time, tokens, money of the cap.
func TestWatchInATerminal(t *testing.T) {
	t.Parallel()
	open := make(chan struct{}, 8)
	gated := newAgentServer(t, open)
	path := configure(t, fmt.Sprintf(`keys: [{id: alice, secret_env: ALICE}]
agents:
  a: {kind: openai, url: %q, price: {call: 0.001}}
  b: {kind: openai, url: %q, price: {call: 0.001}}
  panel: {kind: conversation, conversation: inner}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 1}
  talk: {participants: [{agent: panel}, {agent: a}], max_turns: 2, budget_usd: 0.5}
`, gated, gated))
	env := map[string]string{"ALICE": aliceKey}
	bus := serving(t, path, env, "--quiet")
	begins, follows := newPane(t, 100, 24), newPane(t, 100, 24)
	begins.keys("AGENTBUS_TOKEN="+aliceKey+" agentbus run talk hello --server "+bus.url+"; echo exit $?", "Enter")
	tree := []string{"└─", "panel", "   └─", "depth 2", "0 turns", "$0.000000 of $0.500000"}
	begins.shows(tree...)
	runs, err := opened(t, path, env).RunSummaries(t.Context(), agentbus.RunFilter{}, 1, "")
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	follows.keys("ALICE="+aliceKey+" agentbus trace --follow "+string(runs[0].Run)+" --config '"+path+"'; echo exit $?", "Enter")
	follows.shows(tree...)
	open <- struct{}{}
	open <- struct{}{}
	for p, last := range map[*pane]string{begins: "max_turns (2) · 2 turns · tokens 6 in, 4 out", follows: "payer alice"} {
		screen := p.shows("exit 0", last, "[panel]", "the answer", "max_turns (2)")
		for text, most := range map[string]int{"of $0.500000": 0, "0 turns ·": 0, "[panel]": 1, "[a] the answer": 2} {
			if n := strings.Count(screen, text); n > most {
				t.Errorf("%q stands there %d times, not %d:\n%s", text, n, most, screen)
			}
		}
	}
}

// A narrow terminal breaks no line of the tree, and a list becomes paragraphs.
func TestNarrowTerminal(t *testing.T) {
	t.Parallel()
	open := make(chan struct{}, 8)
	gated := newAgentServer(t, open)
	path := configure(t, fmt.Sprintf("agents: {a: {kind: openai, url: %q}, b: {kind: openai, url: %q}}\nconversations: {talk: {participants: [{agent: a}, {agent: b}], max_turns: 1, budget_usd: 0.5}}\n", gated, gated))
	save(t, filepath.Join(filepath.Dir(path), "go.sh"), "agentbus run talk hello --config '"+path+"'\nagentbus agents --config '"+path+"'\necho over\n")
	p := newPane(t, 40, 30)
	p.keys("sh '"+filepath.Join(filepath.Dir(path), "go.sh")+"'", "Enter")
	screen := p.shows("└─", "0 turns", "…")
	if n := strings.Count(screen, "└─"); n != 1 {
		t.Errorf("%d branches:\n%s", n, screen)
	}
	open <- struct{}{}
	screen = p.shows("over", "  kind openai")
	if strings.Contains(screen, "└─") {
		t.Errorf("a line was left:\n%s", screen)
	}
}

// newAgentServer is an agent that answers when it is let, and stops waiting when
// its caller leaves.
func newAgentServer(t *testing.T, open <-chan struct{}) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a caller that leaves is seen behind its body only
		select {
		case <-open:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"the answer"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// The second signal ends the process at once, with 130, whatever it waits for.
func TestTwoInterruptsLeave(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a caller that leaves is seen behind its body only
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(stuck.Close)
	path := configure(t, fmt.Sprintf("drain_timeout: 10m\nkeys: [{id: alice, secret_env: ALICE}]\nagents: {stuck: {kind: openai, url: %q}}\n", stuck.URL+"/v1"))
	p := start(t, filepath.Dir(path), []string{"ALICE=alice-secret"}, "serve", "--config", path)
	url, _, _ := p.serves(t)
	caller := make(chan struct{})
	go func() {
		defer close(caller)
		_, _, _, _ = post(t.Context(), url, "alice-secret", `{"model":"stuck","messages":[{"role":"user","content":"go"}]}`, nil) // it is cut off
	}()
	<-asked
	interrupt := func() {
		if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	drains(t, url)
	interrupt()
	if code := p.end(); code != int(exitInterrupted) || !strings.Contains(p.stderr.String(), "agentbus: left before it had drained") {
		t.Errorf("exit %d: %s", code, p.stderr.String())
	}
	<-caller
}

// drains waits until a bus takes no calls any more.
func drains(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return
		}
		_ = resp.Body.Close()
	}
	t.Fatal("it goes on to serve")
}

// While a run is driven, what is said at the second interrupt names it.
func TestPartingNamesTheRun(t *testing.T) {
	t.Parallel()
	open := make(chan struct{}, 1)
	asked := make(chan string, 1)
	var a *app
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- *a.parting.Load()
		<-open
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(s.Close)
	path := configure(t, fmt.Sprintf("agents: {a: {kind: openai, url: %q}, b: {kind: builtin, builtin: echo}}\nconversations: {talk: {participants: [{agent: a}, {agent: b}]}}\n", s.URL+"/v1"))
	var out strings.Builder
	a = newApp(strings.NewReader(""), &out, &out, noEnv)
	open <- struct{}{}
	code := a.main(t.Context(), []string{"run", "talk", "hello", "--config", path})
	if said := <-asked; code != int(exitAgent) || !strings.Contains(said, "agentbus resume run_") || a.parting.Load() != nil {
		t.Errorf("exit %d, %q: %s", code, said, out.String())
	}
}

// What an agent answers to call moves no cursor and changes no colour, also on a
// terminal that says it can do nothing but print: it may not be true.
func TestCallInADumbTerminal(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"ALICE": "alice-secret"}
	b := serving(t, configure(t, "keys: [{id: alice, secret_env: ALICE}]\nagents: {echo: {kind: builtin, builtin: echo}}\n"), vars)
	p := newPane(t, 100, 24)
	p.keys(`TERM=dumb AGENTBUS_TOKEN=alice-secret agentbus call echo "$(printf 'a \033[31mred')" --server `+b.url+"; echo exit $?", "Enter")
	if screen := p.shows("exit 0"); !strings.Contains(screen, "a \uFFFD[31mred") {
		t.Errorf("the screen is\n%q", screen)
	}
}
