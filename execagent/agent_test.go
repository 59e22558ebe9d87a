package execagent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/identity"
)

const superviseArg = "supervise"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == superviseArg {
		os.Exit(execagent.Supervise(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// newAgent makes an agent of a shell script. Its environment has a canary, and
// its payer is the Caller of the turn's run.
func newAgent(t *testing.T, c execagent.Config, script string) *execagent.Agent {
	t.Helper()
	return newAgentWith(t, c, new(identity.CallTokens), script)
}

func newAgentWith(t *testing.T, c execagent.Config, tokens execagent.Tokens, script string) *execagent.Agent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Supervisor, c.InstallKey, c.Tokens = "prog", []string{self, superviseArg}, []byte("install key"), tokens
	if c.Command == nil {
		c.Command = []string{"/bin/sh", "-c", script}
	}
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	c.Env = append(c.Env, "GORACE") // for its supervisor
	c.Lookup = func(name string) (string, bool) {
		if name == "GORACE" {
			return os.LookupEnv(name)
		}
		v, ok := map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/home", "CANARY": "canary", "NAMED": "named"}[name]
		return v, ok
	}
	c.Caller = func(ctx context.Context) (agentbus.Principal, agentbus.Payer) {
		p, _ := ctx.Value(payerKey{}).(agentbus.Payer)
		return agentbus.Principal{ID: "agent:prog"}, p
	}
	a, err := execagent.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type payerKey struct{}

var served = agentbus.Lineage{Run: "r", Turn: "r.t0.prog", Depth: 1, Auth: agentbus.NewCredential("Bearer sk-origin-secret"), TraceParent: "00-1-1-01"}

// ask calls the agent.
func ask(ctx context.Context, a *execagent.Agent, text string) (agentbus.Reply, error) {
	return agentbus.Collect(a.Call(ctx, &agentbus.Call{Lineage: served, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}}))
}

// B1, B5: a prompt arrives as it is, whatever it looks like, and is never a flag.
func TestPrompts(t *testing.T) {
	t.Parallel()
	stdin := newAgent(t, execagent.Config{}, "cat")
	arg := newAgent(t, execagent.Config{Input: execagent.InputArg, Command: []string{"/bin/sh", "-c", `printf '%s|' "$@"`, "sh"}}, "")
	for name, text := range map[string]string{
		"empty": "", "flag": "--version", "dash": "-", "lines": "a\n\nb\n", "shell": "$(touch x) `id` ; rm *", "UTF-8": "é漢🙂", "quotes": `"'\`,
	} {
		if got, err := ask(t.Context(), stdin, text); err != nil || got.Text != text {
			t.Errorf("%s on standard input: %q, %v", name, got.Text, err)
		}
		if got, err := ask(t.Context(), arg, text); err != nil || got.Text != "--|"+text+"|" {
			t.Errorf("%s as an argument: %q, %v", name, got.Text, err)
		}
	}
	large, nul := strings.Repeat("0123456789abcdef", 1<<16), "a\x00b" // 1 MiB
	for _, text := range []string{large, nul} {
		if got, err := ask(t.Context(), stdin, text); err != nil || got.Text != text {
			t.Errorf("%d bytes on standard input: %d bytes, %v", len(text), len(got.Text), err)
		}
		if _, err := ask(t.Context(), arg, text); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
			t.Errorf("%d bytes as an argument: %v", len(text), err)
		}
	}
}

// B1: what was said before is told, under the agent's name where it was its own.
func TestTranscript(t *testing.T) {
	t.Parallel()
	a := newAgent(t, execagent.Config{}, "cat")
	got, err := agentbus.Collect(a.Call(t.Context(), &agentbus.Call{Lineage: served, Messages: []agentbus.Message{
		{Role: agentbus.RoleSystem, Content: "be brief"}, {Role: agentbus.RoleUser, Content: "[critic] no"}, {Role: agentbus.RoleAssistant, Content: "yes"}, {Role: agentbus.RoleUser},
	}}))
	if want := "be brief\n\n[critic] no\n\n[assistant] yes"; err != nil || got.Text != want {
		t.Errorf("%q, %v, want %q", got.Text, err, want)
	}
}

// B1, B3: each program has its stated outcome, and leaves no process.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	short := execagent.Config{Timeout: 2 * time.Second, KillAfter: 100 * time.Millisecond}
	capped := execagent.Config{MaxOutput: 1 << 20}
	for name, tt := range map[string]struct {
		config  execagent.Config
		script  string
		text    string        // of the answer
		code    agentbus.Code // "": it is one
		message string
	}{
		"writes nothing":            {script: "exit 0"},
		"does not read its prompt":  {script: "exec <&-; echo hi", text: "hi\n"},
		"writes binary":             {script: `printf 'a\377\376b\000c\303'`, text: "a\uFFFDb\x00c\uFFFD"},
		"splits characters":         {script: `printf '\303'; sleep 0.05; printf '\251\360\237'; sleep 0.05; printf '\231\202'`, text: "é🙂"},
		"fails":                     {script: "echo oops @all >&2; exit 3", code: agentbus.CodeAgentUnavailable, message: "the program ended with status 3; it said: oops (at)all"},
		"fails after its answer":    {script: "echo whole; exit 1", text: "whole\n", code: agentbus.CodeAgentUnavailable, message: "the program ended with status 1"},
		"is killed":                 {script: "kill -9 $$", code: agentbus.CodeAgentUnavailable, message: "the program was ended by a signal: killed"},
		"tells secrets":             {script: `echo "$AGENTBUS_TOKEN $KEY" >&2; exit 1`, config: execagent.Config{ForwardAuthorizationEnv: "KEY"}, code: agentbus.CodeAgentUnavailable, message: "the program ended with status 1; it said: [redacted] [redacted]"},
		"floods its output":         {config: capped, script: "yes", code: agentbus.CodeAgentUnavailable, message: "the program wrote more than 1048576 bytes"},
		"floods its standard error": {config: short, script: "yes >&2", code: agentbus.CodeDeadlineExceeded},
		"closes its output early":   {script: "echo hi; exec >&-; sleep 0.1", text: "hi\n"},
		"closes it early and fails": {script: "echo hi; exec >&-; sleep 0.1; exit 4", text: "hi\n", code: agentbus.CodeAgentUnavailable, message: "the program ended with status 4"},
		"takes too long":            {config: short, script: "echo hi; sleep 60", text: "hi\n", code: agentbus.CodeDeadlineExceeded, message: "the program did not end within 2s"},
		"ignores SIGTERM":           {config: short, script: "trap '' TERM; sleep 60; sleep 60", code: agentbus.CodeDeadlineExceeded},
		"leaves a child behind":     {script: "sleep 60 & echo hi", text: "hi\n"},
		"detaches a grandchild":     {script: "(setsid sh -c 'trap \"\" TERM HUP; sleep 60; sleep 60' &) ; sleep 0.1; echo hi", text: "hi\n"},
		"detaches and hangs":        {config: short, script: "(setsid sh -c 'trap \"\" TERM HUP; sleep 60; sleep 60' &) ; sleep 60", code: agentbus.CodeDeadlineExceeded},
		"stops itself":              {config: short, script: "kill -STOP $$", code: agentbus.CodeDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.config.Dir = t.TempDir()
			got, err := ask(t.Context(), newAgent(t, tt.config, tt.script), "hello")
			switch {
			case agentbus.CodeOf(err) != tt.code:
				t.Errorf("%v, want %q", err, tt.code)
			case tt.message != "" && agentbus.AsError(err).Message != tt.message:
				t.Errorf("%q, want %q", agentbus.AsError(err).Message, tt.message)
			case tt.text != "" && got.Text != tt.text:
				t.Errorf("answer %q, want %q", got.Text, tt.text)
			}
			if left := below(t, tt.config.Dir); len(left) > 0 {
				t.Errorf("processes left: %q", left)
			}
		})
	}
}

// below returns the command lines of the processes that work below dir, and that
// have not ended.
func below(t *testing.T, dir string) (found []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		// The directory may have been removed already: the link says so behind its name.
		if cwd, err := os.Readlink(p + "/cwd"); err == nil && strings.HasPrefix(cwd, dir) {
			command, _ := os.ReadFile(p + "/cmdline")
			found = append(found, p+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

// B3: when the caller leaves, or stops to read, the program ends.
func TestLeaving(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newAgent(t, execagent.Config{Dir: dir, KillAfter: 100 * time.Millisecond}, "echo ready; trap '' TERM; sleep 60; sleep 60")
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	gone := errors.New("gone")
	for c, err := range a.Call(ctx, &agentbus.Call{Lineage: served}) {
		switch {
		case c.Text != "":
			leave(gone)
		case !errors.Is(err, gone):
			t.Errorf("%+v, %v", c, err)
		}
	}
	for _, err := range a.Call(t.Context(), &agentbus.Call{Lineage: served}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}

// apart is a filter that takes text apart, so that what is hidden in answers can
// be seen; together puts it together again.
const apart = ` | sed 's/./&~/g'`

func together(s string) string { return strings.ReplaceAll(s, "~", "") }

// B2: a program sees what is named, and what its turn is; nothing else of the
// bus's environment, and no credential but its token.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	read := func(c execagent.Config) map[string]string {
		got, err := ask(t.Context(), newAgent(t, c, "env"+apart), "")
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]string{}
		for line := range strings.Lines(together(got.Text)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			env[name] = value
		}
		return env
	}
	env := read(execagent.Config{URL: func() string { return "http://127.0.0.1:1" }, MaxDepth: 7})
	if !strings.HasPrefix(env["AGENTBUS_TOKEN"], "abturn_") {
		t.Errorf("token %q", env["AGENTBUS_TOKEN"])
	}
	if len(env["AGENTBUS_PROCESS"]) < 20 {
		t.Errorf("process %q", env["AGENTBUS_PROCESS"])
	}
	for _, ofTheShell := range []string{"AGENTBUS_TOKEN", "AGENTBUS_PROCESS", "GORACE", "PWD", "OLDPWD", "SHLVL", "_"} {
		delete(env, ofTheShell)
	}
	want := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": "/home", "AGENTBUS_URL": "http://127.0.0.1:1", "AGENTBUS_RUN_ID": "r", "AGENTBUS_TURN_ID": "r.t0.prog",
		"AGENTBUS_DEPTH": "1", "AGENTBUS_MAX_DEPTH": "7", "AGENTBUS_ROOT_CONTEXT_ID": "r", "AGENTBUS_PARENT_CONTEXT_ID": "r", "TRACEPARENT": "00-1-1-01",
	}
	if len(env) != len(want) {
		t.Errorf("%q, want %q", env, want)
	}
	for name, value := range want {
		if env[name] != value {
			t.Errorf("%s is %q, want %q", name, env[name], value)
		}
	}
	env = read(execagent.Config{Env: []string{"NAMED", "UNSET"}, ForwardAuthorizationEnv: "USER_KEY"})
	if env["NAMED"] != "named" || env["USER_KEY"] != "Bearer sk-origin-secret" || env["AGENTBUS_URL"] != "" || env["CANARY"] != "" {
		t.Errorf("%q", env)
	}
	// K2, K3: its session is the root that came, else its run; the root of its calls
	// is that, else the parent that came.
	for _, tt := range []struct {
		root, parent     string
		off              bool
		session, ofCalls string
	}{
		{"chat", "above", false, "chat", "chat"},
		{"", "above", false, "r", "above"},
		{"", "above", true, "r", "r"},
	} {
		got, err := agentbus.Collect(newAgent(t, execagent.Config{NoLegacyParent: tt.off}, `echo "$AGENTBUS_PARENT_CONTEXT_ID $AGENTBUS_ROOT_CONTEXT_ID"`).
			Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.prog", RootContext: tt.root, ParentContext: tt.parent}}))
		if want := tt.session + " " + tt.ofCalls + "\n"; err != nil || got.Text != want {
			t.Errorf("%+v: %q, %v, want %q", tt, got.Text, err, want)
		}
	}
	traced, err := agentbus.Collect(newAgent(t, execagent.Config{}, "env"+apart).Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.prog"}}))
	if err != nil || !strings.Contains(together(traced.Text), "\nTRACEPARENT=00-") { // always set
		t.Errorf("%q, %v", traced.Text, err)
	}
}

// B3, B4: a conversation of a payer has a working directory that no other has;
// without affinity a turn has an empty one.
func TestDirectories(t *testing.T) {
	t.Parallel()
	in := func(a *execagent.Agent, payer agentbus.Payer, l agentbus.Lineage) string {
		ctx := context.WithValue(t.Context(), payerKey{}, payer)
		got, err := agentbus.Collect(a.Call(ctx, &agentbus.Call{Lineage: l}))
		if err != nil {
			t.Fatal(err)
		}
		return got.Text
	}
	script := "ls; echo x >$(ls | wc -l); pwd >&2"
	kept := newAgent(t, execagent.Config{Conversation: true}, script)
	one, two := agentbus.Lineage{Run: "r", RootContext: "one"}, agentbus.Lineage{Run: "r", RootContext: "two"}
	for _, step := range []struct {
		payer agentbus.Payer
		l     agentbus.Lineage
		want  string
	}{
		{"alice", one, ""}, {"alice", two, ""}, {"bob", one, ""}, {"alice", one, "0\n"}, {"alice", agentbus.Lineage{Run: "another", RootContext: "one"}, "0\n1\n"}, {"bob", one, "0\n"},
	} {
		if got := in(kept, step.payer, step.l); got != step.want {
			t.Errorf("%s in %s: %q, want %q", step.payer, step.l.RootContext, got, step.want)
		}
	}
	// K2, K10: a parent context without a root is the root, unless that is left out.
	legacy := agentbus.Lineage{Run: "yet another", ParentContext: "one"}
	if got := in(kept, "alice", legacy); got != "0\n1\n2\n" {
		t.Errorf("called by a parent: %q", got)
	}
	strict := newAgent(t, execagent.Config{Conversation: true, NoLegacyParent: true}, script)
	for _, l := range []agentbus.Lineage{legacy, {Run: "yet another still", ParentContext: "one"}} {
		if got := in(strict, "alice", l); got != "" {
			t.Errorf("run %s without the fallback: %q", l.Run, got)
		}
	}
	root := t.TempDir()
	once := newAgent(t, execagent.Config{Dir: root}, script)
	for range 2 {
		if got := in(once, "alice", one); got != "" {
			t.Errorf("without affinity: %q", got)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	shared := newAgent(t, execagent.Config{Dir: root, ShareDir: true}, "pwd")
	if got := in(shared, "alice", one); strings.TrimSpace(got) != root {
		t.Errorf("shared: %q, want %q", got, root)
	}
}

// B3: working directories are cleaned by age, and nothing else is, also not those
// of another agent.
func TestOldDirectories(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := time.Now().Add(-8 * 24 * time.Hour)
	ours, theirs := "c-"+execagent.Tag("prog"), "c-"+execagent.Tag("another")
	for name, at := range map[string]time.Time{ours + "-old": old, "t-" + execagent.Tag("prog") + "-old": old, ours + "-new": time.Now(), theirs + "-old": old, "other": old} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, name, "in"), 0o700), os.Chtimes(filepath.Join(root, name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(t.Context(), newAgent(t, execagent.Config{Dir: root}, "true"), ""); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := slices.Sorted(slices.Values([]string{ours + "-new", theirs + "-old", "other"})); err != nil || !slices.Equal(left, want) {
		t.Errorf("%q, %v, want %q", left, err, want)
	}
}

// B2: the token of a turn counts while the turn lasts.
func TestTokenEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	tokens := new(identity.CallTokens)
	counts := func(token string) bool {
		s, ours, err := tokens.Scope(agentbus.NewCredential("Bearer " + token))
		return ours && err == nil && s.Lineage.Turn == served.Turn && s.Payer == "alice"
	}
	c := execagent.Config{}
	a := newAgentWith(t, c, tokens, `echo "$AGENTBUS_TOKEN"`+apart+`; exec >&-; sleep 0.1`)
	token := ""
	for chunk, err := range a.Call(context.WithValue(t.Context(), payerKey{}, agentbus.Payer("alice")), &agentbus.Call{Lineage: served}) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Text != "" {
			if token = strings.TrimSpace(together(chunk.Text)); !counts(token) {
				t.Error("the token does not count during the turn")
			}
		}
	}
	if token == "" || counts(token) {
		t.Errorf("token %q counts after the turn", token)
	}
}

// B2, B3: a program that is being ended, and takes its time, calls nobody any more.
func TestTokenEndsBeforeTheProgram(t *testing.T) {
	t.Parallel()
	needsLinux(t, "/proc")
	tokens, dir := new(identity.CallTokens), t.TempDir()
	a := newAgentWith(t, execagent.Config{Dir: dir, KillAfter: 2 * time.Second}, tokens, `trap '' TERM; echo "$AGENTBUS_TOKEN"`+apart+`; sleep 60; sleep 60`)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	token := agentbus.Credential{}
	var lived atomic.Bool
	var watch sync.WaitGroup
	for c, err := range a.Call(ctx, &agentbus.Call{Lineage: served}) {
		if err != nil {
			continue // it was ended
		}
		token = agentbus.NewCredential("Bearer " + strings.TrimSpace(together(c.Text)))
		leave()
		watch.Go(func() {
			for {
				if _, _, err := tokens.Scope(token); err != nil {
					lived.Store(len(below(t, dir)) > 0)
					return
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	watch.Wait()
	if token.IsZero() || !lived.Load() {
		t.Error("the token counted for as long as the program lived")
	}
}

// A configuration with faults makes no agent, and says all of them.
func TestFaults(t *testing.T) {
	t.Parallel()
	_, err := execagent.New(execagent.Config{Name: "x", Command: []string{"a\x00"}, Timeout: -1, Env: []string{"AGENTBUS_URL"}, Input: "file"})
	for _, want := range []string{"NUL", "Supervisor", "Dir", "Tokens", "negative", "AGENTBUS_URL", "Input"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	missing := newAgent(t, execagent.Config{Command: []string{"no-such-program"}}, "")
	if _, err := ask(t.Context(), missing, ""); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable || !strings.Contains(err.Error(), "cannot be started") {
		t.Error(err)
	}
}
