package agentbus

import "fmt"

// DefaultMaxHops is the most hops of an [AgentChain] unless the operator says
// otherwise (C6).
const DefaultMaxHops = 4

// An AgentChain counts the agents of one chained request, as an agent is told
// (C5): 1-indexed, so that the first agent a dispatcher calls is hop 1. It is a
// bound of its own beside the depth of a Lineage (C11). [AgentChain.Bound]
// makes the chain of this bus of one that was received, [AgentChain.Next] that
// of a call made inside it.
type AgentChain struct {
	Hop     int  `json:"hop"`
	MaxHops int  `json:"max_hops"`
	Final   bool `json:"is_final"` // the agent of this hop calls no other one
}

// Bound returns c under the local limit on hops (C6): the smaller maximum
// holds, and whether the hop is final follows from it, or was said early by who
// sent it. A hop beyond the maximum fails with CodeChainFinal.
func (c AgentChain) Bound(local int) (AgentChain, error) {
	c.MaxHops = min(c.MaxHops, local)
	if c.Hop > c.MaxHops {
		return AgentChain{}, errChainFinal(c)
	}
	c.Final = c.Final || c.Hop >= c.MaxHops
	return c, nil
}

// Next returns the chain of a call made by the agent of this hop (C7). At the
// final hop it fails with CodeChainFinal, before any I/O (C8).
func (c AgentChain) Next() (AgentChain, error) {
	if c.Final || c.Hop >= c.MaxHops {
		return AgentChain{}, errChainFinal(c)
	}
	return AgentChain{Hop: c.Hop + 1, MaxHops: c.MaxHops, Final: c.Hop+1 >= c.MaxHops}, nil
}

// RootChain returns the chain that a dispatcher's own calls begin from, with at most
// that many hops: [AgentChain.Next] of it is hop 1 (C7). With 0 it calls nobody.
func RootChain(hops int) AgentChain {
	hops = min(max(hops, 0), MaxChainHops)
	return AgentChain{MaxHops: hops, Final: hops == 0}
}

// After refuses, with CodeInvalidLineage, a chain that claims to be no further
// than the call that it was made inside of allows (C11), and returns c within
// that one's maximum. A final hop calls nobody: CodeChainFinal.
func (c AgentChain) After(parent AgentChain) (AgentChain, error) {
	next, err := parent.Next()
	if err != nil {
		return AgentChain{}, err
	}
	if c.Hop < next.Hop {
		return AgentChain{}, &Error{
			Code: CodeInvalidLineage, Message: "the hop of this call's agent chain is not beyond that of the turn it is made inside of",
			Explain: &Explain{Rule: "C11", Observed: c.Hop, Limit: next.Hop, Next: "send the hop of the call that is being served, plus one"},
		}
	}
	return c.Bound(next.MaxHops)
}

func errChainFinal(c AgentChain) *Error {
	return &Error{
		Code: CodeChainFinal, Message: fmt.Sprintf("the chain of agents ends at hop %d: no other agent is called", c.MaxHops),
		Explain: &Explain{Rule: "C8", Observed: c.Hop, Limit: c.MaxHops, Next: "answer with what is known, without another agent"},
	}
}

// Render returns the cue that tells a model where in the chain it answers (C9).
func (c AgentChain) Render() string {
	if c.Final {
		return fmt.Sprintf("You are responding as the FINAL hop (%d of %d). Synthesize a conclusion — do not invite another agent.", c.Hop, c.Hop)
	}
	hops := "hops"
	if c.MaxHops-c.Hop == 1 {
		hops = "hop"
	}
	return fmt.Sprintf("You are responding as hop %d of a chain capped at %d hops. [%d %s remaining.]", c.Hop, c.MaxHops, c.MaxHops-c.Hop, hops)
}
