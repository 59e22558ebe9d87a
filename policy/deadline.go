package policy

import (
	"context"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/guard"
)

// Deadline ends a call after d with CodeDeadlineExceeded, even when the backend
// does not listen to its context (R10). Up to 0 there is no deadline.
func Deadline(d time.Duration) agentbus.Middleware {
	return func(b agentbus.Backend) agentbus.Backend {
		if d <= 0 {
			return b
		}
		return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			return func(yield func(agentbus.Chunk, error) bool) {
				ctx, cancel := context.WithTimeoutCause(ctx, d, &agentbus.Error{
					Code: agentbus.CodeDeadlineExceeded, Message: "the call took longer than " + d.String(),
					Explain: &agentbus.Explain{Rule: "R10", Limit: d.String(), Next: "give it more time, or ask for less"},
				})
				defer cancel()
				guard.Call(ctx, b, c)(yield)
			}
		})
	}
}
