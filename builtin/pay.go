package builtin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

const (
	// payWaits is how long a payment may take; after that, pay asks anew.
	payWaits = 24 * time.Hour
	// maxUsed is how many states of payments are remembered as used.
	maxUsed  = 65_536
	nonceLen = 16
)

// pay asks to be paid before it says what it was told last (R21). What it asks
// has a state that is good for one answer to the same request (C29, C30). It
// keeps none of them, so that another process of the same installation can go on:
// a state is signed, and remembered once it is used.
type pay struct {
	secret []byte
	answer agentbus.Backend

	mu   sync.Mutex           // guards used
	used map[string]time.Time // states, and until when they would be good
}

func newPay(secret []byte) *pay {
	if len(secret) == 0 {
		secret = make([]byte, sha256.Size)
		_, _ = rand.Read(secret) // never fails since Go 1.24
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("agentbus pay"))
	return &pay{secret: mac.Sum(nil), answer: says(func(c *agentbus.Call) string { return "Paid. " + last(c) }, 0), used: map[string]time.Time{}}
}

// Call answers who has paid, and asks everybody else to.
func (p *pay) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	if p.paid(c) {
		return p.answer.Call(ctx, c)
	}
	return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, p.ask(c)) }
}

func (p *pay) ask(c *agentbus.Call) error {
	const message = "pay wants to be paid before it answers: nothing is charged, it is for trying"
	part, _ := json.Marshal(map[string]string{ // strings
		"kind": string(agentbus.PolicyPaymentRequired), "code": "demo", "title": "a payment for trying", "message": message,
		"state": p.state(c, rand.Text()[:nonceLen], time.Now().Add(payWaits)),
	})
	return &agentbus.Error{
		Code: agentbus.CodePaymentRequired, Message: message,
		Ask: &agentbus.Ask{Kind: agentbus.AskPolicy, Title: "pay wants to be paid", Prompt: last(c), Policy: part, Timeout: payWaits},
	}
}

// state returns what a resolution must name: a nonce, until when it is good, and
// the signature over both and the request.
func (p *pay) state(c *agentbus.Call, nonce string, until time.Time) string {
	head := binary.BigEndian.AppendUint64([]byte(nonce), uint64(max(0, until.Unix())))
	return base64.RawURLEncoding.EncodeToString(append(head, p.sign(c, head)...))
}

func (p *pay) sign(c *agentbus.Call, head []byte) []byte {
	mac := hmac.New(sha256.New, p.secret)
	mac.Write(head)
	l := &c.Lineage
	key := agentbus.TurnKey{Run: l.Run, Path: l.Path, Parent: l.Parent, ID: l.Turn}.Hash()
	mac.Write(key[:])
	for i := range c.Messages {
		sum := sha256.Sum256([]byte(c.Messages[i].Content))
		mac.Write(sum[:])
	}
	return mac.Sum(nil)
}

// paid reports whether a call comes with an answer to what was asked for it,
// which is good once.
func (p *pay) paid(c *agentbus.Call) bool {
	var r struct {
		State   string            `json:"in_reply_to_state"`
		Outcome agentbus.Decision `json:"outcome"`
	}
	if c.Resolution == nil || json.Unmarshal(c.Resolution.Policy, &r) != nil || r.Outcome != agentbus.DecisionGranted {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(r.State)
	const head = nonceLen + 8
	if err != nil || len(raw) != head+sha256.Size || !hmac.Equal(raw[head:], p.sign(c, slices.Clone(raw[:head]))) {
		return false
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(raw[nonceLen:head])), 0) //nolint:gosec // it is ours
	return time.Now().Before(until) && p.use(r.State, until)
}

// use marks a state as used, and reports whether it was not before.
func (p *pay) use(state string, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, used := p.used[state]; used {
		return false
	}
	if len(p.used) >= maxUsed {
		for s, u := range p.used {
			if time.Now().After(u) || len(p.used) >= maxUsed {
				delete(p.used, s)
			}
		}
	}
	p.used[state] = until
	return true
}
