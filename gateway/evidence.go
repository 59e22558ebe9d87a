package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// An EvidenceVerifier tells what the evidence of a message proves (C22). It fails
// with CodeUnauthenticated for evidence that does not count, and is safe for
// concurrent use.
type EvidenceVerifier interface {
	Verify(ctx context.Context, raw []byte, to agentbus.EvidenceFor) ([]agentbus.Evidence, error)
}

// A Rebinder makes evidence for the next agent (C25): an item as JSON, nil when
// it ends here, and in which way. caller is the principal that calls. It is safe
// for concurrent use.
type Rebinder interface {
	Rebind(ctx context.Context, e agentbus.Evidence, to agentbus.EvidenceFor, caller string) (item []byte, mode string, err error)
	// Mode is the way in which evidence goes on, as Rebind tells it.
	Mode() string
}

// readMention reads what a message says in the words of Mentionable. Its evidence
// and its signed hop end here: they are for this bus, and no part of what is
// asked, stored, logged or forwarded (C20).
func (e *envelope) readMention(body []byte) []byte {
	if e.fault != nil || !e.call.HasMetadata {
		return body
	}
	if e.mention, e.fault = a2a.ReadMention(&e.call, body); e.fault != nil {
		return body
	}
	stripped, found := a2a.StripEvidence(body, &e.call)
	if e.mention.Token != "" {
		if without, err := a2a.StripToken(stripped, &e.call); err == nil {
			stripped, found = without, true
		}
	}
	if found { // its parts stand elsewhere now
		e.peek(stripped)
	}
	return stripped
}

// entitled decides by evidence whether the call may reach the agent (C24): by that
// of its caller and payer, whom this bus has authenticated, and by that of the
// message. It never moves the bill.
func (g *Gateway) entitled(ctx context.Context, x *exchange) (err error) {
	if x.envelope != nil && x.envelope.mention.Evidence != nil {
		if g.cfg.Evidence == nil {
			x.note("evidence_ignored")
		} else if x.evidence, err = g.cfg.Evidence.Verify(ctx, x.envelope.mention.Evidence, agentbus.EvidenceFor{Audiences: g.audiences(x), MessageID: x.envelope.call.MessageID}); err != nil {
			return err
		}
		x.envelope.mention.Evidence = nil
	}
	if x.inProcess != nil {
		x.evidence = append(x.evidence, x.inProcess.Evidence...)
	}
	if len(x.evidence) > 0 {
		x.note("evidence:" + x.evidence[0].Issuer)
	}
	shown := []agentbus.Evidence{agentbus.LocalEvidence(x.caller.ID, x.payer)}
	if x.inProcess == nil || x.inProcess.Outside { // else it tells who asked the caller, and the caller is no such subject
		shown = append(shown, x.evidence...)
	}
	if acl := x.target.ACL; acl == nil || acl.Allows(shown) {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeForbidden, Message: "agent " + x.target.Name + " is not for whoever makes this call, as far as this bus can tell",
		Explain: &agentbus.Explain{Rule: "C24", Next: "ask the operator for an entry in acl.allow of the agent, or for public: true"},
	}
}

// audiences returns under what the agent is known: its address, and where it is on
// this bus, as a model and as an agent of A2A.
func (g *Gateway) audiences(x *exchange) []string {
	names := []string{x.target.Audience()}
	if g.cfg.Issuer != "" {
		names = append(names, g.cfg.Issuer+"#"+x.target.Name)
	}
	for _, base := range []string{g.cfg.Issuer, g.cfg.A2A.PublicURL} {
		if base != "" {
			base = strings.TrimSuffix(base, "/")
			names = append(names, base+a2aPrefix+x.target.Name, modelAt(base+"/v1", x.target.Name))
		}
	}
	return names
}

// modelAt is what a signed hop calls a model by: where it is asked, and its name.
func modelAt(base, model string) string { return strings.TrimSuffix(base, "/") + "#" + model }

// Audience returns what evidence and signed hops call the agent by: its address,
// or its URL, with its model where it is one, or its name.
func (t *Target) Audience() string {
	switch {
	case !t.Address.IsZero():
		return t.Address.String()
	case t.Local || t.upstreams().list == nil:
		return t.Name
	}
	base := t.upstreams().list[0].name
	if t.A2A == nil {
		return modelAt(base, or(t.Model, t.Name))
	}
	return base
}

// rebind makes the evidence of the message for the agent that is called now
// (C25). It never goes on as it came. An agent that a client of this process calls
// over A2A gets it from there, since its message is made there.
func (g *Gateway) rebind(ctx context.Context, x *exchange) (err error) {
	if len(x.evidence) == 0 || x.envelope == nil && !x.clientsA2A() || x.envelope != nil && x.target.A2A == nil {
		return nil
	}
	mode := "drop"
	if g.cfg.Rebinder != nil {
		mode = g.cfg.Rebinder.Mode()
	}
	if e := x.envelope; e != nil {
		e.mention.Evidence, err = g.rebound(ctx, x.evidence, x.target.Audience(), e.call.MessageID, x.caller.ID)
		if err == nil && e.mention.Evidence == nil { // it has expired, or too many stand behind one another
			mode = "drop"
		}
	}
	x.note("evidence_sent:" + mode)
	return err
}

// clientsA2A reports whether a client in this process calls the agent over A2A:
// one that is configured, for a caller of another dialect, or one that was found
// by address.
func (x *exchange) clientsA2A() bool { return x.bridged() || x.target.Local && x.target.Kind == "a2a" }

// rebound returns evidence as it is made for an agent and a message, a list in
// JSON; nil when none goes on.
func (g *Gateway) rebound(ctx context.Context, evidence []agentbus.Evidence, audience, messageID, caller string) ([]byte, error) {
	if g.cfg.Rebinder == nil {
		return nil, nil
	}
	to := agentbus.EvidenceFor{Audiences: []string{audience}, MessageID: messageID}
	var items []json.RawMessage
	for i := range evidence {
		item, _, err := g.cfg.Rebinder.Rebind(ctx, evidence[i], to, caller)
		if err != nil {
			return nil, err
		}
		if item != nil {
			items = append(items, item)
		}
	}
	if items == nil {
		return nil, nil
	}
	raw, err := json.Marshal(items)
	if err != nil {
		return nil, errors.Join(errors.New("gateway: evidence of the rebinder is no JSON"), err)
	}
	return raw, nil
}

// showing has the client that calls the agent over A2A show the evidence of the
// message that the call is made for.
func (g *Gateway) showing(ctx context.Context, x *exchange) context.Context {
	if len(x.evidence) == 0 || !x.clientsA2A() {
		return ctx
	}
	evidence, audience, caller := x.evidence, x.target.Audience(), x.caller.ID
	return a2a.WithEvidence(ctx, func(ctx context.Context, messageID string) ([]byte, error) {
		return g.rebound(ctx, evidence, audience, messageID, caller)
	})
}

// mentioned returns a body with the place of the call in its chain of agents, its
// signed hop and its evidence, as the next agent is told. One that says so
// already stays as it came (A6).
func (x *exchange) mentioned(body []byte) []byte {
	e := x.envelope
	c := x.lineage.Chain
	said := e.mention.Chain != nil && c != nil && *e.mention.Chain == *c
	if !e.carries() || c == nil && e.mention.Evidence == nil || said && x.hop == "" && e.mention.Evidence == nil {
		return body
	}
	with, err := a2a.SetMention(body, &e.call, &a2a.Mention{Chain: c, Token: x.hop, Evidence: e.mention.Evidence})
	if err != nil { // its metadata is no object: the agent says what it thinks of that
		return body
	}
	return with
}
