package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// funds are the calls of this process that hold something of budgets, and those
// that wait in line until they can.
type funds struct {
	mu        sync.Mutex
	byAccount map[string][]chan struct{} // in the order they came; a token says: ask
	holding   map[place]holder
	looked    time.Time // when what dead processes hold was looked for
	now       func() time.Time
}

// A place is where a call stands in its run.
type place struct {
	payer agentbus.Payer
	run   agentbus.RunID
	turn  agentbus.TurnID
}

// A holder is a call in flight that holds something of budgets.
type holder struct {
	attempt  string // the request that executes it
	parent   agentbus.TurnID
	amount   agentbus.Micros
	accounts []agentbus.Budget
}

func newFunds() *funds {
	return &funds{byAccount: map[string][]chan struct{}{}, holding: map[place]holder{}, now: time.Now}
}

// before returns an account of the call for which others wait already; "" when
// there is none.
func (f *funds) before(x *exchange) string {
	if len(x.want.hold.Budgets) == 0 {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range x.want.hold.Budgets {
		if len(f.byAccount[b.Account]) > 0 {
			return b.Account
		}
	}
	return ""
}

// join takes the last place in the line of an account. Who joins must leave.
func (f *funds) join(account string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{}, 1)
	f.byAccount[account] = append(f.byAccount[account], c)
	if len(f.byAccount[account]) == 1 {
		c <- struct{}{} // something may have been released since it asked
	}
	return c
}

func (f *funds) leave(account string, c chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := f.byAccount[account]
	i := slices.Index(line, c)
	if line = slices.Delete(line, i, i+1); len(line) == 0 {
		delete(f.byAccount, account)
		return
	}
	f.byAccount[account] = line
	if i == 0 {
		wake(line[0])
	}
}

func (f *funds) first(account string, c chan struct{}) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byAccount[account][0] == c
}

// lookForDead reports whether it is time to, and takes it for done.
func (f *funds) lookForDead(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < pollDead {
		return false
	}
	f.looked = now
	return true
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake
	}
}

// holds notes what a call that may be executed holds.
func (f *funds) holds(x *exchange, got agentbus.Reserved) {
	if got.Outcome != agentbus.OutcomeExecute || len(x.want.hold.Budgets) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding[place{got.Call.Payer, got.Call.Run, got.Call.TurnKey.ID}] = holder{x.requestID, got.Call.Parent, x.want.hold.Amount, x.want.hold.Budgets}
}

// released says that the ledger has taken back what a call held.
func (f *funds) released(x *exchange) {
	if len(x.want.hold.Budgets) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := (place{x.record.Payer, x.record.Run, x.record.TurnKey.ID}); f.holding[at].attempt == x.requestID {
		delete(f.holding, at)
	}
	for _, b := range x.want.hold.Budgets {
		if line := f.byAccount[b.Account]; len(line) > 0 {
			wake(line[0])
		}
	}
}

// around returns what the calls that x is made inside of hold of an account.
func (f *funds) around(x *exchange, account string) (sum agentbus.Micros) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := place{x.payer, x.lineage.Run, x.lineage.Parent}
	for range maxAround {
		h, ok := f.holding[at]
		if !ok {
			break
		}
		if slices.ContainsFunc(h.accounts, func(b agentbus.Budget) bool { return b.Account == account }) {
			sum += h.amount
		}
		at.turn = h.parent
	}
	return sum
}

// maxAround bounds a walk up: who names parents may draw a circle.
const maxAround = 64
