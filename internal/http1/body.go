package http1

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A body is that of a request, as its handler reads it.
type body struct {
	conn     *conn
	response *response

	mu        sync.Mutex // guards what follows: a handler may read in a goroutine of its own
	left      int64      // of a body that is not chunked
	chunked   bool
	chunks    chunks
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
	if b.chunked && b.chunks.left == 0 {
		if err := b.chunks.next(&b.conn.in, b.conn.net, b.conn.server.MaxHeader); err != nil {
			return 0, err
		}
	}
	left := &b.left
	if b.chunked {
		left = &b.chunks.left
	}
	n, err := b.conn.in.read(b.conn.net, p[:min(int64(len(p)), *left)])
	*left -= int64(n)
	switch {
	case *left == 0 && !b.chunked:
		return n, io.EOF
	case n > 0:
		return n, nil
	}
	return 0, cut(err)
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
