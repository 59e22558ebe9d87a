package policy

import (
	"time"

	"github.com/agentbus/agentbus"
)

// A Policy is what bounds the calls of one participant. Its zero fields bound
// nothing.
type Policy struct {
	TurnTimeout    time.Duration // of a turn with all its attempts (R10)
	AttemptTimeout time.Duration // of each attempt
	Retry          *Retry        // nil: no retry
	Breaker        *Breaker      // nil: none
	Budget         *Budget       // of each attempt (R13); nil: none
}

// Over returns p where its fields are set, and base elsewhere: a participant's
// policy overrides the conversation's field by field (R13).
func (p Policy) Over(base Policy) Policy {
	if p.TurnTimeout == 0 {
		p.TurnTimeout = base.TurnTimeout
	}
	if p.AttemptTimeout == 0 {
		p.AttemptTimeout = base.AttemptTimeout
	}
	if p.Retry == nil {
		p.Retry = base.Retry
	}
	if p.Breaker == nil {
		p.Breaker = base.Breaker
	}
	if p.Budget == nil {
		p.Budget = base.Budget
	}
	return p
}

// Wrap is the [agentbus.Middleware]: the deadline of the turn around the
// retries, around the breaker, the budget and the deadline of each attempt.
func (p Policy) Wrap(b agentbus.Backend) agentbus.Backend {
	around := []agentbus.Middleware{Deadline(p.TurnTimeout)}
	if p.Retry != nil {
		around = append(around, p.Retry.Wrap)
	}
	if p.Breaker != nil {
		around = append(around, p.Breaker.Wrap)
	}
	if p.Budget != nil {
		around = append(around, p.Budget.Wrap)
	}
	return agentbus.Wrap(b, append(around, Deadline(p.AttemptTimeout))...)
}
