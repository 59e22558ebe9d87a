package execagent

import (
	"context"
	"slices"
	"sync"

	"github.com/agentbus/agentbus"
)

// Lanes let the turns of a conversation through one at a time, in the order in
// which they come: a worker, or a session, serves one.
type lanes struct {
	mu    sync.Mutex
	lanes map[string]*lane // those that somebody is in
}

// A lane is that of one conversation.
type lane struct {
	in    agentbus.Lineage // the turn that is in it
	queue []*waiter
}

type waiter struct {
	turn  agentbus.Lineage
	enter chan struct{} // closed when it is in
}

// enter waits until a turn may be served, and returns what to call when it has
// been. It fails with CodeCycleRefused for a call that the turn that is being
// served makes itself, or has somebody make whom it called: within are those that
// the call is made inside of. Each would wait for the other. It fails with the
// cause of ctx when that ends.
func (l *lanes) enter(ctx context.Context, key string, turn agentbus.Lineage, within []agentbus.TurnKey) (leave func(), err error) {
	leave = func() { l.leave(key) }
	l.mu.Lock()
	at := l.lanes[key]
	if at == nil {
		if l.lanes == nil {
			l.lanes = map[string]*lane{}
		}
		l.lanes[key] = &lane{in: turn}
		l.mu.Unlock()
		return leave, nil
	}
	if at.waitsFor(&turn, within) {
		l.mu.Unlock()
		return nil, itself()
	}
	w := &waiter{turn, make(chan struct{})}
	at.queue = append(at.queue, w)
	l.mu.Unlock()
	select {
	case <-w.enter:
		return leave, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(at.queue, w)
	if i >= 0 {
		at.queue = slices.Delete(at.queue, i, i+1)
	}
	l.mu.Unlock()
	if i < 0 { // it was let in at the same moment
		leave()
	}
	return nil, context.Cause(ctx)
}

// waitsFor reports whether a call is made inside of the turn that is in a lane:
// that one cannot end before the call has.
func (l *lane) waitsFor(call *agentbus.Lineage, within []agentbus.TurnKey) bool {
	if l.in.Run != call.Run || l.in.Turn == "" {
		return false
	}
	return l.in.Turn == call.Parent || slices.ContainsFunc(within, func(k agentbus.TurnKey) bool { return k.ID == l.in.Turn && k.Path == l.in.Path })
}

// leave lets the next one in.
func (l *lanes) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lanes[key]
	if len(at.queue) == 0 {
		delete(l.lanes, key)
		return
	}
	next := at.queue[0]
	at.in, at.queue = next.turn, at.queue[1:]
	close(next.enter)
}

func itself() error {
	return &agentbus.Error{
		Code: agentbus.CodeCycleRefused, Message: "the agent serves one turn at a time in this conversation, and this call is made inside of the one that it is serving: each would wait for the other",
		Explain: &agentbus.Explain{Rule: "B4", Next: "answer without it, call another agent, or call this one in a conversation of its own: another " + agentbus.RootContextIDHeader},
	}
}
