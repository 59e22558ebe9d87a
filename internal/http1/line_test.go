package http1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus/internal/http1"
)

// patience is how long a test waits for what has to come.
const patience = time.Minute

// dial connects to addr until the end of the test.
func dial(t *testing.T, addr string) *line {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newLine(t, c)
}

// A line is a caller's end of a connection.
type line struct {
	net.Conn
	r *bufio.Reader
}

func newLine(t *testing.T, c net.Conn) *line {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &line{c, bufio.NewReader(c)}
}

// say writes raw bytes.
func (l *line) say(t *testing.T, raw ...string) {
	t.Helper()
	for _, piece := range raw {
		if _, err := io.WriteString(l, piece); err != nil {
			t.Fatal(err)
		}
	}
}

// heard is the head of an answer.
type heard struct {
	Status     string
	StatusCode int
	Close      bool
}

// hear reads the answer to a request of the given method.
func (l *line) hear(t *testing.T, method string) (heard, string) {
	t.Helper()
	resp, err := http.ReadResponse(l.r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return heard{resp.Status, resp.StatusCode, resp.Close}, string(b)
}

// get asks for a path and returns what was answered.
func (l *line) get(t *testing.T, path string) string {
	t.Helper()
	l.say(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	_, body := l.hear(t, http.MethodGet)
	return body
}

// closed fails the test unless the server closes the connection without a word.
func (l *line) closed(t *testing.T) {
	t.Helper()
	if b, err := io.ReadAll(l.r); len(b) > 0 || err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read %q, %v, want the end", b, err)
	}
}

// pipes are connections in memory: what is written is read in the same pieces.
type pipes struct {
	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func newPipes() *pipes { return &pipes{accepted: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects a caller until the end of the test.
func (p *pipes) dial(t *testing.T) *line {
	t.Helper()
	ours, theirs := net.Pipe()
	p.accepted <- theirs
	return newLine(t, ours)
}

// A run is a server that serves until the end of its test.
type run struct {
	*http1.Server
	done chan error // what Serve returned
}

func start(t *testing.T, l net.Listener, h http.HandlerFunc, more ...func(*http1.Server)) *run {
	t.Helper()
	s := &run{&http1.Server{Handler: h, MaxHeader: 8 << 10, Logger: slog.New(slog.DiscardHandler)}, make(chan error, 1)}
	for _, change := range more {
		change(s.Server)
	}
	go func() { s.done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// over is closed when a context ends.
func over(t *testing.T, ctx context.Context) { //nolint:revive // the test comes first everywhere
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("the request has not ended")
	}
}
