package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// B2: a program that is an agent of a conversation which is driven here, without
// a bus that serves, calls others of its agents with agentbus call: on the bill
// of the origin, on its run. Nobody else is let in.
func TestRunOfPrograms(t *testing.T) {
	t.Parallel()
	path, env := scripted(t, "", map[string]string{
		"asker":   "\necho $AGENTBUS_URL >\"$log/url\"; printf 'library says: '; agentbus call library 'how deep?' || echo \"failed: $?\"; while [ -e \"$log/wait\" ]; do sleep 0.02; done\n",
		"library": "\nprintf 'very, at %s' $AGENTBUS_DEPTH\n",
	})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, string(text)+"  nobody: {kind: builtin, builtin: echo}\nconversations: {ask: {participants: [{agent: asker}, {agent: nobody}], max_turns: 1}}\n")
	dir := scriptsOf(t, path)
	save(t, filepath.Join(dir, "wait"), "")
	vars := []string{"AGENTBUS_TOKEN=alice-secret"}
	for k, v := range env {
		vars = append(vars, k+"="+v)
	}
	p := start(t, dir, vars, "run", "ask", "the lake", "--config", path, "--json")
	within(t, time.Minute, "the program runs", func() bool { return len(linesOf(t, filepath.Join(dir, "url"))) == 1 })
	url := linesOf(t, filepath.Join(dir, "url"))[0]
	for name, key := range map[string]string{"a user": "alice-secret", "a stranger": "x", "a token that is none": "abturn_x"} {
		if status, _, body, err := post(t.Context(), url, key, `{"model":"library","messages":[]}`, nil); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d: %v: %s", name, status, err, body)
		}
	}
	if err := os.Remove(filepath.Join(dir, "wait")); err != nil {
		t.Fatal(err)
	}
	out := strings.Join(p.rest(), "\n")
	if code := p.end(); code != 0 || !strings.Contains(out, "library says: very, at 3") {
		t.Fatalf("%d, %s, %s", code, out, p.stderr.String())
	}
	_, run, _ := strings.Cut(out, `"run": "`)
	run, _, _ = strings.Cut(run, `"`)
	calls, err := opened(t, path, env).Calls(t.Context(), agentbus.RunID(run))
	if err != nil || len(calls) != 2 {
		t.Fatalf("%+v, %v", calls, err)
	}
	for i := range calls {
		if c := &calls[i]; c.Payer != "alice" || c.State != agentbus.CallSettled || c.Cost != 10_000 {
			t.Errorf("%+v", c)
		}
	}
	if _, _, _, err := post(t.Context(), url, "alice-secret", "{}", nil); err == nil {
		t.Error("it listens when nothing is driven")
	}
}
