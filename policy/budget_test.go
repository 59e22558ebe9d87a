package policy_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/policy"
)

// costs answers for so much; an attempt that fails says so after its cost.
func costs(cost agentbus.Micros, calls *int, outcomes ...error) agentbus.Backend {
	return agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			err := outcomes[min(*calls, len(outcomes)-1)]
			*calls++
			if yield(agentbus.Chunk{Text: "hm", Usage: &agentbus.Usage{Cost: cost}}, nil) && err != nil {
				yield(agentbus.Chunk{}, err)
			}
		}
	})
}

// R13: a budget is asked before each attempt, spends what attempts cost, failed
// ones too, and is no failure of the agent: neither retried nor counted by its
// breaker.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit, most, cost agentbus.Micros
		outcomes          []error
		around            bool // the budget stands around the retries, not inside
		calls             int
		spent             agentbus.Micros
		code              agentbus.Code
	}{
		"it fits":                   {limit: 10, most: 10, cost: 4, outcomes: []error{nil}, calls: 1, spent: 4},
		"it does not fit":           {limit: 10, most: 11, cost: 4, outcomes: []error{nil}, code: agentbus.CodeBudgetExceeded},
		"nothing may be spent":      {limit: 0, cost: 4, outcomes: []error{nil}, code: agentbus.CodeBudgetExceeded},
		"the worst case is unknown": {limit: 3, cost: 4, outcomes: []error{nil}, calls: 1, spent: 4},
		"each attempt is spent":     {limit: 20, most: 10, cost: 4, outcomes: []error{unavailable, unavailable, nil}, calls: 3, spent: 12},
		"around the retries":        {limit: 20, most: 20, cost: 4, outcomes: []error{unavailable, unavailable, nil}, around: true, calls: 3, spent: 12},
		"no money for the retry":    {limit: 10, most: 7, cost: 4, outcomes: []error{unavailable, nil}, calls: 1, spent: 4, code: agentbus.CodeBudgetExceeded},
		"an absurd report":          {limit: 10, cost: -4, outcomes: []error{nil}, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				funds, calls := conversation.NewBudget(tt.limit), 0
				breaker := policy.NewBreaker(policy.BreakerConfig{Failures: 3})
				b := &policy.Budget{Funds: funds, MaxCost: tt.most}
				p := policy.Policy{Retry: &policy.Retry{}, Breaker: breaker, Budget: b}
				if tt.around {
					p.Budget = nil
				}
				backend := p.Over(policy.Policy{}).Wrap(costs(tt.cost, &calls, tt.outcomes...))
				if tt.around {
					backend = b.Wrap(backend)
				}
				_, err := call(t.Context(), backend)
				if calls != tt.calls || funds.Spent() != tt.spent || agentbus.CodeOf(err) != tt.code || breaker.State() != "closed" {
					t.Errorf("%d calls, spent %d, %v, %s", calls, funds.Spent(), err, breaker.State())
				}
				if err := funds.Hold(max(1, tt.limit-tt.spent)); (err == nil) != (tt.limit > tt.spent) {
					t.Errorf("something is held still, or nothing was spent: %v", err)
				}
			})
		})
	}
}

// R8: calls at once hold their worst case, so that together they never overshoot.
func TestBudgetAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		funds := conversation.NewBudget(100)
		slow := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			<-time.After(time.Second)
			return agentbus.Chunk{Usage: &agentbus.Usage{Cost: 10}}, nil
		})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = call(t.Context(), policy.Budget{Funds: funds, MaxCost: 10}.Wrap(slow)) })
		}
		wg.Wait()
		if got := funds.Spent(); got != 100 {
			t.Errorf("spent %d of 100", got)
		}
	})
}

func ExampleBudget() {
	funds := conversation.NewBudget(30_000) // $0.03, for all that share it
	agent := policy.Budget{Funds: funds, MaxCost: 20_000}.Wrap(agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "fine", Usage: &agentbus.Usage{Cost: 15_000}}, nil
	}))
	for range 2 {
		reply, err := agentbus.Collect(agent.Call(context.Background(), &agentbus.Call{}))
		fmt.Printf("%q %v $%s\n", reply.Text, agentbus.CodeOf(err), funds.Spent().USD())
	}
	// Output:
	// "fine"  $0.015000
	// "" budget_exceeded $0.015000
}
