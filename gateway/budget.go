package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// A BudgetPeriod is the window of a budget. Windows are of UTC: each begins with
// an account of its own.
type BudgetPeriod string

// The periods of a budget.
const (
	PeriodRun   BudgetPeriod = "run"   // one run of one payer, every nested hop of it included
	PeriodHour  BudgetPeriod = "hour"  // from its first minute
	PeriodDay   BudgetPeriod = "day"   // from midnight
	PeriodMonth BudgetPeriod = "month" // from the first
	PeriodTotal BudgetPeriod = "total" // for good
)

// A BudgetRule bounds what some calls may come to (G27). A rule that names a
// payer, or a caller, stands in place of a wider one whose account is the same.
type BudgetRule struct {
	Payer  agentbus.Payer // "": every payer, each with an account of its own
	Caller string         // "": whoever calls; else the rule bounds the calls of this one
	Period BudgetPeriod
	USD    *agentbus.Micros // most that may be spent; nil: any amount
	Calls  int64            // most calls that may be executed; 0: any number
	// WallTime is how long after a run's first call another may begin; 0: any
	// time. For PeriodRun only.
	WallTime time.Duration
	// Strict refuses a call whose worst case might not fit. Otherwise calls are
	// refused once USD is spent, and those in flight then may overshoot it.
	Strict bool
}

// check says what is wrong with a rule.
func (r *BudgetRule) check() error {
	switch {
	case r.window(time.Time{}, "") == "":
		return fmt.Errorf("gateway: a budget has the period %q", r.Period)
	case r.USD == nil && r.Calls == 0 && r.WallTime == 0:
		return errors.New("gateway: a budget bounds nothing")
	case r.Calls < 0 || r.WallTime < 0 || r.USD != nil && *r.USD < 0:
		return errors.New("gateway: a bound of a budget is negative")
	case r.WallTime > 0 && r.Period != PeriodRun:
		return errors.New("gateway: a wall time bounds a run only")
	}
	return nil
}

// narrowFirst sorts rules so that of two with one account the narrower one
// comes first.
func narrowFirst(rules []BudgetRule) []BudgetRule {
	rules = slices.Clone(rules)
	named := func(r BudgetRule) (n int) {
		if r.Payer != "" {
			n++
		}
		if r.Caller != "" {
			n++
		}
		return n
	}
	slices.SortStableFunc(rules, func(a, b BudgetRule) int { return named(b) - named(a) })
	return rules
}

// covers reports whether r bounds the call.
func (r *BudgetRule) covers(x *exchange) bool {
	return (r.Payer == "" || r.Payer == x.payer) && (r.Caller == "" || r.Caller == x.caller.ID)
}

// account returns the account that r keeps for the call, such as
// payer/alice/day/2026-11-21. Ids are escaped, so that no two accounts have one
// name.
func (r *BudgetRule) account(x *exchange) string {
	payer := "payer/" + url.PathEscape(string(x.payer)) + "/"
	whose := payer
	switch {
	case r.Caller != "" && (r.Payer != "" || r.Period == PeriodRun): // a run is its payer's
		whose = "caller/" + url.PathEscape(r.Caller) + "/" + payer
	case r.Caller != "":
		whose = "caller/" + url.PathEscape(r.Caller) + "/"
	}
	return whose + r.window(x.counted, x.lineage.Run)
}

// window returns the end of an account's name; "" for an unknown period.
func (r *BudgetRule) window(at time.Time, run agentbus.RunID) string {
	at = at.UTC()
	switch r.Period {
	case PeriodRun:
		return "run/" + url.PathEscape(string(run))
	case PeriodHour:
		return at.Format("hour/2006-01-02T15")
	case PeriodDay:
		return at.Format("day/2006-01-02")
	case PeriodMonth:
		return at.Format("month/2006-01")
	case PeriodTotal:
		return "total"
	}
	return ""
}

// budget returns what r asks of the ledger for the call.
func (r *BudgetRule) budget(x *exchange) agentbus.Budget {
	b := agentbus.Budget{Account: r.account(x), Limit: math.MaxInt64, Calls: r.Calls, MaxAge: r.WallTime}
	if r.USD != nil {
		b.Limit, b.Strict = *r.USD, r.Strict
	}
	return b
}

// words tells people whose budget r is, and for when.
func (r *BudgetRule) words(x *exchange) string {
	whose := "payer " + plainID(string(x.payer))
	if r.Caller != "" {
		whose = "caller " + plainID(r.Caller)
		if r.Payer != "" || r.Period == PeriodRun {
			whose += " at the cost of " + plainID(string(x.payer))
		}
	}
	switch at := x.counted.UTC(); r.Period {
	case PeriodRun:
		return whose + " for run " + plainID(string(x.lineage.Run))
	case PeriodHour:
		return whose + at.Format(" for the hour from 2006-01-02 15:00 UTC")
	case PeriodDay:
		return whose + at.Format(" for 2006-01-02 UTC")
	case PeriodMonth:
		return whose + at.Format(" for 2006-01 UTC")
	case PeriodTotal:
	}
	return whose
}

// plainID makes an id fit for a message.
func plainID(id string) string { return strings.ReplaceAll(plain(id, 128), "·", "(at)") }

const (
	// beyond is more than any budget: what a strict budget is asked for when
	// the worst case is not known, so that it refuses.
	beyond agentbus.Micros = 1 << 54
	// least is what a soft budget is asked for then: a call that may cost
	// something does not pass once the budget is spent.
	least agentbus.Micros = 1
)

// count has the call take what it holds from the budgets of the periods that it
// is now in.
func (g *Gateway) count(x *exchange) {
	x.counted = g.funds.now()
	x.want.hold = g.hold(x)
}

// hold returns what the call takes from its budgets: its worst case, of each
// (G27).
func (g *Gateway) hold(x *exchange) (h agentbus.Hold) {
	for i := range g.cfg.Budgets {
		r := &g.cfg.Budgets[i]
		if !r.covers(x) {
			continue
		}
		b := r.budget(x)
		if !slices.ContainsFunc(h.Budgets, func(o agentbus.Budget) bool { return o.Account == b.Account }) {
			h.Budgets = append(h.Budgets, b)
		}
	}
	if b, ok := g.chainBudget(x); ok {
		h.Budgets = append(h.Budgets, b)
	}
	h.Budgets = append(h.Budgets, x.hopBudgets()...)
	if h.Budgets == nil {
		return h
	}
	amount, known := x.worstCase()
	if h.Amount = amount; !known {
		if h.Amount = least; strict(h) {
			h.Amount = beyond
		}
	}
	return h
}

func strict(h agentbus.Hold) bool {
	return slices.ContainsFunc(h.Budgets, func(b agentbus.Budget) bool { return b.Strict })
}

// worstCase returns the most that the call can cost, unless that is not known.
// A byte of the body is at least a token of it.
func (x *exchange) worstCase() (amount agentbus.Micros, known bool) {
	t := x.target
	switch {
	case t.MaxCost != nil:
		return *t.MaxCost, true
	case t.UsageCost:
		return 0, false
	case t.Price == agentbus.Price{}:
		return 0, t.Priced || t.Local
	}
	u := agentbus.Usage{InputTokens: int64(len(x.body) + len(x.model()))}
	if t.Cue && x.lineage.Chain != nil {
		u.InputTokens += maxCue
	}
	if t.Price.Output > 0 {
		if u.OutputTokens, known = x.peek.mostOutput(x.dialect); !known {
			return 0, false
		}
	}
	p := t.Price
	p.Input = max(p.Input, p.Cached)
	return p.Cost(u), true
}

// charge splits what a call cost into what is charged and what nobody pays: what
// goes beyond the most that a call of its agent can cost, and, under a strict
// budget, beyond what was held (G27).
func (x *exchange) charge(cost agentbus.Micros) (charged, unbilled agentbus.Micros) {
	charged = cost
	if x.target.MaxCost != nil {
		charged = min(charged, *x.target.MaxCost)
	}
	if strict(x.want.hold) {
		charged = min(charged, x.want.hold.Amount)
	}
	return charged, cost - charged
}

// capped tells the operator of a call that cost more than is charged for it.
func (g *Gateway) capped(ctx context.Context, x *exchange, charged, unbilled agentbus.Micros) {
	x.note("charge_capped")
	g.log.LogAttrs(ctx, slog.LevelWarn, "a call cost more than it may, or its budget held for it, and nobody pays the rest",
		slog.String("request_id", x.requestID), slog.String("agent", x.target.Name), slog.String("run", string(x.lineage.Run)),
		slog.String("turn", string(x.lineage.Turn)), slog.Int64("cost_micros", int64(charged)), slog.Int64("unbilled_micros", int64(unbilled)))
}
