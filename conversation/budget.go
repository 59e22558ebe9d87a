package conversation

import (
	"math"
	"slices"
	"sync"

	"github.com/agentbus/agentbus"
)

// A Budget is a limit that several runs share (R8). It is safe for concurrent
// use. What a run's journal holds already is charged to it as the run begins:
// give a resumed run a new Budget, or one that has not seen it. It remembers the
// id of each run that it was charged by, so it is not for all runs that a process
// will ever have.
type Budget struct{ account account }

// NewBudget returns a budget of which nothing is spent.
func NewBudget(limit agentbus.Micros) *Budget {
	return &Budget{account{mu: new(sync.Mutex), limit: &limit}}
}

// Spent returns what has been spent of b.
func (b *Budget) Spent() agentbus.Micros {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	return b.account.spent
}

// Hold takes the worst case of a call that no run of this package makes out of
// what is left, or fails with CodeBudgetExceeded and takes nothing. 0 is unknown:
// it fails only once everything is spent. Together with Settle it lets such calls
// share a budget with runs: a Budget is the Funds of a policy.Budget (R13).
func (b *Budget) Hold(worst agentbus.Micros) error {
	if b.account.hold(worst) == nil {
		return nil
	}
	left := *b.account.limit - b.Spent()
	return &agentbus.Error{
		Code: agentbus.CodeBudgetExceeded, Message: "the budget does not have what the call can cost",
		Explain: &agentbus.Explain{Rule: "R8", Observed: max(0, left).USD(), Limit: b.account.limit.USD(), Next: "ask for less, or raise the budget"},
	}
}

// Settle gives back what Hold took and spends what the call has cost.
func (b *Budget) Settle(worst, cost agentbus.Micros) {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	b.account.add(max(0, cost), -worst)
}

// account is where spending is counted: a Budget, a run, or a turn of a run.
// Accounts form a tree, and what is charged to one is charged to all above it.
// Only leaves charge: a turn whose backend is a conversation adds what that one
// has not charged already.
type account struct {
	mu    *sync.Mutex          // of the whole tree; guards all below
	up    *account             // nil at the root
	limit *agentbus.Micros     // nil: none
	id    agentbus.ExecutionID // of a run's account

	spent, held agentbus.Micros // held: the worst case of calls that are being made
	worst       agentbus.Micros // of a turn's account: what is held above for it
	// charged is what each run directly below has been charged, so that one
	// that is run again does not charge its journal twice.
	charged map[agentbus.ExecutionID]agentbus.Micros
}

// below returns the account of a run under a; a may be nil.
func (a *account) below(id agentbus.ExecutionID, limit *agentbus.Micros) *account {
	if a == nil {
		return &account{mu: new(sync.Mutex), id: id, limit: limit}
	}
	return &account{mu: a.mu, up: a, id: id, limit: limit}
}

// turn returns the account of a turn for which worst is held on a, a run's.
func (a *account) turn(worst agentbus.Micros) *account {
	return &account{mu: a.mu, up: a, worst: worst}
}

// hold reserves the worst cases of calls, together, on a and all above, or
// reserves nothing and returns the account that refuses. A worst case of 0 is
// unknown.
func (a *account) hold(worst ...agentbus.Micros) (refused *account) {
	var all agentbus.Micros
	for _, w := range worst {
		all = sum(all, w)
	}
	unknown := slices.Contains(worst, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := a; n != nil; n = n.up {
		if n.limit == nil {
			continue
		}
		if unknown && n.spent >= *n.limit || all > 0 && all > *n.limit-n.spent-n.held {
			return n
		}
	}
	a.add(0, all)
	return nil
}

// release gives a reservation back.
func (a *account) release(worst agentbus.Micros) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(0, -worst)
}

// add changes a and all above.
func (a *account) add(spent, held agentbus.Micros) {
	for n := a; n != nil; n = n.up {
		n.spent, n.held = sum(n.spent, spent), n.held+held
		if n.id == "" || n.up == nil || spent == 0 {
			continue
		}
		if n.up.charged == nil {
			n.up.charged = make(map[agentbus.ExecutionID]agentbus.Micros)
		}
		n.up.charged[n.id] = sum(n.up.charged[n.id], spent)
	}
}

// settle ends a turn's account: what was held for it is free, and what it has
// cost beyond what the runs below it have charged is charged above it.
func (a *account) settle(cost agentbus.Micros) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up.add(max(0, cost-a.spent), -a.worst)
	a.worst = 0
}

// open charges what the journal of the run holds already. The turn around it
// holds nothing from now on: the run reserves for each of its own calls.
func (a *account) open(stored agentbus.Micros) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up != nil {
		if a.up.worst > 0 {
			a.up.up.add(0, -a.up.worst)
			a.up.worst = 0
		}
		known := min(a.up.charged[a.id], stored)
		a.spent, stored = known, stored-known // all above count it already
	}
	a.add(stored, 0)
}

// sum adds amounts without overflowing: agents may claim absurd ones.
func sum[N ~int64](a, b N) N {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
