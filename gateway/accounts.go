package gateway

import (
	"time"

	"github.com/agentbus/agentbus"
)

// Budgets returns the budgets of rules that name whose they are, with their
// accounts of the periods that at is in, for people (G27). Rules that keep an
// account for each payer or each run have none before somebody calls.
func (g *Gateway) Budgets(at time.Time) (all []agentbus.Budget) {
	for i := range g.cfg.Budgets {
		r := &g.cfg.Budgets[i]
		if r.Period == PeriodRun || r.Payer == "" && r.Caller == "" {
			continue
		}
		all = append(all, r.budget(&exchange{payer: r.Payer, caller: agentbus.Principal{ID: r.Caller}, counted: at}))
	}
	return all
}

// A PayerBudget is a budget of one payer in its present period.
type PayerBudget struct {
	agentbus.Budget

	Period BudgetPeriod
	Ends   time.Time // the period; the zero time: never
}

// BudgetsOf returns the budgets of money that bound what a payer's calls come to,
// whoever calls, with their accounts of the periods that at is in (G27). Those of
// its runs, one each, are left out.
func (g *Gateway) BudgetsOf(payer agentbus.Payer, at time.Time) (all []PayerBudget) {
	x := &exchange{payer: payer, counted: at}
	seen := map[string]bool{}
	for i := range g.cfg.Budgets { // of two with one account the narrower comes first
		r := &g.cfg.Budgets[i]
		if r.Period == PeriodRun || r.Caller != "" || r.USD == nil || !r.covers(x) {
			continue
		}
		if b := r.budget(x); !seen[b.Account] {
			seen[b.Account] = true
			all = append(all, PayerBudget{b, r.Period, r.Period.ends(at)})
		}
	}
	return all
}

// ends returns when the window that at is in ends.
func (p BudgetPeriod) ends(at time.Time) time.Time {
	at = at.UTC()
	switch p {
	case PeriodHour:
		return at.Truncate(time.Hour).Add(time.Hour)
	case PeriodDay:
		return time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, time.UTC)
	case PeriodMonth:
		return time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	case PeriodRun, PeriodTotal:
	}
	return time.Time{}
}
