package conversation_test

import (
	"context"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func costs(m agentbus.Micros) agentbus.Backend {
	return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "x", Usage: &agentbus.Usage{Cost: m}}, nil
	})
}

// R8: costs are exact: a turn of $0.004 is not free, as it is when each is
// rounded to cents.
func TestSmallCostsAddUp(t *testing.T) {
	t.Parallel()
	r, err := ran(t.Context(), talk(10, "a", costs(4000), "b", costs(4001)), conversation.Options{})
	if err != nil || r.Spent != 5*8001 {
		t.Errorf("spent %v, %v", r.Spent, err)
	}
}

// R8, R16: the worst case is reserved before a call, so a limit is not passed;
// the run is paused and goes on under a higher limit.
func TestBudgetIsReserved(t *testing.T) {
	t.Parallel()
	m := newRecorder()
	c := talk(10, "a", costs(50), "b", costs(30))
	c.Participants[0].MaxCost, c.Participants[1].MaxCost = 50, 30
	c.Budget = new(agentbus.Micros(120))
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	want := agentbus.Halt{Kind: agentbus.HaltBudget, Turns: 2, Participant: "a", Spent: 80, Limit: 120, Reason: "a call of a can cost $0.000050"}
	if err != nil || r.Halt != want || r.Spent != 80 {
		t.Errorf("%+v, %v", r, err)
	}
	c.Budget, o.Force = new(agentbus.Micros(130)), true
	if r, err = ran(t.Context(), c, o); err != nil || r.Halt.Turns != 3 || r.Spent != 130 {
		t.Errorf("resumed: %+v, %v", r, err)
	}
}

// An absurd cost fills a budget; it does not overflow it.
func TestAbsurdCost(t *testing.T) {
	t.Parallel()
	c := talk(10, "a", costs(math.MaxInt64), "b", costs(math.MaxInt64))
	r, err := ran(t.Context(), c, conversation.Options{Budget: conversation.NewBudget(math.MaxInt64)})
	if err != nil || r.Halt.Kind != agentbus.HaltBudget || r.Halt.Turns != 1 || r.Spent != math.MaxInt64 {
		t.Errorf("%+v, %v", r.Halt, err)
	}
}

// R8: what an agent claims to have cost does not make room for what others hold.
func TestAbsurdCostMakesNoRoom(t *testing.T) {
	t.Parallel()
	b := conversation.NewBudget(10)
	if err := b.Hold(9); err != nil {
		t.Fatal(err)
	}
	b.Settle(0, math.MaxInt64)
	if err := b.Hold(1); agentbus.CodeOf(err) != agentbus.CodeBudgetExceeded {
		t.Errorf("got %v", err)
	}
}

// R7, R8: the tree of runs shares the budget; only leaves charge it, so that a
// nested turn does not count twice.
func TestNestedBudget(t *testing.T) {
	t.Parallel()
	inner := talk(2, "x", costs(10), "y", costs(10))
	inner.Name = "inner"
	middle := talk(2, "i", conversation.Backend(conversation.BackendConfig{Conversation: inner}), "z", costs(5))
	middle.Name = "middle"
	outer := talk(2, "m", conversation.Backend(conversation.BackendConfig{Conversation: middle}), "w", costs(1))
	b := conversation.NewBudget(1000)
	r, err := ran(t.Context(), outer, conversation.Options{Budget: b})
	if err != nil || r.Spent != 26 || b.Spent() != 26 || r.Turns[0].Cost != 25 {
		t.Errorf("spent %v of the run, %v of the budget, %v", r.Spent, b.Spent(), err)
	}
	// What the outer turn may cost is reserved until the nested run reserves for
	// itself: a limit that fits exactly is enough.
	outer.Participants[0].MaxCost, outer.Participants[1].MaxCost = 25, 1
	inner.Participants[0].MaxCost, inner.Participants[1].MaxCost = 10, 10
	outer.Budget = new(agentbus.Micros(26))
	if r, err = ran(t.Context(), outer, conversation.Options{}); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Errorf("%+v, %v", r.Halt, err)
	}
	outer.Budget = new(agentbus.Micros(25))
	if r, err = ran(t.Context(), outer, conversation.Options{}); err != nil || r.Halt.Kind != agentbus.HaltBudget || r.Spent != 25 {
		t.Errorf("%+v, %v", r.Halt, err)
	}
}

// R8: a limit is never passed when worst cases are known, however many runs
// share it at once; and when all is done, what is spent is what the runs spent.
func TestSharedBudgetIsNeverPassed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := agentbus.Micros(rapid.IntRange(0, 200).Draw(rt, "limit"))
		b := conversation.NewBudget(limit)
		var wg sync.WaitGroup
		spent := make([]agentbus.Micros, rapid.IntRange(1, 4).Draw(rt, "runs"))
		for i := range spent {
			worst := agentbus.Micros(rapid.IntRange(1, 30).Draw(rt, "worst"))
			cost := agentbus.Micros(rapid.IntRange(0, int(worst)).Draw(rt, "cost"))
			c := talk(6, "a", costs(cost), "b", costs(cost))
			c.Participants[0].MaxCost, c.Participants[1].MaxCost = worst, worst
			if rapid.Bool().Draw(rt, "nested") {
				outer := talk(2, "n", conversation.Backend(conversation.BackendConfig{Conversation: c}), "b", costs(cost))
				outer.Name, outer.Participants[1].MaxCost = "outer", worst
				c = outer
			}
			wg.Go(func() {
				for e, err := range streamed(context.Background(), c, conversation.Options{Budget: b}) {
					if err != nil {
						rt.Error(err)
						return
					}
					if b.Spent() > limit {
						rt.Errorf("spent %v of %v", b.Spent(), limit)
					}
					if e.Result != nil && e.Result.Halt.Kind == agentbus.HaltMaxTurns {
						spent[i] = e.Result.Spent
					}
				}
			})
		}
		wg.Wait()
		var total agentbus.Micros
		for _, s := range spent {
			total += s
		}
		if total > b.Spent() {
			rt.Errorf("runs spent %v, the budget says %v", total, b.Spent())
		}
	})
}

// R8: a nested run that is called again inside its turn does not charge what
// its journal holds a second time.
func TestNestedRetryChargesOnce(t *testing.T) {
	t.Parallel()
	var a agents
	inner := talk(2, "x", costs(10), "y", oneAfterAnother(a.streams(reset), costs(10)))
	inner.Name = "inner"
	b := conversation.NewBudget(1000)
	c := talk(1, "n", twice(conversation.Backend(conversation.BackendConfig{Conversation: inner})), "w", costs(1))
	r, err := ran(t.Context(), c, conversation.Options{Budget: b})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || r.Spent != 20 || b.Spent() != 20 {
		t.Errorf("%+v, %v, budget %v", r, err, b.Spent())
	}
}
