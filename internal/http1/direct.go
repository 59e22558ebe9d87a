package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Direct is a transport for plain HTTP/1.1 to agents nearby: it writes a
// request and reads its answer in the goroutine that asks, on a connection kept
// from the last call. http.Transport hands each request through two goroutines
// of its connection, which is a third of what a proxied call costs.
//
// It hands everything else to Else: https, names that are not ASCII, requests
// that wait for 100-continue or upgrade, and bodies of unknown length or so
// large that an agent could answer before it has read them. It never follows
// redirects, never asks a proxy of the environment and never sends a request
// twice.
//
// The zero value of every field but Else is a default. A Direct is safe for
// concurrent use, the body of an answer is not: its reader closes it.
// CloseIdleConnections ends what it keeps.
type Direct struct {
	Else           http.RoundTripper // required
	Dialer         net.Dialer
	HeaderTimeout  time.Duration // until the answer begins; 0: no limit
	IdleTimeout    time.Duration // for which a connection is kept; 0: 90 s
	MaxIdlePerHost int           // connections kept for one agent; 0: 1024

	mu    sync.Mutex // guards idle and sweep
	idle  map[string][]*directConn
	sweep *time.Timer // closes what was kept too long; nil while nothing is kept
}

const (
	maxDirectBody   = 16 << 10 // fits the buffers of any socket
	maxDirectHeader = 1 << 20  // bytes of an answer's head
)

// RoundTrip sends r and returns when the head of the answer is there. The body
// must be read to its end or closed.
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if !plain(r) {
		return httpx.Lowercase(d.Else).RoundTrip(r) //nolint:wrapcheck // it stands in for us
	}
	addr := r.URL.Host
	if r.URL.Port() == "" {
		addr = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	c, err := d.connect(r.Context(), addr)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport closes what it was given
		}
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // wakes whoever reads or writes
	resp, err := c.exchange(r, d.HeaderTimeout)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, errors.Join(context.Cause(r.Context()), err)
	}
	b := &answerBody{direct: d, conn: c, addr: addr, ctx: r.Context(), stop: stop, response: resp, reuse: !r.Close}
	if err := b.frame(); err != nil {
		b.end(err)
		return nil, b.err
	}
	return resp, nil
}

// plain reports whether r is for a Direct itself. What http.Transport would
// refuse to send goes there too, to be refused.
func plain(r *http.Request) bool {
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.ContentLength < 0 || r.ContentLength > maxDirectBody ||
		r.ContentLength == 0 && r.Body != nil && r.Body != http.NoBody || len(r.TransferEncoding)+len(r.Trailer) > 0 {
		return false
	}
	for k, values := range r.Header {
		if k == "Expect" || k == "Upgrade" {
			return false
		}
		for _, v := range values {
			if !visible(v) {
				return false
			}
		}
	}
	return ascii(r.URL.Host) && ascii(r.Method)
}

// visible reports whether v can be the value of a header: no control
// characters but tabs.
func visible(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
			return false
		}
	}
	return true
}

// ascii reports whether s is visible ASCII.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// CloseIdleConnections closes the connections that nobody uses, and those of
// Else.
func (d *Direct) CloseIdleConnections() {
	d.discard(0)
	if other, ok := d.Else.(interface{ CloseIdleConnections() }); ok {
		other.CloseIdleConnections()
	}
}

// discard closes the connections that nobody has used for so long, and looks
// again when others are due.
func (d *Direct) discard(since time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr, conns := range d.idle {
		n := 0
		for n < len(conns) && time.Since(conns[n].idleSince) >= since { // the oldest stand first
			_ = conns[n].Close()
			n++
		}
		if d.idle[addr] = slices.Delete(conns, 0, n); n == len(conns) {
			delete(d.idle, addr)
		}
	}
	switch {
	case d.sweep == nil:
	case len(d.idle) == 0:
		d.sweep.Stop()
		d.sweep = nil
	default:
		d.sweep.Reset(d.idleTimeout())
	}
}

// connect returns a connection that was kept and that the agent has not closed,
// the youngest first, or a new one.
func (d *Direct) connect(ctx context.Context, addr string) (*directConn, error) {
	for c := d.take(addr); c != nil; c = d.take(addr) {
		if time.Since(c.idleSince) < d.idleTimeout() && stillOpen(c.Conn) {
			return c, nil
		}
		_ = c.Close()
	}
	conn, err := d.Dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	c := &directConn{Conn: conn}
	if c.in.late = lateFrom(conn, &c.in); c.in.late != nil {
		c.in.first = longRoom
	}
	return c, nil
}

func (d *Direct) idleTimeout() time.Duration {
	if d.IdleTimeout > 0 {
		return d.IdleTimeout
	}
	return 90 * time.Second
}

func (d *Direct) take(addr string) *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	conns := d.idle[addr]
	if len(conns) == 0 {
		return nil
	}
	last := len(conns) - 1
	c := conns[last]
	conns[last], d.idle[addr] = nil, conns[:last]
	return c
}

func (d *Direct) keep(addr string, c *directConn) {
	c.idleSince = time.Now()
	most := d.MaxIdlePerHost
	if most == 0 {
		most = 1024
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle[addr]) >= most {
		_ = c.Close()
		return
	}
	if d.idle == nil {
		d.idle = map[string][]*directConn{}
	}
	d.idle[addr] = append(d.idle[addr], c)
	if d.sweep == nil {
		d.sweep = time.AfterFunc(d.idleTimeout(), func() { d.discard(d.idleTimeout()) })
	}
}

// A directConn is a connection to an agent.
type directConn struct {
	net.Conn
	in        input // of answers
	idleSince time.Time
}

// exchange writes r and reads the head of the answer to it.
func (c *directConn) exchange(r *http.Request, timeout time.Duration) (*http.Response, error) {
	tried, writeErr := c.send(r)
	if !tried {
		return nil, writeErr
	}
	if timeout > 0 && writeErr == nil {
		if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return nil, err //nolint:wrapcheck // it is the connection's
		}
		if r.Context().Err() != nil { // the deadline of a call that ended meanwhile stands no longer
			return nil, r.Context().Err() //nolint:wrapcheck // RoundTrip adds its cause
		}
	}
	for most := maxDirectHeader; ; {
		resp, err := c.readAnswer(r, &most)
		if err != nil { // also when the agent answered and hung up while it was written to
			return nil, errors.Join(writeErr, err)
		}
		if resp.StatusCode >= http.StatusOK {
			resp.Close = resp.Close || writeErr != nil
			if timeout > 0 {
				err = c.SetReadDeadline(time.Time{})
			}
			return resp, errors.Join(err, r.Context().Err())
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the agent switched protocols unasked")
		}
	}
}

// ErrUnsent is among the errors of a request when nothing of it has left this
// process.
var ErrUnsent = errors.New("nothing was sent")

// send writes r in one piece, and reports whether it tried to.
func (c *directConn) send(r *http.Request) (tried bool, err error) {
	b := newBuffer()
	defer b.release()
	if b.b, err = appendRequest(b.b, r); err != nil {
		return false, errors.Join(ErrUnsent, err)
	}
	n, err := c.Write(b.b)
	if err != nil && n == 0 {
		err = errors.Join(ErrUnsent, err)
	}
	return true, err
}

// appendRequest appends r as it is sent, with its body, which it closes. The
// headers of the protocol are named as P1 writes them: there are runtimes that
// look up the exact case, and for them a depth that is spelled otherwise is none.
func appendRequest(b []byte, r *http.Request) ([]byte, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }() // a transport closes what it was given
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	target := r.URL.RequestURI()
	if !token(r.Method) || !visible(target) || !ascii(host) {
		return b, errors.New("the request cannot be written: its method, its target or its host is none")
	}
	b = append(append(append(append(b, r.Method...), ' '), target...), " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", host)
	if _, told := r.Header["User-Agent"]; !told {
		b = appendField(b, "User-Agent", "agentbus")
	}
	if r.ContentLength > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b = appendField(b, "Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	if r.Close {
		b = appendField(b, "Connection", "close")
	}
	at := len(b)
	b = appendHeader(b, r.Header, framedByUs)
	lowerNames(b[at:])
	return appendBody(append(b, "\r\n"...), r)
}

// lowerNames names the headers of the protocol among header lines in lower case.
func lowerNames(lines []byte) {
	for len(lines) > 0 {
		name := lines[:max(0, bytes.IndexByte(lines, ':'))]
		if agentbus.IsProtocolHeader(string(name)) {
			for i, c := range name {
				if 'A' <= c && c <= 'Z' {
					name[i] = c + 'a' - 'A'
				}
			}
		}
		lines = lines[bytes.IndexByte(lines, '\n')+1:]
	}
}

// framedByUs are headers that a request tells otherwise.
var framedByUs = []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}

// appendBody appends the body of r, which has the length that r tells.
func appendBody(b []byte, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return b, nil
	}
	at, want := len(b), len(b)+int(r.ContentLength)
	b = slices.Grow(b, int(r.ContentLength)+1)[:want+1] // a byte more, to see its end
	n, err := io.ReadFull(r.Body, b[at:])
	switch {
	case err == nil || at+n < want && errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return b[:at], fmt.Errorf("the body of the request has not the %d bytes that it tells", r.ContentLength)
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return b[:at], err //nolint:wrapcheck // who made the body knows it
	}
	return b[:want], nil
}
