package server

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/typed"
	"github.com/agentbus/agentbus/server/config"
)

// conversationAgent makes a configured conversation callable as an agent: where
// mentions decide who is asked, those of the last message (C17).
func (s *wiring) conversationAgent(name string) (agentbus.Backend, error) {
	all, err := s.conversationOf(spec{Conversation: name})
	if err != nil || !s.cfg.Conversations[name].Mentions {
		return all, err
	}
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		last := ""
		if n := len(c.Messages); n > 0 {
			last = c.Messages[n-1].Content
		}
		ask := s.mentioned(name, last)
		if ask == nil {
			return all.Call(ctx, c)
		}
		some, err := s.conversationOf(spec{Conversation: name, Ask: ask})
		if err != nil {
			return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, err) }
		}
		return some.Call(ctx, c)
	}), nil
}

// conversationOf makes a backend of a conversation.
func (s *wiring) conversationOf(sp spec) (agentbus.Backend, error) {
	c, err := s.conversation(sp)
	if err != nil {
		return nil, err
	}
	stored, err := json.Marshal(sp)
	if err != nil {
		return nil, err
	}
	return conversation.Backend(conversation.BackendConfig{
		Conversation: c, Journal: s.store, Runs: s.Runs(), Owner: s.owner, TTL: s.cfg.Workers.Lease, Spec: stored, MaxDepth: s.cfg.Limits.MaxDepth,
		MaxHops: s.maxHops(), NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback, AskTimeout: s.cfg.Interrupts.Timeout,
		NoEscalation: s.cfg.Escalation == config.EscalationOff, Events: s.store.Events,
		Redact: func(forwarded agentbus.Credential) conversation.Redactor { return s.redacting(nil, forwarded) },
		Payer: func(ctx context.Context) agentbus.Payer {
			p, _ := gateway.InProcessOf(ctx) // the gateway has said who pays
			return p.Payer
		},
	}), nil
}

// marked tells the gateway that calls come from a driver of this process, on the
// bill of whoever the context says, or of the agent that pays for itself (P22),
// to an agent that the configuration names (G6).
func marked(caller, agent string, owned bool) agentbus.Middleware {
	return func(b agentbus.Backend) agentbus.Backend {
		return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			mark, _ := gateway.InProcessOf(ctx)
			mark.Caller.ID, mark.AgentOwned, mark.Declared = caller, owned, true
			if owned {
				mark.Payer = agentbus.Payer("agent:" + agent)
			}
			return b.Call(gateway.WithInProcess(ctx, mark), c)
		})
	}
}

// declared tells the gateway that the configuration names whom calls go to: of
// the built-in agents, one calls itself (G6).
func declared(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		mark, _ := gateway.InProcessOf(ctx)
		mark.Declared = true
		return b.Call(gateway.WithInProcess(ctx, mark), c)
	})
}

// takeover is a store whose leases of dead processes are free at once.
type takeover struct {
	Store

	alive func(owner string) bool
}

// Open takes a lease over from an owner that is certainly dead, and names one
// that is alive.
func (t takeover) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	stored, err := t.Store.Open(ctx, e, claim)
	if agentbus.CodeOf(err) != agentbus.CodeRunConflict || stored.Lease.Owner == "" {
		return stored, err
	}
	if !t.alive(stored.Lease.Owner) {
		claim.TakeOver = stored.Lease.Epoch
		return t.Store.Open(ctx, e, claim)
	}
	return stored, driven(agentbus.RunID(e.ID), stored.Lease.Owner)
}

// driven refuses to drive a run that another driver has (R17).
func driven(run agentbus.RunID, owner string) error {
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "run " + string(run) + " is being driven by " + processOf(owner),
		Explain: &agentbus.Explain{
			Rule: "R17", Observed: owner,
			Next: "watch it with agentbus trace " + typed.Operand(string(run)) + "; it can be resumed when that process has ended, or has not renewed its lease",
		},
	}
}
