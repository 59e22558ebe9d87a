package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/agentbus/agentbus"
)

// A deserted node is one that a driver before this one told the beginning of, and died in.
type deserted struct {
	node    string
	invoked agentbus.InvocationStarted // what it was in; none: no InvocationID
}

// deserts returns the events that end the nodes which are deserted, and in which
// nobody goes on as the run halts (E57).
func (d *driver) deserts(ctx context.Context, h *agentbus.Halt) (events []agentbus.Event, err error) {
	turns := d.pendingBefore()
	if waits := h.Kind == agentbus.HaltWaiting || h.Kind == agentbus.HaltWaitingAuth; waits && !h.Final() || len(turns) == 0 || d.options.Events == nil {
		return nil, nil
	}
	open, err := openOf(d.options.Events(context.WithoutCancel(ctx), d.execution.ID, -1), turns)
	if err != nil {
		return nil, fmt.Errorf("read the events of run %s: %w", d.execution.ID, err)
	}
	for _, id := range turns {
		n, is := open[id]
		if !is {
			continue
		}
		tell := func(kind string, data any) {
			e := d.ofNode(n.node, kind, data)
			e.Turn = id
			events = append(events, e)
		}
		if n.invoked.InvocationID != "" {
			tell(agentbus.EventInvocationCompleted, agentbus.InvocationCompleted{InvocationID: n.invoked.InvocationID, AgentID: n.invoked.AgentID, Outcome: "failed"})
		}
		tell(agentbus.EventNodeCancelled, agentbus.NodeCancelled{NodeID: n.node, Reason: halted(h)})
	}
	return events, nil
}

// pendingBefore returns the turns that the journal had pending, and that this driver has
// not begun, by index.
func (d *driver) pendingBefore() (ids []agentbus.TurnID) {
	var turns []agentbus.Turn
	for _, t := range d.carried {
		if t.State == agentbus.TurnPending && !d.own[t.ID] {
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b agentbus.Turn) int { return a.Index - b.Index })
	for i := range turns {
		ids = append(ids, turns[i].ID)
	}
	return ids
}

// openOf returns which of turns have a node that the events tell the beginning of,
// and not the end.
func openOf(events iter.Seq2[agentbus.Event, error], turns []agentbus.TurnID) (map[agentbus.TurnID]deserted, error) {
	open := map[agentbus.TurnID]deserted{}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if e.Turn == "" || !slices.Contains(turns, e.Turn) {
			continue
		}
		switch n := open[e.Turn]; e.Type {
		case agentbus.EventNodeStarted, agentbus.EventNodeResumed:
			open[e.Turn] = deserted{node: e.Node}
		case agentbus.EventInvocationStarted:
			_ = json.Unmarshal(e.Data, &n.invoked) // a driver wrote it
			open[e.Turn] = n
		case agentbus.EventInvocationCompleted:
			n.invoked = agentbus.InvocationStarted{}
			open[e.Turn] = n
		case agentbus.EventNodeCompleted, agentbus.EventNodeFailed, agentbus.EventNodeCancelled, agentbus.EventNodeSuspended:
			delete(open, e.Turn)
		}
	}
	return open, nil
}

// before yields what a replayed drive finds told of the turns whose nodes it ended, as
// the record has it: versions before this one ended none that a driver had died in.
func (h *rehearsal) before(context.Context, agentbus.ExecutionID, agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) {
		h.mu.Lock()
		next, end := h.next, h.end
		h.mu.Unlock()
		ended := map[agentbus.TurnID]bool{}
		for i := next; i < end; i++ {
			if e := &h.record.Events[i]; e.Type == agentbus.EventNodeCancelled && !isResult(e) {
				ended[e.Turn] = true
			}
		}
		for i := range next {
			if e := h.record.Events[i]; ended[e.Turn] && !yield(e, nil) {
				return
			}
		}
	}
}
