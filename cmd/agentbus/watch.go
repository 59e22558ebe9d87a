package main

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
)

// A watch draws a run that another process drives, by the events that its driver
// wrote, as one is drawn that is driven here.
type watch struct {
	*live

	clock  bool                                  // the times of events are of the clock here
	begun  map[agentbus.TurnID]time.Time         // turns that are being spoken
	making atomic.Pointer[[]agentbus.CallRecord] // calls, as they were seen last
}

// see learns which calls are being made.
func (w *watch) see(calls []agentbus.CallRecord) { w.making.Store(&calls) }

// saw learns them, and the cap, from a bus.
func (w *watch) saw(run agentbus.RunID, c *openwop.Calling) {
	calls := make([]agentbus.CallRecord, len(c.Calls))
	for i, k := range c.Calls {
		calls[i] = agentbus.CallRecord{TurnKey: agentbus.TurnKey{Run: run, ID: k.Turn, Parent: k.Parent, Agent: k.Agent}, Depth: k.Depth, Began: k.Began}
	}
	w.see(calls)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = limited(c.Budget)
}

// calls returns them.
func (w *watch) calls() []agentbus.CallRecord {
	if c := w.making.Load(); c != nil {
		return *c
	}
	return nil
}

// happened is what the data of an event tell of a turn.
type happened struct {
	told

	Agent   *agentbus.AgentRef `json:"agent"`
	Chunk   string             `json:"chunk"`
	Outputs struct {
		Text string `json:"text"`
	} `json:"outputs"`
}

// news shows an event: those of turns of the conversation itself as its driver
// would, others as lines.
func (w *watch) news(n *news) error {
	if n.execution.Depth == 0 && w.turn(n) {
		return nil
	}
	if line := n.line(w.paint); line != "" {
		w.note(line)
	}
	return nil
}

// turn shows an event of a turn; false: it is of none.
func (w *watch) turn(n *news) bool {
	var d happened
	_ = json.Unmarshal(n.Data, &d) // what cannot be read says nothing
	t := &agentbus.Turn{TurnKey: agentbus.TurnKey{Run: n.Run, ID: n.Turn}, Speaker: agentbus.Speaker(n.Node), Attempts: d.Attempt + 1}
	if d.Agent != nil && d.Agent.Name != "" {
		t.Speaker = agentbus.Speaker(d.Agent.Name)
	}
	e := conversation.Event{Run: n.Run, Turn: t}
	switch n.Type {
	case agentbus.EventRunStarted:
		e.Type = conversation.EventStarted
	case agentbus.EventNodeStarted, agentbus.EventNodeResumed:
		e.Type = conversation.EventTurnStarted
		w.begins(n, t)
	case agentbus.EventOutputChunk:
		e.Type, e.Chunk.Text = conversation.EventDelta, d.Chunk
	case agentbus.EventNodeRetried:
		e.Type = conversation.EventRetry
	case agentbus.EventNodeCompleted, agentbus.EventNodeFailed:
		e.Type = conversation.EventTurnDone
		if n.Type == agentbus.EventNodeFailed {
			e.Type = conversation.EventTurnFailed
		}
		w.ends(n, t, &d)
	case agentbus.EventNodeSuspended, agentbus.EventNodeCancelled:
		w.forget(n.Turn)
		return false
	case agentbus.EventRunCompleted, agentbus.EventRunPaused, agentbus.EventRunWaiting:
		return d.Bus.Halt != nil // whoever follows it tells
	default:
		return false
	}
	w.event(&e)
	return true
}

func (w *watch) begins(n *news, t *agentbus.Turn) {
	if w.begun == nil {
		w.begun = map[agentbus.TurnID]time.Time{}
	}
	w.begun[n.Turn] = n.At
	if w.clock {
		t.Began = n.At
	}
}

// ends fills in what a turn came to.
func (w *watch) ends(n *news, t *agentbus.Turn, d *happened) {
	t.Ended, t.Began = n.At, n.At
	if at, ok := w.begun[n.Turn]; ok {
		t.Began = at
	}
	delete(w.begun, n.Turn)
	t.Reply.Text, t.Cost, t.Attempts = d.Outputs.Text, d.Bus.Cost, max(d.Bus.Attempts, 1)
	if d.Bus.Usage != nil {
		t.Reply.Usage = *d.Bus.Usage
	}
}

// forget ends a turn of which nothing is told for good.
func (w *watch) forget(id agentbus.TurnID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live.ends(id)
	delete(w.begun, id)
}

// halted says what the run came to.
func (w *watch) halted(run agentbus.RunID, h *agentbus.Halt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draw(w.paint.dim(summed(run, h, w.turns, w.usage, w.spent))+"\n", nil)
}
