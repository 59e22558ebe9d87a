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
}

// The types of events that a driver writes into its journal.
const (
	EventStarted    = "agentbus.conversation.started"
	EventResumed    = "agentbus.conversation.resumed"
	EventTurnDone   = "agentbus.turn.done"
	EventTurnFailed = "agentbus.turn.failed"
	EventHalted     = "agentbus.conversation.halted"
)
