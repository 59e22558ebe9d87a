package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus/internal/require"
)

// B3: when the bus is killed with -9 while 50 programs run, with children of
// theirs and grandchildren that have detached, nothing of them is left.
func TestNothingOutlivesAKilledBus(t *testing.T) {
	needsProc(t)
	const programs = 50
	bus, dir := startSleepers(t, "", programs)
	killed := time.Now()
	if err := bus.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	bus.end()
	waitForNobody(t, dir)
	t.Logf("gone %v after the bus", time.Since(killed))
}

// B3, G31: a bus that is told to end ends its programs, at the latest when its
// patience is over.
func TestDrainEndsPrograms(t *testing.T) {
	needsProc(t)
	bus, dir := startSleepers(t, "drain_timeout: 100ms\n", 4)
	if err := bus.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := bus.end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, bus.stderr.String())
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func needsProc(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/cwd"); err != nil {
		require.Missing(t, "/proc")
	}
}

// startSleepers starts a bus with so many programs that sleep, half of them deaf
// to SIGTERM, and returns where they work.
func startSleepers(t *testing.T, more string, programs int) (bus *process, dir string) {
	t.Helper()
	sleep := `
%s
sleep 600 &
(setsid sh -c 'trap "" TERM HUP; sleep 600; sleep 600' &)
echo x >>"$log/started"
sleep 600
sleep 600
`
	path, env := scripted(t, more, map[string]string{"sleeper": fmt.Sprintf(sleep, ""), "deaf": ", kill_after: 500ms" + fmt.Sprintf(sleep, "trap '' TERM")})
	dir = scriptsOf(t, path)
	var vars []string
	for k, v := range env {
		vars = append(vars, k+"="+v)
	}
	bus = start(t, dir, vars, "serve", "--config", path, "--quiet")
	bus.lines.Scan()
	url := address(bus.lines.Text())
	if url == "" {
		t.Fatalf("serve said %q", bus.lines.Text())
	}
	var calls sync.WaitGroup
	t.Cleanup(calls.Wait)
	for i := range programs {
		calls.Go(func() { // ends with the bus
			name := [...]string{"sleeper", "deaf"}[i%2]
			_, _, _, _ = post(t.Context(), url, "alice-secret", `{"model":"`+name+`","messages":[{"role":"user","content":"hello"}]}`, nil)
		})
	}
	within(t, time.Minute, "all programs run", func() bool { return len(linesOf(t, filepath.Join(dir, "started"))) == programs })
	return bus, filepath.Join(dir, "work")
}

// waitForNobody waits until nobody works below dir. The promise is two seconds;
// the rest is for machines that are busy with other tests.
func waitForNobody(t *testing.T, dir string) {
	t.Helper()
	within(t, time.Minute, "nobody is left", func() bool { return len(below(t, dir)) == 0 })
}

// within waits until something holds.
func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// below returns the command lines of the processes that work below dir.
func below(t *testing.T, dir string) (found []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if cwd, err := os.Readlink(p + "/cwd"); err == nil && strings.HasPrefix(cwd, dir) {
			command, _ := os.ReadFile(p + "/cmdline") // it may have ended
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
