package http1

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"sync"
)

// The sizes of rooms for what comes.
const (
	roomSize = 4 << 10  // most requests whole: their head and what they ask
	longRoom = 16 << 10 // what comes faster than it is read
)

// rooms are shared: who has nothing to keep holds none.
var rooms, longRooms = roomsOf(roomSize), roomsOf(longRoom)

func roomsOf(size int) *sync.Pool {
	return &sync.Pool{New: func() any { return &buffer{make([]byte, size)} }}
}

// An input is what has come on a connection and was not used yet.
type input struct {
	late    *lateReader // nil: a room waits for more
	first   int         // size of the room; 0: roomSize
	room    *buffer     // nil: it holds none
	buf     []byte      // of room; nil: there is nothing
	at, end int         // buf[at:end] is it
	full    bool        // the last read left nothing of its room, so there is more
}

// rest returns what has come, and gives the room back when that is nothing.
func (in *input) rest() []byte {
	if in.at == in.end {
		in.release()
	}
	return in.buf[in.at:in.end]
}

func (in *input) release() {
	if in.room != nil {
		if shared := sharing(len(in.room.b)); shared != nil {
			shared.Put(in.room)
		}
	}
	in.room, in.buf, in.at, in.end = nil, nil, 0, 0
}

// sharing returns the rooms of a size; nil: they are not shared.
func sharing(size int) *sync.Pool {
	switch size {
	case roomSize:
		return rooms
	case longRoom:
		return longRooms
	}
	return nil
}

// take returns the next n bytes, which must have come. They stand until the next
// call of another method.
func (in *input) take(n int) []byte {
	b := in.buf[in.at : in.at+n]
	in.at += n
	return b
}

// put adds what was read elsewhere.
func (in *input) put(b []byte) {
	if len(b) > 0 {
		in.make()
		in.end += copy(in.buf[in.end:], b)
	}
}

// make makes room for at least a byte behind what has come.
func (in *input) make() {
	if in.rest(); in.buf == nil {
		size := cmp.Or(in.first, roomSize)
		if in.full {
			size = longRoom
		}
		in.room, _ = sharing(size).Get().(*buffer)
		in.buf = in.room.b
	}
	if in.end < len(in.buf) {
		return
	}
	if in.at > 0 {
		in.end = copy(in.buf, in.buf[in.at:in.end])
		in.at = 0
		return
	}
	grown := &buffer{make([]byte, 2*len(in.buf))}
	end := copy(grown.b, in.buf)
	in.release()
	in.room, in.buf, in.end = grown, grown.b, end
}

// fill reads more from c, at least a byte.
func (in *input) fill(c net.Conn) error {
	if in.late != nil && in.at == in.end {
		return in.late.fill()
	}
	in.make()
	n, err := c.Read(in.buf[in.end:])
	in.end += n
	in.full = in.end == len(in.buf)
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err //nolint:wrapcheck // it is the connection's
}

// read reads into p: what has come, or else from c.
func (in *input) read(c net.Conn, p []byte) (int, error) {
	if in.at < in.end {
		return copy(p, in.take(min(len(p), in.end-in.at))), nil
	}
	if in.full && len(p) < longRoom {
		if err := in.fill(c); err != nil {
			return 0, err
		}
		return copy(p, in.take(min(len(p), in.end-in.at))), nil
	}
	in.release()
	n, err := c.Read(p)
	in.full = n == len(p)
	return n, err //nolint:wrapcheck // it is the connection's
}

// line returns the next line of the framing of a body, without its end: CRLF, or
// where that is lenient a line feed alone.
func (in *input) line(c net.Conn, lenient bool) ([]byte, error) {
	for {
		rest := in.rest()
		i := bytes.IndexByte(rest, '\n')
		switch {
		case i >= maxChunkLine || i < 0 && len(rest) >= maxChunkLine:
			return nil, errors.New("a line within the body is over the limit")
		case i >= 0 && lenient:
			return bytes.TrimSuffix(in.take(i + 1)[:i], []byte("\r")), nil
		case i == 0 || i > 0 && bytes.IndexByte(rest[:i], '\r') != i-1:
			return nil, errors.New("a line within the body ends in a line feed or a carriage return alone")
		case i > 0:
			return in.take(i + 1)[:i-1], nil
		}
		if err := in.fill(c); err != nil {
			return nil, err
		}
	}
}
