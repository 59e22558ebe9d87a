// Package sse reads server-sent events as the WHATWG HTML standard writes them
// down: lines that end in LF, CR or CRLF, events that end in a blank line.
//
// It is our own because an answer is stored and replayed byte for byte: what a
// reader makes of a stream must not depend on how the bytes were cut on their
// way.
package sse

import (
	"bytes"
	"errors"
	"io"
)

// ErrCut says that the stream ended inside an event.
var ErrCut = errors.New("stream ended inside an event")

// ErrTooLarge says that a line or an event's data is longer than the reader's
// limit. The stream cannot be read on.
var ErrTooLarge = errors.New("server-sent event is too large")

// DefaultMax is the limit of a Reader that was given none, in bytes.
const DefaultMax = 1 << 20

// An Event is one server-sent event.
type Event struct {
	Type string // of its event field; "" when it has none, which means "message"
	ID   string // the last id field so far in the stream, this event's included
	Data []byte // its data fields, joined by newlines; valid until the next call of Next
}

// A Reader reads events. It is not safe for concurrent use.
type Reader struct {
	src  io.Reader
	max  int
	buf  []byte // buf[pos:] is read and not parsed yet
	pos  int
	scan int   // buf[pos:pos+scan] holds no line end
	err  error // of src, once it has failed or ended

	started bool // the first line was read: no byte order mark any more
	skipLF  bool // the last line ended in CR: a LF that follows belongs to it

	event  Event
	fields bool // the event has a field already
	data   bool // one of them is data
	done   bool
}

// NewReader returns a reader of src. A line, and the data of an event, may hold
// up to limit bytes; 0 means DefaultMax. It reads ahead: what it has read of src
// beyond an event is lost to other readers.
func NewReader(src io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultMax
	}
	return &Reader{src: src, max: limit}
}

// Next returns the next event that has data. At the end of the stream it
// returns io.EOF. When the stream ends inside an event, it returns what had
// come of it with ErrCut, and io.EOF from then on: whether the missing blank
// line matters is the caller's to decide. An error of the source
// is returned as it is, and ErrTooLarge for too long a line or event; both
// stay.
func (r *Reader) Next() (Event, error) {
	if r.done {
		return Event{}, io.EOF
	}
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			return r.end(line, err)
		}
		if len(line) > 0 {
			if err := r.field(line); err != nil {
				r.err, r.pos = err, len(r.buf)
				return Event{}, err
			}
			continue
		}
		if r.data {
			return r.event, nil
		}
		r.reset()
	}
}

// reset forgets the event under construction; the id stays.
func (r *Reader) reset() {
	r.event.Type, r.event.Data = "", r.event.Data[:0]
	r.fields, r.data = false, false
}

// end handles the end of the stream, with the unfinished line before it.
func (r *Reader) end(rest []byte, err error) (Event, error) {
	if !errors.Is(err, io.EOF) {
		return Event{}, err
	}
	r.done = true
	if len(rest) > 0 {
		if err := r.field(rest); err != nil {
			return Event{}, err
		}
	}
	if !r.fields {
		return Event{}, io.EOF
	}
	return r.event, ErrCut
}

// field adds a line that is not blank to the event.
func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(name) == 0 {
		return nil // a comment
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	r.fields = true
	switch string(name) {
	case "data":
		if r.data {
			r.event.Data = append(r.event.Data, '\n')
		}
		if len(r.event.Data)+len(value) > r.max {
			return ErrTooLarge
		}
		r.event.Data = append(r.event.Data, value...)
		r.data = true
	case "event":
		r.event.Type = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.event.ID = string(value)
		}
	}
	return nil
}

// line returns the next line without its end; with an error, what is left of
// the stream.
func (r *Reader) line() ([]byte, error) {
	for {
		if r.skipLF && r.pos < len(r.buf) {
			r.skipLF = false
			if r.buf[r.pos] == '\n' {
				r.pos++
			}
		}
		rest := r.buf[r.pos:]
		i := lineEnd(rest[r.scan:])
		if i >= 0 {
			i += r.scan
		}
		if i > r.maxLine() || i < 0 && len(rest) > r.maxLine() {
			r.err, r.pos, r.scan = ErrTooLarge, len(r.buf), 0
			return nil, ErrTooLarge
		}
		if i >= 0 {
			r.scan = 0
			r.skipLF = rest[i] == '\r'
			r.pos += i + 1
			return r.first(rest[:i]), nil
		}
		r.scan = len(rest)
		if r.err != nil {
			r.pos, r.scan = len(r.buf), 0
			return r.first(rest), r.err
		}
		r.fill()
	}
}

// maxLine is the longest line that is read: one with an event's whole data.
func (r *Reader) maxLine() int { return r.max + len(byteOrderMark+"data: ") }

// lineEnd returns the index of the first CR or LF in b, or -1.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

const byteOrderMark = "\xef\xbb\xbf"

// first strips the byte order mark off the first line of the stream.
func (r *Reader) first(line []byte) []byte {
	if r.started {
		return line
	}
	r.started = true
	return bytes.TrimPrefix(line, []byte(byteOrderMark))
}

// fill reads more of the source into the buffer.
func (r *Reader) fill() {
	if r.pos > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[r.pos:])]
		r.pos = 0
	}
	if len(r.buf) == cap(r.buf) {
		grown := make([]byte, len(r.buf), max(4096, 2*cap(r.buf)))
		copy(grown, r.buf)
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf, r.err = r.buf[:len(r.buf)+n], err
}
