package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// defaultQueueTimeout is how long a call waits for a place at an agent.
const defaultQueueTimeout = 10 * time.Second

// admit lets a call in when its caller's rate and its agent have room (G8). A
// duplicate takes none of either: one of a call in flight is attached before,
// and one of a finished call is answered here when there is no room, and gives
// back what it took when there was.
func (g *Gateway) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if g.takenOut(w, r, x) {
			return
		}
		if x.target.Concurrency <= 0 && !x.rated() { // nothing is bounded
			next.ServeHTTP(w, r)
			return
		}
		defer x.leavePlace()
		wait, rated, err := g.takeToken(r.Context(), x)
		if err != nil {
			x.refuse(w, err)
			return
		}
		if rated && g.takePlace(x) {
			next.ServeHTTP(w, r)
			return
		}
		if g.remembered(w, r, x) {
			g.giveBack(x)
			return
		}
		if err := g.room(r.Context(), x, rated, wait); err != nil {
			g.giveBack(x)
			x.refuseOrLeave(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// within reports whether the caller is part of this bus: a driver of this process
// or a program that serves a turn. It is bounded by the call that it works for.
func (x *exchange) within() bool {
	return x.driven() || x.scope != nil
}

// rated reports whether the caller has a rate.
func (x *exchange) rated() bool {
	return !x.within() && x.caller.Grants != nil && x.caller.Grants.PerSecond > 0
}

// takeToken takes from the caller's rate, or says how long to wait for it.
func (g *Gateway) takeToken(ctx context.Context, x *exchange) (wait time.Duration, ok bool, err error) {
	switch {
	case !x.rated():
		return 0, true, nil
	case g.cfg.Rates != nil:
		wait, ok, err = g.portions.take(ctx, g.cfg.Rates, x.caller.ID, x.caller.Grants, time.Now())
	default:
		wait, ok = g.rates.take(x.caller.ID, x.caller.Grants, time.Now())
	}
	x.token = ok
	return wait, ok, err
}

// giveBack returns what a call took that was then not executed.
func (g *Gateway) giveBack(x *exchange) {
	switch {
	case x.token && g.cfg.Rates != nil:
		g.portions.giveBack(x.caller.ID, time.Now())
	case x.token:
		g.rates.giveBack(x.caller.ID)
	}
	x.token = false
	x.leavePlace()
}

// takePlace takes a place at the agent when one is free and nobody waits for it.
func (g *Gateway) takePlace(x *exchange) bool {
	t := x.target
	if t.Concurrency <= 0 || x.envelope != nil && x.leads == nil { // what is no call must not wait for the call it is about
		return true
	}
	x.line = g.lines.of(t.Name)
	x.placed = x.line.enter(t.Concurrency)
	x.since = time.Now()
	return x.placed
}

// leavePlace frees the place of the call; the first one that waits gets it.
func (x *exchange) leavePlace() {
	if x.placed {
		x.placed = false
		x.line.leave(time.Since(x.since))
	}
}

// room waits for a place for a call that its caller's rate allows.
func (g *Gateway) room(ctx context.Context, x *exchange, rated bool, wait time.Duration) error {
	if !rated {
		return errRate(x.caller.Grants, wait)
	}
	return g.queue(ctx, x)
}

// queue waits for a place at the agent, for as long as its configuration says.
func (g *Gateway) queue(ctx context.Context, x *exchange) error {
	t := x.target
	turn, full := x.line.wait(t.Concurrency, t.Queue)
	if full {
		return g.overloaded(x, "agent "+t.Name+" is busy, and so is its queue")
	}
	ctx, cancel := x.awaited(ctx)
	defer cancel(nil)
	if x.leads != nil {
		g.flights.wait(x.leads, cancel) // Stop and Abort end the wait
		g.endStopped(x, cancel)
		defer g.flights.wait(x.leads, nil)
	}
	patience := time.NewTimer(or(t.QueueTimeout, defaultQueueTimeout))
	defer patience.Stop()
	select {
	case <-turn.ready:
		x.placed, x.since = true, time.Now()
		if g.stopped.has(x.lineage.Run) { // it was, before the wait could be ended
			return errRunStopped
		}
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	x.line.quit(turn)
	if err := g.waitEnded(ctx, x); err != nil {
		return err
	}
	return g.overloaded(x, "agent "+t.Name+" did not get free in time")
}

// waitEnded says why a call waits no more; nil: its patience is over.
func (g *Gateway) waitEnded(ctx context.Context, x *exchange) error {
	switch {
	case errors.Is(context.Cause(ctx), errRunStopped), g.stopped.has(x.lineage.Run):
		return errRunStopped
	case g.draining.Load():
		return errDraining
	case ctx.Err() != nil:
		return errLeft
	}
	return nil
}

func (g *Gateway) overloaded(x *exchange, message string) error {
	return &agentbus.Error{
		Code: agentbus.CodeOverloaded, Message: message, RetryAfter: x.line.until(),
		Explain: &agentbus.Explain{Rule: "G8", Limit: x.target.Concurrency, Next: "send the same turn again after the given time"},
	}
}

// errRate tells a caller that it calls too often, and when it may again.
func errRate(grants *agentbus.Grants, wait time.Duration) error {
	limit := strconv.FormatFloat(grants.PerSecond, 'g', -1, 64) + " a second"
	return &agentbus.Error{
		Code: agentbus.CodeRateLimited, Message: "this caller may make " + limit + ", and has made them", RetryAfter: wait,
		Explain: &agentbus.Explain{Rule: "G8", Limit: limit, Next: "send the same turn again after the given time"},
	}
}

// remembered answers a duplicate of a finished call from memory, without the
// reservation for which there is no room.
func (g *Gateway) remembered(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if x.leads == nil {
		return false
	}
	got, found, err := g.cfg.Ledger.Lookup(r.Context(), x.want.key, x.record.Digest)
	switch {
	case err != nil:
		x.refuse(w, err)
		return true
	case !found || got.Outcome == agentbus.OutcomeExecute || got.Outcome == agentbus.OutcomeInFlight:
		return false
	case got.Outcome == agentbus.OutcomeSettled:
		g.countReplay(r.Context(), x, got.Call)
	}
	return g.known(w, r, x, got)
}
