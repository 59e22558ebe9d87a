package gateway

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

// drainedRetry is when a call of a drained agent may be sent again: operators
// take their time.
const drainedRetry = 30 * time.Second

// drains are the agents that get no new calls. A bus without any pays nothing
// for it.
type drains struct {
	names atomic.Pointer[map[string]bool]
}

func (d *drains) has(agent string) bool {
	names := d.names.Load()
	return names != nil && (*names)[agent]
}

// SetDrained says which agents get no new calls from now on, in place of those
// that were named before (U14). Calls that are under way go on, duplicates of
// finished ones are answered from memory, and callers of new ones read
// CodeDraining.
func (g *Gateway) SetDrained(agents []string) {
	names := make(map[string]bool, len(agents))
	for _, name := range agents {
		names[name] = true
	}
	g.drained.names.Store(&names)
}

// takenOut ends a call of an agent that gets no new ones, and reports whether it
// did.
func (g *Gateway) takenOut(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if x.leads == nil || !g.drained.has(x.target.Name) {
		return false
	}
	if !g.remembered(w, r, x) {
		x.refuse(w, &agentbus.Error{
			Code: agentbus.CodeDraining, Message: "agent " + x.target.Name + " was taken out by its operator", RetryAfter: drainedRetry,
			Explain: &agentbus.Explain{Rule: "U14", Next: "send the same turn again after the given time, or ask another agent"},
		})
	}
	return true
}

// Busy returns how many calls of an agent with bounded places are being executed,
// and how many wait for a place.
func (g *Gateway) Busy(agent string) (serving, waiting int) { return g.lines.busy(agent) }

// busy returns the length of an agent's line.
func (ls *lines) busy(agent string) (serving, waiting int) {
	ls.mu.Lock()
	l := ls.byName[agent]
	ls.mu.Unlock()
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.serving, l.waiting.Len()
}
