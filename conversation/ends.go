package conversation

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// An ending is the member agentbus of the event that a drive ends with.
type ending struct {
	Halt *agentbus.Halt `json:"halt"`
	// Decided are the interrupts that were decided, and that a budget kept the drive
	// from going on from: who was to be asked followed from them (R23).
	Decided []agentbus.InterruptID `json:"decided,omitempty"`
}

// ending returns what a drive that halts by h ends with.
func (d *driver) ending(h *agentbus.Halt) ending {
	e := ending{Halt: h}
	if h.Kind != agentbus.HaltBudget {
		return e
	}
	for _, i := range slices.Sorted(maps.Keys(d.decided)) {
		if i < d.execution.First+len(d.turns) {
			continue // it was gone on from
		}
		for _, r := range d.decided[i].resolved {
			e.Decided = append(e.Decided, r.ID)
		}
	}
	return e
}

// haltOf returns why a drive halted, if e is what it ended with.
func haltOf(e *agentbus.Event) *agentbus.Halt { return endingOf(e).Halt }

// endingOf returns what a drive ended with, if that is e.
func endingOf(e *agentbus.Event) ending {
	if !isEnd(e.Type) {
		return ending{}
	}
	var data struct {
		Bus ending `json:"agentbus"`
	}
	if json.Unmarshal(e.Data, &data) != nil || data.Bus.Halt == nil {
		return ending{Halt: &agentbus.Halt{}} // no halt is like it: the events will differ
	}
	return data.Bus
}

// isEnd reports whether an event of this type is the last of a drive.
func isEnd(eventType string) bool {
	return agentbus.Terminal(eventType) || eventType == agentbus.EventRunPaused || eventType == agentbus.EventRunWaiting
}

// ends returns the events of a halt (E57, E58): of the turns that were left in
// the middle, and of the run.
func (d *driver) ends(h *agentbus.Halt) (events []agentbus.Event) {
	for _, now := range d.left {
		events = append(append(events, d.completes(now, "failed")...), d.cancelled(now, halted(h), nil))
	}
	bus, took := d.ending(h), max(0, time.Since(d.execution.Began).Milliseconds())
	switch h.Kind {
	case agentbus.HaltDeadline:
		events = append(events, d.event(agentbus.EventCapBreached, "", d.overtime()))
	case agentbus.HaltBudget:
		events = append(events, d.event(agentbus.EventCapBreached, "", overspent(h)))
	case agentbus.HaltRecursionLimit:
		events = append(events, d.overrun(h))
	default: // no cap
	}
	var kind string
	var data any
	lacks := h.Kind == agentbus.HaltWaitingAuth && !h.Final()
	if lacks {
		events = append(events, d.lacks(h)...)
	}
	switch {
	case lacks, h.Kind == agentbus.HaltWaiting && !h.Final():
		kind, data = agentbus.EventRunWaiting, struct {
			Bus ending `json:"agentbus"`
		}{bus}
	case !h.Final():
		kind, data = agentbus.EventRunPaused, struct {
			agentbus.RunPausedFor
			Bus ending `json:"agentbus"`
		}{agentbus.RunPausedFor{Reason: string(h.Kind)}, bus}
	case h.Kind == agentbus.HaltAbort:
		kind, data = agentbus.EventRunCancelled, struct {
			agentbus.RunCancelled
			Bus ending `json:"agentbus"`
		}{agentbus.RunCancelled{Reason: cmp.Or(h.Reason, h.String()), DurationMS: took}, bus}
	case h.Failed || h.Kind == agentbus.HaltDeadline || h.Kind == agentbus.HaltRecursionLimit:
		kind, data = agentbus.EventRunFailed, struct {
			agentbus.RunFailed
			Bus ending `json:"agentbus"`
		}{agentbus.RunFailed{Error: failedWith(h), FailedNodeID: d.failedNode(h), DurationMS: took}, bus}
	default:
		events = append(events, d.event(agentbus.EventConversationClosed, "", d.closes(h)))
		outputs, _ := json.Marshal(map[string]any{"halt": h.Kind, "text": d.reply(), "turns": len(d.turns)})
		kind, data = agentbus.EventRunCompleted, struct {
			agentbus.RunCompleted
			Bus ending `json:"agentbus"`
		}{agentbus.RunCompleted{Outputs: outputs, DurationMS: took}, bus}
	}
	return append(events, d.event(kind, "", data))
}

// halted is why a node is cancelled that a run halts in.
func halted(h *agentbus.Halt) string { return "the run halted: " + string(h.Kind) }

// overspent is what a budget tells that is used up.
func overspent(h *agentbus.Halt) agentbus.CapBreached {
	if h.LimitTokens > 0 {
		return agentbus.CapBreached{Kind: "budget-tokens", Limit: float64(h.LimitTokens), Observed: float64(h.SpentTokens)}
	}
	return agentbus.CapBreached{Kind: "budget-cost", Limit: max(0, dollars(h.Limit)), Observed: max(0, dollars(h.Spent))}
}

// overrun tells which node would have been one more than may begin.
func (d *driver) overrun(h *agentbus.Halt) agentbus.Event {
	limit := float64(d.conversation.RecursionLimit)
	b := agentbus.CapBreached{Kind: "node-executions", Limit: limit, Observed: limit + 1}
	if who := d.index(agentbus.Speaker(h.Participant)); who >= 0 {
		b.NodeID = d.nodes[who]
	}
	e := d.event(agentbus.EventCapBreached, "", b)
	e.Node = b.NodeID
	return e
}

// overtime is what a deadline tells.
func (d *driver) overtime() agentbus.CapBreached {
	limit := max(0, cmp.Or(d.options.Timeout, d.options.Deadline.Sub(d.execution.Began)).Milliseconds())
	return agentbus.CapBreached{Kind: "run-duration", Limit: float64(limit), Observed: float64(max(limit+1, time.Since(d.execution.Began).Milliseconds()))}
}

// failedWith is the error of a run that failed.
func failedWith(h *agentbus.Halt) agentbus.EventError {
	switch {
	case h.Kind == agentbus.HaltDeadline:
		return agentbus.EventError{Code: "run_timeout", Message: "the run's deadline has passed"}
	case h.Kind == agentbus.HaltRecursionLimit:
		return agentbus.EventError{Code: "recursion_limit_exceeded", Message: h.Reason}
	case h.Kind == agentbus.HaltBudget:
		return agentbus.EventError{Code: string(agentbus.CodeBudgetExceeded), Message: h.String()}
	case h.Error != nil:
		return wireError(h.Error)
	}
	return agentbus.EventError{Code: string(agentbus.CodeInternal), Message: h.String()}
}

// failedNode is the node whose error, or whose beginning, ended the run; "" when it was nobody's.
func (d *driver) failedNode(h *agentbus.Halt) string {
	if who := d.index(agentbus.Speaker(h.Participant)); who >= 0 && (h.Kind == agentbus.HaltParticipantError || h.Kind == agentbus.HaltRecursionLimit) {
		return d.nodes[who]
	}
	return ""
}

// closes ends the conversation with the last that was said.
func (d *driver) closes(h *agentbus.Halt) agentbus.ConversationClosed {
	last := d.opening()
	for i := range d.turns {
		if who := d.index(d.turns[i].Speaker); d.turns[i].State == agentbus.TurnDone && who >= 0 {
			last = d.message(who, &d.turns[i])
		}
	}
	return agentbus.ConversationClosed{ConversationID: d.talk, TurnIndex: last.TurnIndex, FinalTurn: last, Outcome: string(h.Kind)}
}
