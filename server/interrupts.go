package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// maxDecision bounds what comes with a decision, in bytes.
const maxDecision = 64 << 10

// Resolve decides an interrupt, once, and lets its run go on: with the workers
// of a bus that serves over this store, or when it is resumed (R22). r.Decision
// is granted or denied; r.By is who decided, and r.At is now. It returns the
// interrupt as it stands.
//
// CodeInvalidRequest: r does not answer what was asked. CodeNotFound: there is no
// such interrupt. CodeRunConflict: it is decided already.
func (s *Server) Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error) {
	i, found, err := s.store.Interrupt(ctx, id)
	if err != nil {
		return i, err
	}
	if found && i.Open() {
		if err := fits(&i, &r); err != nil {
			return i, err
		}
	}
	r.At, r.Resume = time.Now().UTC(), nil
	if i, err = s.store.Resolve(ctx, id, r); err != nil {
		return i, err
	}
	s.tellDecided()
	s.log.LogAttrs(ctx, slog.LevelInfo, "interrupt resolved", slog.String("interrupt", string(id)), slog.String("run", string(i.Run)),
		slog.String("decision", string(r.Decision)), slog.String("by", r.By))
	return i, nil
}

// An inbox is what the runs of a bus wait for. Resolve is the Server's.
type inbox struct{ *Server }

// Interrupts returns interrupts in the order in which they were raised.
func (b inbox) Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error) {
	return b.store.Interrupts(ctx, q)
}

// Interrupt returns one of them.
func (b inbox) Interrupt(ctx context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	return b.store.Interrupt(ctx, id)
}

// fits refuses a resolution that does not answer what was asked.
func fits(i *agentbus.Interrupt, r *agentbus.Resolution) error {
	refuse := func(next, format string, args ...any) error {
		return &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: fmt.Sprintf(format, args...),
			Explain: &agentbus.Explain{Rule: "R22", Next: next},
		}
	}
	granted := r.Decision == agentbus.DecisionGranted
	switch {
	case !granted && r.Decision != agentbus.DecisionDenied:
		return refuse("send decision granted or denied", "an interrupt is granted or denied")
	case len(r.Text)+len(r.Policy) > maxDecision:
		return refuse("say it shorter", "a decision has %d bytes at most", maxDecision)
	case granted && i.Ask.Kind == agentbus.AskClarification && r.Text == "":
		return refuse("send the answer as text", "what was asked is answered in words")
	case granted && r.Text != "" && i.Ask.Kind == agentbus.AskApproval && len(i.Ask.Choices) > 0 && !slices.Contains(i.Ask.Choices, r.Text):
		return &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "this is none of the choices",
			Explain: &agentbus.Explain{Rule: "R22", Supported: i.Ask.Choices, Next: "send one of them as text"},
		}
	}
	if len(r.Policy) == 0 {
		return nil
	}
	if i.Ask.Kind != agentbus.AskPolicy && len(i.Ask.Policy) == 0 {
		return refuse("leave policy_resolution out; the answer goes into text", "nobody asked by a policy part, and nobody would read its resolution")
	}
	var part struct {
		State *string `json:"in_reply_to_state"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(r.Policy), []byte("{")) || json.Unmarshal(r.Policy, &part) != nil {
		return refuse("send policy_resolution as an object, or leave it out", "policy_resolution is not a JSON object")
	}
	if part.State != nil && *part.State != i.Ask.PolicyState() { // C31
		return refuse("leave in_reply_to_state out: the bus knows it", "policy_resolution answers another policy part")
	}
	return nil
}

// expireEvery is how often a bus that serves looks for interrupts whose time is
// up, and expireBatch how many it decides in one transaction.
const (
	expireEvery = time.Second
	expireBatch = 200
)

// expire decides the interrupts whose time is up: they count as denied.
func (s *Server) expire(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := s.store.ExpireInterrupts(ctx, time.Now(), expireBatch)
		if err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "cannot expire interrupts", slog.Any("error", err))
		}
		if n > 0 {
			s.log.LogAttrs(ctx, slog.LevelInfo, "interrupts expired", slog.Int("interrupts", n))
			s.tellDecided()
		}
		if err != nil || n < expireBatch {
			return
		}
	}
}
