package agentbus

import (
	"encoding/json"
	"time"
)

type (
	// Position is an event's place in its execution's sequence: dense, from 0.
	Position int64
	// EventID names one event among all.
	EventID string
)

// An Event is a fact with a position. It is appended in the transaction of what
// it reports, and never changes.
type Event struct {
	Position  Position        `json:"position"` // set by the store
	ID        EventID         `json:"id"`       // set by the store
	At        time.Time       `json:"at"`
	Type      string          `json:"type"`
	Execution ExecutionID     `json:"execution"`
	Run       RunID           `json:"run"`
	Turn      TurnID          `json:"turn,omitempty"`
	Cause     EventID         `json:"cause,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Hold keeps the event back, although it is stored with what it reports: 0
	// is not at all, otherwise it is given its position when the next event of
	// its execution is stored that is not held, before that one, behind those
	// held of a lower Hold. It makes the order of events that happen side by
	// side one that does not depend on who is faster (R20).
	Hold int `json:"-"`
}

// The types of events that a driver writes into its journal.
const (
	EventStarted       = "agentbus.conversation.started"
	EventResumed       = "agentbus.conversation.resumed"
	EventTurnDone      = "agentbus.turn.done"
	EventTurnFailed    = "agentbus.turn.failed"
	EventTurnCancelled = "agentbus.turn.cancelled" // the join of its fan-out did not need it
	EventJoined        = "agentbus.fanout.joined"  // all branches of a fan-out are final; their events come before
	EventHalted        = "agentbus.conversation.halted"
	// EventMentionRefused tells that the turn before it mentioned somebody and may
	// call nobody: its hop is the last, or its depth (C8).
	EventMentionRefused = "agentbus.mention.refused"

	// The result of a turn whose backend asked for something (R22), and, before
	// the next result of that turn, what was decided.
	EventInterruptRequested = "agentbus.interrupt.requested"
	EventInterruptResolved  = "agentbus.interrupt.resolved"
)
