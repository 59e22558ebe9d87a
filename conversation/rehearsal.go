package conversation

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A rehearsal is the journal and the backends of a replay (R23): it answers from
// a record and compares what the driver writes with it. Turns are told apart by
// their ids, and several may be pending at once: they are answered in the order
// in which the record has their results.
type rehearsal struct {
	*memory // what has been made again

	record  *Record
	turns   map[int]*agentbus.Turn            // recorded, by index
	last    map[agentbus.TurnID]int           // index of a turn's last event
	ids     map[agentbus.TurnID]int           // index of the turn
	cancel  context.CancelCauseFunc           // ends the drive from outside
	halt    *agentbus.Halt                    // that the drive was recorded with; nil: it was cut off
	above   *Budget                           // what others had spent of, nil: nobody
	others  agentbus.Micros                   // what they had spent, at the end
	mu      sync.Mutex                        // guards all below; taken before that of memory
	next    int                               // index of the event that comes next
	end     int                               // index behind the last event of the drive
	events  []agentbus.Event                  // made again
	begun   map[agentbus.TurnID]agentbus.Turn // pending in this drive, as they were intended
	due     map[agentbus.TurnID]int           // turns with a result in this drive: where its event stands, or loose
	asked   int                               // how many of the results were given
	results int                               // how many there are in this drive
	held    []agentbus.Event                  // made again, and held back
	heard   map[agentbus.TurnID]bool          // cancelled turns that have said all they did
	moved   chan struct{}                     // closed when something changes that they wait for

	diverged *Divergence
}

// errCut ends a driver as losing its lease does: at once, writing nothing.
var errCut = &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "the recorded driver wrote nothing more"}

func newRehearsal(r *Record) *rehearsal {
	h := &rehearsal{
		memory: newMemory(), record: r, turns: make(map[int]*agentbus.Turn, len(r.Turns)), last: map[agentbus.TurnID]int{},
		ids: make(map[agentbus.TurnID]int, len(r.Turns)), moved: make(chan struct{}), cancel: func(error) {},
	}
	for i := range r.Turns {
		h.turns[r.Turns[i].Index], h.ids[r.Turns[i].ID] = &r.Turns[i], r.Turns[i].Index
	}
	for i := range r.Events {
		if isResult(&r.Events[i]) {
			h.last[r.Events[i].Turn] = i
		}
	}
	e := r.Execution
	e.State, e.Halt, e.Lease, e.Ended = "", nil, agentbus.Lease{}, time.Time{}
	h.runs[e.ID] = &memoryRun{execution: e}
	return h
}

// loose is where a result stands whose event is held back (R20), and was when
// the record was read.
const loose = -1

// states are what the events of results tell of their turns.
var states = map[string]agentbus.TurnState{
	agentbus.EventNodeCompleted: agentbus.TurnDone, agentbus.EventNodeFailed: agentbus.TurnFailed, agentbus.EventNodeCancelled: agentbus.TurnCancelled,
	agentbus.EventNodeSuspended: agentbus.TurnWaiting,
}

// isResult reports whether e ends a turn. A node is cancelled also when the run
// halts in the middle of a turn, which then stays pending.
func isResult(e *agentbus.Event) bool {
	return e.Turn != "" && states[e.Type] != "" && (e.Type != agentbus.EventNodeCancelled || bytes.Contains(e.Data, []byte(`"agentbus":`)))
}

// enter begins a drive.
func (h *rehearsal) enter(end int, cancel context.CancelCauseFunc) {
	h.end, h.cancel, h.halt = end, cancel, nil
	h.begun, h.asked, h.held = map[agentbus.TurnID]agentbus.Turn{}, 0, nil
	h.due, h.heard = map[agentbus.TurnID]int{}, map[agentbus.TurnID]bool{}
	for i := h.next; i < end; i++ {
		if isResult(&h.record.Events[i]) {
			h.due[h.record.Events[i].Turn] = i
		}
	}
	if end == len(h.record.Events) {
		h.loosen()
	}
	h.results = len(h.due)
	if end > h.next {
		h.halt = haltOf(&h.record.Events[end-1])
	}
}

// loosen adds the results that turns have and events do not: those of the last
// drive, which are held back.
func (h *rehearsal) loosen() {
	for _, t := range h.turns {
		if _, here := h.due[t.ID]; !here && h.isLoose(t) {
			h.due[t.ID] = loose
		}
	}
}

// isLoose reports whether the last result of a turn has no event.
func (h *rehearsal) isLoose(t *agentbus.Turn) bool {
	at, known := h.last[t.ID]
	if t.State == agentbus.TurnPending || !known {
		return t.State != agentbus.TurnPending
	}
	return states[h.record.Events[at].Type] != t.State || t.State != agentbus.TurnDone && h.told(at).Attempts != t.Attempts
}

// outside returns why the drive was ended other than by its own decision.
func (h *rehearsal) outside() (error, bool) {
	switch {
	case h.halt == nil:
		return errCut, true
	case h.given() != nil, h.halt.Reason == planFailed:
		return nil, false
	case h.halt.Kind == agentbus.HaltAbort && h.halt.Error != nil: // somebody stopped the run
		return h.halt.Error, true
	case h.halt.Kind == agentbus.HaltAbort:
		return context.Canceled, true
	case h.halt.Kind == agentbus.HaltDeadline:
		return errDeadline, true
	}
	return nil, false
}

// given returns the halt that the driver was given, rather than came to; see
// Options. It has a reason, which those that end a driver from outside have not.
func (h *rehearsal) given() *agentbus.Halt {
	if h.halt == nil {
		return nil
	}
	halt := *h.halt
	switch {
	case halt.Kind == agentbus.HaltWaitingAuth, halt.Kind == agentbus.HaltDeadline && halt.Reason != "":
		return &halt
	case halt.Kind == agentbus.HaltAbort && halt.Reason != "" && halt.Reason != planFailed && halt.Error == nil:
		return &halt
	}
	return nil
}

// why tells what whoever stopped the run said, as the end of the drive has it; see Options.
func (h *rehearsal) why(context.Context, agentbus.RunID) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.halt == nil || h.halt.Error == nil || h.halt.Error.Explain == nil || h.halt.Error.Explain.Rule != ruleCancel {
		return "", nil
	}
	reason, _ := h.halt.Error.Explain.Observed.(string)
	return reason, nil
}

// Open finds the execution that is replayed; see Runs.
func (h *rehearsal) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if want := h.record.Execution.ID; e.ID != want {
		h.diverge(-1, "execution", string(want), string(e.ID))
		return e, errCut
	}
	return h.memory.Open(ctx, e, claim)
}

// opened reports whether an intent was written in this drive.
func (h *rehearsal) opened() bool {
	return len(h.due) > 0 || slices.ContainsFunc(h.record.Events[h.next:h.end], func(e agentbus.Event) bool { return opens(&e) })
}

// opens reports whether e stands with an intent.
func opens(e *agentbus.Event) bool {
	return e.Turn != "" && (e.Type == agentbus.EventNodeStarted || e.Type == agentbus.EventNodeResumed)
}

// Turns yields what was made again so far; see Journal. A drive that wrote no
// intent was ended here: while it read its turns, if it did not tell that it
// goes on, or behind that.
func (h *rehearsal) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cause, ended := h.outside(); ended && h.halt != nil && h.next < h.end && !h.opened() {
		h.cancel(cause)
		if first := h.record.Events[h.next].Type; first != agentbus.EventRunStarted && first != agentbus.EventRunResumed {
			return func(yield func(agentbus.Turn, error) bool) { yield(agentbus.Turn{}, cause) }
		}
	}
	return h.memory.Turns(ctx, id)
}

// Begin compares intents, and the events that open the drive; see Journal.
func (h *rehearsal) Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cause, ended := h.outside(); ended && len(h.due) == 0 {
		h.cancel(cause) // it was ended here: after it wrote the intents, or before
		if !h.reached(turns, events) {
			return nil, cause
		}
	}
	for i := range turns {
		if !h.intended(&turns[i]) {
			return nil, errCut
		}
	}
	if !h.written(events) {
		return nil, errCut
	}
	if h.unasked(turns) {
		h.asked += len(turns)
		h.spend()
	}
	return h.memory.Begin(ctx, turns)
}

// unasked reports whether turns are only begun to be cancelled: their join was
// met before.
func (h *rehearsal) unasked(turns []agentbus.Turn) bool {
	for i := range turns {
		if h.state(turns[i].ID) != agentbus.TurnCancelled {
			return false
		}
	}
	return true
}

// reached reports whether a drive that gave turns no result began them, with
// events: they tell.
func (h *rehearsal) reached(turns []agentbus.Turn, events []agentbus.Event) bool {
	opening := slices.IndexFunc(events, func(e agentbus.Event) bool { return opens(&e) })
	switch {
	case opening < 0 && len(events) > 0:
		return h.next < h.end
	case opening < 0:
		return h.withdrew(turns[0].ID)
	}
	return slices.ContainsFunc(h.record.Events[h.next:h.end], func(e agentbus.Event) bool {
		return opens(&e) && e.Turn == turns[0].ID
	})
}

// withdrew reports whether a drive that ended there began a turn that waited, to
// cancel it, which no event tells: whoever finds it waiting still goes on from what
// was decided, and whoever does not starts it again.
func (h *rehearsal) withdrew(id agentbus.TurnID) bool {
	for _, e := range h.record.Events[h.end:] {
		if e.Turn == id && opens(&e) {
			return e.Type == agentbus.EventNodeStarted
		}
	}
	return h.turns[h.ids[id]].State != agentbus.TurnWaiting
}

// intended compares the intent of a turn with the record.
func (h *rehearsal) intended(t *agentbus.Turn) bool {
	want := h.turns[t.Index]
	if want == nil {
		return h.diverge(t.Index, "turn", "none", string(t.ID))
	}
	if field, was, is := intents(want, t, h.record.Above != nil || h.record.Execution.Parent == ""); field != "" {
		return h.diverge(t.Index, field, was, is)
	}
	h.begun[t.ID] = *t
	h.move()
	return true
}

// Finish compares a result and an intent; see Journal.
func (h *rehearsal) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, due := h.due[done.ID]
	cause, ended := h.outside()
	switch {
	case !due && ended: // the drive ended before this
		h.cancel(cause)
		return cause
	case !due || h.diverged != nil:
		return errCut
	}
	if !h.ended(&done, at) {
		return errCut
	}
	if !h.written(events) || next != nil && !h.intended(next) {
		return errCut
	}
	h.move()
	if err := h.memory.Finish(ctx, done, next); err != nil || !ended || len(h.due) > 0 {
		return err
	}
	if next == nil && len(h.begun) > 0 { // the turns beside it were left pending
		h.cancel(cause)
	}
	return nil
}

// ended compares the result of a turn whose event stands at an index.
func (h *rehearsal) ended(done *agentbus.Turn, at int) bool {
	again := func(t *agentbus.Turn) bool { // a driver that wrote no event began it again
		return t.State == agentbus.TurnPending && done.State != agentbus.TurnDone
	}
	if want := h.turns[done.Index]; want != nil && (at == loose || at == h.last[done.ID] && !h.isLoose(want)) && !again(want) {
		if field, was, is := results(want, done); field != "" {
			return h.diverge(done.Index, field, was, is)
		}
	}
	delete(h.begun, done.ID)
	delete(h.due, done.ID)
	return true
}

// leaves reports whether a turn has no result in this drive, since it was ended
// from outside first.
func (h *rehearsal) leaves(id agentbus.TurnID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, due := h.due[id]
	_, ended := h.outside()
	return !due && ended
}

// Halt compares the end of a drive; see Runs.
func (h *rehearsal) Halt(ctx context.Context, l agentbus.Lease, halt agentbus.Halt, events ...agentbus.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.halt == nil || h.diverged != nil {
		return errCut
	}
	if halt.Wait != nil {
		for i := range halt.Wait.Asked {
			t := &halt.Wait.Asked[i]
			if at, due := h.due[t.ID]; !due || !h.ended(t, at) {
				return errCut
			}
		}
	}
	if !h.written(events) {
		return errCut
	}
	return h.memory.Halt(ctx, l, halt)
}

// move wakes the backends that wait.
func (h *rehearsal) move() {
	close(h.moved)
	h.moved = make(chan struct{})
}

// diverge keeps the first difference, and ends the drive. It returns false.
func (h *rehearsal) diverge(turn int, what, recorded, replayed string) bool {
	if h.diverged == nil {
		h.diverged = &Divergence{Execution: h.record.Execution.ID, Turn: turn, Position: -1, What: what, Recorded: recorded, Replayed: replayed}
	}
	h.cancel(errCut)
	return false
}

// divergeAt is diverge at an event.
func (h *rehearsal) divergeAt(at int, id agentbus.TurnID, what, recorded, replayed string) bool {
	first, turn := h.diverged == nil, -1
	if i, known := h.ids[id]; known {
		turn = i
	}
	h.diverge(turn, what, recorded, replayed)
	if first {
		h.diverged.Position = agentbus.Position(at)
	}
	return false
}
