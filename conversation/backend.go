package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// A BackendConfig says how a conversation answers calls.
type BackendConfig struct {
	// Conversation answers. Its faults show when it is called; see
	// [Conversation.Validate].
	Conversation Conversation
	// Journal and Runs remember its runs, both or neither. Without, a run inside
	// a turn of another one is in that one's.
	Journal Journal
	Runs    Runs
	Owner   string        // see Options
	TTL     time.Duration // see Options
	Spec    json.RawMessage
	// Payer tells on whose behalf a call is answered; nil is who pays for the
	// run around it.
	Payer func(context.Context) agentbus.Payer
	// MaxDepth is the depth at which a call is refused (P10); 0 is
	// agentbus.DefaultMaxDepth.
	MaxDepth int
	// MaxHops and NoLegacyParent are as in Options.
	MaxHops        int
	NoLegacyParent bool
	AskTimeout     time.Duration // see Options
	NoEscalation   bool          // see Options
	// Events are as in Options.
	Events func(context.Context, agentbus.ExecutionID, agentbus.Position) iter.Seq2[agentbus.Event, error]
	// Redact is that of Options, of a call that came with a credential of the
	// origin's; nil is that of the run around it.
	Redact func(forwarded agentbus.Credential) Redactor
}

// Backend makes a conversation answer calls (R7). The messages of the call,
// joined, are its seed; its answer is the transcript, each turn as "[speaker]
// text" on a line of its own, as the turns are done, or the single reply of a
// [FanOut], which says with its end what became of each branch (C18). Its usage
// and cost are the sums over its turns, its receipts all of theirs. It keeps the run of the call, whose turn
// is the parent of its own turns, and a call repeated after a failure goes on
// where the journal ends.
//
// A run that waits for an interrupt ends the call with what was asked and the
// interrupt, so that who drives the run around it waits for the same one (R22).
// The call repeated after that was resolved goes on.
//
// A call at the depth limit is refused before any I/O. A run that halts before
// it is over fails the call: with its participant's error, or with
// CodeBudgetExceeded.
func Backend(c BackendConfig) agentbus.Backend { return nested{c} }

type nested struct{ config BackendConfig }

// Call runs the conversation.
func (n nested) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		o := Options{
			Seed: seed(c), Lineage: c.Lineage, Journal: n.config.Journal, Runs: n.config.Runs, Owner: n.config.Owner, TTL: n.config.TTL,
			Spec: n.config.Spec, MaxDepth: n.config.MaxDepth, MaxHops: n.config.MaxHops, NoLegacyParent: n.config.NoLegacyParent,
			AskTimeout: n.config.AskTimeout, NoEscalation: n.config.NoEscalation, Events: n.config.Events,
		}
		if n.config.Redact != nil {
			o.Redact = n.config.Redact(c.Lineage.Auth)
		}
		if n.config.Payer != nil {
			o.Payer = n.config.Payer(ctx)
		}
		_, single := n.config.Conversation.Plan.(FanOut)
		var lines int
		line := func(t *agentbus.Turn) bool {
			if single || t.State != agentbus.TurnDone {
				return true
			}
			text := n.config.Conversation.line(t)
			if lines++; lines > 1 {
				text = "\n" + text
			}
			return yield(agentbus.Chunk{Text: text}, nil)
		}
		for e, err := range Stream(ctx, n.config.Conversation, o) {
			if err != nil {
				yield(agentbus.Chunk{}, err)
				return
			}
			for i := range e.Turns {
				if !line(&e.Turns[i]) {
					return
				}
			}
			if e.Type == EventTurnDone && !e.Branch && !line(e.Turn) {
				return
			}
			if e.Result == nil {
				continue
			}
			last, err := conclusion(ctx, e.Result)
			if single && err == nil {
				last.Text = e.Result.Reply
			}
			if !yield(last, err) {
				return
			}
		}
	}
}

// seed joins the messages of a call. What the speaker itself said before is
// under its name, as what others said is already.
func seed(c *agentbus.Call) string {
	parts := make([]string, 0, len(c.Messages))
	for i := range c.Messages {
		m := &c.Messages[i]
		text := m.Content
		if m.Role == agentbus.RoleAssistant && c.Lineage.Speaker != "" {
			text = "[" + string(c.Lineage.Speaker) + "] " + text
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// conclusion is the end of the answer that a run gives: what it took, or why it
// is none.
func conclusion(ctx context.Context, r *Result) (agentbus.Chunk, error) {
	h := &r.Halt
	if h.Kind.Final() {
		var u agentbus.Usage
		var receipts []json.RawMessage
		for i := range r.Turns {
			u = u.Add(r.Turns[i].Reply.Usage)
			receipts = append(receipts, r.Turns[i].Reply.Receipts...)
		}
		u.Cost = r.Spent
		return agentbus.Chunk{Usage: &u, Finish: "stop", Children: r.Children, Receipts: receipts}, nil
	}
	switch {
	case h.Kind == agentbus.HaltWaiting && r.asked != nil:
		return agentbus.Chunk{}, waiting(r)
	case h.Error != nil:
		e := *h.Error
		e.Children = r.Children
		if h.Participant != "" { // it is nobody's when an operator stopped the run
			e.Message = h.Participant + ": " + e.Message
		}
		return agentbus.Chunk{}, &e
	case h.Kind == agentbus.HaltBudget:
		return agentbus.Chunk{}, &agentbus.Error{
			Code: agentbus.CodeBudgetExceeded, Message: "run " + string(r.Run) + " halted: " + h.String(),
			Explain: &agentbus.Explain{Rule: "R8", Observed: h.Spent.USD(), Limit: h.Limit.USD(), Next: "raise budget_usd of the conversation"},
		}
	case ctx.Err() != nil:
		return agentbus.Chunk{}, fmt.Errorf("run %s: %w", r.Run, context.Cause(ctx))
	}
	return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "run " + string(r.Run) + " was aborted"}
}

// waiting is what a call ends with whose run waits: what was asked, and what has
// been raised for it.
func waiting(r *Result) error {
	ask := *r.asked.Ask
	ask.Interrupts, ask.Timeout = r.Halt.Wait.Interrupts, 0
	return &agentbus.Error{
		Code: r.asked.Code, Message: r.Halt.Participant + ": " + r.asked.Message, Ask: &ask, Children: r.Children,
		Explain: &agentbus.Explain{
			Rule: "R22", Observed: string(r.Halt.Wait.Interrupts[0]),
			Next: "run " + string(r.Run) + " waits: resolve the interrupt, and send the same turn again",
		},
	}
}
