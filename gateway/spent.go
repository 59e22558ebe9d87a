package gateway

import (
	"sync"

	"github.com/agentbus/agentbus"
)

// spent is what accounts are known to have spent, at least. It is never given
// back, so a call that does not fit beside it need not ask for its budget: a
// payer whose budget is gone costs the disk nothing (G27).
type spent struct {
	mu        sync.Mutex
	byAccount map[string]agentbus.Micros
}

// maxSpent bounds what is remembered; a period that is over is never asked for
// again.
const maxSpent = 10_000

// learn remembers what a refusal told.
func (s *spent) learn(short *agentbus.Shortage) {
	if short == nil || short.Passing {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byAccount) >= maxSpent {
		clear(s.byAccount)
	}
	s.byAccount[short.Budget.Account] = max(s.byAccount[short.Budget.Account], short.State.Spent)
}

// short returns which budget of a call is known not to pay for it, or nil.
func (s *spent) short(x *exchange) *agentbus.Shortage {
	if len(x.want.hold.Budgets) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range x.want.hold.Budgets {
		known, ok := s.byAccount[b.Account]
		if !ok {
			continue
		}
		state := agentbus.BudgetState{Account: b.Account, Spent: known}
		if fits, passing := b.Fits(state, x.want.hold.Amount, x.began); !fits && !passing {
			return &agentbus.Shortage{Budget: b, State: state}
		}
	}
	return nil
}
