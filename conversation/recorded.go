package conversation

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/agentbus/agentbus"
)

// outcome is what the event of a turn tells of its calls.
type outcome struct {
	Attempts int             `json:"attempts"`
	Cost     agentbus.Micros `json:"cost_micros"`
	Code     agentbus.Code   `json:"code"`
	Message  string          `json:"message"`
}

// maxVoids bounds what a record can make of one turn.
const maxVoids = 10_000

// answer is the backend of every participant: what the record has of the turn.
func (h *rehearsal) answer(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		at, ok := h.await(ctx, c.Lineage.Turn)
		if !ok {
			yield(agentbus.Chunk{}, context.Cause(ctx))
			return
		}
		chunks, err := h.said(at)
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(agentbus.Chunk{}, err)
		}
	}
}

// result returns the result that comes next in this drive, or nil.
func (h *rehearsal) result() *agentbus.Event {
	if i := h.resultAt(); i >= 0 {
		return &h.record.Events[i]
	}
	return nil
}

func (h *rehearsal) resultAt() int {
	for i := h.next; i < h.end; i++ {
		if isResult(&h.record.Events[i]) {
			return i
		}
	}
	return -1
}

// await waits until the result of a turn comes next, and returns where it
// stands. A turn that has none in this drive waits until the drive is ended: by
// itself, or, when there are no more results, from outside.
func (h *rehearsal) await(ctx context.Context, id agentbus.TurnID) (at int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits++
	defer func() { h.waits-- }()
	for ctx.Err() == nil && h.diverged == nil {
		at := h.resultAt()
		if at >= 0 && h.record.Events[at].Turn == id {
			h.spend(at)
			return at, true
		}
		if h.waits >= len(h.begun) { // nobody is about to have a result
			h.stuck(at, id)
			h.move()
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	return 0, false
}

// stuck ends a drive in which every pending turn waits.
func (h *rehearsal) stuck(at int, id agentbus.TurnID) {
	cause, ended := h.outside()
	if at < 0 && ended {
		h.cancel(cause)
		return
	}
	was := "the end of the events"
	switch {
	case at >= 0:
		was = describe(&h.record.Events[at])
	case h.halt != nil:
		was = h.halt.String()
	}
	h.diverge(h.begun[id].Index, "turn", was, string(id))
}

// said is what a backend said that had this result: as many void attempts as
// were recorded, at what they cost together, then the reply or the error.
func (h *rehearsal) said(at int) (chunks []agentbus.Chunk, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &h.record.Events[at]
	var o outcome
	_ = json.Unmarshal(e.Data, &o) // data that cannot be read is not what the driver will write
	intent := h.begun[e.Turn]
	lost := o.Cost - intent.Cost
	var reply agentbus.Reply
	if t := h.turns[intent.Index]; t != nil && e.Type == agentbus.EventTurnDone {
		reply = t.Reply
		lost -= max(0, reply.Usage.Cost)
	}
	if lost > 0 {
		chunks = append(chunks, agentbus.Chunk{Usage: &agentbus.Usage{Cost: lost}})
	}
	for range min(o.Attempts-intent.Attempts, maxVoids) {
		chunks = append(chunks, agentbus.Chunk{Void: true})
	}
	if e.Type == agentbus.EventTurnFailed {
		return chunks, h.failure(at, &o)
	}
	for i := range reply.ToolCalls {
		chunks = append(chunks, agentbus.Chunk{ToolCall: &reply.ToolCalls[i]})
	}
	return append(chunks, agentbus.Chunk{
		Text: reply.Text, Reasoning: reply.Reasoning, Usage: &reply.Usage, Model: reply.Model, Finish: reply.Finish, Replayed: reply.Replayed,
	}), nil
}

// failure is why a turn failed: as its turn has it, else as the halt has it that
// it led to, else as its event tells.
func (h *rehearsal) failure(at int, o *outcome) error {
	e := &h.record.Events[at]
	if t := h.turns[h.ids[e.Turn]]; t != nil && t.ID == e.Turn && t.Error != nil && h.last[e.Turn] == at {
		return t.Error
	}
	if h.halt != nil && h.halt.Error != nil && h.halt.Error.Code == o.Code && h.halt.Error.Message == o.Message {
		return h.halt.Error
	}
	return &agentbus.Error{Code: o.Code, Message: o.Message}
}

// budget returns the budgets of a drive. What could be spent is no part of a
// record, but where there was no more is: it is refused there again. The driver
// computes what was spent itself, unless others had spent of it too.
func (h *rehearsal) budget() (own *agentbus.Micros, shared *Budget) {
	h.above = nil
	if h.halt == nil || h.halt.Kind != agentbus.HaltBudget {
		return nil, nil
	}
	var spent agentbus.Micros
	for _, cost := range h.costs() {
		spent = sum(spent, cost)
	}
	limit := h.halt.Limit
	if spent == h.halt.Spent {
		return &limit, nil
	}
	shared = NewBudget(limit)
	h.above, h.others = shared, h.halt.Spent-spent
	if h.resultAt() < 0 {
		h.spend(-1)
	}
	return nil, shared
}

// costs are what the turns had cost at the end of the drive, by their results.
func (h *rehearsal) costs() map[agentbus.TurnID]agentbus.Micros {
	costs := map[agentbus.TurnID]agentbus.Micros{}
	for i := range h.record.Events[:h.end] {
		if e := &h.record.Events[i]; isResult(e) {
			var o outcome
			_ = json.Unmarshal(e.Data, &o)
			costs[e.Turn] = o.Cost
		}
	}
	return costs
}

// spend spends what others had spent of a budget, with the last result of a
// drive that it ended.
func (h *rehearsal) spend(at int) {
	if h.above == nil {
		return
	}
	for i := at + 1; i < h.end && at >= 0; i++ {
		if isResult(&h.record.Events[i]) {
			return
		}
	}
	a := &h.above.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent, a.held = sum(a.spent, h.others), a.held+max(0, h.halt.Limit-h.halt.Spent)
	h.above = nil
}
