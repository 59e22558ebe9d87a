package gateway

import (
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// errShort tells a caller which budget refused its call, what is left of it and
// what to do (G27).
func (g *Gateway) errShort(x *exchange, s *agentbus.Shortage) error {
	b, rule := s.Budget, g.ruleOf(x, s.Budget.Account)
	whose := b.Account
	if rule != nil {
		whose = rule.words(x)
	}
	e := &agentbus.Error{Code: agentbus.CodeBudgetExceeded, Explain: &agentbus.Explain{Rule: "G27"}}
	if own, ok := g.chainBudget(x); ok && own.Account == b.Account {
		return &agentbus.Error{
			Code: agentbus.CodeChainFinal, Message: "the agents of this run have made " + strconv.FormatInt(s.State.Calls, 10) + " calls, which is all they may",
			Explain: &agentbus.Explain{Rule: "C13", Observed: s.State.Calls, Limit: b.Calls, Next: "answer with what is known, or ask the operator to raise chain.max_calls"},
		}
	}
	for _, a := range x.allowances {
		if hopAccount(x.payer, a.digest) == b.Account {
			return x.errAllowance(s)
		}
	}
	left := max(b.Limit-s.State.Spent-s.State.Held, 0)
	switch need := x.want.hold.Amount; {
	case b.Calls > 0 && s.State.Calls >= b.Calls:
		e.Message = "the budget of " + whose + " has 0 calls left of " + strconv.FormatInt(b.Calls, 10)
		e.Explain.Observed, e.Explain.Limit, e.Explain.Next = s.State.Calls, b.Calls, "ask the operator to raise calls of this budget"
	case b.MaxAge > 0 && x.began.Sub(s.State.Opened) > b.MaxAge:
		e.Message = "the budget of " + whose + " has no time left of " + b.MaxAge.String()
		e.Explain.Observed, e.Explain.Limit, e.Explain.Next = x.began.Sub(s.State.Opened).Round(time.Millisecond).String(), b.MaxAge.String(), "ask the operator to raise wall_time of this budget"
	case b.Strict && need == beyond:
		e.Message = "what a call of agent " + x.target.Name + " can cost is not known, and the budget of " + whose + " is strict; $" + left.USD() + " are left of $" + b.Limit.USD()
		e.Explain.Observed, e.Explain.Limit = left.USD(), b.Limit.USD()
		e.Explain.Next = x.bound("send") + "ask the operator to set max_cost_usd on agent " + x.target.Name
	default:
		e.Message = "the budget of " + whose + " has $" + left.USD() + " left of $" + b.Limit.USD()
		if s.State.Held > 0 {
			e.Message += " ($" + s.State.Held.USD() + " are held by calls in flight)"
		}
		if b.Strict {
			e.Message += ", and this call can cost $" + need.USD()
		}
		e.Explain.Observed, e.Explain.Limit, e.Explain.Next = left.USD(), b.Limit.USD(), x.bound("send less, with a smaller")+"ask the operator to raise the budget"
	}
	if rule != nil {
		e.Explain.Next += rule.anew(x, b)
	}
	return e
}

// anew says when the next period of a budget begins; "" where there is none, or the
// call would not fit into all of one.
func (r *BudgetRule) anew(x *exchange, b agentbus.Budget) string {
	ends := r.Period.ends(x.counted)
	if fits, _ := b.Fits(agentbus.BudgetState{}, x.want.hold.Amount, x.began); !fits || ends.IsZero() {
		return ""
	}
	return ", or send it again when the next period begins, at " + ends.Format(time.RFC3339)
}

// errAllowance says that a signed hop leaves too little for the call.
func (x *exchange) errAllowance(s *agentbus.Shortage) error {
	b, left := s.Budget, max(s.Budget.Limit-s.State.Spent-s.State.Held, 0)
	e := &agentbus.Error{
		Code: agentbus.CodeBudgetExceeded, Message: "the signed hop of this call leaves $" + left.USD() + " of $" + b.Limit.USD(),
		Explain: &agentbus.Explain{Rule: "C16", Observed: left.USD(), Limit: b.Limit.USD(), Next: "answer from what you have, or begin a chain with a larger budget"},
	}
	switch {
	case b.Calls > 0 && s.State.Calls >= b.Calls:
		e.Message = "the signed hop of this call leaves 0 calls of " + strconv.FormatInt(b.Calls, 10)
		e.Explain.Observed, e.Explain.Limit = s.State.Calls, b.Calls
	case b.Strict:
		e.Message += ", and this call can cost $" + x.want.hold.Amount.USD()
	}
	return e
}

// bound says what the caller can do so that the worst case is known, or less;
// "" when it is not up to the caller.
func (x *exchange) bound(how string) string {
	switch t := x.target; {
	case t.MaxCost != nil, t.UsageCost, t.Price.Output == 0:
		return ""
	case x.dialect == dialectChat:
		return how + " max_tokens, or "
	case x.dialect == dialectResponses:
		return how + " max_output_tokens, or "
	}
	return ""
}

// ruleOf returns the rule that keeps an account of the call; nil: none does.
func (g *Gateway) ruleOf(x *exchange, account string) *BudgetRule {
	for i := range g.cfg.Budgets {
		if r := &g.cfg.Budgets[i]; r.covers(x) && r.account(x) == account {
			return r
		}
	}
	return nil
}
