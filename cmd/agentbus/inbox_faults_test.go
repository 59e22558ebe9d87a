package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

// R14, R19, R22, I1, I6: whichever process of a run that waits is killed, at
// whichever commit, no interrupt is lost or doubled, nothing is executed before
// the answer, the run ends as one that was not killed, and is charged once.
func TestKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	program := faulty(t)
	for _, verb := range []string{"run", "approve", "resume"} {
		for _, point := range []faults.Point{faults.CommitBegun, faults.CommitAmid, faults.CommitAfter} {
			t.Run(verb+" "+string(point), func(t *testing.T) {
				t.Parallel()
				n := 1
				for newParked(t, program).killed(verb, point, n) {
					n++
				}
				if n == 1 {
					t.Errorf("%s was never passed", point)
				}
			})
		}
	}
}

// A parked is a store with one run that waits, and its agent.
type parked struct {
	t             *testing.T
	program, path string

	mu       sync.Mutex // guards both below
	paid     bool
	executed int
}

func newParked(t *testing.T, program string) *parked {
	t.Helper()
	p := &parked{t: t, program: program}
	agent := httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(agent.Close)
	p.path = configure(t, fmt.Sprintf("agents:\n  shop: {kind: openai, url: %q, price: {call: 0.01}}\n  echo: {kind: builtin, builtin: echo, price: {call: 0.001}}\n", agent.URL+"/v1")+
		"conversations: {buy: {participants: [{agent: shop}, {agent: echo}], max_turns: 2}}\n")
	return p
}

// answer is the agent: it executes once it was paid.
func (p *parked) answer(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !p.paid {
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"error":{"code":"payment_required","message":"pay first","ask":{"kind":"policy","title":"a dollar"}}}`)
		return
	}
	p.executed++
	_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"sold"},"finish_reason":"stop"}]}`)
}

// cli runs a verb, in a process of its own if it is to be killed; -1: it was.
func (p *parked) cli(fault string, args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	if fault == "" {
		return outcome(p.t.Context(), append(args, "--config", p.path)...)
	}
	var out, diag bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.program, append(args, "--config", p.path)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = filepath.Dir(p.path), []string{"AGENTBUS_FAULT=" + fault, "HOME=" + p.t.TempDir()}, &out, &diag
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), diag.String()
}

// interrupts are those that there are.
func (p *parked) interrupts() (all []agentbus.Interrupt) {
	p.t.Helper()
	if _, stdout, stderr := p.cli("", "inbox", "--all", "--json"); json.Unmarshal([]byte(stdout), &all) != nil {
		p.t.Fatal(stdout, stderr)
	}
	return all
}

// killed takes the run from its beginning to its end, and kills the process of a
// verb when it passes point for the n-th time. It reports whether that one was
// killed.
func (p *parked) killed(verb string, point faults.Point, n int) (died bool) {
	p.t.Helper()
	fault := func(of string) string {
		if of == verb {
			return fmt.Sprintf("%s:%d", point, n)
		}
		return ""
	}
	where := fmt.Sprintf("%s %s:%d", verb, point, n)
	code, _, _ := p.cli(fault("run"), "run", "buy", "hello")
	died = code == -1
	run := p.waits()
	all := p.interrupts()
	if len(all) != 1 || !all[0].Open() || p.executed != 0 {
		p.t.Fatalf("%s: %d executions, %+v", where, p.executed, all)
	}
	p.mu.Lock()
	p.paid = true
	p.mu.Unlock()
	if code, _, _ = p.cli(fault("approve"), "approve", string(all[0].ID)); code == -1 {
		died = true
		if code, _, stderr := p.cli("", "approve", string(all[0].ID)); code != 0 && !strings.Contains(stderr, "granted by local") {
			p.t.Fatalf("%s: approve again: %d %s", where, code, stderr)
		}
	}
	code, _, _ = p.cli(fault("resume"), "resume", run)
	died = died || code == -1
	code, stdout, stderr := p.cli("", "resume", run)
	if code != 0 || !strings.Contains(stdout, "[shop] sold\n[echo] sold\n") {
		p.t.Fatalf("%s: %d\n%s\n%s", where, code, stdout, stderr)
	}
	if all := p.interrupts(); len(all) != 1 || all[0].Open() || all[0].Resolution.Decision != agentbus.DecisionGranted {
		p.t.Fatalf("%s: %+v", where, all)
	}
	if code, stdout, stderr := p.cli("", "ledger", "verify"); code != 0 || !strings.Contains(stdout, "$0.011") {
		p.t.Errorf("%s: %d %s%s", where, code, stdout, stderr)
	}
	return died && !p.t.Failed()
}

// waits goes on until the run waits, and returns its id.
func (p *parked) waits() string {
	p.t.Helper()
	for range 3 {
		_, stdout, _ := p.cli("", "runs", "--json")
		var runs []agentbus.RunSummary
		if err := json.Unmarshal([]byte(stdout), &runs); err != nil {
			p.t.Fatal(err)
		}
		args := []string{"run", "buy", "hello"} // it was killed before there was a run
		if len(runs) > 0 {
			args = []string{"resume", string(runs[0].Run)}
		}
		if code, _, stderr := p.cli("", args...); code != 6 {
			p.t.Fatalf("%v: %d %s", args, code, stderr)
		}
		if len(runs) > 0 {
			return string(runs[0].Run)
		}
	}
	p.t.Fatal("there is no run")
	return ""
}
