// Package http1 serves HTTP/1.1 to an http.Handler, strictly (G36): what two
// readers could understand as two different requests is refused, and every
// refusal has the shape of the one table of errors.
//
// It stands in for http.Server where most of the time of a call is spent: a
// connection is served by one goroutine, and another one waits for the caller to
// leave only once an answer takes its time; a request is read from its
// connection once, and an answer that fits a buffer is written at once. For the
// same reason [Direct] stands in for http.Transport towards agents nearby, whose
// answers are read as tolerantly as net/http reads them. docs/decisions/0143 has
// the figures.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Server serves a handler. Its fields are not changed once it serves; the zero
// value of a duration is no limit. It is safe for concurrent use.
//
// A handler has what one of http.Server has, but for Hijack and HTTP/2: flushing
// and deadlines by http.ResponseController, trailers, 100-continue, the address
// of the connection under http.LocalAddrContextKey. The request's context ends
// when the caller leaves, which is noticed from [Patience] after its body has
// come, and when the handler returns.
type Server struct {
	Handler    http.Handler  // required
	MaxHeader  int           // bytes of a header block, and of the trailers of a body (G3); required
	ReadHeader time.Duration // until a header block has come, once it began or its connection did
	ReadBody   time.Duration // for a body that did not come with its head; a handler may set another deadline
	// Idle is the time between two requests of a connection, and that of a caller to
	// take a piece of an answer whose handler sets no deadline; up to an eighth more.
	Idle   time.Duration
	Logger *slog.Logger // of handlers that panic, and of connections that cannot be taken; required

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	changed   chan struct{} // closed, and made anew, when a connection ends; nil while nobody waits
	leaving   atomic.Bool   // no request is read any more

	date date // of answers
}

// Patience is how long an answer may take before somebody waits for its caller to
// leave.
const Patience = 20 * time.Millisecond

// Serve serves the connections of l, and closes it. It returns
// http.ErrServerClosed after Shutdown or Close, when the connections may still
// be at work.
func (s *Server) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }() // it may be closed already
	if !s.track(l) {
		return http.ErrServerClosed
	}
	defer s.untrack(l)
	var wait time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			s.serve(c)
		case s.leaving.Load():
			return http.ErrServerClosed
		case passing(err): // of files, most often: who is served now gives some back
			if wait == 0 { // once until somebody is let in again
				s.Logger.LogAttrs(context.Background(), slog.LevelWarn, "no new connections", slog.Any("error", err))
			}
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			<-time.After(wait)
		default:
			return err //nolint:wrapcheck // it names the listener
		}
	}
}

// passing reports whether a later Accept may succeed.
func passing(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving.Load() {
		return false
	}
	if s.listeners == nil {
		s.listeners, s.conns = map[net.Listener]struct{}{}, map[*conn]struct{}{}
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) untrack(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// serve begins a connection, which ends by itself; Shutdown waits for it.
func (s *Server) serve(nc net.Conn) {
	c := &conn{server: s, net: nc, remote: nc.RemoteAddr().String()}
	c.in.late = lateFrom(nc, &c.in)
	c.watch.net = nc
	s.mu.Lock()
	if s.leaving.Load() {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	go func() {
		defer s.ended(c)
		c.serve()
	}()
}

func (s *Server) ended(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Shutdown closes the listeners and the connections that wait for a request,
// and returns when the others have ended with the answers that they are at, or
// with ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.leave()
	for {
		s.mu.Lock()
		for c := range s.conns {
			if c.state.CompareAndSwap(waits, closes) {
				c.cut()
			}
		}
		if len(s.conns) == 0 {
			s.mu.Unlock()
			return err
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // who waits no longer knows why
		}
	}
}

// Close closes the listeners and every connection. It does not wait for handlers,
// whose contexts end.
func (s *Server) Close() error {
	err := s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.watch.left()
		c.cut()
	}
	return err
}

// leave takes no further connections and requests.
func (s *Server) leave() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving.Store(true)
	for l := range s.listeners {
		if e := l.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// handshake ends the handshake of a connection over TLS, and returns its state;
// nil: it has none.
func (c *conn) handshake() (*tls.ConnectionState, error) {
	encrypted, ok := c.net.(*tls.Conn)
	if !ok {
		return nil, nil //nolint:nilnil // most have none
	}
	if d := c.server.ReadHeader; d > 0 {
		if err := c.net.SetDeadline(time.Now().Add(d)); err != nil {
			return nil, err //nolint:wrapcheck // it ends the connection
		}
	}
	if err := encrypted.HandshakeContext(context.Background()); err != nil { // the deadline bounds it, and Close ends it
		c.tellPlain(err)
		return nil, err //nolint:wrapcheck // as above
	}
	state := encrypted.ConnectionState()
	return &state, c.net.SetDeadline(time.Time{}) //nolint:wrapcheck // as above
}

// tellPlain answers who speaks plain HTTP where TLS is spoken.
func (c *conn) tellPlain(err error) {
	var e tls.RecordHeaderError
	if !errors.As(err, &e) || e.Conn == nil || !spoken(e.RecordHeader) {
		return
	}
	w := &response{conn: c, to: e.Conn, request: &http.Request{}, header: http.Header{}, length: -1, modern: true, close: true, cancel: func() {}}
	refusal := invalid("this is plain HTTP, and TLS is spoken here")
	refusal.Explain.Next = "call this address by https"
	httpx.WriteError(w, agentbus.Lineage{}, refusal)
	if w.end() == nil {
		linger(e.Conn)
	}
}

// spoken reports whether a record of TLS begins as a request of HTTP does.
func spoken(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// discardFor is how long an answered caller may go on with a body that nobody
// reads: a connection that is closed while it does takes the answer with it.
const discardFor = 500 * time.Millisecond

// linger lets the last answer arrive before its connection is closed.
func linger(c net.Conn) {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	if c.SetReadDeadline(time.Now().Add(discardFor)) == nil {
		_, _ = io.Copy(io.Discard, c)
	}
}
