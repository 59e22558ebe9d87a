package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A failingLedger fails as told.
type failingLedger struct {
	gateway.Ledger
	reserve, append, settle, void atomic.Bool
	damaged                       atomic.Int64 // the call that cannot be voided
}

var errDisk = &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "the disk is full", Err: errors.New("ENOSPC")}

func (l *failingLedger) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	if l.reserve.Load() {
		return agentbus.Reserved{}, errDisk
	}
	return l.Ledger.Reserve(ctx, r)
}

func (l *failingLedger) Append(ctx context.Context, id int64, attempt int, frames []byte) error {
	if l.append.Load() {
		return errDisk
	}
	return l.Ledger.Append(ctx, id, attempt, frames)
}

func (l *failingLedger) Settle(ctx context.Context, s agentbus.Settlement) error {
	if l.settle.Load() {
		return errDisk
	}
	return l.Ledger.Settle(ctx, s)
}

func (l *failingLedger) Void(ctx context.Context, v agentbus.Voiding) error {
	if l.void.Load() || l.damaged.Load() == v.ID {
		return errDisk
	}
	return l.Ledger.Void(ctx, v)
}

// TestVoidedLate: G20 and G27, an attempt that failed while the store could not be
// written holds its budget no longer than that, and one that was made again meanwhile
// stays as it is.
func TestVoidedLate(t *testing.T) {
	t.Parallel()
	a := priceOf(newAgent(t, "critic", nil), 40)
	var ledger *failingLedger
	b := newBus(t, func(c *gateway.Config) {
		under(total(100, true))(c)
		ledger = &failingLedger{Ledger: c.Ledger}
		c.Ledger, c.BudgetWait = ledger, -1
	}, a)
	ledger.settle.Store(true)
	ledger.void.Store(true)
	for _, run := range []string{"again", "failed"} {
		refused(t, "the disk is full", b.call("critic", turn(run, "t")...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	}
	b.VoidLate(t.Context())
	if s := b.state("payer/alice/total"); s.Held != 80 {
		t.Errorf("%d are held while nothing can be written", s.Held)
	}
	ledger.settle.Store(false)
	if got := b.call("critic", turn("again", "t")...); got.status != http.StatusOK {
		t.Errorf("the same turn again: %v", got)
	}
	refused(t, "held by what has failed", b.call("critic", turn("next", "t")...), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	ledger.void.Store(false)
	b.VoidLate(t.Context())
	b.VoidLate(t.Context()) // there is nothing left to do
	b.one("failed", agentbus.CallVoided)
	b.one("again", agentbus.CallSettled)
	if got := b.call("critic", turn("other", "t")...); got.status != http.StatusOK {
		t.Errorf("once it is voided: %v", got)
	}
	if s := b.state("payer/alice/total"); s.Held != 0 || s.Spent != 80 {
		t.Errorf("%+v", s)
	}
}

// TestVoidedLateBesideDamage: G20, an attempt that cannot be voided, for what is wrong
// with it alone, is in the way of no other.
func TestVoidedLateBesideDamage(t *testing.T) {
	t.Parallel()
	var ledger *failingLedger
	b := newBus(t, func(c *gateway.Config) {
		ledger = &failingLedger{Ledger: c.Ledger}
		c.Ledger = ledger
	}, newAgent(t, "critic", nil))
	ledger.settle.Store(true)
	ledger.void.Store(true)
	for _, run := range []string{"damaged", "sound"} {
		refused(t, "the disk is full", b.call("critic", turn(run, "t")...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	}
	ledger.damaged.Store(b.one("damaged", agentbus.CallExecuting).ID)
	ledger.void.Store(false)
	for range 2 {
		b.VoidLate(t.Context())
	}
	b.one("sound", agentbus.CallVoided)
	ledger.damaged.Store(0)
	b.VoidLate(t.Context())
	b.one("damaged", agentbus.CallVoided)
}

// TestStoreFails: a reservation that is not durable calls no agent; an answer
// that is not durable is not acknowledged (G21, I2).
func TestStoreFails(t *testing.T) {
	t.Parallel()
	a, s := newAgent(t, "critic", nil), newAgent(t, "streamer", streamWith(strings.Repeat(helloEvent, 1000)+stream))
	var ledger *failingLedger
	b := newBus(t, func(c *gateway.Config) { ledger = &failingLedger{Ledger: c.Ledger}; c.Ledger = ledger }, a, s)
	ledger.reserve.Store(true)
	refused(t, "reserve", b.call("critic", turn("r0", "t")...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	if n := a.executions(); n != 0 {
		t.Errorf("%d executions without a reservation", n)
	}
	ledger.reserve.Store(false)
	ledger.settle.Store(true)
	refused(t, "settle", b.call("critic", turn("r", "t")...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	for _, broken := range []*atomic.Bool{&ledger.settle, &ledger.append} {
		ledger.settle.Store(false)
		broken.Store(true)
		got := b.stream("streamer", turn("r2", "t")...)
		if got.err == nil || strings.Contains(got.body, "[DONE]") || !strings.Contains(got.body, `"code":"store_unavailable"`) {
			t.Errorf("a stream that was not settled looks whole: %v …%s", got.err, got.body[max(0, len(got.body)-300):])
		}
		broken.Store(false)
	}
	for run, do := range map[string]func(string, ...string) answer{"r": b.call, "r2": b.stream} {
		name := map[string]string{"r": "critic", "r2": "streamer"}[run]
		if got := do(name, turn(run, "t")...); got.status != http.StatusOK || got.err != nil {
			t.Errorf("once the store works: %v", got)
		}
		if r := b.one(run, agentbus.CallSettled); r.Attempts < 2 {
			t.Errorf("recorded as %+v", r)
		}
	}
}

// TestOwners: G22 and G24, what a dead process left executing is taken over;
// what a living one executes is waited for.
func TestOwners(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{false, true} {
		t.Run(strconv.FormatBool(alive), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bus.db")
			store := openStore(t, path)
			release, asked := make(chan struct{}), make(chan struct{}, 64)
			var calls atomic.Int64
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				if n := calls.Add(1); n == 1 {
					<-release
				}
				answerWith(http.StatusOK, completion)(w, r)
			})
			one := busOver(t, store, path, func(c *gateway.Config) { c.Owner = "one" }, a)
			two := busOver(t, store, path, func(c *gateway.Config) {
				c.Owner, c.Alive = "two", func(owner string) bool { asked <- struct{}{}; return alive && owner == "one" }
			}, a)
			first, second := make(chan answer, 1), make(chan answer, 1)
			go func() { first <- one.call("critic", turn("r", "t")...) }()
			a.next(t)
			go func() { second <- two.call("critic", turn("r", "t")...) }()
			<-asked
			if alive {
				<-asked // it has waited
				close(release)
				same(t, "waited", <-first, <-second)
			} else {
				if got := <-second; got.body != completion || got.header.Get("X-Agentbus-Attempts") != "2" {
					t.Errorf("taken over: %v", got)
				}
				close(release)
				refused(t, "fenced", <-first, http.StatusConflict, agentbus.CodeLeaseLost) // I1: one charge
			}
			want := map[bool]int{true: 1, false: 2}[alive]
			if r := two.one("r", agentbus.CallSettled); r.Attempts != want || a.executions() != want {
				t.Errorf("%d executions, recorded as %+v", a.executions(), r)
			}
		})
	}
}

// TestRefuseUnknown: G24, with on_crash refuse nobody guesses what came of a
// call that a dead process left executing: it is refused until an operator voids
// it. What a living process executes is waited for all the same.
func TestRefuseUnknown(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	a.RefuseUnknown = true
	b := newBus(t, nil, a)
	if got := b.call("critic", turn("r", "t")...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	k := agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "r", ID: "crashed"}
	left := agentbus.CallRecord{TurnKey: k, Owner: "dead", Digest: b.one("r", agentbus.CallSettled).Digest}
	got, err := b.store.Reserve(t.Context(), agentbus.Reservation{Call: left, Key: k.Hash()})
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		t.Fatal(got, err)
	}
	for range 2 {
		refused(t, "unknown", b.call("critic", turn("r", "crashed")...), http.StatusConflict, agentbus.CodeOutcomeUnknown)
	}
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
	if err := b.store.Void(t.Context(), agentbus.Voiding{ID: got.Call.ID, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if got := b.call("critic", turn("r", "crashed")...); got.status != http.StatusOK || got.header.Get("X-Agentbus-Attempts") != "2" {
		t.Errorf("once it was voided: %v", got)
	}
}
