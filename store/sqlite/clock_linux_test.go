package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// at opens the store in dir by a wall clock that is off by what off says.
func at(t *testing.T, dir string, off *time.Duration) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "bus.db"), Wall: func() time.Time { return time.Now().Add(*off) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// R17: a wall clock that jumps by an hour, at the holder or at the claimer, ends
// no lease early and keeps none too long.
func TestLeasesOutlastJumpsOfTheClock(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		dir := t.TempDir()
		var here, there time.Duration
		holder, claimer := at(t, dir, &here), at(t, dir, &there)
		e := agentbus.Execution{ID: "run_a", Run: "run_a", Began: time.Now()}
		held, err := holder.Open(t.Context(), e, agentbus.Claim{Owner: "holder", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		conflict := func(when string) {
			t.Helper()
			if _, err := claimer.Open(t.Context(), e, agentbus.Claim{Owner: "claimer", TTL: ttl}); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
				t.Errorf("after a jump of %v %s a held lease was claimed: %v", jump, when, err)
			}
		}
		there = jump
		conflict("at the claimer")
		late := at(t, dir, &there) // who opens the store after the jump has the same clock
		if _, err := late.Open(t.Context(), e, agentbus.Claim{Owner: "late", TTL: ttl}); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
			t.Errorf("after a jump of %v a new process claimed a held lease: %v", jump, err)
		}
		closed(t, late)
		there, here = 0, jump
		renewed, err := holder.Renew(t.Context(), held.Lease, ttl)
		if d := renewed.Expires.Sub(held.Lease.Expires); err != nil || d < 0 || d > ttl {
			t.Errorf("after a jump of %v at the holder a renewal gave %v more: %v", jump, d, err)
		}
		conflict("at the holder")
		if _, err := holder.Renew(t.Context(), held.Lease, -time.Second); err != nil {
			t.Error(err)
		}
		if _, err := claimer.Open(t.Context(), e, agentbus.Claim{Owner: "claimer", TTL: ttl}); err != nil {
			t.Errorf("after a jump of %v at the holder its expired lease was kept: %v", jump, err)
		}
		closed(t, holder)
		closed(t, claimer)
	}
}

// R17: no driver outlives its machine: leases of before it was started are over.
func TestLeasesEndWithTheMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := agentbus.Execution{ID: "run_a", Run: "run_a", Began: time.Now()}
	s := opened(t, dir)
	if _, err := s.Open(t.Context(), e, agentbus.Claim{Owner: "before", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	db := beside(t, dir)
	if _, err := db.ExecContext(t.Context(), "UPDATE meta SET value = CAST('another-boot 0' AS BLOB) WHERE name = 'clock'"); err != nil {
		t.Fatal(err)
	}
	closed(t, db)
	s = opened(t, dir)
	defer closed(t, s)
	if _, err := s.Open(t.Context(), e, agentbus.Claim{Owner: "after", TTL: time.Hour}); err != nil {
		t.Errorf("a lease of before the machine was started: %v", err)
	}
}
