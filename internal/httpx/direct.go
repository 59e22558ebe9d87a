package httpx

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
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
	directRead      = 1 << 10  // what a connection holds while its agent thinks
	directAhead     = 16 << 10 // what one read of an answer takes that comes faster
	maxDirectBody   = 16 << 10 // fits the buffers of any socket
	maxDirectHeader = 1 << 20  // bytes of an answer's head
)

// RoundTrip sends r and returns when the head of the answer is there. The body
// must be read to its end or closed.
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	named := lowercase(r)
	if !plain(r) {
		return d.Else.RoundTrip(named) //nolint:wrapcheck // it stands in for us
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
	resp, err := c.exchange(named, d.HeaderTimeout)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, errors.Join(context.Cause(r.Context()), err)
	}
	resp.Request = r
	body := &directBody{direct: d, conn: c, addr: addr, ctx: r.Context(), stop: stop, body: resp.Body, reuse: !resp.Close && !r.Close}
	if resp.Body == http.NoBody {
		body.end(nil)
		return resp, nil
	}
	resp.Body = body
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
	c.r = bufio.NewReaderSize(c, directRead)
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
	r         *bufio.Reader
	head      int // bytes that the head of the answer may still have; below 0: the head is over
	idleSince time.Time

	// ahead is what has come beyond what was asked for, at begins the rest of it.
	// full: the last read left nothing of its room, so there is more.
	ahead *[]byte
	at    int
	full  bool
}

// aheads are shared: a stream that waits for its agent, as most do most of the
// time, holds none.
var aheads = sync.Pool{New: func() any { b := make([]byte, directAhead); return &b }}

var errLongHeader = errors.New("the head of the answer is too long")

// Read reads from the agent and bounds the head of its answer.
func (c *directConn) Read(p []byte) (int, error) {
	if c.head == 0 {
		return 0, errLongHeader
	}
	if c.head > 0 && len(p) > c.head {
		p = p[:c.head]
	}
	n, err := c.readAhead(p)
	if c.head > 0 {
		c.head -= n
	}
	return n, err //nolint:wrapcheck // bufio and http look at it
}

// readAhead reads into p: what came before and was not asked for, else from the
// agent. One that sends faster than p takes it is read in larger pieces.
func (c *directConn) readAhead(p []byte) (n int, err error) {
	switch {
	case c.ahead != nil:
	case !c.full || len(p) >= directAhead:
		n, err = c.Conn.Read(p)
		c.full = n == len(p)
		return n, err //nolint:wrapcheck // as above
	default:
		c.ahead, _ = aheads.Get().(*[]byte)
		n, err = c.Conn.Read((*c.ahead)[:directAhead])
		*c.ahead, c.at, c.full = (*c.ahead)[:n], 0, n == directAhead
	}
	n = copy(p, (*c.ahead)[c.at:])
	if c.at += n; c.at == len(*c.ahead) {
		aheads.Put(c.ahead)
		c.ahead = nil
	}
	return n, err //nolint:wrapcheck // as above
}

// buffered returns how much has come and was not read.
func (c *directConn) buffered() int {
	n := c.r.Buffered()
	if c.ahead != nil {
		n += len(*c.ahead) - c.at
	}
	return n
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
	c.head = maxDirectHeader
	for {
		resp, err := http.ReadResponse(c.r, r)
		if err != nil { // also when the agent answered and hung up while it was written to
			if c.head == 0 {
				err = errLongHeader
			}
			return nil, errors.Join(writeErr, err)
		}
		if resp.StatusCode >= http.StatusOK {
			c.head = -1
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

// requests are shared: an answer that takes its time holds none.
var requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// send writes r in one piece, and reports whether it tried to. Into a
// bufio.Writer, net/http would flush the head on its own before it asks for a
// body of a kind that it does not know: a system call more, and the agent would
// be woken twice.
func (c *directConn) send(r *http.Request) (tried bool, err error) {
	b, _ := requests.Get().(*bytes.Buffer)
	defer requests.Put(b)
	b.Reset()
	if err := r.Write(b); err != nil {
		return false, errors.Join(ErrUnsent, err)
	}
	n, err := c.Write(b.Bytes())
	if err != nil && n == 0 {
		err = errors.Join(ErrUnsent, err)
	}
	return true, err
}

// A directBody gives the connection back at the end of the answer.
type directBody struct {
	direct *Direct
	conn   *directConn // nil once it is given back
	addr   string
	ctx    context.Context //nolint:containedctx // of the request, whose answer this is
	stop   func() bool
	body   io.ReadCloser
	reuse  bool
	err    error // what Read returns after the end
}

func (b *directBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err)
		err = b.err
	}
	return n, err
}

// Buffered returns how much of the answer is here already.
func (b *directBody) Buffered() int {
	if b.conn == nil {
		return 0
	}
	return b.conn.buffered()
}

// Close ends the answer. One that was not read to its end takes its connection
// with it.
func (b *directBody) Close() error {
	if b.conn != nil {
		b.reuse = false
		b.end(http.ErrBodyReadAfterClose)
	}
	return nil
}

func (b *directBody) end(err error) {
	c := b.conn
	b.conn = nil
	if b.err = err; err == nil {
		b.err = io.EOF
	}
	whole := err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
	if !b.stop() { // the request ended first: its deadline may still be set on the connection
		whole = false
		if b.err != io.EOF { //nolint:errorlint // io.EOF is returned as it is
			b.err = errors.Join(context.Cause(b.ctx), b.err)
		}
	}
	if whole && b.reuse && c.buffered() == 0 {
		b.direct.keep(b.addr, c)
		return
	}
	_ = c.Close()
}
