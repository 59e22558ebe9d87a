package sqlite_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// The test binary starts itself again as another process on the same store:
// childRole says what it does there, childDir where the store is, childName who
// it is.
const (
	childRole = "AGENTBUS_TEST_ROLE"
	childDir  = "AGENTBUS_TEST_DIR"
	childName = "AGENTBUS_TEST_NAME"
)

// children are the roles. Each writes what it found to its standard output, a
// line a fact.
var children = map[string]func(s *sqlite.Store, name string) error{
	"write until killed": writeUntilKilled,
	"compete":            compete,
	"hit a limit":        hitLimit,
	"lose the sync":      loseSync,
	"settle in order":    settleInOrder,
}

// beChild plays the role that the environment asks for.
func beChild(role string) int {
	s, err := sqlite.Open(background, sqlite.Config{Path: os.Getenv(childDir) + "/bus.db"})
	if err == nil {
		err = children[role](s, os.Getenv(childName))
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := s.Close(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "close:", err)
		return 1
	}
	return 0
}

// say writes one fact; a single write, so that lines of several goroutines do
// not mix and a killed process has said all it said.
func say(format string, args ...any) {
	_, _ = io.WriteString(os.Stdout, fmt.Sprintf(format+"\n", args...))
}

// start starts a child and returns it with its output.
func start(t *testing.T, role, dir, name string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir, childName+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// compete reserves the same calls as every other process, and records the same
// refusals.
func compete(s *sqlite.Store, name string) error {
	won := 0
	for n := range 150 {
		got, err := s.Reserve(background, request("run_race", n, name))
		if err != nil {
			return err
		}
		if got.Outcome == agentbus.OutcomeExecute {
			won++
			if err := s.Settle(background, answer(got.Call, "by "+name)); err != nil {
				return err
			}
		}
		if err := s.Record(background, agentbus.Digest{9}, agentbus.CallRecord{TurnKey: agentbus.TurnKey{Run: "run_refused"}, State: agentbus.CallRefused}); err != nil {
			return err
		}
	}
	say("%d", won)
	return nil
}

// G20, I1: several processes on one file execute each call once. They also
// create the file at the same moment.
func TestProcessesShareAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const processes = 3
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for i := range processes {
		cmd, out := start(t, "compete", dir, strconv.Itoa(i))
		wg.Go(func() {
			for out.Scan() {
				n, err := strconv.Atoi(out.Text())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				won += n
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	s := opened(t, dir)
	defer closed(t, s)
	calls, err := s.Calls(t.Context(), "run_race")
	if err != nil || len(calls) != 150 || won != 150 {
		t.Errorf("%d calls were executed %d times: %v", len(calls), won, err)
	}
	for _, c := range calls {
		if c.State != agentbus.CallSettled || c.Cost != 4_000 || c.Attempts != 1 {
			t.Errorf("call %d: %+v", c.ID, c)
		}
	}
	refused, err := s.Calls(t.Context(), "run_refused")
	if err != nil || len(refused) != 1 || refused[0].Repeats != processes*150-1 {
		t.Errorf("refusals: %+v, %v", refused, err)
	}
}

// Two stores of one process on one file behave like two processes.
func TestStoresOfOneProcessShareAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s := opened(t, dir)
			defer closed(t, s)
			for n := range 50 {
				got, err := s.Reserve(t.Context(), request("run_race", n, "x"))
				if err != nil {
					t.Error(err)
				} else if got.Outcome == agentbus.OutcomeExecute {
					if err := s.Settle(t.Context(), answer(got.Call, "x")); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	s := opened(t, dir)
	defer closed(t, s)
	calls, err := s.Calls(t.Context(), "run_race")
	if err != nil || len(calls) != 50 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

// hitLimit writes until the file may not grow any more.
func hitLimit(s *sqlite.Store, name string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 512 << 10, Max: 512 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for n := 0; ; n++ {
		got, err := s.Reserve(background, request("run_full", n, name))
		if err == nil {
			err = s.Settle(background, answer(got.Call, strings.Repeat("x", 20_000)))
		}
		if err != nil {
			say("%s %v", agentbus.CodeOf(err), err)
			break
		}
		say("%d", n)
	}
	for range 3 {
		err := s.Check(background)
		say("%s %v", agentbus.CodeOf(err), err)
	}
	say("%s", agentbus.CodeOf(s.Record(background, agentbus.Digest{1}, agentbus.CallRecord{})))
	return nil
}

// A write that failed on the disk is answered store_unavailable, and so is
// every one after it: nothing is retried, and nothing acknowledged is lost (I2).
func TestABrokenDiskStopsTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := start(t, "hit a limit", dir, "x")
	acknowledged, refused := 0, 0
	for out.Scan() {
		if _, err := strconv.Atoi(out.Text()); err == nil {
			acknowledged++
		} else if refused++; !strings.HasPrefix(out.Text(), "store_unavailable") {
			t.Errorf("the child says %q", out.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Logf("closing on a broken disk: %v", err)
	}
	if acknowledged == 0 || refused != 5 {
		t.Fatalf("%d acknowledged, %d refused, want some and 5", acknowledged, refused)
	}
	s := opened(t, dir)
	defer closed(t, s)
	calls, err := s.Calls(t.Context(), "run_full")
	settled := 0
	for _, c := range calls {
		if c.State == agentbus.CallSettled {
			settled++
		}
	}
	if err != nil || settled < acknowledged {
		t.Errorf("%d calls were acknowledged, %d are settled: %v", acknowledged, settled, err)
	}
}
