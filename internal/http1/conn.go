package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// What a connection is at.
const (
	waits  = iota // for a request, of which nothing has come
	works         // at one
	closes        // nothing is read any more
)

// A conn is the connection of a caller. It is served by one goroutine; its watch,
// Shutdown and Close see state and net alone.
type conn struct {
	server *Server
	net    net.Conn
	remote string // address of the caller
	tls    *tls.ConnectionState
	base   context.Context //nolint:containedctx // of the requests: values of the connection, which none outlives
	state  atomic.Int32
	in     input
	watch  watch

	asked   bool      // there was a request
	timed   bool      // the header block under way has its deadline
	readBy  time.Time // the read deadline that is set; the zero time: none
	unknown bool      // somebody else set one
	writeBy time.Time // the write deadline that is set; the zero time: none
	late    bool      // a handler set another one
}

// serve answers request after request.
func (c *conn) serve() {
	defer c.close()
	c.base = context.WithValue(context.Background(), http.LocalAddrContextKey, c.net.LocalAddr())
	var err error
	if c.tls, err = c.handshake(); err != nil {
		c.server.Logger.LogAttrs(c.base, slog.LevelDebug, "no TLS", slog.Any("error", err))
		return
	}
	for c.next() {
	}
}

// close ends the connection, also when its goroutine panics: that costs one
// caller and not the process.
func (c *conn) close() {
	if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
		c.server.Logger.LogAttrs(c.base, slog.LevelError, "a handler panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	}
	_ = c.net.Close()
	c.in.release()
}

// cut ends the connection from another goroutine, at once: the farewell of TLS
// would wait for a caller that takes nothing.
func (c *conn) cut() {
	if encrypted, ok := c.net.(*tls.Conn); ok {
		_ = encrypted.NetConn().Close()
		return
	}
	_ = c.net.Close()
}

// next reads a request and answers it. It reports whether another may follow.
func (c *conn) next() bool {
	c.in.put(c.watch.came())
	head, fault := c.readHead()
	if errors.Is(fault, errNothing) {
		return false
	}
	ctx, cancel := context.WithCancel(c.base)
	defer cancel()
	w := &response{conn: c, to: c.net, header: http.Header{}, length: -1, modern: true, cancel: cancel}
	w.request = new(http.Request).WithContext(ctx)
	if fault == nil {
		fault = w.parse(string(head))
	}
	c.in.rest() // an empty room is somebody else's
	if fault != nil {
		w.close = true
		httpx.WriteError(w, agentbus.Lineage{}, fault)
		if w.end() == nil {
			linger(c.net)
		}
		return false
	}
	c.handle(w)
	if w.end() != nil {
		return false
	}
	if w.body.unread() {
		linger(c.net)
		return false
	}
	// Shutdown, which sets leaving first, closes who waits: one of the two sees the other.
	return !w.close && c.state.CompareAndSwap(works, waits) && !c.server.leaving.Load()
}

// handle has the request answered.
func (c *conn) handle(w *response) {
	c.watch.begin(w.cancel)
	if w.body != nil && w.body.continues {
		w.renew() // who reads the body writes, and in any goroutine
	}
	if w.body == nil {
		c.watch.arm()
	} else if !w.body.Arrived() {
		c.readWithin(c.server.ReadBody, 0) // what stands is for the head
	}
	defer func() {
		w.cancel()
		if c.watch.end() {
			c.unknown = true // the deadline that woke it
		}
		w.body.over()
	}()
	c.server.Handler.ServeHTTP(w, w.request)
}

// errNothing ends a connection without a word: its caller has left, or is silent.
var errNothing = errors.New("there is no request")

// readHead returns the next header block, from its request line to the empty line
// behind it, in the room of the input: the next read overwrites it.
func (c *conn) readHead() ([]byte, error) {
	for scanned, spared := 0, false; ; {
		rest := c.in.rest()
		if !spared && len(rest) > 1 && string(rest[:2]) == "\r\n" { // before a request (RFC 9112, section 2.2)
			c.in.take(2)
			scanned, spared = 0, true
			continue
		}
		if len(rest) > 0 && !c.state.CompareAndSwap(waits, works) && c.state.Load() == closes {
			return nil, errNothing
		}
		end, fault := scanHead(rest, scanned, c.server.MaxHeader)
		if fault != nil {
			return nil, fault
		}
		if end > 0 {
			c.asked, c.timed = true, false
			return c.in.take(end), nil
		}
		scanned = len(rest)
		if err := c.await(scanned > 0); err != nil {
			if scanned > 0 && errors.Is(err, io.EOF) {
				return nil, invalid("the head of the request was cut")
			}
			return nil, errNothing
		}
	}
}

// await reads more of a header block that has begun, or else waits for the next.
func (c *conn) await(begun bool) error {
	switch {
	case c.timed:
	case begun || !c.asked:
		c.timed = true
		c.readWithin(c.server.ReadHeader, 0)
	default:
		c.readWithin(c.server.Idle, c.server.Idle/8) // to move a deadline costs more than to look at it
	}
	if !begun {
		c.in.full = false // who waits for a request holds no room for what came last
	}
	return c.in.fill(c.net)
}

// readWithin has the next reads end at a time from now on, and up to slack later.
func (c *conn) readWithin(d, slack time.Duration) {
	if d <= 0 {
		if c.unknown || !c.readBy.IsZero() {
			c.readUntil(time.Time{})
		}
		return
	}
	now := time.Now()
	if left := c.readBy.Sub(now); c.unknown || left < d || left-slack > d {
		c.readUntil(now.Add(d).Add(slack)) // no duration may be as long as both
	}
}

// writeWithin has the next writes end at a time from now on, and up to slack later.
func (c *conn) writeWithin(d, slack time.Duration) {
	now, until := time.Now(), time.Time{}
	if d > 0 {
		until = now.Add(d).Add(slack)
	}
	if left := c.writeBy.Sub(now); c.late || d > 0 && (left < d || left-slack > d) {
		c.writeBy, c.late = until, false
		_ = c.net.SetWriteDeadline(until) // a connection that is closed says so when it is written to
	}
}

func (c *conn) readUntil(t time.Time) {
	c.readBy, c.unknown = t, c.net.SetReadDeadline(t) != nil // a connection that is closed says so when it is read
}
