package execagent_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
)

// talk has a turn of a conversation that went as told: the user and the agent in
// turns.
func talk(a *execagent.Agent, payer agentbus.Payer, root string, told ...string) (agentbus.Reply, error) {
	l := served
	l.RootContext = root
	c := &agentbus.Call{Lineage: l}
	for i, text := range told {
		c.Messages = append(c.Messages, agentbus.Message{Role: [...]agentbus.Role{agentbus.RoleUser, agentbus.RoleAssistant}[i%2], Content: text})
	}
	return agentbus.Collect(a.Call(context.WithValue(context.Background(), payerKey{}, payer), c))
}

// B4: a program that keeps its conversations itself is told which one a turn
// belongs to, and what is new: the same for all turns of a conversation of a payer,
// also after a restart, and another one for everybody else.
func TestSessions(t *testing.T) {
	t.Parallel()
	c := execagent.Config{
		Conversation: true, Dir: t.TempDir(), Session: execagent.Session{First: []string{"--session-id", "{session}"}, Next: []string{"--resume={session}"}},
		Command: []string{"/bin/sh", "-c", `echo "$@"; cat`, "sh"},
	}
	a := newAgent(t, c, "")
	first := regexp.MustCompile(`^--session-id ([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})\n`)
	began := func(payer agentbus.Payer, root string) string {
		t.Helper()
		got, err := talk(a, payer, root, "one")
		m := first.FindStringSubmatch(got.Text)
		if err != nil || m == nil || !strings.HasSuffix(got.Text, "\none") {
			t.Fatalf("%q, %v", got.Text, err)
		}
		return m[1]
	}
	id := began("alice", "root")
	for _, b := range []*execagent.Agent{a, newAgent(t, c, "")} { // as after a restart
		if got, err := talk(b, "alice", "root", "one", "was said", "two", "three"); err != nil || got.Text != "--resume="+id+"\ntwo\n\n[assistant] three" {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
	if id == began("bob", "root") || id == began("alice", "another") {
		t.Error("a session is shared")
	}
	name, err := filepath.Glob(filepath.Join(c.Dir, "c-*"))
	if err != nil || len(name) != 3 {
		t.Fatal(name, err)
	}
	for _, n := range name { // the id tells nothing of the key
		if strings.Contains(strings.ReplaceAll(id, "-", ""), strings.TrimPrefix(filepath.Base(n), "c-"+execagent.Tag("prog")+"-")[:12]) {
			t.Errorf("%s is in %s", id, n)
		}
	}
}

// B4: a session in which a turn failed, or was cut off, counts as lost: the next
// turn begins another one, and is told everything.
func TestLostSessions(t *testing.T) {
	t.Parallel()
	c := execagent.Config{
		Conversation: true, Dir: t.TempDir(), Session: execagent.Session{First: []string{"first", "{session}"}, Next: []string{"next", "{session}"}},
		Command: []string{"/bin/sh", "-c", `text=$(cat); echo "$1 $2|$text"; case $text in *fail) exit 1;; *hang) sleep 60;; esac`, "sh"}, Timeout: 5 * time.Second, KillAfter: time.Millisecond,
	}
	a := newAgent(t, c, "")
	seen := map[string]bool{}
	for _, step := range []struct {
		told []string
		want string
	}{
		{[]string{"fail"}, "first"},
		{[]string{"one"}, "first"},
		{[]string{"one", "said", "two"}, "next"},
		{[]string{"one", "said", "two", "said", "fail"}, "next"},
		{[]string{"one", "said", "two", "said", "three"}, "first"},
		{[]string{"one", "said", "hang"}, "next"},
		{[]string{"one", "said", "four"}, "first"},
	} {
		got, _ := talk(a, "alice", "root", step.told...)
		words, text, _ := strings.Cut(strings.TrimSpace(got.Text), "|")
		how, id, _ := strings.Cut(words, " ")
		want := step.told[len(step.told)-1]
		if step.want == "first" {
			want = strings.Join(step.told, "\n\n")
			want = strings.ReplaceAll(want, "said", "[assistant] said")
		}
		if how != step.want || text != want || seen[id] != (how == "next") {
			t.Errorf("%q: %q of session %q, which was seen: %v; want %s and %q", step.told, got.Text, id, seen[id], step.want, want)
		}
		seen[id] = true
	}
}

// B4: where the program names its sessions itself, it is given that name, unless
// it could be taken for a flag.
func TestToldSessions(t *testing.T) {
	t.Parallel()
	c := execagent.Config{
		Conversation: true, Output: execagent.OutputJSONL, Fields: execagent.CodexJSON(), Session: execagent.Session{First: []string{"-"}, Next: []string{"resume", "{session}", "-"}},
		Command: []string{"/bin/sh", "-c", `read -r id; printf '{"type":"thread.started","thread_id":"%s"}\n{"type":"item.completed","item":{"type":"agent_message","text":"%s"}}\n' "$id" "$*"`, "sh"},
	}
	a := newAgent(t, c, "")
	for i, step := range []struct{ says, want string }{{"0199-a", "-"}, {"0199-b", "resume 0199-a -"}, {"--yolo", "resume 0199-b -"}, {"", "resume 0199-b -"}} {
		if got, err := talk(a, "alice", "root", step.says+"\n"); err != nil || got.Text != step.want {
			t.Errorf("%d: %q, %v, want %q", i, got.Text, err, step.want)
		}
	}
	for _, says := range []string{"--yolo", "../x", ""} { // nothing to go on with
		if got, err := talk(a, "bob", "root", says+"\n"); err != nil || got.Text != "-" {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
}

// B4: the turns of a session come one after the other.
func TestTurnsOfASession(t *testing.T) {
	t.Parallel()
	a := newAgent(t, execagent.Config{
		Conversation: true, Session: execagent.Session{Next: []string{"{session}"}}, Command: []string{"/bin/sh", "-c", `mkdir busy || exit 1; sleep 0.01; rmdir busy`},
	}, "")
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := talk(a, "alice", "root", "x"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// B4: an agent that is called from the turn that it serves says so at once,
// instead of waiting for itself; whoever gives up while waiting is left out.
func TestCallsOfItself(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{}, `while read -r line; do while [ ! -e ../go ]; do sleep 0.01; done; echo '{"text":"ok","done":true}'; done`)
	first := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), a, "alice", "root", "hello")
		first <- err
	}()
	for len(below(t, a.Dir())) == 0 { // until it is served
		<-time.After(time.Millisecond)
	}
	next, err := served.Next("r.t1.prog", "")
	if err != nil {
		t.Fatal(err)
	}
	next.RootContext = "root"
	ctx := context.WithValue(t.Context(), payerKey{}, agentbus.Payer("alice"))
	if _, err := agentbus.Collect(a.Call(ctx, &agentbus.Call{Lineage: next})); agentbus.CodeOf(err) != agentbus.CodeCycleRefused {
		t.Error(err)
	}
	impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := say(impatient, a, "alice", "root", "hello"); err == nil {
		t.Error("it was served while another was")
	}
	if err := os.WriteFile(filepath.Join(a.Dir(), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got, err := say(t.Context(), a, "alice", "root", "hello"); err != nil || got.Text != "ok" {
		t.Errorf("%q, %v", got.Text, err)
	}
}

// B4: a program that shares its directory with what is known of its sessions
// cannot lead the bus to another file.
func TestLinkedSessions(t *testing.T) {
	t.Parallel()
	dir, precious := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, execagent.Config{
		Conversation: true, Dir: dir, ShareDir: true, Session: execagent.Session{First: []string{"{session}"}, Next: []string{"{session}"}},
		Command: []string{"/bin/sh", "-c", `for f in .agentbus/*/*; do ln -sf ` + precious + ` $f; done; ln -s ` + precious + ` ${f%/*}/new-; echo $1`, "sh"},
	}, "")
	for range 3 {
		if got, err := talk(a, "alice", "root", "x"); err != nil || len(strings.TrimSpace(got.Text)) != 36 {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
}
