package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// What a reading of a payer looks at.
const (
	mostEntries = 100_000 // of parts, the newest
	mostRecent  = 10_000  // of the present rate, the newest
	mostParts   = 100     // agents, runs or days
	staleAfter  = time.Minute
	rateOver    = time.Hour // how far back the present rate looks
)

func (a *API) listPayers(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	l, err := a.payers(r.Context(), p)
	return writePage(w, l, err)
}

// payers returns a page of payers, by name.
func (a *API) payers(ctx context.Context, p page) (l list[console.Payer], err error) {
	balances, err := a.cfg.Ledger.Balances(ctx, "")
	if err != nil {
		return l, err
	}
	few, err := cut(all(balances), p.limit, p.after, func(_ int, b agentbus.Balance) string { return string(b.Payer) })
	if err != nil {
		return l, err
	}
	l.Next = few.Next
	l.Data, err = a.accounts(ctx, few.Data)
	return l, err
}

// accounts adds to balances what payer adds to one.
func (a *API) accounts(ctx context.Context, balances []agentbus.Balance) ([]console.Payer, error) {
	payers := make([]console.Payer, 0, len(balances))
	for _, b := range balances {
		one, err := a.payer(ctx, b)
		if err != nil {
			return nil, err
		}
		payers = append(payers, one)
	}
	return payers, nil
}

// payer adds to a balance what bounds it, and where it leads at the present rate.
func (a *API) payer(ctx context.Context, b agentbus.Balance) (p console.Payer, err error) {
	p = console.Payer{Balance: b, Caps: []console.Cap{}}
	now := time.Now().UTC()
	if p.Rate, _, err = a.cfg.Figures.Spent(ctx, b.Payer, now.Add(-rateOver), mostRecent); err != nil || a.cfg.Caps == nil {
		return p, err
	}
	caps := a.cfg.Caps(b.Payer, now)
	accounts := make([]string, len(caps))
	for i := range caps {
		accounts[i] = caps[i].Account
	}
	states, err := a.cfg.Ledger.BudgetStates(ctx, accounts)
	if err != nil {
		return p, err
	}
	for _, c := range caps {
		at := slices.IndexFunc(states, func(s agentbus.BudgetState) bool { return s.Account == c.Account })
		if at >= 0 {
			c.Reserved, c.Settled = states[at].Held, states[at].Spent
		}
		c.Remaining = c.Limit - c.Reserved - c.Settled
		forecast(&c, p.Rate, now)
		p.Caps = append(p.Caps, c)
	}
	return p, nil
}

// forecast says where a cap is at the end of its period, when rate is charged in
// each hour until then, and when its limit is reached.
func forecast(c *console.Cap, rate agentbus.Micros, now time.Time) {
	c.Forecast = c.Settled
	if !c.Ends.IsZero() {
		c.Forecast += agentbus.Micros(float64(rate) * c.Ends.Sub(now).Hours())
	}
	if rate <= 0 || c.Remaining <= 0 {
		return
	}
	hours := float64(c.Remaining) / float64(rate)
	if hours > maxWindow.Hours() {
		return
	}
	at := now.Add(time.Duration(hours * float64(time.Hour))).UTC().Truncate(time.Second)
	if c.Ends.IsZero() || at.Before(c.Ends) {
		c.Reached = at
	}
}

func (a *API) showPayer(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	d, err := a.payerDetail(r.Context(), agentbus.Payer(r.PathValue("payer")))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, d)
}

// payerDetail reads an account, taken apart by agent, run and day (U13).
func (a *API) payerDetail(ctx context.Context, payer agentbus.Payer) (d console.PayerDetail, err error) {
	balances, err := a.cfg.Ledger.Balances(ctx, payer)
	if err != nil {
		return d, err
	}
	if payer == "" || len(balances) == 0 {
		return d, listedAt("GET /admin/v1/payers", &agentbus.Error{Code: agentbus.CodeNotFound, Message: "there is no payer of that name"})
	}
	b := balances[0]
	if d.Payer, err = a.payer(ctx, b); err != nil {
		return d, err
	}
	q := agentbus.SpendingQuery{Payer: payer, After: max(b.Calls+b.Voids-mostEntries, 0), Limit: mostParts}
	d.Partial = q.After > 0
	for by, parts := range map[agentbus.SpendingKey]*[]agentbus.Spending{
		agentbus.SpendingByAgent: &d.ByAgent, agentbus.SpendingByRun: &d.ByRun, agentbus.SpendingByDay: &d.ByDay,
	} {
		q.By = by
		found, err := a.cfg.Figures.Spending(ctx, q)
		if err != nil {
			return d, err
		}
		*parts = append([]agentbus.Spending{}, found...)
	}
	d.Stale, err = a.stale(ctx, payer)
	return d, err
}

// stale returns what a payer's calls have held for more than a minute without an
// end, oldest first.
func (a *API) stale(ctx context.Context, payer agentbus.Payer) ([]console.Stale, error) {
	calls, err := a.cfg.Calls.Unfinished(ctx)
	if err != nil {
		return nil, err
	}
	before := time.Now().Add(-staleAfter)
	calls = slices.DeleteFunc(calls, func(c agentbus.CallRecord) bool { return c.Payer != payer || c.Began.After(before) })
	calls = calls[:min(len(calls), mostParts)]
	ids := make([]int64, len(calls))
	for i := range calls {
		ids[i] = calls[i].ID
	}
	held, err := a.cfg.Figures.Holds(ctx, ids)
	if err != nil {
		return nil, err
	}
	lives := map[int64]bool{}
	for _, c := range a.cfg.Calls.Live() {
		lives[c.ID] = true
	}
	found := make([]console.Stale, 0, len(calls))
	for i := range calls {
		c := &calls[i]
		found = append(found, console.Stale{
			Call: c.ID, Agent: c.Agent, Run: c.Run, Turn: c.TurnKey.ID, Owner: c.Owner, Lives: lives[c.ID], Held: held[c.ID], Began: c.Began,
		})
	}
	return found, nil
}
