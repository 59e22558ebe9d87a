package gateway

import (
	"github.com/agentbus/agentbus"
)

// errShort tells a caller which budget refused its call, and what is left of it
// (G27).
func errShort(s *agentbus.Shortage) error {
	left := max(s.Budget.Limit-s.State.Spent-s.State.Held, 0)
	return &agentbus.Error{
		Code:    agentbus.CodeBudgetExceeded,
		Message: "the budget " + s.Budget.Account + " has $" + left.USD() + " left of $" + s.Budget.Limit.USD() + ", which this call might exceed",
		Explain: &agentbus.Explain{
			Rule: "G27", Observed: left.USD(), Limit: s.Budget.Limit.USD(), Next: "ask for less, or ask the operator to raise the budget",
		},
	}
}
