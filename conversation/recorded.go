package conversation

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
)

// outcome is what the event of a turn tells of its calls.
type outcome struct {
	Bus   facts               `json:"agentbus"`
	Error agentbus.EventError `json:"error"` // of a failed turn
}

// maxVoids bounds what a record can make of one turn.
const maxVoids = 10_000

// patience is how long a turn that was cancelled is waited for to be cancelled
// again. A driver does that at once, when it does.
const patience = 10 * time.Second

// answer is the backend of every participant: what the record has of the turn.
func (h *rehearsal) answer(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		id := c.Lineage.Turn
		if !h.await(ctx, id) {
			yield(agentbus.Chunk{}, context.Cause(ctx))
			return
		}
		chunks, state, err := h.said(id)
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if state == agentbus.TurnCancelled {
			err = h.linger(ctx, id)
		}
		if err != nil {
			yield(agentbus.Chunk{}, err)
		}
	}
}

// state returns what became of a turn in this drive; "" when it was left
// pending.
func (h *rehearsal) state(id agentbus.TurnID) agentbus.TurnState {
	at, due := h.due[id]
	switch {
	case !due:
		return ""
	case at == loose:
		return h.turns[h.ids[id]].State
	}
	return states[h.record.Events[at].Type]
}

// await waits until a turn is to be answered. Turns side by side go in
// an order that comes to the same result: see precedes. A
// turn that has no result in this drive waits until the drive is ended: by
// itself, or, when there are no more results, from outside.
func (h *rehearsal) await(ctx context.Context, id agentbus.TurnID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ctx.Err() == nil && h.diverged == nil {
		state := h.state(id)
		if state != "" && !h.precedes(state) {
			h.asked++
			h.spend()
			return true
		}
		if h.idle() {
			h.stuck(id)
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
	return false
}

// idle reports whether no pending turn has a result.
func (h *rehearsal) idle() bool {
	for id := range h.begun {
		if h.state(id) != "" {
			return false
		}
	}
	return true
}

// precedes reports whether a pending turn comes before one of a state: what
// failed, then what was cancelled as far as it came, then what was done.
func (h *rehearsal) precedes(state agentbus.TurnState) bool {
	for id := range h.begun {
		switch h.state(id) {
		case agentbus.TurnFailed:
			if state != agentbus.TurnFailed {
				return true
			}
		case agentbus.TurnCancelled:
			if state == agentbus.TurnDone && !h.heard[id] {
				return true
			}
		case agentbus.TurnDone, agentbus.TurnPending, agentbus.TurnWaiting:
		}
	}
	return false
}

// linger waits for a turn that was cancelled to be cancelled again.
func (h *rehearsal) linger(ctx context.Context, id agentbus.TurnID) error {
	h.mu.Lock()
	h.heard[id] = true
	h.move()
	h.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.diverge(h.ids[id], "state", string(agentbus.TurnCancelled), "not cancel it")
	}
	return context.Cause(ctx)
}

// stuck ends a drive in which no pending turn has a result.
func (h *rehearsal) stuck(id agentbus.TurnID) {
	cause, ended := h.outside()
	if len(h.due) == 0 && ended {
		h.cancel(cause)
		return
	}
	was := "the end of the events"
	switch {
	case h.next < h.end:
		was = describe(&h.record.Events[h.next])
		if h.halt != nil && h.next == h.end-1 {
			was = h.halt.String()
		}
	case h.halt != nil:
		was = h.halt.String()
	}
	h.diverge(h.begun[id].Index, "turn", was, string(id))
}

// told returns what an event tells of a turn's calls.
func (h *rehearsal) told(at int) facts {
	var o outcome
	_ = json.Unmarshal(h.record.Events[at].Data, &o) // data that cannot be read is not what the driver will write
	if o.Bus.Code == "" {
		o.Bus.Code, o.Bus.Message = agentbus.Code(o.Error.Code), o.Error.Message
	}
	return o.Bus
}

// said is what a backend said that had this result: as many void attempts as
// were recorded, at what they cost together, then the reply or the error.
func (h *rehearsal) said(id agentbus.TurnID) (chunks []agentbus.Chunk, state agentbus.TurnState, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, t, intent := h.due[id], h.turns[h.ids[id]], h.begun[id]
	o := facts{Attempts: t.Attempts, Cost: t.Cost}
	if at != loose {
		o = h.told(at)
	}
	state = h.state(id)
	lost := o.Cost - intent.Cost
	if state == agentbus.TurnDone {
		lost -= max(0, t.Reply.Usage.Cost)
	}
	if lost > 0 {
		chunks = append(chunks, agentbus.Chunk{Usage: &agentbus.Usage{Cost: lost}})
	}
	for range min(o.Attempts-intent.Attempts, maxVoids) {
		chunks = append(chunks, agentbus.Chunk{Void: true})
	}
	switch state {
	case agentbus.TurnFailed, agentbus.TurnWaiting:
		return chunks, state, h.failure(at, t, &o)
	case agentbus.TurnDone:
		for i := range t.Reply.ToolCalls {
			chunks = append(chunks, agentbus.Chunk{ToolCall: &t.Reply.ToolCalls[i]})
		}
		r := &t.Reply
		chunks = append(chunks, agentbus.Chunk{Text: r.Text, Reasoning: r.Reasoning, Usage: &r.Usage, Model: r.Model, Finish: r.Finish, Replayed: r.Replayed, Receipts: r.Receipts})
	case agentbus.TurnCancelled:
		chunks = append(chunks, agentbus.Chunk{}) // when this is taken, the driver has heard the others
	case agentbus.TurnPending:
	}
	return chunks, state, nil
}

// failure is why a turn failed: as its turn has it, else as the halt has it that
// it led to, in this drive or a later one, else as its event tells.
func (h *rehearsal) failure(at int, t *agentbus.Turn, o *facts) error {
	if t.Error != nil && (at == loose || h.last[t.ID] == at && !h.isLoose(t)) {
		return t.Error
	}
	for i := at + 1; i < len(h.record.Events); i++ {
		e := &h.record.Events[i]
		if isResult(e) && e.Turn == t.ID {
			break // it was another failure then
		}
		if halt := haltOf(e); halt != nil && halt.Error != nil &&
			halt.Error.Code == o.Code && halt.Error.Message == o.Message {
			return halt.Error
		}
	}
	return &agentbus.Error{Code: o.Code, Message: o.Message, Ask: o.Ask}
}

// budget returns the budgets of a drive. What could be spent is no part of a
// record, but where there was no more is: it is refused there again. The driver
// computes what was spent itself, unless others had spent of it too, or held what
// a call could cost.
func (h *rehearsal) budget() (own *agentbus.Micros, shared *Budget) {
	h.above = nil
	if h.halt == nil || h.halt.Kind != agentbus.HaltBudget || h.halt.LimitTokens > 0 {
		return nil, nil
	}
	var spent agentbus.Micros
	for _, cost := range h.costs() {
		spent = sum(spent, cost)
	}
	limit := h.halt.Limit
	if spent == h.halt.Spent && spent >= limit {
		return &limit, nil
	}
	shared = NewBudget(limit)
	h.above, h.others = shared, h.halt.Spent-spent
	h.spend()
	return nil, shared
}

// costs are what the turns had cost at the end of the drive, by their results.
func (h *rehearsal) costs() map[agentbus.TurnID]agentbus.Micros {
	costs := map[agentbus.TurnID]agentbus.Micros{}
	for i := range h.record.Events[:h.end] {
		if e := &h.record.Events[i]; isResult(e) {
			costs[e.Turn] = h.told(i).Cost
		}
	}
	return costs
}

// spend spends what others had spent of a budget, with the last result of a
// drive that it ended.
func (h *rehearsal) spend() {
	if h.above == nil || h.asked < h.results {
		return
	}
	a := &h.above.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent, a.held = sum(a.spent, h.others), a.held+max(0, h.halt.Limit-h.halt.Spent)
	h.above = nil
}
