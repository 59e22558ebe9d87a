package gateway

import (
	"context"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// hopSkew is how far the clock of another bus may be from ours.
const hopSkew = time.Minute

// An allowance is what a signed hop that was received leaves for the call that it came
// with, and for all that is called inside of it (C16).
type allowance struct {
	digest string // of the token
	left   agentbus.HopLeft
}

// allow bounds the call by what its signed hop leaves, and refuses it where its time is
// over.
func (x *exchange) allow(hop *agentbus.Hop, token string) error {
	x.allowances = append(x.allowances, allowance{identity.HopDigest(token), hop.Left})
	if hop.Left.Deadline == 0 {
		return nil
	}
	if x.until = time.Unix(hop.Left.Deadline, 0).Add(hopSkew); time.Now().Before(x.until) {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeDeadlineExceeded, Message: "the time that the signed hop of this call leaves is over",
		Explain: &agentbus.Explain{Rule: "C16", Observed: time.Unix(hop.Left.Deadline, 0).UTC().Format(time.RFC3339), Next: "send the call with a hop that leaves more time"},
	}
}

// patience is how long the call may take: at most as long as its signed hop leaves.
func (x *exchange) patience(most time.Duration) time.Duration {
	if x.until.IsZero() {
		return most
	}
	return min(most, time.Until(x.until))
}

// within finds the hop of the turn that the call is made inside of, and what those that
// were received further up leave for it.
func (g *Gateway) within(ctx context.Context, x *exchange) error {
	if g.cfg.Hops == nil || x.above.request == "" {
		return nil
	}
	kept, err := g.cfg.HopKeeper.HopTokens(ctx, x.lineage.Run)
	if err != nil {
		return err
	}
	byDigest := make(map[string]*agentbus.HopToken, len(kept))
	for i := range kept {
		byDigest[identity.HopDigest(kept[i].Token)] = &kept[i]
		if kept[i].Sent && kept[i].RequestID == x.above.request {
			x.hopBefore = kept[i].Token
		}
	}
	for at := byDigest[keptHop(x.hopBefore).Before]; at != nil; {
		hop := keptHop(at.Token)
		if !at.Sent {
			x.allowances = append(x.allowances, allowance{identity.HopDigest(at.Token), hop.Left})
		}
		delete(byDigest, identity.HopDigest(at.Token)) // nobody walks in a circle
		at = byDigest[hop.Before]
	}
	return nil
}

// keptHop reads a hop that was verified when it came, or is ours; that of no token says
// nothing.
func keptHop(token string) agentbus.Hop {
	hop, _ := identity.Unverified(token) // what cannot be read says nothing
	return hop
}

// hopBudgets returns the budgets of what signed hops leave: accounts of their own, so that
// the call and all inside of it come to no more, on whichever process (C13). What a call
// can cost is kept to where it is known; else one is refused once all is spent.
func (x *exchange) hopBudgets() (budgets []agentbus.Budget) {
	if x.allowances == nil {
		return nil
	}
	_, known := x.worstCase()
	for _, a := range x.allowances {
		b := agentbus.Budget{Account: hopAccount(x.payer, a.digest), Limit: math.MaxInt64, Calls: a.left.Calls}
		if a.left.USD > 0 {
			b.Limit, b.Strict = a.left.USD, known
		}
		if a.left.USD > 0 || a.left.Calls > 0 {
			budgets = append(budgets, b)
		}
	}
	return budgets
}

func hopAccount(payer agentbus.Payer, digest string) string {
	return "payer/" + url.PathEscape(string(payer)) + "/hop/" + digest
}

// left is what the budgets of the call leave for it and for all inside of it: what a
// signed hop says.
func (g *Gateway) left(ctx context.Context, x *exchange) (left agentbus.HopLeft, err error) {
	left.Deadline = time.Now().Add(g.cfg.CallTimeout).Unix()
	budgets := x.want.hold.Budgets
	if _, counted := g.chainBudget(x); !counted { // the calls inside of it are
		budgets = append(slices.Clip(budgets), g.chained(x))
	}
	accounts := make([]string, len(budgets))
	for i := range budgets {
		accounts[i] = budgets[i].Account
	}
	states, err := g.cfg.HopKeeper.BudgetStates(ctx, accounts)
	if err != nil {
		return left, err
	}
	for i, b := range budgets { // whoever receives the hop counts this call, too
		if b.Calls > 0 {
			left.Calls = least0(left.Calls, b.Calls-states[i].Calls+1)
		}
		if b.Limit < math.MaxInt64 {
			left.USD = least0(left.USD, b.Limit-states[i].Spent-states[i].Held+x.want.hold.Amount)
		}
	}
	return left, nil
}

// least0 returns the smaller of a bound, 0 for none, and another one, which is 1 at
// least: a soft budget may have been overshot.
func least0[T ~int64](bound, other T) T {
	if other = max(other, 1); bound == 0 || other < bound {
		return other
	}
	return bound
}
