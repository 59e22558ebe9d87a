package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/agentbus/agentbus"
)

// maxStopped is how many stopped runs are remembered. Beyond it the one that
// was stopped first is forgotten; run ids are never used twice, so nobody but
// who set it off would call it again.
const maxStopped = 65_536

var errRunStopped = &agentbus.Error{
	Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator",
	Explain: &agentbus.Explain{Rule: "G14", Next: "begin a run of its own, or ask the operator why this one was stopped"},
	Err:     agentbus.ErrForGood,
}

// Stop ends every call of a run that is being executed here, or waits to be, and
// refuses new ones from now on (G14). Their attempts are voided, and their
// callers read CodeRunStopped. It returns how many it ended; to stop a run again
// does no harm. The run is remembered while this process lives, among the last
// 65,536; who wants it to stay stopped keeps it and calls Stop at the next start.
func (g *Gateway) Stop(run agentbus.RunID) (cancelled int) {
	if run == "" {
		return 0
	}
	g.stopped.add(run) // first: a call that begins now finds it there
	return g.flights.abort(errRunStopped, func(of agentbus.RunID) bool { return of == run })
}

// Live returns what agents are being asked right now through this process,
// oldest first: calls, and requests that are none.
func (g *Gateway) Live() []agentbus.CallRecord { return g.flights.live() }

// stops are the runs that were stopped. A bus without any pays nothing for it.
type stops struct {
	some atomic.Bool // runs has any

	mu    sync.RWMutex // guards the rest
	runs  map[agentbus.RunID]struct{}
	order []agentbus.RunID // as they were stopped
}

func (s *stops) add(run agentbus.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.runs[run]; known {
		return
	}
	if s.runs == nil {
		s.runs = map[agentbus.RunID]struct{}{}
	}
	if len(s.order) >= maxStopped {
		delete(s.runs, s.order[0])
		s.order = s.order[1:]
	}
	s.runs[run] = struct{}{}
	s.order = append(s.order, run)
	s.some.Store(true)
}

func (s *stops) has(run agentbus.RunID) bool {
	if !s.some.Load() {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, stopped := s.runs[run]
	return stopped
}
