package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// Proofs are what evidence and signed hops are kept in (C16, C22).
type Proofs interface {
	UseProof(ctx context.Context, proof agentbus.Digest, expires time.Time) (first bool, err error)
	KeepHop(ctx context.Context, h agentbus.HopToken) error
	HopTokens(ctx context.Context, run agentbus.RunID) ([]agentbus.HopToken, error)
}

var proofs = map[string]func(*place){
	// C22: of many that use a proof at once one is the first, and a restart
	// forgets nothing.
	"ProofsCountOnce": func(p *place) {
		t := p.t
		expires := time.Now().Add(time.Hour)
		var first atomic.Int64
		var users sync.WaitGroup
		for range 20 {
			users.Go(func() {
				ok1, err := p.UseProof(t.Context(), agentbus.Digest{1}, expires)
				ok(t, "use", err)
				if ok1 {
					first.Add(1)
				}
			})
		}
		users.Wait()
		if n := first.Load(); n != 1 {
			t.Errorf("%d were first", n)
		}
		p.reopen()
		usedBefore(t, p, agentbus.Digest{1}, expires, false)
		usedBefore(t, p, agentbus.Digest{2}, expires, true)
	},
	// C22: what has expired is forgotten.
	"ProofsExpire": func(p *place) {
		usedBefore(p.t, p, agentbus.Digest{1}, time.Now().Add(-time.Minute), true)
		usedBefore(p.t, p, agentbus.Digest{1}, time.Now().Add(time.Minute), true)
		usedBefore(p.t, p, agentbus.Digest{1}, time.Now().Add(time.Minute), false)
	},
	// C16: signed hops are kept in their order, run by run.
	"HopsAreKept": func(p *place) {
		t := p.t
		at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
		want := []agentbus.HopToken{{Run: "r", RequestID: "q1", Token: "a.b.c", At: at}, {Run: "r", RequestID: "q1", Sent: true, Token: "d.e.f", At: at}}
		for _, h := range append(want, agentbus.HopToken{Run: "other", Token: "x"}) {
			h.At = at
			ok(t, "keep", p.KeepHop(t.Context(), h))
		}
		p.reopen()
		got, err := p.HopTokens(t.Context(), "r")
		ok(t, "read", err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hops (-want +got):\n%s", diff)
		}
	},
}

// usedBefore uses a proof, and checks whether that was the first time.
func usedBefore(t *testing.T, p *place, proof agentbus.Digest, expires time.Time, first bool) {
	t.Helper()
	got, err := p.UseProof(t.Context(), proof, expires)
	ok(t, "use", err)
	if got != first {
		t.Errorf("first: %v, want %v", got, first)
	}
}
