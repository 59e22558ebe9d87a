// Command policy bounds what a turn may take: an attempt that hangs is ended, one
// that failed is tried again under the same turn id, and an agent that keeps
// failing is left alone for a while.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

func main() {
	breaker := policy.NewBreaker(policy.BreakerConfig{Name: "critic", Failures: 3, Cooldown: time.Hour})
	bounds := policy.Policy{
		AttemptTimeout: 500 * time.Millisecond,
		TurnTimeout:    10 * time.Second,
		Retry:          &policy.Retry{Attempts: 3, Base: time.Millisecond},
		Breaker:        breaker,
	}
	attempts := 0
	critic := agentbus.Answer(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
		switch attempts++; attempts {
		case 1:
			<-ctx.Done() // it hangs, until its attempt is over
			return agentbus.Chunk{}, ctx.Err()
		case 3:
			return agentbus.Chunk{Text: "fine"}, nil
		}
		return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "not now"}
	})
	for range 3 {
		before := attempts
		reply, err := agentbus.Collect(bounds.Wrap(critic).Call(context.Background(), &agentbus.Call{}))
		fmt.Printf("%d attempts, %q, %s; the breaker is %s\n", attempts-before, reply.Text, or(agentbus.CodeOf(err), "no error"), breaker.State())
	}
}

func or(code, none agentbus.Code) agentbus.Code {
	if code == "" {
		return none
	}
	return code
}
