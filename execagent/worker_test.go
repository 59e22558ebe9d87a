package execagent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
)

// newWorkers makes an agent of long-lived workers of a shell script, ended with
// the test, when nothing of them may be left.
func newWorkers(t *testing.T, c execagent.Config, script string) *execagent.Agent {
	t.Helper()
	c.Worker, c.Conversation, c.Dir = true, true, t.TempDir()
	a := newAgent(t, c, script)
	t.Cleanup(func() {
		a.Close()
		if left := below(t, c.Dir); len(left) > 0 {
			t.Errorf("processes left: %q", left)
		}
	})
	return a
}

// say has a turn of a conversation of a payer.
func say(ctx context.Context, a *execagent.Agent, payer agentbus.Payer, root, text string) (agentbus.Reply, error) {
	l := served
	l.RootContext = root
	return agentbus.Collect(a.Call(context.WithValue(ctx, payerKey{}, payer), &agentbus.Call{Lineage: l, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}}))
}

// counting tells which worker it is, and which turn of it this is.
const counting = `n=0; while read -r line; do n=$((n+1)); echo "{\"text\":\"$$ \"}"; echo "{\"text\":\"$n\",\"done\":true}"; done`

// B4, K10: of 200 turns at once over 8 conversations each conversation meets its
// own worker, every time, and no two payers share one, although their
// conversations have the same names.
func TestAffinity(t *testing.T) {
	t.Parallel()
	const turns, roots = 200, 4
	a := newWorkers(t, execagent.Config{Workers: 8}, counting)
	payers := []agentbus.Payer{"alice", "bob"}
	var mu sync.Mutex
	got := map[string]map[string]bool{} // conversation → answers
	var all sync.WaitGroup
	for i := range turns {
		payer, root := payers[i%2], fmt.Sprintf("root-%d", i/2%roots)
		all.Go(func() {
			reply, err := say(t.Context(), a, payer, root, "hello")
			mu.Lock()
			defer mu.Unlock()
			of := string(payer) + " " + root
			if got[of] == nil {
				got[of] = map[string]bool{}
			}
			if got[of][reply.Text] || err != nil {
				t.Errorf("%s: %q, %v", of, reply.Text, err)
			}
			got[of][reply.Text] = true
		})
	}
	all.Wait()
	owner := map[string]string{} // worker → conversation
	for of, answers := range got {
		for answer := range answers {
			pid, _, _ := strings.Cut(answer, " ")
			if other, taken := owner[pid]; taken && other != of {
				t.Errorf("worker %s serves %s and %s", pid, of, other)
			}
			owner[pid] = of
		}
		if len(answers) != turns/2/roots {
			t.Errorf("%s: %d turns", of, len(answers))
		}
	}
	if len(owner) != 2*roots {
		t.Errorf("%d workers for %d conversations", len(owner), 2*roots)
	}
}

// B4: no more workers than configured; one that is idle makes room.
func TestWorkersAtOnce(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{Workers: 2}, `while read -r line; do echo "{\"text\":\"$$\",\"done\":true}"; done`)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if _, err := say(t.Context(), a, "alice", fmt.Sprintf("root-%d", i%6), "hello"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	workers := 0
	for _, line := range below(t, a.Dir()) {
		if strings.Contains(line, "supervise") {
			workers++
		}
	}
	if workers > 2 {
		t.Errorf("%d workers", workers)
	}
}

// B3, B4: a worker that is no good is ended, and the next turn meets another.
func TestBadWorkers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script, message string
		code            agentbus.Code
	}{
		"ends in the middle": {`read -r line; echo '{"text":"a"}'; echo bye >&2; sleep 0.1`, "the program ended before its turn was done; it said: bye", agentbus.CodeAgentUnavailable},
		"fails":              {`read -r line; echo '{"error":"no"}'; read -r line`, "the program said that it failed; it said: no", agentbus.CodeAgentUnavailable},
		"hangs":              {`trap '' TERM; read -r line; sleep 60; sleep 60`, "the program did not end within 300ms", agentbus.CodeDeadlineExceeded},
		"does not read":      {`sleep 60`, "the program did not end within 300ms", agentbus.CodeDeadlineExceeded},
		"floods":             {`while :; do echo '{"text":"aaaaaaaaaaaaaaaaaaaaaaaa"}'; done`, "the program wrote more than 4096 bytes", agentbus.CodeAgentUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := execagent.Config{Timeout: 300 * time.Millisecond, KillAfter: 100 * time.Millisecond, MaxOutput: 4096}
			if tt.code != agentbus.CodeDeadlineExceeded {
				c.Timeout = time.Minute
			}
			a := newWorkers(t, c, "if [ -e bad ]; then "+counting+"; else touch bad; "+tt.script+"; fi")
			_, err := say(t.Context(), a, "alice", "root", strings.Repeat("long ", 1<<16))
			if agentbus.CodeOf(err) != tt.code || agentbus.AsError(err).Message != tt.message {
				t.Errorf("%v, want %q", err, tt.message)
			}
			if tt.code == agentbus.CodeDeadlineExceeded { // a machine that is busy takes longer to start a shell
				return
			}
			if got, err := say(t.Context(), a, "alice", "root", "again"); err != nil || !strings.HasSuffix(got.Text, " 1") {
				t.Errorf("the next turn: %q, %v", got.Text, err)
			}
		})
	}
}

// B2, B4: a worker is asked with what its turn is, and tells what it used.
func TestWorkerExchange(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{ReportCost: true}, `read -r line; echo "$line" >asked; echo 'starting' ; echo '{"text":"é","reasoning":"hm","model":"m","done":true,"usage":{"input_tokens":1,"cached_tokens":-1,"output_tokens":2,"cost_usd":0.5}}'; exit 0`)
	want := agentbus.Usage{InputTokens: 1, OutputTokens: 2, Cost: 500_000}
	for range 2 { // the worker has ended in between
		got, err := say(t.Context(), a, "alice", "root", "hello")
		if err != nil || got.Text != "é" || got.Reasoning != "hm" || got.Model != "m" || got.Usage != want {
			t.Errorf("%+v, %v", got, err)
		}
		nobodyBelow(t, a.Dir())
	}
	echo := newWorkers(t, execagent.Config{}, `read -r line; printf '{"text":"%s","done":true}\n' "$(echo "$line" | tr -d '\\"' | sed 's/./&~/g')"; read -r line`)
	got, err := say(t.Context(), echo, "alice", "root", "hello")
	got.Text = together(got.Text)
	for _, part := range []string{"turn:r.t0.prog", "prompt:hello", "role:user", "AGENTBUS_RUN_ID:r", "AGENTBUS_DEPTH:1", "AGENTBUS_TOKEN:abturn_", "AGENTBUS_ROOT_CONTEXT_ID:root"} {
		if err != nil || !strings.Contains(got.Text, part) {
			t.Errorf("%q, %v, want %q in it", got.Text, err, part)
		}
	}
}

// nobodyBelow waits until no process works below dir.
func nobodyBelow(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(time.Minute); len(below(t, dir)) > 0; {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("processes stay: %q", below(t, dir))
		}
	}
}

// B4: an idle worker ends after its time, and one that is closed while it serves
// ends with its turn.
func TestIdleWorkersEnd(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{WorkerIdle: 20 * time.Millisecond}, counting)
	if _, err := say(t.Context(), a, "alice", "root", "hello"); err != nil {
		t.Fatal(err)
	}
	nobodyBelow(t, a.Dir())
	a.Close()
	if got, err := say(t.Context(), a, "alice", "root", "hello"); err != nil || !strings.HasSuffix(got.Text, " 1") {
		t.Errorf("%q, %v", got.Text, err)
	}
	if left := below(t, a.Dir()); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}

// B4: what a worker says between its turns, or of another turn, belongs to none.
func TestLateWords(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{}, `n=0; while read -r line; do
n=$((n+1)); echo '{"turn":"another","text":"of another","done":true}'
echo "late $n" >&2
echo "{\"turn\":\"r.t0.prog\",\"text\":\"$n\",\"done\":true}"
sleep 0.05; echo '{"text":"too late"}'; echo '{"text":"half'; touch said$n; [ $n = 3 ] && exit 1
done`)
	for _, want := range []string{"1", "2"} {
		if got, err := say(t.Context(), a, "alice", "root", "hello"); err != nil || got.Text != want {
			t.Errorf("%q, %v, want %q", got.Text, err, want)
		}
		waitFor(t, a, "said"+want)
	}
}

// waitFor waits until a worker has made a file.
func waitFor(t *testing.T, a *execagent.Agent, name string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(time.Minute); ; {
		if found, err := filepath.Glob(filepath.Join(a.Dir(), "*", name)); err != nil || len(found) > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("no %s", name)
		}
	}
}

// B3: the directory of a worker stays for as long as it serves.
func TestDirectoryOfAWorker(t *testing.T) {
	t.Parallel()
	a := newWorkers(t, execagent.Config{DirAge: time.Hour}, `while read -r line; do touch -d 2020-01-01 .; echo "{\"text\":\"$(ls -d .)\",\"done\":true}"; done`)
	for range 2 {
		if got, err := say(t.Context(), a, "alice", "root", "hello"); err != nil || got.Text != "." {
			t.Errorf("%q, %v", got.Text, err)
		}
		a.Sweep()
	}
	if left, err := filepath.Glob(filepath.Join(a.Dir(), "c-*")); err != nil || len(left) != 1 {
		t.Errorf("%q, %v", left, err)
	}
}
