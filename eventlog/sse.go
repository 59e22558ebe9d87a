package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// ParseID reads the id of the last event that a follower has, as it stands in
// Last-Event-ID; "" is none, which is -1. Anything but a number of up to 18
// digits is CodeInvalidRequest (E13).
func ParseID(s string) (agentbus.Position, error) {
	if s == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || len(s) > 18 || strings.TrimLeft(s, "0123456789") != "" {
		return -1, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "the id of the last event is not a sequence number",
			Explain: &agentbus.Explain{Rule: "E13", Next: "send the id of the last event that you have, as it came"},
		}
	}
	return agentbus.Position(n), nil
}

// A Fold makes the state of a run of its events, for the mode values.
type Fold interface {
	Add(agentbus.Event)
	Snapshot() ([]byte, error) // one line of JSON
}

// A Stream answers a request with the events of a run as server-sent events
// (E13).
type Stream struct {
	Follow Config
	Modes  Modes
	// Buffer collects events for so long and sends them as one; 0 sends each.
	Buffer time.Duration
	// KeepAlive is how long nothing is sent at most; 0: DefaultKeepAlive.
	KeepAlive time.Duration
	// Stall is how long one write may take: a reader that is slower is cut, and
	// comes back for the rest with the last id it has; 0: DefaultStall.
	Stall time.Duration
	// State is the run before the first event, for the mode values. It is given
	// all events from the first on.
	State Fold
}

// The defaults of a Stream.
const (
	DefaultKeepAlive = 15 * time.Second
	DefaultStall     = 20 * time.Second
)

// errCut says that the reader was too slow.
var errCut = errors.New("the reader of the events was too slow")

// Serve writes the events until the run has ended, the reader has left, or ctx
// ends. What fails before the first byte is returned with nothing written.
func (s *Stream) Serve(ctx context.Context, w http.ResponseWriter) error {
	if s.KeepAlive <= 0 {
		s.KeepAlive = DefaultKeepAlive
	}
	if s.Stall <= 0 {
		s.Stall = DefaultStall
	}
	f := NewFollower(s.Follow)
	out := &sseWriter{rc: http.NewResponseController(w), w: w, stall: s.Stall}
	if s.Modes.Values() {
		if err := s.catchUp(ctx, f.After()); err != nil {
			return err
		}
	}
	page, err := f.Next(ctx, 0)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if s.Modes.Values() {
		s.snapshot(out, f.After()-agentbus.Position(len(page)))
	}
	for {
		s.send(out, page)
		if err := out.flush(); err != nil || f.Ended() {
			return err
		}
		page, err = s.next(ctx, f)
		if ctx.Err() != nil || err != nil {
			return err
		}
		if len(page) == 0 && !f.Ended() {
			out.line(":keepalive\n\n")
		}
	}
}

// next returns the next events, those that come within Buffer together.
func (s *Stream) next(ctx context.Context, f *Follower) ([]agentbus.Event, error) {
	page, err := f.Next(ctx, s.KeepAlive)
	if s.Buffer <= 0 || len(page) == 0 || f.Ended() {
		return page, err
	}
	until := time.Now().Add(s.Buffer)
	for !f.Ended() && len(page) < DefaultPage {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		more, err := f.Next(ctx, left)
		if err != nil {
			return page, err
		}
		page = append(page, more...)
	}
	return page, nil
}

// catchUp folds the events that the reader has.
func (s *Stream) catchUp(ctx context.Context, last agentbus.Position) error {
	if last < 0 {
		return nil
	}
	for e, err := range s.Follow.Source.Events(ctx, s.Follow.Execution, -1) {
		if err != nil {
			return err
		}
		if e.Position > last {
			break
		}
		s.State.Add(e)
	}
	return nil
}

// send writes events in the modes of the stream.
func (s *Stream) send(out *sseWriter, page []agentbus.Event) {
	var docs []Doc
	var last, unsent agentbus.Position // unsent: the first event that passes and was not written
	for i := range page {
		e := &page[i]
		passes := s.Modes.Passes(e.Type)
		if passes && len(docs) == 0 {
			unsent = e.Position
		}
		if s.Modes.Values() {
			s.State.Add(*e)
			at := e.Position
			if passes || len(docs) > 0 { // who is cut behind the snapshot comes back for the event
				at = unsent - 1
			}
			s.snapshot(out, at)
		}
		if !passes {
			continue
		}
		doc := Document(e)
		if s.Buffer > 0 {
			docs, last = append(docs, doc), e.Position
			continue
		}
		out.event(e.Position, e.Type, doc)
	}
	if len(docs) > 0 {
		out.event(last, "batch", docs)
	}
}

func (s *Stream) snapshot(out *sseWriter, at agentbus.Position) {
	b, err := s.State.Snapshot()
	if err != nil {
		out.err = err
		return
	}
	out.raw(at, "state.snapshot", b)
}

// An sseWriter writes server-sent events. It remembers its first error.
type sseWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	buf   bytes.Buffer
	err   error
}

func (o *sseWriter) event(id agentbus.Position, kind string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		o.err = err
		return
	}
	o.raw(id, kind, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// raw writes an event whose data is one line of JSON. One without an id is
// before the first.
func (o *sseWriter) raw(id agentbus.Position, kind string, data []byte) {
	if o.err != nil {
		return
	}
	if id >= 0 {
		o.buf.WriteString("id: " + strconv.FormatInt(int64(id), 10) + "\n")
	}
	o.buf.WriteString("event: " + kind + "\ndata: ")
	o.buf.Write(data)
	o.buf.WriteString("\n\n")
	if o.buf.Len() >= maxPending {
		_ = o.flush()
	}
}

// maxPending is how many bytes wait for a flush at most.
const maxPending = 64 << 10

func (o *sseWriter) line(s string) { o.buf.WriteString(s) }

// flush sends what waits. A reader that does not take it in time is cut.
func (o *sseWriter) flush() error {
	if o.err != nil {
		return o.err
	}
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.stall)) // where there is no connection there is nothing to wait for
	_, err := o.w.Write(o.buf.Bytes())
	if err == nil {
		err = o.rc.Flush()
	}
	if o.buf.Reset(); errors.Is(err, os.ErrDeadlineExceeded) {
		err = errCut
	}
	o.err = err
	return err
}
