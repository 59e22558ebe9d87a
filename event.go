package agentbus

import (
	"encoding/json"
	"strconv"
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
	Node      string          `json:"node,omitempty"` // of the run's plan, where one acted: its nodeId on the event wire (E9)
	Cause     EventID         `json:"cause,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Hold keeps the event back, although it is stored with what it reports: 0
	// is not at all, otherwise it is given its position when the next event of
	// its execution is stored that is not held, before that one, behind those
	// held of a lower Hold. It makes the order of events that happen side by
	// side one that does not depend on who is faster (R20).
	Hold int `json:"-"`
	// CauseBack names the cause inside the same append, whose id nobody knows
	// yet: so many events before this one, among those of the same Hold. The store
	// makes it the Cause. 0: there is none, or Cause says it.
	CauseBack int `json:"-"`
}

// EventIDOf returns the id of the event of an execution at a position.
func EventIDOf(e ExecutionID, p Position) EventID {
	return EventID("evt_" + string(e) + "_" + strconv.FormatInt(int64(p), 10))
}
