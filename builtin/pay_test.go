package builtin_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/builtin"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

// R21, C27, C29, C30, X22, X23: pay answers who was granted what it asked last, for
// that request and once, in another process too; everybody else it asks anew.
func TestPay(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var payer agentbus.Payer = "alice"
	process := func() agentbus.Backend {
		b, err := builtin.New(builtin.Pay, builtin.Config{States: store, Payer: func(context.Context) agentbus.Payer { return payer }})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	call := func(b agentbus.Backend, text string, r *agentbus.Resolution) (string, *agentbus.Ask) {
		c := &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.pay"}, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}, Resolution: r}
		reply, err := agentbus.Collect(b.Call(t.Context(), c))
		if err == nil {
			return reply.Text, nil
		}
		if e := agentbus.AsError(err); e.Code == agentbus.CodePaymentRequired && e.Ask != nil && e.Ask.Kind == agentbus.AskPolicy {
			return "", e.Ask
		}
		t.Fatalf("got %v", err)
		return "", nil
	}
	first := process()
	_, ask := call(first, "hello", nil)
	if shown, _ := json.Marshal(ask); strings.Contains(string(shown), ask.PolicyState()) || ask.PolicyState() == "" {
		t.Errorf("shown as %s", shown)
	}
	answer := func(ask *agentbus.Ask, d agentbus.Decision) *agentbus.Resolution {
		i := agentbus.Interrupt{Ask: *ask, Resolution: &agentbus.Resolution{Decision: d}}
		return i.Answer()
	}
	before := answer(ask, agentbus.DecisionGranted)
	forged := agentbus.Resolution{Policy: json.RawMessage(`{"in_reply_to_state":"AAAA","outcome":"granted"}`)}
	for name, r := range map[string]*agentbus.Resolution{"denied": answer(ask, agentbus.DecisionDenied), "forged": &forged, "nothing": {}} {
		text, asked := call(first, "hello", r)
		if asked == nil || asked.PolicyState() == ask.PolicyState() {
			t.Fatalf("%s: %q, %v", name, text, asked)
		}
		ask = asked
	}
	// C30: a fresh part takes the place of the one before, so that one of them wins.
	text, fresh := call(process(), "hello", before)
	if fresh == nil {
		t.Fatalf("granted by a part that another has replaced: %q", text)
	}
	granted := answer(fresh, agentbus.DecisionGranted)
	if text, asked := call(first, "another request", granted); asked == nil {
		t.Errorf("granted for another request: %q", text)
	}
	payer = "mallory" // X22
	if text, asked := call(first, "hello", granted); asked == nil {
		t.Errorf("granted to somebody else: %q", text)
	}
	payer = "alice"
	if text, _ := call(process(), "hello", granted); text != "Paid. hello" {
		t.Errorf("granted: %q", text)
	}
	if text, asked := call(first, "hello", granted); asked == nil {
		t.Errorf("granted twice: %q", text)
	}
}

// between is the States of a process that another one is faster than: what it does is
// done after the first has read what it would claim.
type between struct {
	builtin.States

	do func()
}

// Session reads, and lets the other process do.
func (b *between) Session(ctx context.Context, key agentbus.Digest) ([]byte, bool, error) {
	state, found, err := b.States.Session(ctx, key)
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return state, found, err
}

// C30, X22: of two processes on one store that go on with the same request at the same
// moment one wins, whatever the other has asked, or was granted, since the first has read
// what it would claim.
func TestPayIsClaimedByOneProcess(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"the same part": false, "a part that took its place": true} {
		path := sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))
		slow, fast := &between{States: payStore(t, path)}, payStore(t, path)
		one, other := payBackend(t, slow), payBackend(t, fast)
		_, ask := payCall(t, one, nil)
		granted := grantedFor(ask)
		paid := 0
		slow.do = func() {
			second := granted
			if replaced {
				_, fresh := payCall(t, other, nil)
				second = grantedFor(fresh)
			}
			if text, _ := payCall(t, other, second); text != "" {
				paid++
			}
		}
		text, asked := payCall(t, one, granted)
		if text != "" {
			paid++
		}
		if paid != 1 || asked == nil || asked.PolicyState() == ask.PolicyState() {
			t.Errorf("%s: %d were paid for; the slower one was asked %v", name, paid, asked)
		}
	}
}

func payStore(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func payBackend(t *testing.T, states builtin.States) agentbus.Backend {
	t.Helper()
	b, err := builtin.New(builtin.Pay, builtin.Config{States: states, Payer: func(context.Context) agentbus.Payer { return "alice" }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// payCall returns what pay answers, or what it asks.
func payCall(t *testing.T, b agentbus.Backend, r *agentbus.Resolution) (string, *agentbus.Ask) {
	t.Helper()
	c := &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.pay"}, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "hello"}}, Resolution: r}
	reply, err := agentbus.Collect(b.Call(t.Context(), c))
	if err == nil {
		return reply.Text, nil
	}
	e := agentbus.AsError(err)
	if e.Ask == nil {
		t.Fatalf("got %v", err)
	}
	return "", e.Ask
}

func grantedFor(ask *agentbus.Ask) *agentbus.Resolution {
	i := agentbus.Interrupt{Ask: *ask, Resolution: &agentbus.Resolution{Decision: agentbus.DecisionGranted}}
	return i.Answer()
}
