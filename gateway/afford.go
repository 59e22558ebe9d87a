package gateway

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// afford asks the ledger for the right to execute the call, together with what
// it takes from its budgets (G27). A call that does not fit only because calls in
// flight hold more than they will cost waits for them, in the order in which
// calls came, for BudgetWait at most.
func (g *Gateway) afford(ctx context.Context, x *exchange) (got agentbus.Reserved, err error) {
	g.count(x)
	if short := g.spent.short(x); short != nil {
		if _, known, err := g.cfg.Ledger.Lookup(ctx, x.want.key, x.record.Digest); err == nil && !known {
			return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Short: short}, nil
		}
	}
	account := g.funds.before(x)
	if account != "" {
		got, err = g.lookUp(ctx, x)
	} else {
		got, err = g.ask(ctx, x, true)
		account = g.waitsFor(x, got)
		g.spent.learn(got.Short)
	}
	if account == "" || err != nil || got.Outcome != agentbus.OutcomeShort {
		g.funds.holds(x, got)
		return got, err
	}
	ctx, stop := x.awaited(ctx)
	defer stop(nil)
	g.flights.wait(x.leads, stop) // Stop and Abort end the wait
	g.endStopped(x, stop)
	defer g.flights.wait(x.leads, nil)
	patience, cancel := context.WithTimeout(ctx, g.cfg.BudgetWait)
	defer cancel()
	for account != "" && err == nil && patience.Err() == nil {
		got, err = g.stand(patience, x, account, got)
		if err == nil && got.Outcome == agentbus.OutcomeInFlight { // nobody stands in line for what waits for another process
			got, err = g.ask(ctx, x, true)
		}
		account = g.waitsFor(x, got)
	}
	if err == nil && got.Outcome == agentbus.OutcomeShort && ctx.Err() != nil {
		err = g.waitEnded(ctx, x)
	}
	g.funds.holds(x, got)
	return got, err
}

// lookUp asks the ledger for a call that must stand in line before it may be
// executed: an answer from memory costs nothing and need not wait.
func (g *Gateway) lookUp(ctx context.Context, x *exchange) (agentbus.Reserved, error) {
	amount := x.want.hold.Amount
	x.want.hold.Amount = beyond // lines are of strict budgets, which never have it
	got, err := g.ask(ctx, x, true)
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		x.want.hold.Amount = amount
	}
	return got, err
}

// stand waits in the line of an account. The first of a line asks the ledger
// whenever something may have changed; the others do nothing. It returns when
// the account no longer keeps the call waiting, also because another process
// executes it by now, or with last, what the ledger said before, when ctx ends.
func (g *Gateway) stand(ctx context.Context, x *exchange, account string, last agentbus.Reserved) (agentbus.Reserved, error) {
	ticket := g.funds.join(account)
	defer g.funds.leave(account, ticket)
	poll := time.NewTicker(pollBudget)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return last, nil
		case <-ticket:
		case <-poll.C: // other processes release too, or are gone
			if !g.funds.first(account, ticket) {
				continue
			}
			g.releaseDead(ctx)
		}
		g.count(x) // another period may have begun, in which nothing is spent
		got, err := g.ask(ctx, x, false)
		if err != nil || g.waitsFor(x, got) != account {
			return got, err
		}
		last = got
	}
}

const (
	// pollBudget is how often the first of a line asks without having been woken.
	pollBudget = 250 * time.Millisecond
	// pollDead is how often what dead processes hold is looked for, while calls
	// wait.
	pollDead = 2 * time.Second
)

// releaseDead gives back what calls of dead processes hold, so that nobody waits
// for it.
func (g *Gateway) releaseDead(ctx context.Context) {
	if g.cfg.ReleaseDead != nil && g.funds.lookForDead(time.Now()) {
		g.cfg.ReleaseDead(ctx)
	}
}

// waitsFor returns the account for which a call may wait; "" when it may not. It
// does not wait for the calls that it is made inside of: they wait for it.
func (g *Gateway) waitsFor(x *exchange, got agentbus.Reserved) string {
	if got.Outcome != agentbus.OutcomeShort || !got.Short.Passing || g.cfg.BudgetWait < 0 {
		return ""
	}
	b := got.Short.Budget
	if got.Short.State.Spent+g.funds.around(x, b.Account)+x.want.hold.Amount > b.Limit {
		return ""
	}
	return b.Account
}
