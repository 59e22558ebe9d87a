package gateway

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// afford asks the ledger for the right to execute the call, together with what
// it takes from its budgets (G27). A call that does not fit only because calls in
// flight hold more than they will cost waits for them, in the order in which
// calls came, for BudgetWait at most.
func (g *Gateway) afford(ctx context.Context, x *exchange) (got agentbus.Reserved, err error) {
	x.want.Hold = g.hold(x)
	account := g.lines.before(x)
	if account != "" {
		got, err = g.lookUp(ctx, x)
	} else {
		got, err = g.ask(ctx, x)
		account = g.waitsFor(x, got)
	}
	if account == "" || err != nil || got.Outcome != agentbus.OutcomeShort {
		g.lines.holds(x, got)
		return got, err
	}
	patience, cancel := context.WithTimeout(ctx, g.cfg.BudgetWait)
	defer cancel()
	for account != "" && err == nil && patience.Err() == nil {
		got, err = g.stand(patience, x, account, got)
		account = g.waitsFor(x, got)
	}
	if err == nil && got.Outcome == agentbus.OutcomeShort && ctx.Err() != nil {
		err = errLeftLine
	}
	g.lines.holds(x, got)
	return got, err
}

// errLeftLine is what duplicates read of a call whose caller left while it
// waited.
var errLeftLine = &agentbus.Error{
	Code: agentbus.CodeOverloaded, Message: "this call waited for its budget until its caller left",
	Explain: &agentbus.Explain{Rule: "G27", Next: "send the same turn again after the given time"}, RetryAfter: time.Second,
}

// lookUp asks the ledger for a call that must stand in line before it may be
// executed: an answer from memory costs nothing and need not wait.
func (g *Gateway) lookUp(ctx context.Context, x *exchange) (agentbus.Reserved, error) {
	amount := x.want.Hold.Amount
	x.want.Hold.Amount = beyond // lines are of strict budgets, which never have it
	got, err := g.ask(ctx, x)
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		x.want.Hold.Amount = amount
	}
	return got, err
}

// stand waits in the line of an account. The first of a line asks the ledger
// whenever something may have changed; the others do nothing. It returns when
// the account no longer keeps the call waiting, or with last, what the ledger
// said before, when ctx ends.
func (g *Gateway) stand(ctx context.Context, x *exchange, account string, last agentbus.Reserved) (agentbus.Reserved, error) {
	ticket := g.lines.join(account)
	defer g.lines.leave(account, ticket)
	poll := time.NewTicker(pollBudget)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return last, nil
		case <-ticket:
		case <-poll.C: // other processes release too
			if !g.lines.first(account, ticket) {
				continue
			}
		}
		got, err := g.ask(ctx, x)
		if err != nil || g.waitsFor(x, got) != account {
			return got, err
		}
		last = got
	}
}

// pollBudget is how often the first of a line asks without having been woken.
const pollBudget = 250 * time.Millisecond

// waitsFor returns the account for which a call may wait; "" when it may not. It
// does not wait for the calls that it is made inside of: they wait for it.
func (g *Gateway) waitsFor(x *exchange, got agentbus.Reserved) string {
	if got.Outcome != agentbus.OutcomeShort || !got.Short.Passing || g.cfg.BudgetWait < 0 {
		return ""
	}
	b := got.Short.Budget
	if got.Short.State.Spent+g.lines.around(x, b.Account)+x.want.Hold.Amount > b.Limit {
		return ""
	}
	return b.Account
}

// capped tells the operator of a call that cost more than was held for it.
func (g *Gateway) capped(ctx context.Context, x *exchange, charged, unbilled agentbus.Micros) {
	x.note("charge_capped")
	g.log.LogAttrs(ctx, slog.LevelWarn, "a call cost more than its budget held for it, and nobody pays the rest",
		slog.String("request_id", x.requestID), slog.String("agent", x.target.Name), slog.String("run", string(x.lineage.Run)),
		slog.String("turn", string(x.lineage.Turn)), slog.Int64("cost_micros", int64(charged)), slog.Int64("unbilled_micros", int64(unbilled)))
}

// lines are the calls of this process that wait for a budget, and those that
// hold something of one.
type lines struct {
	mu        sync.Mutex
	byAccount map[string][]chan struct{} // in the order they came; a token says: ask
	holding   map[place]holder
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
