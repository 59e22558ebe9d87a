package agentbus

import (
	"context"
	"iter"
)

// Cue is a Middleware for backends that are models, or programs around one: it
// tells them where in the chain of agents they answer, as a system message
// before all others (C9). A call without a chain goes on as it is. A gateway
// does so for the agents behind it.
func Cue(b Backend) Backend {
	return BackendFunc(func(ctx context.Context, c *Call) iter.Seq2[Chunk, error] {
		if c.Lineage.Chain == nil {
			return b.Call(ctx, c)
		}
		told := *c
		told.Messages = append([]Message{{Role: RoleSystem, Content: c.Lineage.Chain.Render()}}, c.Messages...)
		if c.Seen > 0 {
			told.Seen++
		}
		return b.Call(ctx, &told)
	})
}
