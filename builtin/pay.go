package builtin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

const (
	// payWaits is how long a payment may take; after that, pay asks anew (C29).
	payWaits = 10 * time.Minute
	// maxIssued is how many requests are remembered without a store.
	maxIssued = 65_536
	stateLen  = 32
)

// States keeps what pay has asked, so that any process of the same installation
// can go on, and lets one answer win. It is given digests of states, never the
// states (C29). It is safe for concurrent use; a store has these methods.
type States interface {
	Session(ctx context.Context, key agentbus.Digest) (state []byte, found bool, err error)
	// KeepSession keeps state under key, in place of what was there.
	KeepSession(ctx context.Context, key agentbus.Digest, state []byte, at time.Time) error
	// TakeSession takes what is kept under key away if it is state still, at once
	// for all processes, and reports whether it was.
	TakeSession(ctx context.Context, key agentbus.Digest, state []byte) (taken bool, err error)
}

// An issued is the state that a request waits for: good for one answer, for
// payWaits, and until another one is issued for the same request (C29, C30). It is
// kept under what it is bound to, see bound.
type issued struct {
	State   agentbus.Digest `json:"state"` // digest of the state
	Expires time.Time       `json:"expires"`
}

// pay asks to be paid before it says what it was told last (R21).
type pay struct {
	states States
	payer  func(context.Context) agentbus.Payer
	answer agentbus.Backend
}

func newPay(c *Config) *pay {
	p := &pay{states: c.States, payer: c.Payer, answer: says(func(c *agentbus.Call) string { return "Paid. " + last(c) }, 0)}
	if p.states == nil {
		p.states = &memory{issued: map[agentbus.Digest][]byte{}}
	}
	if p.payer == nil {
		p.payer = func(context.Context) agentbus.Payer { return "" }
	}
	return p
}

// Call answers who has paid, and asks everybody else to, whatever is wrong with
// what they say (C30).
func (p *pay) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		paid, err := p.paid(ctx, c)
		if err == nil && paid {
			p.answer.Call(ctx, c)(yield)
			return
		}
		if err == nil {
			err = p.ask(ctx, c)
		}
		yield(agentbus.Chunk{}, err)
	}
}

func (p *pay) ask(ctx context.Context, c *agentbus.Call) error {
	const message = "pay wants to be paid before it answers: nothing is charged, it is for trying"
	var secret [stateLen]byte
	_, _ = rand.Read(secret[:]) // never fails since Go 1.24
	state := base64.RawURLEncoding.EncodeToString(secret[:])
	now := time.Now().UTC()
	raw, _ := json.Marshal(issued{stateKey(state), now.Add(payWaits)}) // a struct of ours
	if err := p.states.KeepSession(ctx, p.bound(ctx, c), raw, now); err != nil {
		return fmt.Errorf("keep what is asked: %w", err)
	}
	part, _ := json.Marshal(map[string]string{ // strings
		"kind": string(agentbus.PolicyPaymentRequired), "code": "demo", "title": "a payment for trying", "message": message, "state": state,
	})
	return &agentbus.Error{
		Code: agentbus.CodePaymentRequired, Message: message,
		Ask: &agentbus.Ask{Kind: agentbus.AskPolicy, Title: "pay wants to be paid", Prompt: last(c), Policy: part, Timeout: payWaits},
	}
}

// stateKey is what a state is known by.
func stateKey(state string) agentbus.Digest {
	return sha256.Sum256([]byte("agentbus policy state\x00" + state))
}

// bound is what a state for c is bound to: the same request of the same payer in
// the same place, which are the principal and the thread of C29.
func (p *pay) bound(ctx context.Context, c *agentbus.Call) agentbus.Digest {
	l := &c.Lineage
	turn := agentbus.TurnKey{Payer: p.payer(ctx), Run: l.Run, Path: l.Path, Parent: l.Parent, ID: l.Turn}.Hash()
	h := sha256.New()
	h.Write([]byte("agentbus policy of a request\x00"))
	h.Write(turn[:])
	for i := range c.Messages {
		sum := sha256.Sum256([]byte(c.Messages[i].Content))
		h.Write(sum[:])
	}
	return agentbus.Digest(h.Sum(nil))
}

// paid reports whether a call comes with an answer to what was asked for it,
// which is good once (C30).
func (p *pay) paid(ctx context.Context, c *agentbus.Call) (bool, error) {
	var r struct {
		Outcome agentbus.Decision `json:"outcome"`
	}
	if c.Resolution == nil || json.Unmarshal(c.Resolution.Policy, &r) != nil || r.Outcome != agentbus.DecisionGranted {
		return false, nil //nolint:nilerr // what cannot be read pays nothing
	}
	bound := p.bound(ctx, c)
	raw, found, err := p.states.Session(ctx, bound)
	var last issued
	if err != nil || !found || json.Unmarshal(raw, &last) != nil {
		return false, err
	}
	if last.State != stateKey(c.Resolution.PolicyState()) || !time.Now().Before(last.Expires) {
		return false, nil
	}
	return p.states.TakeSession(ctx, bound, raw) // one that was replaced since it was read wins nothing
}

// memory are the States of an agent without a store.
type memory struct {
	mu     sync.Mutex // guards the rest
	issued map[agentbus.Digest][]byte
}

// Session returns what was kept.
func (m *memory) Session(_ context.Context, key agentbus.Digest) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	raw, found := m.issued[key]
	return raw, found, nil
}

// KeepSession keeps it. At maxIssued all are forgotten: whoever was asked is asked
// anew.
func (m *memory) KeepSession(_ context.Context, key agentbus.Digest, raw []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.issued) >= maxIssued {
		clear(m.issued)
	}
	m.issued[key] = raw
	return nil
}

// TakeSession lets the first one win.
func (m *memory) TakeSession(_ context.Context, key agentbus.Digest, raw []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := bytes.Equal(m.issued[key], raw)
	if taken {
		delete(m.issued, key)
	}
	return taken, nil
}
