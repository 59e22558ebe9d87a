package gateway

// InFlight returns how many requests are being served, for tests that wait for
// one to arrive.
func (g *Gateway) InFlight() int { return int(g.inFlight.Load()) }

// Detached returns how many calls go on without their caller.
func (g *Gateway) Detached() int { return len(g.slots) }
