package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// asked asks an agent for a prompt and returns the status, the answer or the
// message of the error, and the record of the call.
type asked struct {
	status  int
	text    string
	message string
	run     agentbus.RunID
}

// askAgent sends a prompt as it stands in JSON, without its quotes.
func askAgent(ctx context.Context, t *testing.T, bus, key, agent, prompt string, header http.Header) asked {
	t.Helper()
	status, h, body, err := post(ctx, bus, key, `{"model":"`+agent+`","messages":[{"role":"user","content":"`+prompt+`"}]}`, header)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Error struct{ Message string }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	a := asked{status: status, message: answer.Error.Message, run: agentbus.RunID(h.Get("X-Tangle-Runid"))}
	if len(answer.Choices) > 0 {
		a.text = answer.Choices[0].Message.Content
	}
	return a
}

// B1, B5: whatever a caller sends, it arrives at the program as it is, as text, or
// is refused; it is never a flag.
func TestPromptsOfCallers(t *testing.T) {
	t.Parallel()
	path, env := scripted(t, "", map[string]string{
		"stdin": "\ncat\n",
		"arg":   ", input: arg\nprintf '%s|' \"$@\"\n",
	})
	b := serving(t, path, env)
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for name, tt := range map[string]struct {
		sent, arrives string
		noArgument    string // why it cannot be one; "": it can
	}{
		"a flag":          {sent: "--version", arrives: "--version"},
		"a dash":          {sent: "-", arrives: "-"},
		"the end of them": {sent: "--", arrives: "--"},
		"nothing":         {},
		"lines":           {sent: `a\n\nb\n`, arrives: "a\n\nb\n"},
		"shell":           {sent: "$(touch x) `id`; rm *", arrives: "$(touch x) `id`; rm *"},
		"a NUL":           {sent: `a\u0000b`, arrives: "a\x00b", noArgument: "the prompt holds a NUL, which no argument of a program can"},
		"1 MiB":           {sent: large, arrives: large, noArgument: "the prompt has 1048576 bytes, and an argument of a program can have 131071"},
		"invalid UTF-8":   {sent: "a\xff\xfeb", arrives: "a\uFFFD\uFFFDb"},
		"half a pair":     {sent: `a\ud800b`, arrives: "a\uFFFDb"},
	} {
		if got := askAgent(t.Context(), t, b.url, "alice-secret", "stdin", tt.sent, nil); got.status != 200 || got.text != tt.arrives {
			t.Errorf("%s on standard input: %d, %.100q, %s", name, got.status, got.text, got.message)
		}
		got := askAgent(t.Context(), t, b.url, "alice-secret", "arg", tt.sent, nil)
		if tt.noArgument != "" && (got.status != 400 || got.message != tt.noArgument) || tt.noArgument == "" && (got.status != 200 || got.text != "--|"+tt.arrives+"|") {
			t.Errorf("%s as an argument: %d, %.100q, %s", name, got.status, got.text, got.message)
		}
	}
}

// B1, B3: what a program does has its stated outcome, for the caller and in the
// record, a failure costs nothing, and no process is left.
func TestOutcomesOfPrograms(t *testing.T) {
	t.Parallel()
	needsProc(t)
	const short = ", timeout: 3s, kill_after: 100ms" // in which a shell begins
	// A shell needs several times what it reads: each of the eight stays within its own limit, and waits until all are ended.
	const gluttons = "hold() { x=$(head -c 20000000 /dev/zero | tr '\\0' a); sleep 60; }; hold & hold & hold & hold & hold & hold & hold & hold & wait\n"
	outcomes := map[string]struct {
		script  string // behind the options
		status  int
		text    string
		message string
	}{
		"nothing":    {"\nexit 0\n", 200, "", ""},
		"flood":      {"\nhead -c 104857600 /dev/zero | tr '\\0' a\n", 502, "", "the program wrote more than 16777216 bytes"},
		"capped":     {", max_output: 1KiB\nhead -c 1025 /dev/zero\n", 502, "", "the program wrote more than 1024 bytes"},
		"deaf":       {short + "\ntrap '' TERM; echo half; sleep 60; sleep 60\n", 504, "", "the program did not end within 3s"},
		"slow":       {short + "\necho why >&2; sleep 60\n", 504, "", "the program did not end within 3s; it said: why"},
		"late":       {"\necho whole; echo sorry @all >&2; exit 1\n", 502, "", "the program ended with status 1; it said: sorry (at)all"},
		"crash":      {"\nkill -SEGV $$\n", 502, "", "the program was ended by a signal: segmentation fault"},
		"detach":     {"\n(setsid sh -c 'trap \"\" TERM HUP; sleep 60; sleep 60' >/dev/null 2>&1 </dev/null &); sleep 0.1; echo done\n", 200, "done\n", ""},
		"pipes":      {"\n(setsid sleep 60 &); sleep 60 & echo done\n", 200, "done\n", ""},
		"chatty":     {"\nhead -c 1000000 /dev/zero | tr '\\0' x >&2; echo ' the end' >&2; exit 3\n", 502, "", "the program ended with status 3; it said: …" + strings.Repeat("x", 192) + " the end"},
		"glutton":    {", max_memory: 96MiB\n" + gluttons, 502, "", "the program used more than 100663296 bytes of memory"},
		"indiscreet": {"\necho \"$AGENTBUS_TOKEN\"; echo \"$AGENTBUS_TOKEN\" >&2; exit 0\n", 200, "[redacted]\n", ""},
		"accuser":    {"\necho \"token $AGENTBUS_TOKEN\" >&2; exit 1\n", 502, "", "the program ended with status 1; it said: token [redacted]"},
		"missing":    {", command: [/no/such/program]\n", 502, "", "the program of agent missing cannot be started"},
	}
	scripts := map[string]string{}
	for name, o := range outcomes {
		scripts[name] = o.script
	}
	delete(scripts, "missing")
	path, env := scripted(t, "", scripts)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := scriptsOf(t, path)
	save(t, path, string(text)+"  missing: {kind: exec, command: [/no/such/program], dir: '"+dir+"/work'}\n")
	b := serving(t, path, env)
	store := opened(t, path, env)
	for name, o := range outcomes {
		got := askAgent(t.Context(), t, b.url, "alice-secret", name, "hello", nil)
		if got.status != o.status || got.text != o.text || got.message != o.message {
			t.Errorf("%s: %d, %.100q, %q; want %d, %q, %q", name, got.status, got.text, got.message, o.status, o.text, o.message)
		}
		calls, err := store.Calls(t.Context(), got.run)
		if err != nil || len(calls) != 1 {
			t.Fatalf("%s: %+v, %v", name, calls, err)
		}
		if c := &calls[0]; o.status == 200 && (c.State != agentbus.CallSettled || c.Cost != 10_000) || o.status != 200 && (c.State != agentbus.CallVoided || c.Cost != 0 || c.Message != "below this agent: "+o.message) {
			t.Errorf("%s: recorded: %s, %d, %q", name, c.State, c.Cost, c.Message)
		}
	}
	if left := below(t, filepath.Join(dir, "work")); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}

// B3: nothing of a program is left when its caller leaves an agent that ends with
// its callers, when the deadline of the call passes, and when its supervisor is
// killed with -9.
func TestProgramsLeftAlone(t *testing.T) {
	t.Parallel()
	needsProc(t)
	const lingers = "\ntrap '' TERM; sleep 600 & (setsid sh -c 'trap \"\" TERM HUP; sleep 600; sleep 600' &)\necho $PPID >>\"$log/started\"; sleep 600; sleep 600\n"
	path, env := scripted(t, "", map[string]string{"left": ", detach: off, kill_after: 100ms" + lingers, "slow": ", kill_after: 100ms, timeout: 5s" + lingers, "orphan": lingers})
	dir := scriptsOf(t, path)
	b := serving(t, path, env)
	started := func(n int) []string {
		var pids []string
		within(t, time.Minute, "the program runs", func() bool { pids = linesOf(t, filepath.Join(dir, "started")); return len(pids) == n })
		return pids
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _, _, _ = post(ctx, b.url, "alice-secret", `{"model":"left","messages":[{"role":"user","content":"x"}]}`, nil)
	}()
	started(1)
	leave()
	<-left
	waitForNobody(t, filepath.Join(dir, "work"))
	if got := askAgent(t.Context(), t, b.url, "alice-secret", "slow", "x", nil); got.status != 504 {
		t.Errorf("a deadline: %+v", got)
	}
	waitForNobody(t, filepath.Join(dir, "work"))
	answer := make(chan asked, 1)
	go func() { answer <- askAgent(t.Context(), t, b.url, "alice-secret", "orphan", "x", nil) }()
	supervisor, err := strconv.Atoi(started(3)[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.status != 502 || got.message != "the program ended, and its supervisor did not say how" {
		t.Errorf("a killed supervisor: %+v", got)
	}
	waitForNobody(t, filepath.Join(dir, "work"))
}
