package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/agentbus/agentbus"
)

const exitingBus = `keys: [{id: alice, secret_env: ALICE}, {id: poor, secret_env: POOR}, {id: ops, secret_env: OPS, role: admin}]
agents:
  echo: {kind: builtin, builtin: echo, price: {call: 0.001}}
  eliza: {kind: builtin, builtin: eliza, price: {call: 0.001}}
  gone: {kind: openai, url: "http://127.0.0.1:1/v1", price: {call: 0.001}}
budgets: [{payer: poor, period: day, usd: 0.0001}]
conversations:
  chat: {participants: [{agent: echo}, {agent: eliza}], max_turns: 2}
  short: {participants: [{agent: echo}, {agent: eliza}], max_turns: 9, budget_usd: 0.0015}
  broken: {participants: [{agent: echo}, {agent: gone}], call_policy: {retries: 0}}
  approved: {participants: [{agent: echo}, {agent: eliza}], approval: true, max_turns: 1}
`

// Exit codes: 0 ok, 1 failed, 2 usage or bad configuration, 3 refused by policy, 4
// budget, 5 agent failed, 6 waiting for a human, 130 interrupted; of every verb those
// that it can end with, and what is said with each that is not 0.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ALICE": aliceKey, "POOR": "secret-of-poor", "OPS": opsKey}
	path, there := configure(t, exitingBus), configure(t, exitingBus)
	bus := serving(t, there, env, "--quiet")
	dir := t.TempDir()
	folder, faulty, none := filepath.Join(dir, "folder.yaml"), filepath.Join(dir, "faulty.yaml"), filepath.Join(dir, "new.yaml")
	save(t, folder, "store: {url: 'sqlite:"+dir+"'}\n"+exitingBus)
	save(t, faulty, "max_dept: 4\n")
	begun := func(conversation string) string {
		_, out, _ := operate(t, env, "run", conversation, "hello", "--config", path)
		first, _, _ := strings.Cut(out, "\n")
		return strings.TrimPrefix(first, "run ")
	}
	done, waits := begun("chat"), begun("approved")
	asked, err := opened(t, path, env).Interrupts(t.Context(), agentbus.InterruptQuery{Limit: 2})
	if err != nil || len(asked) != 1 {
		t.Fatal(asked, err)
	}
	interrupt := string(asked[0].ID)
	const unknown = "nobody-has-this-key"
	tried := map[string]map[int]bool{}
	try := func(ctx context.Context, want exitCode, token string, args ...string) {
		t.Helper()
		vars := maps.Clone(env)
		vars["AGENTBUS_TOKEN"] = token
		var out, diag bytes.Buffer
		stdout := io.Writer(&out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if args[0] == "serve" {
			stdout = ending{&out, cancel}
		}
		code := run(ctx, args, strings.NewReader(""), stdout, &diag, lookup(vars))
		if code != int(want) {
			t.Errorf("agentbus %s ends with %d, not %d: %s", strings.Join(args, " "), code, want, diag.String())
		}
		if said := diag.String(); want != exitOK && (!strings.HasPrefix(said, "agentbus: ") || strings.Contains(said, "secret-of-")) {
			t.Errorf("agentbus %s says %q", strings.Join(args, " "), said)
		}
		verb := verbOf(parserOf(t), args)
		if tried[verb] == nil {
			tried[verb] = map[int]bool{}
		}
		tried[verb][code] = true
	}
	// 2: every verb, for what it does not know, and for a faulty configuration.
	for _, verb := range leaves(parserOf(t), "") {
		try(t.Context(), exitUsage, "", append(strings.Fields(verb), "--no-such-flag")...)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{
		"serve", "run chat hello", "resume " + done, "runs", "trace " + done, "replay " + done, "events " + done, "inbox", "approve " + interrupt, "deny " + interrupt, "migrate",
		"ledger balance", "ledger export", "ledger verify", "keys create carol", "keys list", "keys revoke carol",
	} {
		try(t.Context(), exitUsage, "", append(strings.Fields(args), "--config", faulty)...)
		try(t.Context(), exitFailed, "", append(strings.Fields(args), "--config", folder)...)
	}
	for _, tt := range []struct {
		want  exitCode
		token string
		args  string
	}{
		{exitOK, "", "version"},
		{exitOK, "", "init NEW"},
		{exitUsage, "", "init NEW"},
		{exitOK, "", "completion fish"},
		{exitOK, "", "config check"},
		{exitOK, "", "config explain"},
		{exitOK, "", "config schema"},
		{exitUsage, "", "config check --config FAULTY"},
		{exitUsage, "", "config explain --config FAULTY"},
		{exitOK, "", "migrate"},
		{exitOK, "", "keys create carol"},
		{exitOK, "", "keys list"},
		{exitOK, "", "keys revoke carol"},
		{exitUsage, "", "keys revoke carla"},
		{exitOK, "", "ledger balance"},
		{exitOK, "", "ledger export"},
		{exitOK, "", "ledger verify"},
		{exitOK, "", "agents list"},
		{exitOK, "", "inbox"},
		{exitOK, "", "run chat hello"},
		{exitOK, aliceKey, "run chat hello"},
		{exitRefused, unknown, "run chat hello"},
		{exitBudget, "", "run short hello"},
		{exitAgent, "", "run broken hello"},
		{exitWaiting, "", "run approved hello"},
		{exitBudget, "secret-of-poor", "run chat hello"},
		{exitOK, aliceKey, "run chat hello --server " + bus.url},
		{exitRefused, unknown, "run chat hello --server " + bus.url},
		{exitWaiting, aliceKey, "run approved hello --server " + bus.url},
		{exitAgent, aliceKey, "run broken hello --server " + bus.url},
		{exitBudget, aliceKey, "run short hello --server " + bus.url},
		{exitFailed, aliceKey, "run chat hello --server http://127.0.0.1:1"},
		{exitOK, "", "runs"},
		{exitOK, "", "trace " + done},
		{exitOK, "", "trace --follow " + done},
		{exitWaiting, "", "trace --follow " + waits},
		{exitUsage, "", "trace run_none"},
		{exitOK, "", "replay " + done},
		{exitUsage, "", "replay run_none"},
		{exitOK, "", "events " + done},
		{exitUsage, "", "events run_none"},
		{exitWaiting, "", "resume " + waits},
		{exitOK, "", "approve " + interrupt},
		{exitOK, "", "resume " + waits},
		{exitUsage, "", "resume run_none"},
		{exitUsage, "", "deny int_none"},
		{exitOK, aliceKey, "call echo hello --server " + bus.url},
		{exitUsage, aliceKey, "call echo hello"},
		{exitUsage, aliceKey, "call nobody hello --server " + bus.url},
		{exitRefused, unknown, "call echo hello --server " + bus.url},
		{exitBudget, "secret-of-poor", "call echo hello --server " + bus.url},
		{exitAgent, aliceKey, "call gone hello --server " + bus.url},
		{exitAgent, aliceKey, "call echo hello --server http://127.0.0.1:1"},
		{exitOK, opsKey, "stop r1 --server " + bus.admin},
		{exitRefused, aliceKey, "stop r1 --server " + bus.admin},
		{exitUsage, "", "stop r1 --server " + bus.admin},
		{exitFailed, opsKey, "stop r1 --server http://127.0.0.1:1"},
		{exitOK, opsKey, "agents list --server " + bus.admin},
		{exitRefused, unknown, "agents list --server " + bus.admin},
		{exitAgent, "", "agents check http://127.0.0.1:1"},
		{exitAgent, "", "doctor"},
		{exitUsage, "", "doctor --config FAULTY"},
		{exitOK, "", "serve --quiet"},
		{exitUsage, "", "bench --duration -1s"},
		{exitUsage, "", "conformance not-a-url"},
	} {
		args := strings.Fields(tt.args)
		for i, arg := range args {
			args[i] = cmp.Or(map[string]string{"NEW": none, "FAULTY": faulty}[arg], arg) // which may have spaces
		}
		if !slices.Contains(args, "--config") {
			args = append(args, "--config", path)
		}
		try(t.Context(), tt.want, tt.token, args...)
	}
	// 130: what is interrupted. What looks into the store only is over before.
	for _, args := range []string{"run chat hello", "resume " + done, "call echo hello --server " + bus.url, "stop r1 --server " + bus.admin, "doctor", "run chat hello --server " + bus.url, "trace --follow " + done, "agents check http://127.0.0.1:1"} {
		token := aliceKey
		if strings.HasPrefix(args, "stop") {
			token = opsKey
		}
		try(interrupted, exitInterrupted, token, append(strings.Fields(args), "--config", path)...)
	}
	for verb, codes := range tried {
		others := []string{"demo", "bench", "conformance", "deny", "doctor", "agents check"} // tests of their own end them well
		if !codes[int(exitUsage)] || !codes[int(exitOK)] && !slices.Contains(others, verb) {
			t.Errorf("agentbus %s was tried with %v", verb, codes)
		}
	}
}

// parserOf is the table of verbs.
func parserOf(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("agentbus"))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

// What is empty, such as a variable of a script that is not set, names no run and
// bounds nothing: it is refused, before anything is done.
func TestEmptyArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	path := configure(t, "agents: {}\n")
	for _, args := range [][]string{
		{"resume", ""},
		{"stop", ""},
		{"trace", ""},
		{"replay", ""},
		{"events", ""},
		{"run", "--agent", "http://127.0.0.1:1/v1#a", "--agent", "http://127.0.0.1:1/v1#b", "hello", "--max-usd", ""},
		{"resume", "run_x", "--max-usd="},
		{"replay", "run_x", "--from", "1", "--max-usd="},
	} {
		code, stdout, said := outcome(t.Context(), append(args, "--config", path)...)
		if code != int(exitUsage) || stdout != "" || !strings.Contains(said, "the id of the run is empty") && !strings.Contains(said, `--max-usd: "" is not an amount`) {
			t.Errorf("agentbus %q ended with %d: %s%s", args, code, stdout, said)
		}
	}
}

// An error says nothing that moves their cursor, whoever wrote it.
func TestErrorsAreHarmless(t *testing.T) {
	t.Parallel()
	_, _, said := outcome(t.Context(), "resume", "run_\u202e\x1b[2Jgone", "--config", configure(t, "agents: {}\n"))
	if !strings.Contains(said, "run_\uFFFD\uFFFD[2Jgone") {
		t.Errorf("it says %q", said)
	}
}
