package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/agentbus/agentbus"
)

// A batch is events as they were appended together: a JSON array, and how many.
type batch struct {
	json []byte
	n    int
}

// A batch is cut where it would become more than a page of reading.
const (
	batchEvents = 512
	batchBytes  = 256 << 10
)

// A storedEvent is an event within its batch. What the place of the batch says
// is not repeated.
type storedEvent struct {
	Type  string           `json:"t"`
	At    int64            `json:"a,omitempty"` // microseconds since 1970
	Run   agentbus.RunID   `json:"r,omitempty"`
	Turn  agentbus.TurnID  `json:"u,omitempty"`
	Node  string           `json:"n,omitempty"`
	Cause agentbus.EventID `json:"c,omitempty"`
	Back  int              `json:"b,omitempty"` // the cause is so many events before
	Data  *json.RawMessage `json:"d,omitempty"`
}

// errNoJSON refuses an event that could not be read back.
var errNoJSON = errors.New("the data of an event is no JSON")

// add puts e at the end of b. Its data stays as it is, byte by byte (E51).
func (b *batch) add(e *agentbus.Event) error {
	if len(e.Data) > 0 && !json.Valid(e.Data) {
		return errNoJSON
	}
	s := storedEvent{Type: e.Type, Run: e.Run, Turn: e.Turn, Node: e.Node, Cause: e.Cause, Back: e.CauseBack}
	if !e.At.IsZero() {
		s.At = e.At.UnixMicro()
	}
	head, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if b.n++; b.json == nil {
		b.json = append(b.json, '[')
	} else {
		b.json = append(b.json, ',')
	}
	b.json = append(b.json, head[:len(head)-1]...)
	if len(e.Data) > 0 {
		b.json = append(append(b.json, `,"d":`...), e.Data...)
	}
	b.json = append(b.json, '}')
	return nil
}

// join puts the events of a stored list at the end of b.
func (b *batch) join(list []byte, n int) {
	list = bytes.TrimSuffix(bytes.TrimPrefix(list, []byte("[")), []byte("]"))
	if b.json == nil {
		b.json = append(b.json, '[')
	} else {
		b.json = append(b.json, ',')
	}
	b.json, b.n = append(b.json, list...), b.n+n
}

// full reports whether what comes next stands in a batch of its own.
func (b *batch) full() bool { return b.n >= batchEvents || len(b.json) >= batchBytes }

// stored returns b as it stands in its row.
func (b *batch) stored() (events []byte, packed int64) {
	body, isPacked := pack(append(b.json, ']'), packBytes)
	return body, flag(isPacked)
}

// unpackEvents reads packed and events of a row.
func unpackEvents(r *row) []byte {
	packed, body := r.bool(), r.blob()
	if !packed {
		return body
	}
	plain, err := s2.Decode(nil, body)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("unpack stored events: %w", err)
	}
	return plain
}

// readEvents reads a row of events: the place of the first, packed, events.
func readEvents(r *row, id agentbus.ExecutionID) []agentbus.Event {
	first := agentbus.Position(r.int64())
	var list []storedEvent
	if err := json.Unmarshal(unpackEvents(r), &list); err != nil {
		if r.err == nil {
			r.err = fmt.Errorf("read stored events: %w", err)
		}
		return nil
	}
	out := make([]agentbus.Event, len(list))
	for i := range list {
		s, e := &list[i], &out[i]
		e.Position, e.Execution = first+agentbus.Position(i), id
		e.ID = agentbus.EventIDOf(id, e.Position)
		e.Type, e.Run, e.Turn, e.Node, e.Cause = s.Type, s.Run, s.Turn, s.Node, s.Cause
		if s.Back > 0 {
			e.Cause = agentbus.EventIDOf(id, e.Position-agentbus.Position(s.Back))
		}
		if s.At != 0 {
			e.At = time.UnixMicro(s.At).UTC()
		}
		if s.Data != nil {
			e.Data = *s.Data
		}
	}
	return out
}
