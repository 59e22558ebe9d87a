package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// lines are the calls of this process that wait for a budget, and those that
// hold something of one.
type lines struct {
	mu        sync.Mutex
	byAccount map[string][]chan struct{} // in the order they came; a token says: ask
	holding   map[place]holder
	looked    time.Time // when what dead processes hold was looked for
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

func newLines() *lines {
	return &lines{byAccount: map[string][]chan struct{}{}, holding: map[place]holder{}}
}

// before returns an account of the call for which others wait already; "" when
// there is none.
func (l *lines) before(x *exchange) string {
	if len(x.want.Hold.Budgets) == 0 {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range x.want.Hold.Budgets {
		if len(l.byAccount[b.Account]) > 0 {
			return b.Account
		}
	}
	return ""
}

// join takes the last place in the line of an account. Who joins must leave.
func (l *lines) join(account string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{}, 1)
	l.byAccount[account] = append(l.byAccount[account], c)
	if len(l.byAccount[account]) == 1 {
		c <- struct{}{} // something may have been released since it asked
	}
	return c
}

func (l *lines) leave(account string, c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byAccount[account]
	i := slices.Index(line, c)
	if line = slices.Delete(line, i, i+1); len(line) == 0 {
		delete(l.byAccount, account)
		return
	}
	l.byAccount[account] = line
	if i == 0 {
		wake(line[0])
	}
}

func (l *lines) first(account string, c chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byAccount[account][0] == c
}

// lookForDead reports whether it is time to, and takes it for done.
func (l *lines) lookForDead(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.looked) < pollDead {
		return false
	}
	l.looked = now
	return true
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake
	}
}

// holds notes what a call that may be executed holds.
func (l *lines) holds(x *exchange, got agentbus.Reserved) {
	if got.Outcome != agentbus.OutcomeExecute || len(x.want.Hold.Budgets) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding[place{got.Call.Payer, got.Call.Run, got.Call.TurnKey.ID}] = holder{x.requestID, got.Call.Parent, x.want.Hold.Amount, x.want.Hold.Budgets}
}

// released says that the ledger has taken back what a call held.
func (l *lines) released(x *exchange) {
	if len(x.want.Hold.Budgets) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := (place{x.record.Payer, x.record.Run, x.record.TurnKey.ID}); l.holding[at].attempt == x.requestID {
		delete(l.holding, at)
	}
	for _, b := range x.want.Hold.Budgets {
		if line := l.byAccount[b.Account]; len(line) > 0 {
			wake(line[0])
		}
	}
}

// around returns what the calls that x is made inside of hold of an account.
func (l *lines) around(x *exchange, account string) (sum agentbus.Micros) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{x.payer, x.lineage.Run, x.lineage.Parent}
	for range maxAround {
		h, ok := l.holding[at]
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
