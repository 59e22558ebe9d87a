package gateway

import (
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// QueuedAt returns how many calls wait for a place at an agent.
func (g *Gateway) QueuedAt(agent string) int {
	_, waiting := g.Busy(agent)
	return waiting
}

// MaxBuckets is how many callers' rates are kept.
const MaxBuckets = maxBuckets

// NewRates returns rates of nobody.
func NewRates() *rates { return &rates{} }

// Take takes a token of a caller.
func (rs *rates) Take(caller string, g *agentbus.Grants, now time.Time) (time.Duration, bool) {
	return rs.take(caller, g, now)
}

// Len returns how many callers are known.
func (rs *rates) Len() int { return len(rs.byCaller) }

// RunOf returns the run that a turn id names.
var RunOf = runOf

// MaxStopped is how many stopped runs are remembered.
const MaxStopped = maxStopped

// Waiting returns how many calls stand in line for a budget.
func (g *Gateway) Waiting() (n int) {
	g.funds.mu.Lock()
	defer g.funds.mu.Unlock()
	for _, line := range g.funds.byAccount {
		n += len(line)
	}
	return n
}

// Holding returns how many calls in flight hold something of budgets.
func (g *Gateway) Holding() int {
	g.funds.mu.Lock()
	defer g.funds.mu.Unlock()
	return len(g.funds.holding)
}

// BeginEvents reports whether bytes begin a stream of events, and whether they tell.
var BeginEvents = beginEvents

// SetClock gives budgets a clock. It must be set before g is called.
func (g *Gateway) SetClock(now func() time.Time) { g.funds.now = now }

// Account returns the account that r keeps for a call.
func (r *BudgetRule) Account(payer agentbus.Payer, caller string, run agentbus.RunID, at time.Time) string {
	return r.account(&exchange{payer: payer, caller: agentbus.Principal{ID: caller}, lineage: agentbus.Lineage{Run: run}, counted: at})
}

// TryOnce begins and ends a try, as a call does.
func (t *Target) TryOnce() {
	one := t.upstreams().begin(&exchange{}, 0)
	one.end(good)
}

// SetClock gives t a clock. It must be set before t is called.
func (t *Target) SetClock(now func() time.Time) { t.now = now }

// WithCue returns a body with a cue.
func WithCue(body []byte, responses bool, cue string) []byte {
	d := dialectChat
	if responses {
		d = dialectResponses
	}
	return withCue(body, d, cue)
}

// HopOf returns the place of a call in its chain of agents, on a route that
// carries chains.
func HopOf(rules ChainRules, caller agentbus.Principal, l agentbus.Lineage, known bool, parent *agentbus.AgentChain) (*agentbus.AgentChain, error) {
	rules.setDefaults()
	g := &Gateway{cfg: Config{Chain: rules}}
	x := &exchange{caller: caller, lineage: l, envelope: &envelope{call: a2a.Call{Method: a2a.MethodOf("SendMessage"), HasMessage: true}}}
	err := g.hops(x, above{known: known, chain: parent})
	return x.lineage.Chain, err
}
