package conversation

import (
	"fmt"

	"github.com/agentbus/agentbus"
)

// bounded returns why a step may not begin although the run is not over: one of its
// turns would be one too many, or its tokens are used up (E35).
func (d *driver) bounded(step *Step) *agentbus.Halt {
	speakers := step.Together
	if len(speakers) == 0 {
		speakers = []agentbus.Speaker{step.Speaker}
	}
	if limit, n := d.conversation.RecursionLimit, len(d.turns); limit > 0 && n+len(speakers) > limit {
		return &agentbus.Halt{
			Kind: agentbus.HaltRecursionLimit, Participant: string(speakers[max(0, limit-n)]),
			Reason: fmt.Sprintf("the run may begin %d nodes", limit),
		}
	}
	limit := d.conversation.TokenBudget
	if limit == 0 {
		return nil
	}
	worst := int64(0)
	for _, s := range speakers {
		if who := d.index(s); who >= 0 {
			worst += int64(d.conversation.Participants[who].MaxTokens)
		}
	}
	if d.tokens < limit && sum(d.tokens, worst) <= limit {
		return nil
	}
	h := &agentbus.Halt{Kind: agentbus.HaltBudget, SpentTokens: d.tokens, LimitTokens: limit}
	if len(speakers) == 1 {
		h.Participant = string(speakers[0])
	}
	return h
}

// taken is how many tokens an answer took: none, when nobody was asked for it.
func taken(r *agentbus.Reply) int64 {
	if r.Replayed {
		return 0
	}
	return sum(max(0, r.Usage.InputTokens), max(0, r.Usage.OutputTokens))
}
