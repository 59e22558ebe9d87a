package conversation

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentbus/agentbus"
)

// Interrupt tells what was decided of an interrupt before this drive; see Runs.
// The event of that stands with the turn's next result. A turn that was begun
// again and has no result that is told was begun because of a decision, too;
// what no drive went on from waits.
func (h *rehearsal) Interrupt(_ context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := agentbus.Interrupt{ID: id}
	for at := h.next; at < h.end; at++ {
		var r struct {
			Interrupt agentbus.InterruptID `json:"interrupt"`
			agentbus.Resolution
		}
		if e := &h.record.Events[at]; e.Type == agentbus.EventInterruptResolved && json.Unmarshal(e.Data, &r) == nil && r.Interrupt == id {
			i.Resolution = &r.Resolution
		}
	}
	if i.Open() && h.halt == nil && h.end == len(h.record.Events) {
		i.Resolution = h.untold(id)
	}
	return i, true, nil
}

// untold returns the decision on an interrupt of which no event tells, because
// the last drive was cut; nil when there was none.
func (h *rehearsal) untold(id agentbus.InterruptID) *agentbus.Resolution {
	for at := range h.record.Events {
		e := &h.record.Events[at]
		var o outcome
		if e.Type != agentbus.EventInterruptRequested || json.Unmarshal(e.Data, &o) != nil || !slices.Contains(o.Interrupts, id) {
			continue
		}
		due, known := h.due[e.Turn]
		switch t := h.turns[h.ids[e.Turn]]; {
		case t.State == agentbus.TurnPending, known && due == loose && agentbus.CodeOf(orNone(t.Error)) != agentbus.CodeForbidden:
			return &agentbus.Resolution{Decision: agentbus.DecisionGranted}
		case known && due == loose:
			return &agentbus.Resolution{Decision: agentbus.DecisionDenied}
		}
	}
	return nil
}

// orNone returns e as an error; nil for none.
func orNone(e *agentbus.Error) error {
	if e == nil {
		return nil
	}
	return e
}
