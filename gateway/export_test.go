package gateway

import "time"

// InFlight returns how many requests are being served, for tests that wait for
// one to arrive.
func (g *Gateway) InFlight() int { return int(g.inFlight.Load()) }

// Detached returns how many calls go on without their caller.
func (g *Gateway) Detached() int { return len(g.slots) }

// TryOnce begins and ends a try, as a call does.
func (t *Target) TryOnce() {
	one := t.upstreams().begin(&exchange{}, 0)
	one.end(good)
}

// SetClock gives t a clock. It must be set before t is called.
func (t *Target) SetClock(now func() time.Time) { t.now = now }
