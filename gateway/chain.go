package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// CycleMode is what becomes of a call to an agent that is among the call's own
// ancestors (G7).
type CycleMode string

// The cycle modes.
const (
	CyclesDigest CycleMode = "digest" // the same request again is refused, another one is noted
	CyclesRefuse CycleMode = "refuse" // both are refused
	CyclesWarn   CycleMode = "warn"   // both are noted
	CyclesOff    CycleMode = "off"    // nobody looks
)

// What the record says of such a call that was served.
const (
	noteReentry = "reentry" // with another request
	noteCycle   = "cycle"   // with the same

	noteRegression = "depth_regression" // the call is refused
)

// maxAncestors is how far up a call's ancestors are looked for.
const maxAncestors = 64

// chain compares the lineage that a call claims with what this bus knows of the
// turn it was made inside of (G7): it cannot be less deep, or of another run,
// and an agent that is asked again what it is answering already goes round in a
// circle. A call without a parent pays nothing for it. Then the call gets its
// place in the chain of agents.
func (g *Gateway) chain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if err := g.judge(r, x); err != nil {
			x.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// judge is the stage chain, for requests that it does not lead on.
func (g *Gateway) judge(r *http.Request, x *exchange) (err error) {
	if err := g.received(r.Context(), x); err != nil {
		return err
	}
	if x.lineage.Parent != "" {
		if x.above, err = g.climb(r, x); err != nil {
			return err
		}
		if err = g.within(r.Context(), x); err != nil {
			return err
		}
	}
	return g.hops(x, x.above)
}

// climb walks from a call up its ancestors, as far as this bus knows them. It
// returns what it knows of the first.
func (g *Gateway) climb(r *http.Request, x *exchange) (first above, err error) {
	at, depth, met := x.turnKey(), x.lineage.Depth, ""
	way := []string{x.target.Name}
	for range maxAncestors {
		known, err := g.parents(r.Context(), at)
		if err != nil {
			return first, err
		}
		if len(way) == 1 {
			if err := g.regression(r.Context(), x, known); err != nil {
				return first, err
			}
			first = aboveOf(known)
		}
		above := inside(known, depth)
		if len(above) == 0 || g.cfg.Cycles == CyclesOff || !x.isCall(r) {
			break
		}
		for i := range above {
			way, x.ancestors = append(way, above[i].Agent), append(x.ancestors, above[i].TurnKey)
			if !g.same(x.target, above[i].Agent) {
				continue
			}
			if met != noteCycle {
				met = noteReentry
			}
			if above[i].Digest == x.digest(r) {
				met = noteCycle
			}
			if g.cfg.Cycles == CyclesRefuse || g.cfg.Cycles == CyclesDigest && met == noteCycle {
				return first, errCycle(way)
			}
		}
		if at, depth = above[0].TurnKey, above[0].Depth; at.Parent == "" {
			break
		}
	}
	if met != "" {
		x.note(met)
	}
	return first, nil
}

// parents returns the calls that the call of key at may have been made inside
// of. Those with the id of its parent turn are told apart by the path (P17);
// without a path it can have been any of them.
func (g *Gateway) parents(ctx context.Context, at agentbus.TurnKey) ([]agentbus.CallRecord, error) {
	others := func(c agentbus.CallRecord) bool {
		return c.Run != at.Run || at.Path != "" && c.PathBelow() != at.Path
	}
	known := slices.DeleteFunc(g.flights.turns(at.Payer, at.Parent), others)
	if len(known) > 0 && at.Path != "" {
		return known, nil
	}
	stored, err := g.cfg.Ledger.ParentCalls(ctx, at.Payer, at.Run, at.Parent)
	return append(known, slices.DeleteFunc(stored, others)...), err
}

// inside returns those of the calls that a call at a depth can have been made
// inside of: the least deep, and those that the same turn was forwarded to.
func inside(known []agentbus.CallRecord, depth int) []agentbus.CallRecord {
	above := slices.DeleteFunc(known, func(c agentbus.CallRecord) bool { return c.Depth >= depth })
	slices.SortStableFunc(above, func(a, b agentbus.CallRecord) int { return a.Depth - b.Depth })
	if len(above) == 0 {
		return nil
	}
	first := above[0].TurnKey
	return slices.DeleteFunc(above, func(c agentbus.CallRecord) bool { return c.Path != first.Path || c.Parent != first.Parent })
}

// regression refuses a call that claims to be less deep than each of the turns
// it may have been made inside of allows, or to belong to another run than the
// only ones it may have been made inside of.
func (g *Gateway) regression(ctx context.Context, x *exchange, known []agentbus.CallRecord) error {
	if len(known) == 0 {
		foreign, err := g.ofAnotherRun(ctx, x)
		if err == nil && foreign {
			err = &agentbus.Error{
				Code: agentbus.CodeInvalidLineage, Message: "the parent turn of this call belongs to another run",
				Explain: &agentbus.Explain{Rule: "G7", Observed: "run_mismatch", Next: "send the run id of the call that is being served"},
			}
		}
		return err
	}
	least := known[0].Depth
	for i := range known {
		least = min(least, known[i].Depth)
	}
	if x.lineage.Depth > least {
		return nil
	}
	x.note(noteRegression)
	return &agentbus.Error{
		Code: agentbus.CodeInvalidLineage, Message: "this call claims to be no deeper than the turn it is made inside of",
		Explain: &agentbus.Explain{Rule: "G7 depth_regression", Observed: x.lineage.Depth, Limit: least + 1, Next: "send the depth of the call that is being served, plus one"},
	}
}

// ofAnotherRun reports whether the parent turn is known as one of another run
// of the same payer, and not of this one.
func (g *Gateway) ofAnotherRun(ctx context.Context, x *exchange) (bool, error) {
	here := g.flights.turns(x.payer, x.lineage.Parent)
	if slices.ContainsFunc(here, func(c agentbus.CallRecord) bool { return c.Run == x.lineage.Run }) {
		return false, nil // another one of this run, by its path
	}
	if len(here) > 0 { // of others, unless this run has one that is over
		own, err := g.cfg.Ledger.ParentCalls(ctx, x.payer, x.lineage.Run, x.lineage.Parent)
		return len(own) == 0, err
	}
	run := runOf(x.lineage.Parent)
	if run == "" || run == x.lineage.Run {
		return false, nil
	}
	stored, err := g.cfg.Ledger.ParentCalls(ctx, x.payer, run, x.lineage.Parent)
	return len(stored) > 0, err
}

// runOf returns the run that a turn id names; "" when it names none.
func runOf(t agentbus.TurnID) agentbus.RunID {
	if slug := strings.LastIndexByte(string(t), '.'); slug > 0 {
		if index := strings.LastIndex(string(t[:slug]), ".t"); index > 0 {
			if run := agentbus.RunID(t[:index]); t.Index(run) >= 0 {
				return run
			}
		}
	}
	return ""
}

// goesRound reports whether a duplicate of f is the same turn forwarded back to
// the agent that is answering it: it would wait for itself.
func (g *Gateway) goesRound(x *exchange, f *flight) bool {
	switch {
	case x.lineage.Depth <= f.depth || g.cfg.Cycles == CyclesOff || !g.flights.hasBegun(f):
		return false
	case g.cfg.Cycles == CyclesWarn:
		x.note(noteCycle)
		return false
	}
	return true
}

// errCycle tells who asks whom in a circle; way is from the call upwards.
func errCycle(way []string) error {
	way = slices.Clone(way)
	slices.Reverse(way)
	return &agentbus.Error{
		Code: agentbus.CodeCycleRefused, Message: "agent " + way[len(way)-1] + " is already answering further up: " + strings.Join(way, " → "),
		Explain: &agentbus.Explain{Rule: "G7", Observed: len(way), Next: "answer from what you have, or ask another agent"},
	}
}
