package httpx

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agentbus/agentbus"
)

// Strict refuses, at the socket, requests that two servers could read as two
// different ones (G36): a Content-Length beside a Transfer-Encoding, two
// Content-Lengths, folded header lines, line feeds and carriage returns on
// their own. net/http repairs or tolerates some of these. A header block over
// the limit is refused too (G3).
//
// It is four hooks of one http.Server: Listen wraps its listener, ConnContext
// and ConnState are its own, and Handler wraps its Handler. A refused head never
// reaches net/http: a request of method refusedMethod stands in for it, so that
// the refusal is written in its turn, behind the answers of the requests before
// it, and the connection is closed.
//
// Over TLS, Listen wraps the listener of the decrypted connections, and Handler
// gives requests the state of theirs, which net/http does not find behind the
// wrapper. Such a listener must not offer HTTP/2: net/http needs the connection
// itself for that.
type Strict struct {
	MaxHeader int // bytes of a header block; required
}

const refusedMethod = "REFUSED"

type strictKey struct{}

// Listen returns l with strict connections.
func (s Strict) Listen(l net.Listener) net.Listener { return strictListener{l, s.MaxHeader} }

// ConnContext is for http.Server.ConnContext.
func (s Strict) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, strictKey{}, c)
}

// ConnState is for http.Server.ConnState.
func (s Strict) ConnState(c net.Conn, state http.ConnState) {
	if c, ok := c.(*strictConn); ok && state == http.StateIdle {
		c.handled.Store(false)
	}
}

// Handler returns h behind the refusals of its connections.
func (s Strict) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(strictKey{}).(*strictConn); ok {
			c.handled.Store(true)
			if e := c.refusal.Load(); e != nil && r.Method == refusedMethod {
				WriteError(w, agentbus.Lineage{}, e)
				return
			}
			if encrypted, ok := c.Conn.(*tls.Conn); ok {
				state := encrypted.ConnectionState()
				r = r.WithContext(r.Context())
				r.TLS = &state
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Arrived reports whether the body of r has come whole, as most have with their
// head, so that to read it does not wait. It knows so of requests that came
// through a [Strict]; the others have not. It is for the Handler that serves r,
// before it has read the body to its end.
func Arrived(r *http.Request) bool {
	c, ok := r.Context().Value(strictKey{}).(*strictConn)
	return ok && c.body == 0 && c.chunks == nil && !c.blind
}

type strictListener struct {
	net.Listener
	maxHeader int
}

// Accept returns the next connection as a strict one.
func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // as it is: the server looks at its type
	}
	return &strictConn{Conn: c, maxHeader: l.maxHeader}, nil
}

// A strictConn hands a head to its reader once all of it was read and found
// unambiguous, and a body as it comes.
type strictConn struct {
	net.Conn
	maxHeader int
	refusal   atomic.Pointer[agentbus.Error] // set before the stand-in is handed out
	handled   atomic.Bool                    // what is written is the answer of a handler
	buf       []byte                         // room; [at:end] is read and not handed out. nil: nothing is
	byte      [1]byte                        // room for the wait while a request is answered
	at, end   int
	scanned   int          // how much of an unfinished head was looked at
	ready     int          // how much of it may be handed out
	body      int64        // bytes of the current body still to come
	chunks    *chunkReader // of the current body, when it is chunked
	blind     bool         // the framing is for net/http to refuse: hand out everything
	closed    bool         // nothing comes behind a refusal
}

// Read hands out the next bytes. It is called by one goroutine at a time.
func (c *strictConn) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if n := c.take(p); n > 0 {
			return n, nil
		}
		if c.closed {
			return 0, io.EOF
		}
		if c.body > 0 && c.at == c.end { // the usual body: nothing is copied
			n, err := c.Conn.Read(p[:min(int64(len(p)), c.body)])
			c.body -= int64(n)
			return n, err // as it is: the server looks at its type
		}
		if c.buf == nil && len(p) == 1 {
			c.buf = c.byte[:] // net/http waits for its caller to leave, or for the request behind this one
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
		c.scan()
	}
	return 0, nil
}

func (c *strictConn) take(p []byte) int {
	n := copy(p, c.buf[c.at:c.at+c.ready])
	c.ready -= n
	if c.at += n; c.at == c.end {
		c.at, c.end = 0, 0
		if len(c.buf) == firstRead {
			rooms.Put((*[firstRead]byte)(c.buf))
		}
		c.buf = nil
	}
	return n
}

func (c *strictConn) fill() error {
	if c.buf == nil {
		room, _ := rooms.Get().(*[firstRead]byte)
		c.buf = room[:]
	}
	if c.end == len(c.buf) { // nothing is ready, or Read would have handed it out
		if c.at == 0 {
			c.buf = append(c.buf, make([]byte, max(len(c.buf), firstRead))...)
		}
		c.end = copy(c.buf, c.buf[c.at:c.end])
		c.at = 0
	}
	n, err := c.Conn.Read(c.buf[c.end:])
	c.end += n
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) && c.end > c.at {
		c.ready, c.blind = c.end-c.at, true // a cut head: net/http says so
		return nil
	}
	return err // as it is: the server looks at its type
}

const firstRead = 2048 // most heads fit

// rooms are shared: a connection whose request is being answered holds none.
var rooms = sync.Pool{New: func() any { return new([firstRead]byte) }}

// scan decides how much of buf may be handed out.
func (c *strictConn) scan() {
	for c.at+c.ready < c.end && !c.closed {
		rest := c.buf[c.at+c.ready : c.end]
		switch {
		case c.blind:
			c.ready = c.end - c.at
		case c.body > 0:
			n := min(c.body, int64(len(rest)))
			c.body -= n
			c.ready += int(n)
		case c.chunks != nil:
			n, done := c.chunks.read(rest)
			c.ready += n
			if done {
				c.chunks = nil
			}
		default:
			if !c.scanHead(rest) {
				return
			}
		}
	}
}

// scanHead looks at the head that begins rest, and reports whether it is whole.
func (c *strictConn) scanHead(rest []byte) bool {
	from := max(c.scanned-len("\r\n\r"), 0) // a head that drips in is not read again at every byte
	end := bytes.Index(rest[from:], []byte("\r\n\r\n"))
	if end >= 0 {
		end += from
	}
	if bareLine(rest, from, end) {
		c.refuse(agentbus.CodeInvalidRequest, "a line of the request's head ends in a line feed or a carriage return alone", "G36")
		return true
	}
	if end < 0 && len(rest) <= c.maxHeader {
		c.scanned = len(rest)
		return false
	}
	c.scanned = 0
	if end < 0 || end > c.maxHeader {
		c.refuse(agentbus.CodeRequestTooLarge, "the request's header block is over the limit of "+strconv.Itoa(c.maxHeader)+" bytes", "G3")
		return true
	}
	f, fault := framingOf(rest[:end+2])
	if fault != "" {
		c.refuse(agentbus.CodeInvalidRequest, fault, "G36")
		return true
	}
	c.ready += end + 4
	c.body, c.blind = f.length, f.odd
	if f.chunked {
		c.chunks = &chunkReader{}
	}
	return true
}

// bareLine reports whether the head, which ends at end or is not whole yet when
// end is negative, has a CR or an LF from from on that does not stand in a CRLF.
func bareLine(b []byte, from, end int) bool {
	if end >= 0 {
		b = b[:end+4]
	}
	for i := from; i < len(b); i++ {
		switch {
		case b[i] == '\n' && (i == 0 || b[i-1] != '\r'):
			return true
		case b[i] == '\r' && i+1 < len(b) && b[i+1] != '\n':
			return true
		}
	}
	return false
}

func (c *strictConn) refuse(code agentbus.Code, message, rule string) {
	c.refusal.Store(&agentbus.Error{
		Code: code, Message: message,
		Explain: &agentbus.Explain{Rule: rule, Next: "send the request in the plain form of RFC 9112"},
	})
	c.buf = append(c.buf[c.at:c.at+c.ready:c.at+c.ready], refusedMethod+" / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"...)
	c.at, c.end, c.closed = 0, len(c.buf), true
	c.ready = c.end
}

type framing struct {
	length  int64
	chunked bool
	odd     bool // net/http refuses it, and closes the connection
}

// framingOf reads how the body behind a head is framed, and names what makes
// that ambiguous. Every line of head ends in CRLF.
func framingOf(head []byte) (f framing, fault string) {
	lengths, codings := 0, 0
	_, lines, _ := bytes.Cut(head, []byte("\r\n")) // behind the request line
	for line := range bytes.SplitSeq(lines, []byte("\r\n")) {
		if len(line) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			return f, "a header line is folded"
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("content-length") && strings.EqualFold(string(name), "content-length"):
			lengths++
			n, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 62)
			f.length, f.odd = int64(n), f.odd || err != nil
		case len(name) == len("transfer-encoding") && strings.EqualFold(string(name), "transfer-encoding"):
			codings++
			f.chunked = strings.EqualFold(string(bytes.Trim(value, " \t")), "chunked")
			f.odd = f.odd || !f.chunked
		}
	}
	switch {
	case lengths > 0 && codings > 0:
		return f, "the request has a Content-Length beside a Transfer-Encoding"
	case lengths > 1 || codings > 1:
		return f, "the request tells the length of its body twice"
	}
	return f, ""
}

// A chunkReader finds the end of a chunked body. It judges nothing: net/http
// does.
type chunkReader struct {
	line []byte // the line so far
	data int64  // bytes of the chunk, its CRLF included, still to come
	last bool   // past the chunk of size 0: trailer lines, then an empty one
}

// read returns how many bytes of b belong to the body, and whether it ends there.
func (r *chunkReader) read(b []byte) (n int, done bool) {
	for n < len(b) {
		if r.data > 0 {
			skip := min(r.data, int64(len(b)-n))
			r.data -= skip
			n += int(skip)
			continue
		}
		i := bytes.IndexByte(b[n:], '\n')
		if i < 0 {
			if len(r.line) < maxChunkLine {
				r.line = append(r.line, b[n:]...)
			}
			return len(b), false
		}
		r.line = append(r.line, b[n:n+i]...)
		line := r.line
		r.line = r.line[:0]
		n += i + 1
		line = bytes.TrimSuffix(line, []byte("\r"))
		if r.last {
			if len(line) == 0 {
				return n, true
			}
			continue
		}
		digits, _, _ := bytes.Cut(line, []byte(";"))
		size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " \t")), 16, 62)
		if err != nil {
			return len(b), false // net/http refuses it and closes the connection
		}
		if r.last = size == 0; !r.last {
			r.data = int64(size) + 2
		}
	}
	return n, false
}

const maxChunkLine = 4096
