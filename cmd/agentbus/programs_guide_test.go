package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// guide returns the blocks of docs/guides/programs.md that hold a file, by its
// name, and the others in order.
func guide(t *testing.T) (files map[string]string, others []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	parts := strings.Split(string(text), "\n```")
	for i := 1; i < len(parts); i += 2 {
		_, block, _ := strings.Cut(parts[i], "\n") // behind its language
		name := ""
		for _, line := range strings.SplitN(block, "\n", 3)[:2] {
			if n, ok := strings.CutPrefix(line, "# "); ok && strings.Contains(n, ".") {
				name = n
			}
		}
		if name == "" {
			others = append(others, block)
			continue
		}
		files[name] = block + "\n"
	}
	return files, others
}

// guided writes executable files into a directory, with this program as agentbus.
func guided(t *testing.T, dir string, programs map[string]string) (path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs = maps.Clone(programs)
	programs["agentbus"] = "#!/bin/sh\n" + asProgram + "=1 exec '" + self + "' \"$@\"\n"
	for name, text := range programs {
		save(t, filepath.Join(dir, name), text)
		if err := os.Chmod(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + os.Getenv("PATH")
}

// The first chapter of the guide, word for word, does what it says.
func TestGuideOfScripts(t *testing.T) {
	t.Parallel()
	files, _ := guide(t)
	dir := t.TempDir()
	vars := []string{"ALICE_KEY=any-long-secret", "PATH=" + guided(t, dir, map[string]string{"research.sh": files["research.sh"], "library.sh": files["library.sh"]}), "XDG_CACHE_HOME=" + t.TempDir()}
	save(t, filepath.Join(dir, "agentbus.yaml"), files["agentbus.yaml"])
	bus := start(t, dir, append(vars, "AGENTBUS_LISTEN=127.0.0.1:0", "AGENTBUS_ADMIN_LISTEN=127.0.0.1:0"), "serve")
	url, _, _ := bus.serves(t)
	vars = append(vars, "AGENTBUS_URL="+url, "AGENTBUS_TOKEN=any-long-secret")
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, out, stderr := program(t, dir, vars, "call", "research", "How deep is the Baikal?")
	if code != 0 || out == "" || !strings.Contains(string(text), "It says `"+out+"`") {
		t.Errorf("%d, %q, %s", code, out, stderr)
	}
	_, out, _ = program(t, dir, vars, "runs")
	lines := strings.Split(out, "\n")
	run, _, _ := strings.Cut(lines[len(lines)-1], " ")
	code, out, stderr = program(t, dir, vars, "trace", run)
	if code != 0 || !strings.Contains(out, "research") || !strings.Contains(out, "library") || !strings.Contains(out, "0.03") {
		t.Errorf("trace %s: %d, %s, %s", run, code, out, stderr)
	}
}

// What stands in for the command-line agents of the guide: each takes the flags
// that its original documents, and no others, and answers as that does.
var standIns = map[string]string{
	"claude": `#!/bin/sh
[ "$1 $2 $3 $4 $5" = "--print --verbose --output-format stream-json --include-partial-messages" ] || { echo "flags: $*" >&2; exit 2; }
case $6 in
--session-id) [ ! -e "$7" ] || { echo "Session ID $7 is already in use." >&2; exit 1; }; : >"$7";;
--resume) [ -e "$7" ] || { echo "No conversation found with session ID: $7" >&2; exit 1; };;
*) exit 2;;
esac
[ -n "$ANTHROPIC_API_KEY" ] && [ $# = 7 ] || exit 2
cat >>"$7"
text=$(tr '\n' ' ' <"$7")
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$7\"}"
echo "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"I know: \"}},\"session_id\":\"$7\",\"parent_tool_use_id\":null}"
echo "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"$text\"}},\"session_id\":\"$7\",\"parent_tool_use_id\":null}"
echo "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"I know: $text\"}]},\"session_id\":\"$7\",\"parent_tool_use_id\":null}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"I know: $text\",\"session_id\":\"$7\",\"total_cost_usd\":0.5,\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}"
`,
	"codex": `#!/bin/sh
[ "$1 $2 $3" = "exec --json --skip-git-repo-check" ] || exit 2
shift 3
case $* in
-) id=0199a213-$$; : >$id;;
"resume "*" -") id=$2; [ -e "$id" ] || exit 1;;
*) exit 2;;
esac
[ -n "$OPENAI_API_KEY" ] || exit 2
cat >>$id
echo "{\"type\":\"thread.started\",\"thread_id\":\"$id\"}"
echo "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"I know: $(tr '\n' ' ' <$id)\"}}"
echo '{"type":"turn.completed","usage":{"input_tokens":1000000,"cached_input_tokens":0,"output_tokens":0}}'
`,
	"aider": `#!/bin/sh
[ "$1 $2 $3 $4 $5" = "--yes-always --no-pretty --no-stream --message-file /dev/stdin" ] || exit 2
printf 'I know: %s at %s' "$(cat $5)" "$(pwd)"
`,
}

// The configuration of command-line agents in the guide runs them as they say
// that they are run, and each goes on with its conversation.
func TestGuideOfAgents(t *testing.T) {
	t.Parallel()
	_, others := guide(t)
	agents := ""
	for _, block := range others {
		if strings.HasPrefix(block, "agents:\n") {
			agents = block
		}
	}
	dir, checkout := t.TempDir(), t.TempDir()
	env := map[string]string{"ALICE": "alice-secret", "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "PATH": guided(t, dir, standIns)}
	agents = strings.ReplaceAll(agents, "dir: /srv/checkout ", "dir: "+checkout+" ")
	for _, name := range []string{"claude", "codex"} { // not in the cache of whoever tests
		agents = strings.Replace(agents, "  "+name+":\n", fmt.Sprintf("  %s:\n    dir: %s\n", name, filepath.Join(dir, "work")), 1)
	}
	path := configure(t, "keys: [{id: alice, secret_env: ALICE}]\n"+agents+"\n")
	b := serving(t, path, env)
	for _, tt := range []struct {
		agent, first, then string
		cost               agentbus.Micros
	}{
		{"claude", "I know: one", "I know: one two", 500_000},
		{"codex", "I know: one", "I know: one two", 1_250_000},
		{"aider", "I know: one at " + checkout, "I know: one\n\n[assistant] yes\n\ntwo at " + checkout, 0},
	} {
		in := http.Header{agentbus.RootContextIDHeader: {"root"}}
		got := askAgent(t.Context(), t, b.url, "alice-secret", tt.agent, "one", in)
		then := askAgent(t.Context(), t, b.url, "alice-secret", tt.agent, `one"},{"role":"assistant","content":"yes"},{"role":"user","content":"two`, in)
		if strings.TrimSpace(got.text) != tt.first || strings.ReplaceAll(strings.TrimSpace(then.text), "onetwo", "one two") != tt.then {
			t.Errorf("%s: %+v, then %+v", tt.agent, got, then)
		}
		calls, err := opened(t, path, env).Calls(t.Context(), then.run)
		if err != nil || len(calls) != 1 || calls[0].Cost != tt.cost {
			t.Errorf("%s: %+v, %v", tt.agent, calls, err)
		}
	}
}
