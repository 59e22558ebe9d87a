package gateway

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// Hops sign the hops of chains and verify those of others (C16). They are safe
// for concurrent use.
type Hops interface {
	// Verify fails with CodeUnauthenticated, CodeInvalidLineage, CodeChainFinal or
	// CodeCycleRefused for a hop that does not count.
	Verify(ctx context.Context, token string, to agentbus.HopFor) (agentbus.Hop, error)
	// Sign reports by counts whether the next agent would take the token.
	Sign(n agentbus.NextHop) (token string, counts bool, err error)
}

// A HopKeeper stores signed hops with their calls.
type HopKeeper interface {
	KeepHop(ctx context.Context, h agentbus.HopToken) error
	HopTokens(ctx context.Context, run agentbus.RunID) ([]agentbus.HopToken, error)
	// BudgetStates tells what is left, which a hop says.
	BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error)
}

// received verifies the signed hop that came with a call, in a header, in its
// metadata or in both alike. What it says of the chain holds for the call.
func (g *Gateway) received(ctx context.Context, x *exchange) error {
	token, mid := x.lineage.Hop, ""
	if x.lineage.Hop = ""; g.cfg.Hops == nil || x.inProcess != nil {
		return nil
	}
	if e := x.envelope; e != nil {
		if mid = e.call.MessageID; e.mention.Token != "" {
			if token != "" && token != e.mention.Token {
				return &agentbus.Error{
					Code: agentbus.CodeInvalidLineage, Message: "the signed hops in the header and in the metadata differ",
					Explain: &agentbus.Explain{Rule: "C16", Next: "send the same one in both, or one"},
				}
			}
			token = e.mention.Token
		}
	}
	if token == "" {
		return nil
	}
	to := agentbus.HopFor{Audiences: g.audiences(x), Sender: x.caller.ID, MessageID: mid, MaxHops: g.cfg.Chain.MaxHops, Plain: x.lineage.Chain}
	if g.cfg.Cycles == CyclesRefuse {
		to.Known = append(g.audiences(x), g.cfg.Issuer+"#agent:"+x.target.Name)
	}
	hop, err := g.cfg.Hops.Verify(ctx, token, to)
	if err != nil {
		return err
	}
	if x.lineage.Chain == nil {
		x.lineage.Chain = &agentbus.AgentChain{Hop: hop.Hop, MaxHops: hop.MaxHops, Final: hop.Hop >= hop.MaxHops}
	}
	x.hopIn = token
	return x.allow(&hop, token)
}

// sign signs the hop to the agent, behind the one that was received, or behind
// that of the turn that the call is made inside of, and keeps both with the call.
func (g *Gateway) sign(ctx context.Context, x *exchange) error {
	if g.cfg.Hops == nil || x.lineage.Chain == nil || x.flight == nil {
		return nil
	}
	left, err := g.left(ctx, x)
	if err != nil {
		return err
	}
	out := x.lineageOut()
	next := agentbus.NextHop{
		ID: x.requestID, Audience: x.target.Audience(), Caller: x.caller.ID, Payer: x.payer, Chain: *x.lineage.Chain, Run: x.lineage.Run,
		RootContext: out.RootContext, Context: out.ParentContext, Before: or(x.hopIn, x.hopBefore), Left: left,
	}
	if x.envelope != nil {
		next.MessageID = x.envelope.call.MessageID
	}
	token, counts, err := g.cfg.Hops.Sign(next)
	if err != nil {
		return err
	}
	x.note(agentbus.NoteHopSigned)
	if x.hop = token; !counts { // the chain goes on in the plain: one that has expired would be refused, and the call with it
		x.hop = ""
		x.note("hop_expired")
	}
	for _, h := range []agentbus.HopToken{{Token: x.hopIn}, {Token: token, Sent: true}} {
		if h.Token == "" {
			continue
		}
		h.Run, h.RequestID, h.At = x.lineage.Run, x.record.RequestID, time.Now()
		if err := g.cfg.HopKeeper.KeepHop(ctx, h); err != nil {
			return err
		}
	}
	return nil
}
