// Package eventlog gives the events of an execution to those who follow it
// (agent-events E9 to E15, E28). [Follow] is for programs in Go; a [Stream] writes
// server-sent events, a [Follower] answers long polls, and a [Redactor] takes
// secrets out before anything is stored. Events are read from the store alone, so a
// follower that is slow, or comes back, costs no more than what it reads.
package eventlog

import (
	"encoding/json"
	"time"

	"github.com/agentbus/agentbus"
)

// A Doc is an event as it is on the wire (E9): a RunEventDoc. Members that do not
// apply are left out, never null.
type Doc struct {
	EventID     agentbus.EventID     `json:"eventId"`
	RunID       agentbus.ExecutionID `json:"runId"`
	NodeID      string               `json:"nodeId,omitempty"`
	Type        string               `json:"type"`
	Payload     json.RawMessage      `json:"payload"`
	Timestamp   time.Time            `json:"timestamp"`
	Sequence    agentbus.Position    `json:"sequence"`
	CausationID agentbus.EventID     `json:"causationId,omitempty"`
	TurnID      agentbus.TurnID      `json:"turnId,omitempty"`
}

// Document returns e as it is on the wire.
func Document(e *agentbus.Event) Doc {
	d := Doc{
		EventID: e.ID, RunID: e.Execution, NodeID: e.Node, Type: e.Type, Payload: e.Data, Timestamp: e.At.UTC(),
		Sequence: e.Position, CausationID: e.Cause, TurnID: e.Turn,
	}
	if len(d.Payload) == 0 {
		d.Payload = json.RawMessage("{}")
	}
	return d
}

// Documents returns events as they are on the wire; never nil.
func Documents(events []agentbus.Event) []Doc {
	docs := make([]Doc, len(events))
	for i := range events {
		docs[i] = Document(&events[i])
	}
	return docs
}
