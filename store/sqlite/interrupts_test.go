package sqlite_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// R22, I8: what a backend needs to go on is in the file as long as somebody may need
// it: once it is denied, expired, withdrawn, stopped or used it is in no page.
func TestSecretsOfAnInterruptAreErased(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*asked) error{
		"denied": func(a *asked) error { return a.resolve(agentbus.DecisionDenied) },
		"expired": func(a *asked) error {
			_, err := a.s.ExpireInterrupts(t.Context(), time.Now().Add(time.Hour), 9)
			return err
		},
		"stopped": func(a *asked) error { return a.s.StopRun(t.Context(), "run_a", "ops", "", time.Now()) },
		"used": func(a *asked) error {
			if err := a.resolve(agentbus.DecisionGranted); err != nil {
				return err
			}
			i, _, err := a.s.Interrupt(t.Context(), a.id)
			if i.Ask.PolicyState() != "s3cret" || string(i.Ask.Resume) != `"t3cret"` || string(i.Resolution.Policy) != `"e3cret"` {
				t.Errorf("it is gone before it was used: %+v, %v", i, err)
			}
			return a.finish()
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := ask(t)
			if err := end(a); err != nil {
				t.Fatal(err)
			}
			i, _, err := a.s.Interrupt(t.Context(), a.id)
			if err != nil || i.Open() || i.Ask.Resume != nil || i.Resolution.Policy != nil || i.Ask.Title != "pay" || !bytes.Contains(i.Ask.Policy, []byte("payment_required")) {
				t.Errorf("%+v, %v", i, err)
			}
			closed(t, a.s) // folds the log into the file
			if raw, err := os.ReadFile(filepath.Join(a.dir, "bus.db")); err != nil || bytes.Contains(raw, []byte("3cret")) {
				t.Errorf("a secret is in the file: %v", err)
			}
		})
	}
}

// asked is a run that waits for a payment.
type asked struct {
	t    *testing.T
	s    *sqlite.Store
	dir  string
	id   agentbus.InterruptID
	turn agentbus.Turn
}

func ask(t *testing.T) *asked {
	t.Helper()
	a := &asked{t: t, dir: t.TempDir()}
	a.s = opened(t, a.dir)
	lease := a.begin(1)
	i := agentbus.Interrupt{
		ID: agentbus.InterruptOf("run_a", a.turn.ID, 1), Run: "run_a", Execution: "run_a", Root: "run_a", Turn: a.turn.ID, Payer: "p",
		Ask: agentbus.Ask{
			Kind: agentbus.AskPolicy, Title: "pay",
			Policy: json.RawMessage(`{"kind":"payment_required","state":"s3cret"}`), Resume: json.RawMessage(`"t3cret"`),
		},
		Raised: time.Now(), Expires: time.Now().Add(time.Minute),
	}
	a.id, a.turn.State, a.turn.Interrupt = i.ID, agentbus.TurnWaiting, &i
	a.turn.Error = &agentbus.Error{Code: agentbus.CodePaymentRequired, Ask: &agentbus.Ask{Kind: agentbus.AskPolicy, Interrupts: []agentbus.InterruptID{i.ID}}}
	h := agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{Interrupts: []agentbus.InterruptID{i.ID}, Asked: []agentbus.Turn{a.turn}}}
	if err := a.s.Halt(t.Context(), lease, h); err != nil {
		t.Fatal(err)
	}
	return a
}

// begin claims the run and begins its turn, for the n-th time.
func (a *asked) begin(n int) agentbus.Lease {
	a.t.Helper()
	e, err := a.s.Open(a.t.Context(), agentbus.Execution{ID: "run_a", Run: "run_a", Conversation: "c", Payer: "p"}, agentbus.Claim{Owner: "o", TTL: time.Hour})
	if err != nil {
		a.t.Fatal(err)
	}
	turns, err := a.s.Begin(a.t.Context(), []agentbus.Turn{{
		TurnKey:   agentbus.TurnKey{Payer: "p", Agent: "shop", Run: "run_a", ID: agentbus.RunID("run_a").Turn(0, "shop")},
		Execution: "run_a", Speaker: "shop", Epoch: e.Lease.Epoch, State: agentbus.TurnPending,
	}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.turn = turns[0]
	a.turn.Attempts = n
	return e.Lease
}

func (a *asked) resolve(d agentbus.Decision) error {
	_, err := a.s.Resolve(a.t.Context(), a.id, agentbus.Resolution{Decision: d, Policy: json.RawMessage(`"e3cret"`), At: time.Now()})
	return err
}

// finish goes on with the turn that asked, to its end.
func (a *asked) finish() error {
	a.begin(2)
	a.turn.State, a.turn.Error = agentbus.TurnDone, nil
	return a.s.Finish(a.t.Context(), a.turn, nil)
}
