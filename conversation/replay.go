package conversation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentbus/agentbus"
)

// A Record is what a store holds of one execution.
type Record struct {
	Execution agentbus.Execution
	Turns     []agentbus.Turn  // all, by index
	Events    []agentbus.Event // all, by position
	// Above is the parent of the turn that the execution serves, of which the
	// paths of its own turns are made (P8) and which an execution does not hold.
	// nil is unknown: then paths are not compared.
	Above *agentbus.TurnID
}

// A Replayed is what became of a replay.
type Replayed struct {
	// Turns and Events are those that the driver made again, up to the
	// divergence. What only a clock or a process can tell is as recorded: when
	// each began, ended or was written, and under which epoch.
	Turns  []agentbus.Turn
	Events []agentbus.Event
	// Divergence is the first difference; nil when there is none.
	Divergence *Divergence
}

// A Divergence is where a replay first differs from its record.
type Divergence struct {
	Execution agentbus.ExecutionID `json:"execution"`
	Turn      int                  `json:"turn"`     // index of the turn; -1: it is about none
	Position  agentbus.Position    `json:"position"` // of the event; -1: it is about none
	What      string               `json:"what"`     // what differs, such as "speaker" or "messages"
	Recorded  string               `json:"recorded"`
	Replayed  string               `json:"replayed"` // what the driver did
}

// String tells the divergence in one line.
func (d *Divergence) String() string {
	where := "execution " + string(d.Execution)
	switch {
	case d.Turn >= 0:
		where = fmt.Sprintf("turn %d of %s", d.Turn, where)
	case d.Position >= 0:
		where = fmt.Sprintf("event %d of %s", d.Position, where)
	}
	return fmt.Sprintf("%s: %s: recorded is %s, the driver did %s", where, d.What, d.Recorded, d.Replayed)
}

// Replay drives c once more as r tells that it was driven, over a journal in
// memory and with backends that answer from the record, so that nothing is
// called (R23). Every drive of the record is replayed: one that crashed is cut
// where its events end, one that was ended from outside, by an abort, a deadline
// or a budget, is ended where it was. The backends of c are not used, and may be
// nil.
//
// Compared are all facts of turns and events, events byte for byte. An execution
// that is being driven meanwhile is replayed as far as r goes.
//
// It fails with CodeInvalidRequest for a faulty definition, with CodeRunConflict
// when the execution was begun with another one (R15), and with the cause of
// ctx. That the driver did otherwise is no error: see Replayed.Divergence.
func Replay(ctx context.Context, c Conversation, r Record) (Replayed, error) {
	h := newRehearsal(&r)
	parts := make([]Participant, len(c.Participants))
	for i, p := range c.Participants {
		p.Backend = agentbus.BackendFunc(h.answer)
		parts[i] = p
	}
	c.Participants = parts
	if err := h.check(&c); err != nil {
		return Replayed{}, err
	}
	end := 0
	for _, n := range drives(r.Events) {
		end += n
		if err := h.drive(ctx, c, end); err != nil {
			return h.replayed(), err
		}
	}
	h.compareTurns()
	h.compareHalt()
	return h.replayed(), nil
}

// check refuses another definition than the one that was recorded (R15).
func (h *rehearsal) check(c *Conversation) error {
	if err := c.Validate(); err != nil {
		return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "conversation: " + err.Error()}
	}
	err := differences(&h.record.Execution, &agentbus.Execution{Conversation: c.Name, Definition: c.digest()})
	if err == nil {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: agentbus.AsError(err).Message,
		Explain: &agentbus.Explain{Rule: "R15", Next: "replay it with the definition it was begun with"},
	}
}

// drives tells how many events each driver of an execution wrote, in order. One
// that wrote none wrote nothing else either.
func drives(events []agentbus.Event) (lengths []int) {
	halted := true
	for i := range events {
		t := events[i].Type
		if halted || t == agentbus.EventRunStarted || t == agentbus.EventRunResumed {
			lengths = append(lengths, 0)
		}
		lengths[len(lengths)-1]++
		halted = isEnd(t)
	}
	return lengths
}

// drive replays one driver, whose events end at an index.
func (h *rehearsal) drive(ctx context.Context, c Conversation, end int) error {
	if h.diverged != nil {
		return nil
	}
	within, cancel := context.WithCancelCause(context.WithValue(ctx, enclosingKey{}, (*enclosing)(nil)))
	defer cancel(nil)
	h.enter(end, cancel)
	o := h.options()
	c.Budget, o.Budget = h.budget()
	_, err := Run(within, c, o)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.diverged == nil { // a next driver's first event would have let these go
		h.release()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case h.diverged == nil && h.next < h.end:
		e := &h.record.Events[h.next]
		did := "nothing more"
		if err != nil {
			did = err.Error()
		}
		h.divergeAt(h.next, e.Turn, "event", describe(e), did)
	}
	return nil
}

// options are those of a driver that is replayed. The depth limit was passed
// when the execution began.
func (h *rehearsal) options() Options {
	e := &h.record.Execution
	o := Options{Seed: e.Seed, Payer: e.Payer, Journal: h, Runs: h, Owner: "replay", Spec: e.Spec, MaxDepth: e.Depth + 1, leaves: h.leaves, retold: h.retold(), Halt: h.given(), refused: h.refused, Events: h.before, StopReason: h.why, MaxHops: agentbus.MaxChainHops}
	if string(e.ID) == string(e.Run) && e.Parent == "" {
		o.Run = e.Run
		return o
	}
	o.Lineage = agentbus.Lineage{Run: e.Run, Turn: e.Parent, Path: e.Path, Depth: e.Depth}
	if h.record.Above != nil {
		o.Lineage.Parent = *h.record.Above
	}
	return o
}

// A retold is what a record tells first: it may go on from another run, and what
// is secret in a seed is not told.
type retold struct {
	conversation, seed string
	started            agentbus.RunStarted
}

func (h *rehearsal) retold() *retold {
	var r retold
	for i := range h.record.Events {
		if e := &h.record.Events[i]; e.Type == agentbus.EventRunStarted {
			_ = json.Unmarshal(e.Data, &r.started) // what cannot be read is not what the driver will write
		}
		var opened struct {
			ConversationID string `json:"conversationId"`
			InitialTurn    struct {
				Content string `json:"content"`
			} `json:"initialTurn"`
		}
		if e := &h.record.Events[i]; e.Type == agentbus.EventConversationOpened && json.Unmarshal(e.Data, &opened) == nil {
			r.conversation, r.seed = opened.ConversationID, opened.InitialTurn.Content
			return &r
		}
	}
	return nil
}
