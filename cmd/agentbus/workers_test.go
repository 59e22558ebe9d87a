package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// executionOf returns a top-level run as the store has it.
func executionOf(t *testing.T, s server.Store, run agentbus.RunID) agentbus.Execution {
	t.Helper()
	e, found, err := s.Execution(t.Context(), agentbus.ExecutionID(run))
	if err != nil || !found {
		t.Fatalf("run %s: %v, %v", run, found, err)
	}
	return e
}

// halts waits until a run has halted.
func halts(t *testing.T, s server.Store, run agentbus.RunID) agentbus.Execution {
	t.Helper()
	eventually(t, "the end of run "+string(run), func() bool { return executionOf(t, s, run).State != agentbus.RunRunning })
	return executionOf(t, s, run)
}

// chargedOnce fails unless every call of a run is settled, once.
func chargedOnce(t *testing.T, s server.Store, run agentbus.RunID, calls int) {
	t.Helper()
	all := callsOf(t, s, run)
	if len(all) != calls {
		t.Errorf("%d calls, want %d", len(all), calls)
	}
	for _, c := range all {
		if c.State != agentbus.CallSettled || c.Cost != 1000 {
			t.Errorf("%+v", c)
		}
	}
}

// killedInTurn starts a run and kills its process in the middle of b's first
// turn.
func killedInTurn(t *testing.T, path string, b *agent, env []string, args ...string) agentbus.RunID {
	t.Helper()
	b.holds.Store(true)
	defer b.holds.Store(false)
	p := start(t, t.TempDir(), env, append([]string{"run", "talk", "go", "--config", path}, args...)...)
	cut := <-b.begun
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	return agentbus.RunID(strings.TrimSuffix(string(cut), ".t1.b"))
}

// R19: a bus that serves goes on with a run whose process was killed, without
// waiting for its lease; what is done stands, and each turn is charged once.
func TestServeGoesOnWithAKilledRun(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", time.Millisecond), newAgent(t, "b", 5*time.Millisecond)
	b.begun = make(chan agentbus.TurnID, 8)
	path := configure(t, talkOf(a, b, ""))
	run := killedInTurn(t, path, b, nil)
	s := opened(t, path, nil)
	if e := executionOf(t, s, run); e.State != agentbus.RunRunning {
		t.Fatalf("killed, it is %+v", e)
	}
	serving(t, path, nil)
	if e := halts(t, s, run); e.State != agentbus.RunDone || e.Turns != 6 || e.Lease.Epoch != 3 { // began, claimed, driven
		t.Errorf("%+v", e)
	}
	turns := turnsOf(t, s, run)
	onceEach(t, append(turns[:1:1], turns[2:]...), map[agentbus.Speaker]*agent{"a": a, "b": b})
	chargedOnce(t, s, run, 6)
}

// R16, R19, E4: runs that were interrupted, or begun with another definition, are not
// taken up; one that was stopped when its process was dead is ended, and calls nobody.
func TestServeLeavesAlone(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 5*time.Millisecond)
	b.begun = make(chan agentbus.TurnID, 64)
	path := configure(t, talkOf(a, b, ""))
	s := opened(t, path, nil)
	stopped := killedInTurn(t, path, b, nil)
	if err := s.StopRun(t.Context(), stopped, "ops", "", time.Now()); err != nil {
		t.Fatal(err)
	}
	changed := killedInTurn(t, path, b, nil)
	b.holds.Store(true)
	p := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	paused := agentbus.RunID(strings.TrimSuffix(string(<-b.begun), ".t1.b"))
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.rest()
	p.end()
	b.holds.Store(false)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.Replace(string(text), "max_turns: 6", "max_turns: 4", 1))
	taken := killedInTurn(t, path, b, nil)
	bus := serving(t, path, nil)
	if e := halts(t, s, taken); e.State != agentbus.RunDone || e.Turns != 4 {
		t.Errorf("%+v", e)
	}
	if e := executionOf(t, s, paused); e.State != agentbus.RunPaused || e.Lease.Epoch != 1 {
		t.Errorf("interrupted: %+v", e)
	}
	eventually(t, "the claim of what has changed", func() bool { return executionOf(t, s, changed).Lease.Epoch == 3 }) // and it is handed back
	if e := executionOf(t, s, changed); e.State != agentbus.RunRunning || e.Turns != 1 {
		t.Errorf("changed: %+v", e)
	}
	if e := halts(t, s, stopped); e.State != agentbus.RunDone || e.Turns != 1 || e.Cost != 1000 {
		t.Errorf("stopped: %+v", e)
	}
	bus.stop()
	code := <-bus.exited
	bus.exited <- code
	log := bus.stderr.String()
	if strings.Count(log, "run not taken up") != 1 || !strings.Contains(log, string(changed)) || !strings.Contains(log, "was begun with another definition") || strings.Contains(log, `"run taken up","run":"`+string(stopped)) {
		t.Errorf("the log says %s", log)
	}
}

// R16: a run that is stopped in one process halts in the other that drives it,
// for good.
func TestStoppedElsewhere(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", time.Hour) // says nothing
	path := configure(t, talkOf(a, b, "")+"workers: {lease: 300ms}\n")
	p := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	if !p.lines.Scan() {
		t.Fatal("it says nothing")
	}
	run := agentbus.RunID(strings.TrimPrefix(p.lines.Text(), "run "))
	s := opened(t, path, nil)
	if err := s.StopRun(t.Context(), run, "ops", "", time.Now()); err != nil {
		t.Fatal(err)
	}
	p.rest()
	if code := p.end(); code != int(exitRefused) || !strings.Contains(p.stderr.String(), "stopped by its operator") {
		t.Errorf("exit %d, %s", code, p.stderr.String())
	}
	if e := executionOf(t, s, run); e.State != agentbus.RunDone || e.Halt.Kind != agentbus.HaltAbort || e.Halt.Reason != "stopped by its operator" {
		t.Errorf("%+v, %+v", e, e.Halt)
	}
	if code, _, stderr := outcome(t.Context(), "resume", string(run), "--config", path); code != int(exitRefused) || !strings.Contains(stderr, "stopped") {
		t.Errorf("resumed: exit %d, %s", code, stderr)
	}
}

// R19: run --detach prints the run and returns; whoever serves drives it.
func TestDetachedRun(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, ""))
	code, stdout, stderr := outcome(t.Context(), "run", "talk", "go", "--detach", "--max-turns", "3", "--config", path)
	run := agentbus.RunID(strings.TrimSpace(stdout))
	if code != 0 || !strings.HasPrefix(string(run), "run_") || !strings.Contains(stderr, "agentbus trace "+string(run)) {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	if n := len(a.executions(run.Turn(0, "a"))); n != 0 {
		t.Errorf("it was driven here")
	}
	serving(t, path, nil)
	s := opened(t, path, nil)
	if e := halts(t, s, run); e.State != agentbus.RunDone || e.Turns != 3 || e.Seed != "go" {
		t.Errorf("%+v", e)
	}
	var told struct{ Run agentbus.RunID }
	if code, stdout, _ = outcome(t.Context(), "run", "talk", "go", "--detach", "--json", "--config", path); code != 0 || json.Unmarshal([]byte(stdout), &told) != nil {
		t.Errorf("exit %d, %s", code, stdout)
	}
	halts(t, s, told.Run)
	code, _, stderr = outcome(t.Context(), "run", "--detach", "--agent", "http://127.0.0.1:1#a", "--agent", "http://127.0.0.1:1#b", "go", "--config", path)
	if code != int(exitUsage) || !strings.Contains(stderr, "configured conversation") {
		t.Errorf("agents of the command line: exit %d, %s", code, stderr)
	}
}

// R19: a bus that drains finishes the turns it is in and hands its runs back;
// the next one goes on at once, and nothing is asked twice.
func TestDrainHandsRunsBack(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 5*time.Millisecond)
	b.begun = make(chan agentbus.TurnID, 64)
	b.holds.Store(true)
	path := configure(t, talkOf(a, b, ""))
	p := start(t, t.TempDir(), nil, "serve", "--config", path)
	url, _, _ := p.serves(t)
	_, stdout, _ := outcome(t.Context(), "run", "talk", "go", "--detach", "--config", path)
	run := agentbus.RunID(strings.TrimSpace(stdout))
	<-b.begun
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	drains(t, url)
	b.holds.Store(false)
	p.rest()
	if code := p.end(); code != 0 {
		t.Errorf("serve ended with %d: %s", code, p.stderr.String())
	}
	s := opened(t, path, nil)
	if e := executionOf(t, s, run); e.State != agentbus.RunRunning || e.Lease.Owner != "" || e.Turns != 2 || e.Halt != nil {
		t.Errorf("handed back: %+v", e)
	}
	serving(t, path, nil)
	if e := halts(t, s, run); e.State != agentbus.RunDone || e.Turns != 6 {
		t.Errorf("%+v", e)
	}
	onceEach(t, turnsOf(t, s, run), map[agentbus.Speaker]*agent{"a": a, "b": b})
	chargedOnce(t, s, run, 6)
}

// R19: two buses on one store share the runs, and none is claimed twice.
func TestBusesShareTheRuns(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", time.Millisecond)
	path := configure(t, talkOf(a, b, ""))
	var runs []agentbus.RunID
	for range 16 {
		_, stdout, _ := outcome(t.Context(), "run", "talk", "go", "--detach", "--config", path)
		runs = append(runs, agentbus.RunID(strings.TrimSpace(stdout)))
	}
	s := opened(t, path, nil)
	for range 2 {
		start(t, t.TempDir(), nil, "serve", "--config", path)
	}
	for _, run := range runs {
		if e := halts(t, s, run); e.State != agentbus.RunDone || e.Turns != 6 || e.Lease.Epoch != 3 { // began, claimed, driven
			t.Errorf("%+v", e)
		}
		onceEach(t, turnsOf(t, s, run), map[agentbus.Speaker]*agent{"a": a, "b": b})
	}
}

// R17: of two drivers on one run the first is stopped past its lease, as by a
// machine that swaps. The second goes on; the first, woken, says that it lost the
// run. There is one transcript, and each turn is charged once.
func TestSleepingProcessLosesItsRun(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 50*time.Millisecond)
	b.begun = make(chan agentbus.TurnID, 64)
	b.holds.Store(true)
	path := configure(t, talkOf(a, b, "")+"workers: {lease: 3s}\n")
	first := start(t, t.TempDir(), nil, "run", "talk", "go", "--config", path)
	run := agentbus.RunID(strings.TrimSuffix(string(<-b.begun), ".t1.b"))
	code, _, stderr := outcome(t.Context(), "resume", string(run), "--config", path)
	if want := fmt.Sprintf("run %s is being driven by process %d", run, first.cmd.Process.Pid); code != int(exitFailed) || !strings.Contains(stderr, want) {
		t.Errorf("beside a driver that lives: exit %d, %s", code, stderr)
	}
	suspend(t, first.cmd.Process, path)
	b.holds.Store(false)
	s := opened(t, path, nil)
	second := make(chan *process, 1)
	eventually(t, "the second driver", func() bool { // refused until the lease is over
		p := start(t, t.TempDir(), nil, "resume", string(run), "--config", path)
		if !p.lines.Scan() {
			p.end()
			return false
		}
		second <- p
		return true
	})
	if e := executionOf(t, s, run); e.Lease.Epoch != 2 {
		t.Errorf("taken over: %+v", e.Lease)
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first.rest()
	if code := first.end(); code != int(exitFailed) || !strings.Contains(first.stderr.String(), "another driver goes on with run "+string(run)) {
		t.Errorf("woken: exit %d, %s", code, first.stderr.String())
	}
	p := <-second
	p.rest()
	if code := p.end(); code != 0 {
		t.Errorf("the second driver: exit %d, %s", code, p.stderr.String())
	}
	turns := turnsOf(t, s, run)
	if e := executionOf(t, s, run); e.State != agentbus.RunDone || len(turns) != 6 {
		t.Errorf("%+v, %d turns", e, len(turns))
	}
	for i, turn := range turns {
		if turn.State != agentbus.TurnDone || turn.Index != i {
			t.Errorf("%+v", turn)
		}
	}
	onceEach(t, append(turns[:1:1], turns[2:]...), map[agentbus.Speaker]*agent{"a": a, "b": b})
	chargedOnce(t, s, run, 6)
}

// suspend stops a process while it holds no lock on the store: one that it held
// would keep everybody out.
func suspend(t *testing.T, p *os.Process, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(path), "bus.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	eventually(t, "a moment without a write", func() bool {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for stands := false; !stands; { // soon
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
			stands = err != nil || bytes.Contains(stat, []byte(") T "))
		}
		if _, err := db.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err == nil {
			_, err = db.ExecContext(t.Context(), "ROLLBACK")
			return err == nil
		}
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		return false
	})
}

// holds reports whether a file of the store holds a text.
func holds(t *testing.T, path, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "bus.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), text) {
			return true
		}
	}
	return false
}

// R18: without a sealing key a run that somebody pays for waits for its
// credential; with one it goes on by itself; with another one it waits, and
// nothing crashes. No file of the store ever holds the credential (P19).
func TestCredentialOfAKilledRun(t *testing.T) {
	t.Parallel()
	const right, wrong = "0101010101010101010101010101010101010101010101010101010101010101", "0202020202020202020202020202020202020202020202020202020202020202"
	for name, tt := range map[string]struct {
		begun, served string // the sealing key then
		waits         string // why it waits; "" when it goes on
	}{
		"no key":        {waits: "alice pays, and its credential is not stored"},
		"sealed":        {begun: right, served: right},
		"another key":   {begun: right, served: wrong, waits: "alice pays, and its credential was sealed under another key"},
		"key is gone":   {begun: right, waits: "alice pays, and its credential is sealed, and there is no sealing key here"},
		"key came late": {served: right, waits: "alice pays, and its credential is not stored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newAgent(t, "a", 0), newAgent(t, "b", 5*time.Millisecond)
			b.begun = make(chan agentbus.TurnID, 64)
			path := configure(t, talkOf(a, b, "")+"keys: [{id: alice, secret_env: ALICE}]\n")
			sealed := func(key string) (env map[string]string) {
				env = map[string]string{"ALICE": aliceKey, "AGENTBUS_CONFIG": path}
				if key != "" {
					env["KEY"] = key
					sealing := filepath.Join(filepath.Dir(path), "sealing.yaml")
					text, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					save(t, sealing, string(text)+"sealing: {key_env: KEY}\n")
					env["AGENTBUS_CONFIG"] = sealing
				}
				return env
			}
			env := sealed(tt.begun)
			run := killedInTurn(t, env["AGENTBUS_CONFIG"], b, []string{"ALICE=" + aliceKey, "KEY=" + env["KEY"], "AGENTBUS_TOKEN=" + aliceKey})
			s := opened(t, path, map[string]string{"ALICE": aliceKey})
			if holds(t, path, aliceKey) {
				t.Error("the store holds the credential")
			}
			env = sealed(tt.served)
			serving(t, env["AGENTBUS_CONFIG"], env)
			e := halts(t, s, run)
			switch {
			case tt.waits == "":
				if e.State != agentbus.RunDone || e.Turns != 6 || e.Payer != "alice" {
					t.Errorf("%+v", e)
				}
				if _, found, err := s.Sealed(t.Context(), e.ID); found || err != nil {
					t.Errorf("sealed after its end: %v, %v", found, err)
				}
			case e.State != agentbus.RunPaused || e.Halt.Kind != agentbus.HaltWaitingAuth || e.Halt.Reason != tt.waits || e.Turns != 1:
				t.Errorf("%+v, %+v", e, e.Halt)
			default:
				resumedWithCredential(t, path, run, tt.waits)
			}
			for _, c := range callsOf(t, s, run) {
				if c.Payer != "alice" {
					t.Errorf("billed to %s: %+v", c.Payer, c)
				}
			}
			if holds(t, path, aliceKey) {
				t.Error("the store holds the credential")
			}
		})
	}
}

// runWith runs the program in an environment.
func runWith(t *testing.T, env map[string]string, stdout, stderr io.Writer, args ...string) int {
	t.Helper()
	return run(t.Context(), args, strings.NewReader(""), stdout, stderr, lookup(env))
}

// resumedWithCredential checks that a waiting run shows, waits on without a
// credential, and goes on with it.
func resumedWithCredential(t *testing.T, path string, run agentbus.RunID, why string) {
	t.Helper()
	env := map[string]string{"ALICE": aliceKey}
	verb := func(args ...string) (int, string, string) {
		var stdout, stderr strings.Builder
		code := runWith(t, env, &stdout, &stderr, append(args, "--config", path)...)
		return code, stdout.String(), stderr.String()
	}
	if _, stdout, _ := verb("runs"); !strings.Contains(stdout, string(run)+"  waiting-auth") {
		t.Errorf("runs shows %s", stdout)
	}
	if strings.Contains(why, "not stored") {
		if code, _, stderr := verb("resume", string(run)); code != int(exitWaiting) || !strings.Contains(stderr, "waiting-auth: "+why) {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
	env["AGENTBUS_TOKEN"] = aliceKey
	if code, _, stderr := verb("resume", string(run)); code != 0 {
		t.Errorf("with its credential: exit %d, %s", code, stderr)
	}
}

// R18: a run that nobody could go on with is not begun for others.
func TestDetachedRunNeedsASealingKey(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a", 0), newAgent(t, "b", 0)
	path := configure(t, talkOf(a, b, "")+"keys: [{id: alice, secret_env: ALICE}]\n")
	env := map[string]string{"ALICE": aliceKey, "AGENTBUS_TOKEN": aliceKey}
	var stdout, stderr strings.Builder
	if code := runWith(t, env, &stdout, &stderr, "run", "talk", "go", "--detach", "--config", path); code != int(exitUsage) || !strings.Contains(stderr.String(), "sealing.key_file") {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}
