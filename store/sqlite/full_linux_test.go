package sqlite_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A full disk answers store_unavailable and says so; once there is room the
// store goes on.
func TestAFullDiskIsSurvived(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		require.Missing(t, "the right to mount a small file system: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := opened(t, dir)
	defer closed(t, s)
	acknowledged := fill(t, s)
	key, refused := agentbus.Digest{1}, agentbus.CallRecord{TurnKey: agentbus.TurnKey{Run: "run_b"}, State: agentbus.CallRefused}
	for range 3 {
		if err := s.Record(t.Context(), key, refused); err != nil {
			t.Error(err)
		}
		if err := s.Check(t.Context()); agentbus.CodeOf(err) != agentbus.CodeStoreUnavailable {
			t.Errorf("check on a full disk: %v", err)
		}
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("with room again: %v", err)
	}
	calls, err := s.Calls(t.Context(), "run_a")
	if err != nil || len(calls) < acknowledged {
		t.Errorf("%d acknowledged, %d there: %v", acknowledged, len(calls), err)
	}
	if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" || v.Entries != int64(acknowledged) {
		t.Errorf("%d acknowledged, the ledger: %+v, %v", acknowledged, v, err)
	}
	// What nobody waited for is kept until it can be written.
	if calls, err := s.Calls(t.Context(), "run_b"); err != nil || len(calls) != 1 || calls[0].Repeats != 2 {
		t.Errorf("refusals: %+v, %v", calls, err)
	}
}

// fill writes until the disk is full.
func fill(t *testing.T, s *sqlite.Store) (acknowledged int) {
	t.Helper()
	for n := 0; ; n++ {
		r := request("run_a", n, strings.Repeat("x", 20_000))
		got, err := s.Reserve(t.Context(), r)
		if err == nil {
			err = s.Settle(t.Context(), answer(got.Call, "x"))
		}
		if err != nil {
			if agentbus.CodeOf(err) != agentbus.CodeStoreUnavailable || !strings.Contains(err.Error(), "disk is full") {
				t.Errorf("on a full disk: %v", err)
			}
			for range 1000 { // to the last page
				if s.Check(t.Context()) != nil {
					break
				}
			}
			return n
		}
	}
}
