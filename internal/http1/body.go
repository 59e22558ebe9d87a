package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A body is that of a request, as its handler reads it.
type body struct {
	conn     *conn
	response *response

	mu        sync.Mutex // guards what follows: a handler may read in a goroutine of its own
	left      int64      // of the body, or of the chunk
	chunked   bool
	inside    bool  // a chunk: CRLF follows it
	excess    int64 // bytes of framing beyond what data of this size needs
	continues bool  // the caller waits to be told to go on
	done      bool  // all of it was read
	err       error // what Read returns from now on
}

// Arrived reports whether all of it has come, so that to read it does not wait.
// It is for the handler, before it has read it to its end.
func (b *body) Arrived() bool { return !b.chunked && b.left <= int64(b.conn.in.end-b.conn.in.at) }

// Read reads more of it.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.continues {
		b.continues = false
		if b.err = b.response.proceed(); b.err != nil {
			return 0, b.err
		}
	}
	n, err := b.read(p)
	if err != nil {
		b.err = err
		if b.done = err == io.EOF; b.done { //nolint:errorlint // it is returned as it is
			b.conn.watch.arm()
		}
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	if b.chunked && b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	n, err := b.conn.in.read(b.conn.net, p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0 && !b.chunked:
		return n, io.EOF
	case n > 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// nextChunk reads up to the data of the next chunk, or past the end of the body,
// which is io.EOF.
func (b *body) nextChunk() error {
	if b.inside {
		line, err := b.line()
		if err != nil {
			return err
		}
		if b.inside = len(line) > 0; b.inside {
			return invalid("a chunk of the body is longer than it tells")
		}
	}
	line, err := b.line()
	if err != nil {
		return err
	}
	digits, _, _ := bytes.Cut(bytes.TrimRight(line, " \t"), []byte(";"))
	size, err := strconv.ParseUint(string(digits), 16, 62)
	if err != nil || len(digits) > maxDigits {
		return invalid("the length of a chunk of the body is no hexadecimal number of up to 16 digits")
	}
	if b.excess = max(0, b.excess+int64(len(line))+4-16-2*int64(size)); b.excess > maxExcess {
		return invalid("the body has more framing than data")
	}
	b.left, b.inside = int64(size), true
	if size == 0 {
		return b.trailers()
	}
	return nil
}

// trailers reads what stands behind the last chunk, which is left out.
func (b *body) trailers() error {
	for most := b.conn.server.MaxHeader; ; {
		line, err := b.line()
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			return io.EOF
		}
		if most -= len(line); most < 0 {
			return invalid("the trailers of the body are over the limit")
		}
		if _, _, fault := splitField(string(line)); fault != nil {
			return fault
		}
	}
}

func (b *body) line() ([]byte, error) {
	line, err := b.conn.in.line(b.conn.net)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return line, err
}

// Close ends the reading.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || b.done {
		b.err = http.ErrBodyReadAfterClose
	}
	return nil
}

// over is told that the handler has returned: nobody reads any more.
func (b *body) over() {
	if b == nil {
		return
	}
	if !b.mu.TryLock() {
		_ = b.conn.net.SetReadDeadline(time.Unix(1, 0)) // wakes who still reads
		b.conn.unknown = true
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	b.skip()
	b.err = http.ErrBodyReadAfterClose
}

// skip leaves out what has come of a body that its handler did not want.
func (b *body) skip() {
	if !b.done && !b.continues && b.Arrived() {
		b.conn.in.take(int(b.left))
		b.left, b.done = 0, true
	}
}

// unread reports whether some of it is still to come.
func (b *body) unread() bool { return b != nil && !b.done }

func invalid(message string) *agentbus.Error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: message,
		Explain: &agentbus.Explain{Rule: "G36", Next: "send the request in the plain form of RFC 9112"},
	}
}
