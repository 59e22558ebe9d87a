package gateway

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
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
// metadata or in both alike; one that came to a face was verified there. What it says of the chain holds for the call.
func (g *Gateway) received(ctx context.Context, x *exchange) error {
	token, mid := x.lineage.Hop, ""
	if x.lineage.Hop = ""; g.cfg.Hops == nil {
		return nil
	}
	if p := x.inProcess; p != nil { // the face of the agent was asked with it
		if x.hopIn = p.Hop; p.Hop == "" {
			return nil
		}
		hop := keptHop(p.Hop)
		return x.allow(&hop, p.Hop)
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
// that of the turn that the call is made inside of, and keeps both with the call. What a
// client in this process calls over A2A gets its hops from there.
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
	if x.hopIn != "" {
		if err := g.keepHop(ctx, x, agentbus.HopToken{Token: x.hopIn}); err != nil {
			return err
		}
	}
	if x.clientsA2A() { // a hop names the message that it goes with, which is made there
		x.hopNext = &next
		return nil
	}
	x.hop, err = g.signed(ctx, x, &next)
	return err
}

// signed signs a hop and keeps it with the call. It returns what the agent is told:
// "" where the chain goes on in the plain, since a hop that has expired would be refused,
// and the call with it.
func (g *Gateway) signed(ctx context.Context, x *exchange, n *agentbus.NextHop) (string, error) {
	token, counts, err := g.cfg.Hops.Sign(*n)
	if err != nil {
		return "", err
	}
	if err := g.keepHop(ctx, x, agentbus.HopToken{Token: token, Sent: true}); err != nil {
		return "", err
	}
	if x.hopSigned.Store(true); !counts {
		x.hopExpired.Store(true)
		return "", nil
	}
	return token, nil
}

func (g *Gateway) keepHop(ctx context.Context, x *exchange, h agentbus.HopToken) error {
	h.Run, h.RequestID, h.At = x.lineage.Run, x.record.RequestID, time.Now()
	return g.cfg.HopKeeper.KeepHop(ctx, h)
}

// signing has the client that calls the agent over A2A send a hop with each message of the
// call, signed for that message, and another one when it comes again.
func (g *Gateway) signing(ctx context.Context, x *exchange) context.Context {
	if x.hopNext == nil {
		return ctx
	}
	next, sent := *x.hopNext, 0 // of the goroutine that the client talks in
	return a2a.WithHop(ctx, func(ctx context.Context, messageID string) (string, error) {
		sent++
		next.ID, next.MessageID = agentbus.HopID(x.requestID, sent), messageID
		return g.signed(ctx, x, &next)
	})
}

// noteHops says on the record of the call what became of its hops. A call whose client
// sent no message gets a hop here: it proves who called whom.
func (g *Gateway) noteHops(ctx context.Context, x *exchange) error {
	if x.hopNext != nil && !x.hopSigned.Load() {
		if _, err := g.signed(ctx, x, x.hopNext); err != nil {
			return err
		}
	}
	if x.hopSigned.Swap(false) {
		x.note(agentbus.NoteHopSigned)
	}
	if x.hopExpired.Swap(false) {
		x.note("hop_expired")
	}
	return nil
}
