package policy_test

import (
	"context"
	"fmt"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

// failing answers from its nth call on, and fails before.
func failing(n int) agentbus.Backend {
	calls := 0
	return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		if calls++; calls < n {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "not now"}
		}
		return agentbus.Chunk{Text: fmt.Sprintf("the answer, at the %d. attempt", calls)}, nil
	})
}

func ExamplePolicy() {
	p := policy.Policy{
		TurnTimeout:    time.Minute,
		AttemptTimeout: 10 * time.Second,
		Retry:          &policy.Retry{Attempts: 3, Base: time.Millisecond},
		Breaker:        policy.NewBreaker(policy.BreakerConfig{Name: "critic"}),
	}
	agent := p.Wrap(failing(3))
	reply, err := agentbus.Collect(agent.Call(context.Background(), &agentbus.Call{}))
	fmt.Println(reply.Text, err)
	// Output: the answer, at the 3. attempt <nil>
}

func ExamplePolicy_Over() {
	conversation := policy.Policy{AttemptTimeout: time.Minute, Retry: &policy.Retry{Attempts: 3}}
	slow := policy.Policy{AttemptTimeout: 5 * time.Minute}.Over(conversation)
	fmt.Println(slow.AttemptTimeout, slow.Retry.Attempts)
	// Output: 5m0s 3
}

func ExampleRetry() {
	agent := policy.Retry{Attempts: 2, Base: time.Millisecond}.Wrap(failing(2))
	for chunk, err := range agent.Call(context.Background(), &agentbus.Call{}) {
		fmt.Println(chunk.Void, chunk.Text, err)
	}
	// Output:
	// true  <nil>
	// false the answer, at the 2. attempt <nil>
}

func ExampleBreaker() {
	breaker := policy.NewBreaker(policy.BreakerConfig{Name: "critic", Failures: 2, Cooldown: time.Hour})
	agent := breaker.Wrap(failing(10))
	for range 3 {
		_, err := agentbus.Collect(agent.Call(context.Background(), &agentbus.Call{}))
		fmt.Println(agentbus.CodeOf(err), breaker.State())
	}
	// Output:
	// agent_unavailable closed
	// agent_unavailable open
	// circuit_open open
}

func ExampleDeadline() {
	deaf := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		<-time.After(50 * time.Millisecond) // it does not listen to its context
		return agentbus.Chunk{Text: "too late"}, nil
	})
	agent := policy.Deadline(time.Millisecond)(deaf)
	_, err := agentbus.Collect(agent.Call(context.Background(), &agentbus.Call{}))
	fmt.Println(agentbus.CodeOf(err))
	// Output: deadline_exceeded
}

// What may pass is told by the code and the status of an error, never by its text.
func ExampleRetryable() {
	for _, err := range []error{
		&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "no connection"},
		&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: 503},
		&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: 400},
		&agentbus.Error{Code: agentbus.CodeDepthExceeded, Status: 429},
	} {
		fmt.Println(policy.Retryable(err))
	}
	// Output:
	// true
	// true
	// false
	// false
}
