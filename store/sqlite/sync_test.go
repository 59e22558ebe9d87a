package sqlite_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/store/sqlite"
)

// loseSync settles calls, loses the disk's sync, and goes on.
func loseSync(s *sqlite.Store, _ string) error {
	for n := range 20 {
		got, err := s.Reserve(background, request("run_sync", n, "x"))
		if err == nil {
			err = s.Settle(background, answer(got.Call, "x"))
		}
		if err != nil {
			return err
		}
		say("%d", n)
	}
	if err := require.FailSyncs(); err != nil {
		say("skip %v", err)
		return nil
	}
	_, err := s.Reserve(background, request("run_sync", 20, "x"))
	say("%s %v", agentbus.CodeOf(err), err)
	select {
	case <-s.Broken():
	case <-time.After(time.Minute):
		say("the store does not know that it is broken")
	}
	_, err = s.Reserve(background, request("run_sync", 21, "x"))
	say("%s %v", agentbus.CodeOf(err), err)
	say("%s", agentbus.CodeOf(s.Check(background)))
	return nil
}

// I2: a sync that failed is not acknowledged and breaks the store: nothing is
// tried again, and what was acknowledged before is there.
func TestAFailedSyncBreaksTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := start(t, "lose the sync", dir, "x")
	acknowledged, refused := 0, 0
	for out.Scan() {
		switch _, err := strconv.Atoi(out.Text()); {
		case err == nil:
			acknowledged++
		case strings.HasPrefix(out.Text(), "skip "):
			require.Missing(t, "a kernel that filters system calls")
		case strings.HasPrefix(out.Text(), "store_unavailable"):
			refused++
		default:
			t.Errorf("the child says %q", out.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Logf("closing on a broken disk: %v", err)
	}
	if acknowledged != 20 || refused != 3 {
		t.Errorf("%d acknowledged and %d refused, want 20 and 3", acknowledged, refused)
	}
	s := opened(t, dir)
	defer closed(t, s)
	v, err := s.VerifyLedger(t.Context())
	if err != nil || v.Fault != "" || v.Entries != 20 {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
	if calls, err := s.Calls(t.Context(), "run_sync"); err != nil || len(calls) < 20 || len(calls) > 21 { // the one not acknowledged may be there
		t.Errorf("%d calls, %v", len(calls), err)
	}
}
