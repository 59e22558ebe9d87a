package policy

import (
	"context"
	"iter"

	"github.com/agentbus/agentbus"
)

// Funds are what a [Budget] spends of. A conversation's Budget is Funds, so that
// runs and calls outside of them can share one. Both methods are safe for
// concurrent use.
type Funds interface {
	// Hold takes the worst case of a call out of what is left, or fails with
	// CodeBudgetExceeded and takes nothing. 0 is unknown: it fails only once
	// everything is spent.
	Hold(worst agentbus.Micros) error
	// Settle gives back what was held and spends what the call has cost.
	Settle(worst, cost agentbus.Micros)
}

// A Budget makes a call only if what it can cost is left, and spends what the
// answer says it has cost, that of a failed attempt too (R8, R13). It is for
// backends that nobody counts: calls through a gateway are held and charged there,
// and those of a conversation by its driver.
type Budget struct {
	Funds   Funds           // required
	MaxCost agentbus.Micros // the most one call can cost; 0: not known
}

// Wrap is the [agentbus.Middleware].
func (b Budget) Wrap(next agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			if err := b.Funds.Hold(b.MaxCost); err != nil {
				yield(agentbus.Chunk{}, err)
				return
			}
			var void, last agentbus.Usage // the attempts that were taken back, and the one that was not
			defer func() { b.Funds.Settle(b.MaxCost, void.Add(last).Cost) }()
			for chunk, err := range next.Call(ctx, c) {
				if chunk.Void {
					void, last = void.Add(last), agentbus.Usage{}
				}
				if chunk.Usage != nil {
					last = *chunk.Usage
					last.Cost = max(0, last.Cost)
				}
				if !yield(chunk, err) || err != nil {
					return
				}
			}
		}
	})
}
