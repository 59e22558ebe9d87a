package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/require"
)

// completable is a configuration with something to complete, in which one run was made.
func completable(t *testing.T) (path, run string) {
	t.Helper()
	path = configure(t, `agents: {echo: {kind: builtin, builtin: echo}, eliza: {kind: builtin, builtin: eliza}}
conversations: {debate: {participants: [{agent: echo}, {agent: eliza}], max_turns: 1}}
`)
	code, r, stderr := drove(t, path, "run", "debate", "hello")
	if code != 0 {
		t.Fatal(stderr)
	}
	return path, string(r.Run)
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	path, run := completable(t)
	for _, tt := range []struct {
		typed string
		want  []string
	}{
		{"ru", []string{"run", "runs"}},
		{"comple", []string{"completion"}}, // not complete, which nobody types
		{"config ", []string{"check", "explain", "schema"}},
		{"call --config CONFIG e", []string{"echo", "eliza"}},
		{"call --config=CONFIG ech", []string{"echo"}},
		{"call --config = CONFIG ech", []string{"echo"}}, // as bash has it
		{"call --config CONFIG echo ", nil},
		{"--config CONFIG run ", []string{"debate"}},
		{"trace --config CONFIG run_", []string{run}},
		{"inbox --config CONFIG --run ", []string{run}},
		{"inbox --config CONFIG --run=", []string{"--run=" + run}},
		{"inbox --config CONFIG --run = run_", []string{run}},
		{"approve --config CONFIG ", nil},
		{"run --max-", []string{"--max-turns", "--max-usd"}},
		{"bench --cl", []string{"--clients"}},
		{"bench -c 3 --cl", []string{"--clients"}},
		{"doctor --config ", []string{filesFollow}},
		{"completion ", []string{"bash", "fish", "zsh"}},
		{"keys create --role ", []string{"admin", "user"}},
		{"call --config /nowhere ", nil},
		{"--nonsense=", nil},
	} {
		args := append([]string{"complete", "--"}, strings.Split(tt.typed, " ")...)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "CONFIG", path) // which may have spaces
		}
		code, stdout, stderr := outcome(t.Context(), args...)
		var got []string
		for line := range strings.Lines(stdout) {
			word, _, _ := strings.Cut(line, "\t")
			got = append(got, word)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || code != 0 || stderr != "" {
			t.Errorf("%q: exit %d, %s (-want +got):\n%s", tt.typed, code, stderr, diff)
		}
	}
}

// A TAB makes no store, and changes none.
func TestCompletionMakesNoStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	save(t, path, "store: {url: 'sqlite:"+filepath.Dir(path)+"/bus.db'}\n")
	if code, stdout, _ := outcome(t.Context(), "complete", "--", "trace", "--config", path, ""); code != 0 || stdout != "" {
		t.Errorf("exit %d: %s", code, stdout)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "bus.db")); err == nil {
		t.Error("there is a store")
	}
}

// What each shell makes of its script, in that shell. zsh's own functions for
// the menu are stood in for: they want a terminal.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	path, run := completable(t)
	for shell, scripts := range map[string]struct{ verbs, agents, runs, files string }{
		"bash": {
			`source <(agentbus completion bash); COMP_WORDS=(agentbus ru); COMP_CWORD=1; _agentbus; printf '%s\n' "${COMPREPLY[@]}"`,
			`source <(agentbus completion bash); COMP_WORDS=(agentbus call --config "$FILE" e); COMP_CWORD=4; _agentbus; printf '%s\n' "${COMPREPLY[@]}"`,
			`source <(agentbus completion bash); COMP_WORDS=(agentbus trace --config "$FILE" ""); COMP_CWORD=4; _agentbus; printf '%s\n' "${COMPREPLY[@]}"`,
			`source <(agentbus completion bash); COMP_WORDS=(agentbus --config ""); COMP_CWORD=2; _agentbus; echo "files${COMPREPLY[*]}"`,
		},
		"zsh": {
			`compdef() { :; }; _describe() { print -l -- ${${(P)2}%%:*} }; source <(agentbus completion zsh); words=(agentbus ru); CURRENT=2; _agentbus`,
			`compdef() { :; }; _describe() { print -l -- ${${(P)2}%%:*} }; source <(agentbus completion zsh); words=(agentbus call --config $FILE e); CURRENT=5; _agentbus`,
			`compdef() { :; }; _describe() { print -l -- ${${(P)2}%%:*} }; source <(agentbus completion zsh); words=(agentbus trace --config $FILE ""); CURRENT=5; _agentbus`,
			`compdef() { :; }; _files() { print files }; source <(agentbus completion zsh); words=(agentbus --config ""); CURRENT=3; _agentbus`,
		},
		"fish": {
			`agentbus completion fish | source; complete -C "agentbus ru" | cut -f1`,
			`agentbus completion fish | source; complete -C "agentbus call --config $FILE e" | cut -f1`,
			`agentbus completion fish | source; complete -C "agentbus trace --config $FILE " | cut -f1`,
			`agentbus completion fish | source; cd (dirname $FILE); touch files; complete -C "agentbus --config fil" | cut -f1`,
		},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			program := require.Tool(t, shell)
			for script, want := range map[string]string{scripts.verbs: "run\nruns\n", scripts.agents: "echo\neliza\n", scripts.runs: run + "\n", scripts.files: "files\n"} {
				if got := inShell(t, program, script, path); got != want {
					t.Errorf("%s said %q, want %q", script, got, want)
				}
			}
		})
	}
}

// inShell runs a script in a shell that finds this program as agentbus.
func inShell(t *testing.T, shell, script, file string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Symlink(self, filepath.Join(home, "agentbus")); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), shell, "-c", script)
	c.Env = append(os.Environ(), asProgram+"=1", "FILE="+file, "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "PATH="+home+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", script, err, out)
	}
	return string(out)
}
