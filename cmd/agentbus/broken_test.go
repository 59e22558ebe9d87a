package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// breakable in the environment of a program lets its test break the disk under
// it, by a byte on its standard input.
const breakable = "AGENTBUS_TEST_BREAKABLE"

// breakDisk waits for the byte and says on the standard output what came of it.
func breakDisk() {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return
	}
	fmt.Println("no sync from now on:", require.FailSyncs())
}

// I2: a bus whose disk fails to sync answers 503, acknowledges nothing, and
// ends with an error: what failed is not tried again. The next one finds
// everything that was acknowledged.
func TestServeEndsWhenItsStoreBreaks(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := configure(t, echoBus)
	cmd := exec.CommandContext(t.Context(), self, "serve", "--config", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := started(t, cmd, filepath.Dir(path), []string{"ALICE=" + aliceKey, breakable + "=1"})
	bus, _, _ := p.serves(t)
	if status, _, answer := mustPost(t, bus, aliceKey, hello, turnHeader("run_a", "echo", 1)); status != http.StatusOK {
		t.Fatalf("before: %d %s", status, answer)
	}
	if _, err := in.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
	if p.lines.Scan(); p.lines.Text() != "no sync from now on: <nil>" {
		require.Missing(t, "a kernel that filters system calls")
	}
	if status, _, answer := mustPost(t, bus, aliceKey, hello, turnHeader("run_b", "echo", 1)); status != http.StatusServiceUnavailable || !strings.Contains(answer, "store_unavailable") {
		t.Errorf("without a sync: %d %s", status, answer)
	}
	p.rest()
	if code := p.end(); code != int(exitFailed) || !strings.Contains(p.stderr.String(), "the store failed and writes nothing any more") {
		t.Errorf("exit %d: %s", code, p.stderr.String())
	}
	s := opened(t, path, aliceEnv)
	calls, err := s.Calls(t.Context(), "run_a")
	if err != nil || len(calls) != 1 || calls[0].Status != http.StatusOK {
		t.Errorf("calls: %+v, %v", calls, err)
	}
	if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" || v.Entries != 1 {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}
