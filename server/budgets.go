package server

import (
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// budgets returns the budgets of the configuration as the gateway takes them.
func (s *wiring) budgets() []gateway.BudgetRule {
	rules := make([]gateway.BudgetRule, 0, len(s.cfg.Budgets))
	for _, b := range s.cfg.Budgets {
		rules = append(rules, gateway.BudgetRule{
			Payer: b.Payer, Caller: b.Caller, Period: gateway.BudgetPeriod(b.Period),
			USD: b.USD, Calls: int64(b.Calls), WallTime: b.WallTime, Strict: b.Mode == config.BudgetStrict,
		})
	}
	return rules
}
