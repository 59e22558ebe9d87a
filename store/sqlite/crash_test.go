package sqlite_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// writeUntilKilled writes turns and calls, several at once, and says each
// acknowledgement.
func writeUntilKilled(s *sqlite.Store, name string) error {
	fail := make(chan error)
	for w := range 4 {
		run := agentbus.RunID(name + "_" + strconv.Itoa(w))
		go func() { fail <- converse(s, run) }()
		go func() { fail <- call(s, run) }()
	}
	return <-fail
}

func converse(s *sqlite.Store, run agentbus.RunID) error {
	e, err := s.Open(background, agentbus.Execution{ID: agentbus.ExecutionID(run), Run: run, Began: time.Now()}, agentbus.Claim{Owner: "x", TTL: time.Hour})
	if err != nil {
		return err
	}
	begun, err := s.Begin(background, []agentbus.Turn{intent(e, 0)})
	if err != nil {
		return err
	}
	next := begun[0]
	for n := 0; ; n++ {
		done := next
		next = intent(e, n+1)
		done.State, done.Reply.Text, done.Ended = agentbus.TurnDone, text(run, n), time.Now()
		if err := s.Finish(background, done, &next, agentbus.Event{Type: agentbus.EventNodeCompleted, Turn: done.ID}); err != nil {
			return err
		}
		say("turn %s %d", run, n)
	}
}

func call(s *sqlite.Store, run agentbus.RunID) error {
	for n := 0; ; n++ {
		got, err := s.Reserve(background, request(run, n, "x"))
		if err != nil {
			return err
		}
		say("reserved %s %d", run, n)
		a := answer(got.Call, text(run, n))
		if n%3 == 0 {
			if err := s.Append(background, got.Call.ID, 1, a.Reply.Body); err != nil {
				return err
			}
			a.Reply.Body, a.Appended = nil, true
		}
		if err := s.Settle(background, a); err != nil {
			return err
		}
		say("settled %s %d", run, n)
	}
}

func text(run agentbus.RunID, n int) string {
	return strings.Repeat(fmt.Sprintf("%s says %d. ", run, n), 1+n%100)
}

// I1, I2, I7: kill -9 at a random moment loses nothing that was acknowledged,
// and leaves no half of a transaction.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 6 {
		name := "run_" + strconv.Itoa(round)
		cmd, out := start(t, "write until killed", dir, name)
		last := map[string]int{} // fact and run → the last number said of it; they are said in order
		for left := 1 + rand.IntN(600); out.Scan(); left-- {
			var what, run string
			var n int
			if _, err := fmt.Sscan(out.Text(), &what, &run, &n); err != nil {
				t.Fatalf("the child says %q: %v", out.Text(), err)
			}
			last[what+" "+run] = n
			if left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("the child ended with %v", err)
		}
		checkIntegrity(t, dir)
		s := opened(t, dir)
		for w := range 4 {
			run := agentbus.RunID(name + "_" + strconv.Itoa(w))
			checkTurns(t, s, run, last)
			checkCalls(t, s, run, last)
		}
		if v, err := s.VerifyLedger(t.Context()); err != nil || v.Fault != "" { // I1
			t.Errorf("the ledger: %+v, %v", v, err)
		}
		closed(t, s)
	}
}

func checkIntegrity(t *testing.T, dir string) {
	t.Helper()
	db := beside(t, dir)
	var result string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		t.Errorf("integrity_check: %s, %v", result, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// beside opens the store's file without the store.
func beside(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "bus.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func checkTurns(t *testing.T, s *sqlite.Store, run agentbus.RunID, last map[string]int) {
	t.Helper()
	n, pending := 0, 0
	for turn, err := range s.Turns(t.Context(), agentbus.ExecutionID(run)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case turn.State == agentbus.TurnPending:
			pending++
		case turn.Index != n || turn.State != agentbus.TurnDone || turn.Reply.Text != text(run, n):
			t.Errorf("turn %d of %s: %+v", n, run, turn)
		default:
			n++
		}
	}
	events := 0
	for _, err := range s.Events(t.Context(), agentbus.ExecutionID(run), -1) {
		if err != nil {
			t.Fatal(err)
		}
		events++
	}
	said, known := last["turn "+string(run)]
	if known && n <= said || events != n || n > 0 && pending != 1 { // result, event and next intent are one
		t.Errorf("%s: turn %d was acknowledged, %d are done, %d pending, %d events", run, said, n, pending, events)
	}
}

func checkCalls(t *testing.T, s *sqlite.Store, run agentbus.RunID, last map[string]int) {
	t.Helper()
	calls, err := s.Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	settled := 0
	for n, c := range calls {
		if c.State != agentbus.CallSettled {
			continue
		}
		settled++
		got, err := s.Reserve(t.Context(), request(run, n, "x"))
		if err != nil || got.Outcome != agentbus.OutcomeSettled || string(got.Reply.Body) != text(run, n) {
			t.Errorf("call %d of %s comes back as %v with %v", n, run, got.Outcome, err)
		}
	}
	reserved, anyReserved := last["reserved "+string(run)]
	said, anySettled := last["settled "+string(run)]
	if anyReserved && len(calls) <= reserved || anySettled && settled <= said {
		t.Errorf("%s: %d and %d were acknowledged, %d calls of which %d settled are there", run, reserved, said, len(calls), settled)
	}
}
