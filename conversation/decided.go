package conversation

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentbus/agentbus"
)

// Interrupt tells what was decided of an interrupt by the end of this drive: the
// event of that stands with the intent that it let go on, or, without a word of
// what, with the end of a drive that could not afford to; see Runs. A turn that waited
// and is started, not resumed, was begun to be withdrawn by a drive that was cut, and
// decided. What no drive so far went on from waits.
func (h *rehearsal) Interrupt(_ context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := agentbus.Interrupt{ID: id}
	if h.end > 0 && slices.Contains(endingOf(&h.record.Events[h.end-1]).Decided, id) {
		i.Resolution = &agentbus.Resolution{}
	}
	var asker agentbus.TurnID
	for at := range h.record.Events[:h.end] {
		e := &h.record.Events[at]
		if e.Type == agentbus.EventNodeStarted && e.Turn == asker && asker != "" && i.Resolution == nil {
			i.Resolution = &agentbus.Resolution{Decision: agentbus.DecisionGranted} // else what was recorded would not be said
		}
		var told struct {
			Bus struct {
				Resolved []verdict     `json:"resolved"`
				Ask      *agentbus.Ask `json:"ask"`
			} `json:"agentbus"`
		}
		if e.Type != agentbus.EventWaitResolved && e.Type != agentbus.EventNodeSuspended || json.Unmarshal(e.Data, &told) != nil {
			continue
		}
		if told.Bus.Ask != nil && slices.Contains(told.Bus.Ask.Interrupts, id) {
			asker = e.Turn
		}
		for _, r := range told.Bus.Resolved {
			if r.Interrupt == id {
				i.Resolution = &r.Resolution
			}
		}
	}
	return i, true, nil
}
