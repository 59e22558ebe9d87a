package gateway

import (
	"math"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
)

// ChainRules bound chains of agents (C4 to C13).
type ChainRules struct {
	MaxHops  int   // most hops of a chain (C6); 0: agentbus.DefaultMaxHops, negative: no agent is called by another
	MaxCalls int64 // most calls that the agents of a run may make (C13); 0: DefaultMaxCalls, negative: any number
	// Absent is what becomes of a call of an inter-agent caller that could have
	// carried a chain and carries none (C10); "": AbsentAllow. AbsentOf has
	// another answer for callers by their id.
	Absent   AbsentChain
	AbsentOf map[string]AbsentChain
	// CueFirst has also the first agents of a chain told their place when a
	// conversation of this bus calls them (C9).
	CueFirst bool
	// Delegates are the tools that have other agents called, which a model at a
	// final hop is not offered (C8): names, or beginnings of names and a *. nil:
	// those of the usual frameworks. A tool with the name of an agent of this bus is one in any
	// case.
	Delegates []string
}

// An AbsentChain is what becomes of an agent's call that carries no chain of
// agents (C10).
type AbsentChain string

// What becomes of it.
const (
	AbsentAllow  AbsentChain = "allow"  // it is served as a user's call
	AbsentFinal  AbsentChain = "final"  // it is served, and its agent calls no other
	AbsentReject AbsentChain = "reject" // 400 invalid_lineage
)

func (a AbsentChain) valid() bool {
	return a == "" || a == AbsentAllow || a == AbsentFinal || a == AbsentReject
}

// DefaultMaxCalls is how many calls the agents of a run may make unless the operator
// says otherwise (C13).
const DefaultMaxCalls = 64

func (c *ChainRules) setDefaults() {
	c.MaxHops = max(or(c.MaxHops, agentbus.DefaultMaxHops), 0)
	c.MaxCalls = or(c.MaxCalls, DefaultMaxCalls)
	c.Absent = or(c.Absent, AbsentAllow)
	if c.Delegates == nil {
		c.Delegates = defaultDelegates
	}
}

// An above is what this bus knows of the call that another one is made inside
// of.
type above struct {
	known   bool
	request string               // the id of the request that was executed
	chain   *agentbus.AgentChain // nil: it is part of none
}

// aboveOf returns that of the calls which a call may have been made inside of:
// of several, the one that allows most.
func aboveOf(known []agentbus.CallRecord) (a above) {
	for i := range known {
		switch c := known[i].Chain; {
		case c == nil:
			return above{known: true, request: known[i].RequestID}
		case !a.known || c.Hop < a.chain.Hop:
			a = above{true, known[i].RequestID, c}
		}
	}
	return a
}

// hops gives a call its place in the chain of agents (C6, C10, C11), or refuses
// it: a final hop calls nobody (C8).
func (g *Gateway) hops(x *exchange, a above) (err error) {
	c := x.lineage.Chain
	var got agentbus.AgentChain
	switch {
	case a.chain == nil && c == nil:
		if a.known && g.cfg.Chain.MaxHops == 0 { // C7: whoever answers calls nobody
			_, err = agentbus.RootChain(0).Next()
			return err
		}
		if c = x.absent(&g.cfg.Chain, a.known); c == nil {
			return x.chainRequired(&g.cfg.Chain, a.known)
		}
		got = *c
	case a.chain == nil:
		got = *c
	case c != nil:
		got, err = c.After(*a.chain)
	case x.carries():
		got, err = agentbus.AgentChain{MaxHops: a.chain.MaxHops}.After(*a.chain) // it was stripped on the way
	default:
		got, err = a.chain.Next() // its dialect has no place for one
	}
	if err == nil {
		got, err = got.Bound(g.cfg.Chain.MaxHops)
	}
	if err == nil {
		x.lineage.Chain = &got
	}
	return err
}

// absent returns the chain of a call that carries none and could (C10); nil: it
// is a user's.
func (x *exchange) absent(rules *ChainRules, parentKnown bool) *agentbus.AgentChain {
	switch d := x.lineage.Depth; {
	case !x.carries() || parentKnown:
		return nil
	case d > 0:
		return &agentbus.AgentChain{Hop: d, MaxHops: rules.MaxHops}
	case x.caller.InterAgent && rules.absent(x.caller.ID) == AbsentFinal:
		return &agentbus.AgentChain{Hop: 1, MaxHops: 1, Final: true}
	}
	return nil
}

// carries reports whether the request has a place for a chain of agents: that
// there is none says something then (C10).
func (x *exchange) carries() bool {
	return x.envelope != nil && x.envelope.carries()
}

func (e *envelope) carries() bool { return e.call.Operation.Executes() && e.call.HasMessage }

func (c *ChainRules) absent(caller string) AbsentChain {
	return or(c.AbsentOf[caller], c.Absent)
}

// chainRequired refuses an agent's call that carries no chain where it must.
func (x *exchange) chainRequired(rules *ChainRules, parentKnown bool) error {
	if !x.carries() || parentKnown || !x.caller.InterAgent || rules.absent(x.caller.ID) != AbsentReject {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeInvalidLineage, Message: "this caller is an agent, and its call carries no chain of agents",
		Explain: &agentbus.Explain{Rule: "C10", Observed: "chain.require_from_agents: reject", Next: "send metadata.mentionable.agent_chain, with the hop of the call that is being served plus one, or 1"},
	}
}

// chainBudget returns the bound on what the agents of the call's run call (C13);
// ok is false when no agent makes the call: it has no chain, and is inside of no turn
// that this bus knows, or a driver makes it for a conversation that nobody called,
// which has a bound of its own.
func (g *Gateway) chainBudget(x *exchange) (b agentbus.Budget, ok bool) {
	c := x.lineage.Chain
	driven := x.inProcess != nil && x.inProcess.Declared
	if c == nil && !x.above.known || g.cfg.Chain.MaxCalls < 0 || driven && (c == nil || c.Hop <= 1) {
		return b, false
	}
	return g.chained(x), true
}

// chained bounds what the agents of the call's run call.
func (g *Gateway) chained(x *exchange) agentbus.Budget {
	return agentbus.Budget{
		Account: "payer/" + url.PathEscape(string(x.payer)) + "/chain/" + url.PathEscape(string(x.lineage.Run)),
		Limit:   math.MaxInt64, Calls: max(g.cfg.Chain.MaxCalls, 0),
	}
}

// same reports whether the agent of that name is t by another name: it has the
// same address, or is reached at the same URL as the same model (C12).
func (g *Gateway) same(t *Target, name string) bool {
	if name == t.Name {
		return true
	}
	other, ok := g.cfg.Router.Route(name)
	if !ok || t.Local || other.Local {
		return false
	}
	if !t.Address.IsZero() && t.Address.Equal(other.Address) {
		return true
	}
	if t.Model != other.Model {
		return false
	}
	for _, u := range t.upstreams().list {
		for _, v := range other.upstreams().list {
			if endpoint(u.base) == endpoint(v.base) {
				return true
			}
		}
	}
	return false
}

// endpoint is a URL as two of them are compared.
func endpoint(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Scheme) + "://" + strings.TrimSuffix(host, ".") + ":" + port + strings.TrimRight(u.EscapedPath(), "/")
}
