package gateway

import "time"

// InFlight returns how many requests are being served, for tests that wait for
// one to arrive.
func (g *Gateway) InFlight() int { return int(g.inFlight.Load()) }

// Detached returns how many calls go on without their caller.
func (g *Gateway) Detached() int { return len(g.slots) }

// SetClock gives t a clock. It must be set before t is called.
func (t *Target) SetClock(now func() time.Time) { t.now = now }
