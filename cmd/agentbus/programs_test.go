package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// scripted configures agents that are shell scripts, which find this program as
// $AGENTBUS; each has its working directories below the configuration.
func scripted(t *testing.T, more string, scripts map[string]string) (path string, env map[string]string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var agents strings.Builder
	agents.WriteString("agents:\n")
	for name, script := range scripts {
		options, body, _ := strings.Cut(script, "\n")
		if !strings.Contains(options, "env: ") {
			options += ", env: [GORACE]"
		}
		file := filepath.Join(dir, name+".sh")
		save(t, file, "#!/bin/sh\nagentbus() { "+asProgram+"=1 '"+self+"' \"$@\"; }\nlog='"+dir+"'\n"+body)
		fmt.Fprintf(&agents, "  %s: {kind: exec, command: [sh, %q], dir: %q, price: {call: 0.01}%s}\n", name, file, filepath.Join(dir, "work"), options)
	}
	path = configure(t, "keys: [{id: alice, secret_env: ALICE}, {id: bob, secret_env: BOB}]\n"+more+agents.String())
	return path, map[string]string{"ALICE": "alice-secret", "BOB": "bob-secret", "PATH": os.Getenv("PATH"), "CANARY": "canary-of-the-bus", "GORACE": os.Getenv("GORACE")}
}

// P8, P9, P10, B2, B6: a chain of shell scripts, each an agent that calls the
// next one with agentbus call, stops where the limit says: a caller and a gateway
// count one hop each. Each execution is billed to the origin, and the call that
// is refused starts no process.
func TestChainOfScripts(t *testing.T) {
	t.Parallel()
	const links = 5
	for limit := 1; limit <= 8; limit++ {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			t.Parallel()
			scripts := map[string]string{}
			for i := range links {
				scripts[fmt.Sprintf("a%d", i)] = fmt.Sprintf(`
echo a%d $AGENTBUS_DEPTH >>"$log/started"
echo "a%d heard: $(cat)"
AGENTBUS_MAX_DEPTH=$local agentbus call a%d "from a%d" 2>>"$log/errors"
echo "a%d got $?"
`, i, i, i+1, i, i)
			}
			scripts[fmt.Sprintf("a%d", links)] = "\necho the end\n"
			path, env := scripted(t, fmt.Sprintf("limits: {max_depth: %d}\n", limit), scripts)
			dir := scriptsOf(t, path)
			b := serving(t, path, env)
			// By the limit of the bus, and not by that of the verb, which would not send the call.
			for _, local := range []string{"99", strconv.Itoa(limit)} {
				for i := range links {
					rewrite(t, filepath.Join(dir, fmt.Sprintf("a%d.sh", i)), "$local", local)
				}
				checkChain(t, b.url, path, dir, limit)
				for i := range links {
					rewrite(t, filepath.Join(dir, fmt.Sprintf("a%d.sh", i)), "AGENTBUS_MAX_DEPTH="+local, "AGENTBUS_MAX_DEPTH=$local")
				}
			}
		})
	}
}

func checkChain(t *testing.T, bus, path, dir string, limit int) {
	t.Helper()
	started := filepath.Join(dir, "started")
	_ = os.Remove(started)
	status, header, body, err := post(t.Context(), bus, "alice-secret", `{"model":"a0","messages":[{"role":"user","content":"hello"}]}`, nil)
	if err != nil || status != 200 {
		t.Fatalf("status %d: %v: %s", status, err, body)
	}
	// The origin is at 0. A program is given what arrived plus one, and its call
	// carries one more: 0, 2, 4 … arrive.
	var want []string
	for i := 0; 2*i < limit; i++ {
		want = append(want, fmt.Sprintf("a%d %d", i, 2*i+1))
	}
	if got := linesOf(t, started); !slices.Equal(got, want) {
		t.Errorf("limit %d: started %q, want %q", limit, got, want)
	}
	if last := fmt.Sprintf("a%d got 3", len(want)-1); !strings.Contains(body, last) {
		t.Errorf("limit %d: %s, want %q in it", limit, body, last)
	}
	run := agentbus.RunID(header.Get("X-Tangle-Runid"))
	calls, err := opened(t, path, map[string]string{"ALICE": "alice-secret", "BOB": "bob-secret"}).Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	settled := 0
	for i := range calls {
		c := &calls[i]
		if c.Payer != "alice" {
			t.Errorf("limit %d: the call of %s is billed to %q", limit, c.Agent, c.Payer)
		}
		if c.State == agentbus.CallSettled && c.Cost == 10_000 {
			settled++
		}
	}
	if settled != len(want) {
		t.Errorf("limit %d: %d calls were settled, want %d: %+v", limit, settled, len(want), calls)
	}
}

// scriptsOf returns where scripted put the scripts of a configuration.
func scriptsOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `dir: "`)
	dir, _, _ := strings.Cut(rest, `"`)
	return filepath.Dir(dir)
}

func rewrite(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.ReplaceAll(string(text), from, to))
}

// linesOf returns the lines of a file; none when there is no such file.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
