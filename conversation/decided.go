package conversation

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentbus/agentbus"
)

// Interrupt tells what was decided of an interrupt by the end of this drive: the
// event of that stands with the intent that it let go on, or, without a word of
// what, with the end of a drive that could not afford to; see Runs. What no drive so
// far went on from waits.
func (h *rehearsal) Interrupt(_ context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := agentbus.Interrupt{ID: id}
	if h.end > 0 && slices.Contains(endingOf(&h.record.Events[h.end-1]).Decided, id) {
		i.Resolution = &agentbus.Resolution{}
	}
	for at := range h.record.Events[:h.end] {
		var told struct {
			Bus struct {
				Resolved []verdict `json:"resolved"`
			} `json:"agentbus"`
		}
		if e := &h.record.Events[at]; e.Type != agentbus.EventWaitResolved || json.Unmarshal(e.Data, &told) != nil {
			continue
		}
		for _, r := range told.Bus.Resolved {
			if r.Interrupt == id {
				i.Resolution = &r.Resolution
			}
		}
	}
	return i, true, nil
}
