package conversation

import (
	"context"
	"iter"

	"github.com/agentbus/agentbus"
)

// The types of events that Stream yields. What is stored of a run is told in the
// words of the event wire: see docs/agent-events.md.
const (
	EventStarted = "agentbus.conversation.started"
	EventResumed = "agentbus.conversation.resumed"
	EventJoined  = agentbus.EventJoined // all branches of a fan-out are final
	EventHalted  = "agentbus.conversation.halted"

	EventTurnDone      = "agentbus.turn.done"
	EventTurnFailed    = "agentbus.turn.failed"
	EventTurnCancelled = "agentbus.turn.cancelled" // the join of its fan-out did not need it
	// EventInterruptRequested ends a turn whose backend asked for something (R22).
	EventInterruptRequested = "agentbus.interrupt.requested"

	EventTurnStarted = "agentbus.turn.started"
	EventDelta       = "agentbus.turn.delta"     // more of a turn's answer
	EventRetry       = "agentbus.turn.retried"   // the deltas of the turn so far are void
	EventToolCall    = "agentbus.turn.tool_call" // the participant asked for a tool
)

// An Event is something that happened in a run, as it happens.
type Event struct {
	Type      string
	Run       agentbus.RunID
	Execution agentbus.ExecutionID
	// Turn is the turn of a turn's event, nil of others. It must not be changed,
	// and is changed itself until it is done or has failed: copy it to keep it.
	Turn *agentbus.Turn
	// Branch tells that Turn is one of several that are spoken at once: events of
	// the others come in between.
	Branch bool
	// Chunk is the piece of an EventDelta or EventToolCall.
	Chunk agentbus.Chunk
	// Turns are those done before, of an EventResumed, and those of all branches,
	// in the order of the plan, of an EventJoined.
	Turns []agentbus.Turn
	// Result is that of an EventHalted, which is the last event.
	Result *Result
}

// A Result is what became of a run.
type Result struct {
	Run       agentbus.RunID
	Execution agentbus.ExecutionID
	// Turns are those that are done, by index; those of earlier drivers included.
	// Branches that failed or were cancelled before their join was met are among
	// them, with their State.
	Turns []agentbus.Turn
	// Reply is what the conversation answers as a [Backend]: what was said, each
	// turn as "[speaker] text" on a line of its own, or the synthesis of a FanOut.
	Reply string
	// Children are what became of each branch of the last step of several (C18);
	// nil: there was none.
	Children []agentbus.Child
	Halt     agentbus.Halt
	Spent    agentbus.Micros // by its turns, failed attempts included

	asked *agentbus.Error // the first that a waiting run waits for
}

// Run drives c until it halts. A halt is no error: Result.Halt says why, and
// whether the run is over or can be resumed under the same run id (R16).
//
// It fails with CodeInvalidRequest for a faulty definition, naming every fault;
// with CodeDepthExceeded, before any I/O, when the call it serves has reached
// the limit (R7); with CodeRunConflict when another driver has the run, or it
// was begun with another definition or seed (R15); with CodeLeaseLost when
// another driver has taken it over (R17); and with the error of its journal or
// plan. It can be run again then too.
//
// When ctx ends it halts with [agentbus.HaltAbort] at once (R9), also while a
// backend ignores its context: see the package's comment.
func Run(ctx context.Context, c Conversation, o Options) (Result, error) {
	var r Result
	for e, err := range Stream(ctx, c, o) {
		if err != nil {
			return r, err
		}
		r.Run, r.Execution = e.Run, e.Execution
		if e.Result != nil {
			r = *e.Result
		}
	}
	return r, nil
}

// Stream is Run as a sequence of events: EventStarted or EventResumed, for each
// turn EventTurnStarted, its deltas, EventTurnDone, EventTurnFailed or
// EventInterruptRequested, then EventHalted. The events of turns that are spoken at once come as they happen,
// each with its turn; the turns may also end with EventTurnCancelled, and
// EventJoined follows them. A turn's event comes after the journal has it. An error is the
// last thing yielded. A reader that stops reading aborts the run.
func Stream(ctx context.Context, c Conversation, o Options) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		d, err := newDriver(ctx, c, o)
		if err != nil {
			yield(Event{}, err)
			return
		}
		d.yield = yield
		if err := d.run(ctx); err != nil && !d.gone {
			yield(Event{}, err)
		}
	}
}
