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
		return AgentChain{}, chainFinal(c)
	}
	c.Final = c.Final || c.Hop >= c.MaxHops
	return c, nil
}

// Next returns the chain of a call made by the agent of this hop (C7). At the
// final hop it fails with CodeChainFinal, before any I/O (C8).
func (c AgentChain) Next() (AgentChain, error) {
	if c.Final || c.Hop >= c.MaxHops {
		return AgentChain{}, chainFinal(c)
	}
	return AgentChain{Hop: c.Hop + 1, MaxHops: c.MaxHops, Final: c.Hop+1 >= c.MaxHops}, nil
}

func chainFinal(c AgentChain) *Error {
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
