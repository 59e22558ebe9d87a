package http1

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// roomSize holds most requests whole: their head and what they ask.
const roomSize = 4 << 10

// rooms are shared: who has nothing to keep holds none.
var rooms = sync.Pool{New: func() any { return new([roomSize]byte) }}

// An input is what has come on a connection and was not used yet.
type input struct {
	buf     []byte // nil: there is nothing
	at, end int    // buf[at:end] is it
}

// rest returns what has come, and gives the room back when that is nothing.
func (in *input) rest() []byte {
	if in.at == in.end {
		in.release()
	}
	return in.buf[in.at:in.end]
}

func (in *input) release() {
	if len(in.buf) == roomSize {
		rooms.Put((*[roomSize]byte)(in.buf))
	}
	in.buf, in.at, in.end = nil, 0, 0
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
		room, _ := rooms.Get().(*[roomSize]byte)
		in.buf = room[:]
	}
	if in.end < len(in.buf) {
		return
	}
	if in.at > 0 {
		in.end = copy(in.buf, in.buf[in.at:in.end])
		in.at = 0
		return
	}
	grown := make([]byte, 2*len(in.buf))
	end := copy(grown, in.buf)
	in.release()
	in.buf, in.end = grown, end
}

// fill reads more from c, at least a byte.
func (in *input) fill(c net.Conn) error {
	in.make()
	n, err := c.Read(in.buf[in.end:])
	in.end += n
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
	in.release()
	return c.Read(p) //nolint:wrapcheck // it is the connection's
}

// line returns the next line without its CRLF; it ends with an error when that is
// none of at most so many bytes.
func (in *input) line(c net.Conn, most int) ([]byte, error) {
	for {
		rest := in.rest()
		i := bytes.IndexByte(rest, '\n')
		switch {
		case i >= most || i < 0 && len(rest) >= most:
			return nil, invalid("a line within the body is over the limit")
		case i == 0 || i > 0 && bytes.IndexByte(rest[:i], '\r') != i-1:
			return nil, invalid("a line within the body ends in a line feed or a carriage return alone")
		case i > 0:
			return in.take(i + 1)[:i-1], nil
		}
		if err := in.fill(c); err != nil {
			return nil, err
		}
	}
}
