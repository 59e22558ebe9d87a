package sqlite_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// G24: a store does not go by what it remembers of an attempt once another
// process has taken the call over, and drops what the first one streamed.
func TestAnAttemptIsForgottenWhenAnotherProcessWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := opened(t, dir), opened(t, dir)
	defer closed(t, a)
	defer closed(t, b)
	r := request("run_a", 0, "first")
	old, err := a.Reserve(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Append(t.Context(), old.Call.ID, 1, []byte("of the first")); err != nil {
		t.Fatal(err)
	}
	r.TakeOver, r.Call.Owner = "first", "second"
	got, err := b.Reserve(t.Context(), r)
	if err != nil || got.Outcome != agentbus.OutcomeExecute || got.Call.Attempts != 2 {
		t.Fatalf("taken over: %+v, %v", got, err)
	}
	if err := a.Append(t.Context(), old.Call.ID, 1, []byte("late")); agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
		t.Errorf("the first appends: %v", err)
	}
	if err := a.Settle(t.Context(), answer(old.Call, "late")); agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
		t.Errorf("the first settles: %v", err)
	}
	if err := b.Settle(t.Context(), answer(got.Call, "in time")); err != nil {
		t.Errorf("the second settles: %v", err)
	}
	again, err := a.Reserve(t.Context(), r)
	if err != nil || again.Outcome != agentbus.OutcomeSettled || string(again.Reply.Body) != "in time" {
		t.Errorf("asked again: %+v, %v", again, err)
	}
}

// G27: what a call holds of its budgets is looked up again when another process
// took it for dead and gave it back.
func TestAHoldThatAnotherProcessGaveBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := opened(t, dir), opened(t, dir)
	defer closed(t, a)
	defer closed(t, b)
	r := request("run_a", 0, "slow")
	r.Hold = agentbus.Hold{Amount: 9_000, Budgets: []agentbus.Budget{{Account: "x", Limit: 10_000, Strict: true}}}
	got, err := a.Reserve(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.ReleaseDead(t.Context(), func(string) bool { return false }); n != 1 || err != nil {
		t.Fatalf("released %d, %v", n, err)
	}
	s := answer(got.Call, "after all")
	s.Hold = r.Hold
	if err := a.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	states, err := a.BudgetStates(t.Context(), []string{"x"})
	if err != nil || states[0].Held != 0 || states[0].Spent != s.Cost || states[0].Calls != 1 {
		t.Errorf("the budget: %+v, %v", states, err)
	}
	if v, err := a.VerifyLedger(t.Context()); err != nil || v.Fault != "" {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

// G21: parts of streams that come within a moment share a commit, and who waits
// for his own takes them along at once.
func TestPartsOfStreamsShareACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:", Committed: func(time.Duration) { commits.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, s)
		var calls []agentbus.CallRecord
		for n := range 17 {
			got, err := s.Reserve(t.Context(), request("run_a", n, "x"))
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, got.Call)
		}
		appends := func() (took time.Duration, in int64) {
			began, before := time.Now(), commits.Load()
			var streams sync.WaitGroup
			for i, c := range calls[:16] {
				streams.Go(func() {
					<-time.After(time.Duration(i) * 100 * time.Microsecond)
					if err := s.Append(t.Context(), c.ID, 1, []byte("part")); err != nil {
						t.Error(err)
					}
				})
			}
			streams.Wait()
			return time.Since(began), commits.Load() - before
		}
		if took, in := appends(); in != 1 || took > 10*time.Millisecond {
			t.Errorf("16 parts in %d commits, after %v", in, took)
		}
		time.AfterFunc(2*time.Millisecond, func() {
			if err := s.Settle(t.Context(), answer(calls[16], "x")); err != nil {
				t.Error(err)
			}
		})
		if took, in := appends(); in != 1 || took != 2*time.Millisecond {
			t.Errorf("16 parts and a settlement in %d commits, after %v", in, took)
		}
	})
}
