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
		all = append(all, r.budget(&exchange{payer: r.Payer, caller: agentbus.Principal{ID: r.Caller}, began: at}))
	}
	return all
}
