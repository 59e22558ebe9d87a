package server

import (
	"context"
	"iter"
	"sync"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
)

// drives are the runs that this process drives. Their leases are all held by the
// same owner, this process, so that leases alone would not keep two of its
// drivers apart.
type drives struct {
	mu   sync.Mutex // guards runs
	runs map[agentbus.RunID]struct{}
}

// begin reports whether nobody here drives a run; then somebody does, until end.
func (d *drives) begin(run agentbus.RunID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, driven := d.runs[run]; driven {
		return false
	}
	if d.runs == nil {
		d.runs = map[agentbus.RunID]struct{}{}
	}
	d.runs[run] = struct{}{}
	return true
}

func (d *drives) end(run agentbus.RunID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, run)
}

func (d *drives) has(run agentbus.RunID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, driven := d.runs[run]
	return driven
}

// Driving returns how many runs this process drives.
func (s *Server) Driving() int {
	s.driven.mu.Lock()
	defer s.driven.mu.Unlock()
	return len(s.driven.runs)
}

// drive drives a run that was prepared, through the gateway of this bus. The
// caller has begun it.
func (s *Server) drive(ctx context.Context, c conversation.Conversation, o conversation.Options) iter.Seq2[conversation.Event, error] {
	return func(yield func(conversation.Event, error) bool) {
		defer s.reachable(ctx)()
		conversation.Stream(gateway.WithInProcess(ctx, gateway.InProcess{Payer: o.Payer}), c, o)(yield)
	}
}
