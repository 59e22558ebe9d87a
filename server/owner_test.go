package server

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// TestAlive: who holds a lease is a process, and only one that is certainly gone
// loses it before its time.
func TestAlive(t *testing.T) {
	t.Parallel()
	self := thisProcess()
	if !alive(self) {
		t.Errorf("this process, %s, is taken for dead", self)
	}
	boot, rest, _ := strings.Cut(self, "/")
	pid, start, _ := strings.Cut(rest, "/")
	if start != "" {
		if alive(boot + "/" + pid + "/1") {
			t.Error("a process that had this id before is taken for alive")
		}
	}
	if !alive("driver-OF7Q") {
		t.Error("a driver in Go, which names no process, is taken for dead")
	}
	for _, owner := range []string{"", boot + "/0/1", boot + "/-1/1", boot + "/x/1", "another-boot/" + pid + "/" + start} {
		if alive(owner) {
			t.Errorf("%q is taken for alive", owner)
		}
	}
}

// TestAliveChild: a child is alive until it has ended.
func TestAliveChild(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), require.Tool(t, "sleep"), "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	owner := machine() + "/" + strconv.Itoa(pid) + "/" + startOf(pid)
	if !alive(owner) {
		t.Errorf("a running child, %s, is taken for dead", owner)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if alive(owner) {
		t.Errorf("a dead child, %s, is taken for alive", owner)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil && startOf(os.Getpid()) != "" {
		t.Error("a start time from nowhere")
	}
}
