package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/postgres"
)

// childURL names the database to a process that this test starts: it makes
// calls, several at once, and prints each that was acknowledged, until it is
// killed.
const childURL = "AGENTBUS_TEST_CHILD_URL"

func beChild(url string) int {
	s, err := postgres.Open(context.Background(), postgres.Config{URL: url})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	payer := agentbus.Payer("child")
	for i := range 4 {
		go func() {
			run := agentbus.RunID("run_" + strconv.Itoa(os.Getpid()) + "_" + strconv.Itoa(i))
			for n := 0; ; n++ {
				got, err := s.Reserve(context.Background(), request(payer, run, n))
				if err == nil {
					err = s.Settle(context.Background(), answer(got.Call))
				}
				if err != nil {
					_, _ = fmt.Fprintln(os.Stdout, "failed", agentbus.CodeOf(err))
					continue
				}
				_, _ = fmt.Fprintln(os.Stdout, "settled", run, n)
			}
		}()
	}
	select {}
}

// child starts the process and passes on what it prints.
func child(t *testing.T, url string) (cmd *exec.Cmd, lines chan string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines = make(chan string, 100_000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return cmd, lines
}

// take waits for n lines.
func take(t *testing.T, lines chan string, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		line, ok := <-lines
		if !ok {
			t.Fatalf("the process ended after %q", got)
		}
		got = append(got, line)
	}
	return got
}

// TestKilled: processes are killed in the middle of commits. What they
// acknowledged is there, once, and others take the rest over.
func TestKilled(t *testing.T) { // I1, I2, G24
	t.Parallel()
	url := stores.Database(t)
	s := opened(t, url)
	defer func() { _ = s.Close() }()
	var acknowledged []string
	for range 3 {
		cmd, lines := child(t, url)
		acknowledged = append(acknowledged, take(t, lines, 40)...)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for line := range lines {
			acknowledged = append(acknowledged, line)
		}
		_ = cmd.Wait() // it was killed
	}
	for _, line := range acknowledged {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "settled" {
			continue // cut off with its process
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		r := request("child", agentbus.RunID(f[1]), n)
		if got, found, err := s.Lookup(t.Context(), r.Key, r.Call.Digest); err != nil || !found || got.Outcome != agentbus.OutcomeSettled {
			t.Errorf("%s: %+v, %v, %v", line, got, found, err)
		}
	}
	left, err := s.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		r := request("child", left[i].Run, left[i].TurnKey.ID.Index(left[i].Run))
		r.TakeOver, r.Call.Owner = left[i].Owner, "host:2"
		got, err := s.Reserve(t.Context(), r)
		if err != nil || got.Outcome != agentbus.OutcomeExecute || got.Call.Attempts != 2 {
			t.Errorf("taken over: %+v, %v", got, err)
		}
	}
	if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" || v.Entries < int64(len(acknowledged)-3) {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

// TestStoppedPastItsLease: a process is stopped while it commits. Others wait no
// longer for its locks than the server lets a transaction idle, and its attempts
// that were taken over meanwhile are fenced when it wakes.
func TestStoppedPastItsLease(t *testing.T) { // G24, I1
	t.Parallel()
	url := stores.Database(t)
	s := opened(t, url)
	defer func() { _ = s.Close() }()
	cmd, lines := child(t, url)
	take(t, lines, 20)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	left, err := s.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taken := map[int64]agentbus.CallRecord{}
	for i := range left {
		r := request("child", left[i].Run, left[i].TurnKey.ID.Index(left[i].Run))
		r.TakeOver, r.Call.Owner = left[i].Owner, "host:2"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := s.Reserve(ctx, r)
		cancel()
		if err != nil {
			t.Fatalf("take over: %v", err)
		}
		if got.Outcome == agentbus.OutcomeExecute {
			taken[got.Call.ID] = got.Call
		}
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, line := range take(t, lines, 40) {
		_ = line // it goes on with other calls
	}
	_ = cmd.Process.Kill()
	for range lines {
	}
	_ = cmd.Wait() // it was killed
	for id, c := range taken {
		if err := s.Settle(t.Context(), answer(c)); err != nil {
			t.Errorf("call %d, which was taken over: %v", id, err)
		}
	}
	if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}
