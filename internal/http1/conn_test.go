package http1_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus/internal/http1"
)

const getA = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

// TestPieces: G36, a head is the same in whatever pieces it comes.
func TestPieces(t *testing.T) {
	t.Parallel()
	p := newPipes()
	start(t, p, echo)
	for name, pieces := range map[string][]string{
		"empty line before":            {"\r\n", getA},
		"empty line before, cut":       {"\r", "\n", getA},
		"empty line before, cut twice": {"\r", "\nG", getA[1:]},
		"cut within the end":           {getA[:len(getA)-3], "\n", "\r", "\n"},
		"cut within a CRLF":            {"GET /a HTTP/1.1\r", "\nHost: x\r", "\n\r", "\n"},
	} {
		l := p.dial(t)
		for range 3 {
			l.say(t, pieces...)
			if _, got := l.hear(t, http.MethodGet); got != `GET /a "" <nil>` {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	for name, pieces := range map[string][]string{
		"empty lines before":      {"\r\n", "\r\n"},
		"line feed at once":       {"GET /a HTTP/1.1\r\n", "\n"},
		"line feed at the start":  {"\n"},
		"carriage return at once": {"GET /a HTTP/1.1\r", "H"},
	} {
		l := p.dial(t)
		l.say(t, pieces...)
		if resp, _ := l.hear(t, http.MethodGet); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
}

// G3: a header block of exactly the limit passes, and one byte more is too much,
// whether the block has come whole or not.
func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	p := newPipes()
	start(t, p, echo)
	const begins, ends = "GET /a HTTP/1.1\r\nHost: x\r\nA: ", "\r\n\r\n"
	full := begins + strings.Repeat("x", 8<<10-len(begins)-len(ends)) + ends
	l := p.dial(t)
	for range 2 {
		l.say(t, full[:5000], full[5000:])
		if resp, _ := l.hear(t, http.MethodGet); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
	for _, raw := range []string{begins + "x" + full[len(begins):], begins + strings.Repeat("x", 8<<10)} {
		l := p.dial(t)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(l, raw)
		}()
		if resp, _ := l.hear(t, http.MethodGet); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Error(resp.Status)
		}
		_ = l.Close()
		<-sent
	}
}

// G3: who sends a head, a body or nothing too slowly is left.
func TestSlow(t *testing.T) {
	t.Parallel()
	limits := func(s *http1.Server) {
		s.ReadHeader, s.ReadBody, s.Idle = 10*time.Second, 20*time.Second, 40*time.Second
	}
	for name, c := range map[string]struct {
		answered, drip string
		atLeast        time.Duration
		slack          time.Duration
	}{
		"nothing":       {atLeast: 10 * time.Second},
		"head":          {drip: getA, atLeast: 10 * time.Second, slack: time.Second},
		"second head":   {answered: getA, drip: getA, atLeast: 10 * time.Second, slack: 2 * time.Second}, // from its first byte on
		"idle":          {answered: getA, atLeast: 40 * time.Second, slack: 5 * time.Second},
		"an empty line": {answered: getA, drip: "\r\n", atLeast: 10 * time.Second, slack: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				start(t, p, echo, limits)
				ours, theirs := net.Pipe()
				p.accepted <- theirs
				defer func() { _ = ours.Close() }()
				l := newLine(t, ours)
				_ = ours.SetDeadline(time.Time{})
				if c.answered != "" {
					l.say(t, c.answered)
					l.hear(t, http.MethodGet)
				}
				began := time.Now()
				for i := range c.drip {
					<-time.After(700 * time.Millisecond) // never at the moment of a deadline
					if _, err := ours.Write([]byte{c.drip[i]}); err != nil {
						break
					}
				}
				b, _ := io.ReadAll(l.r)
				if took := time.Since(began); len(b) > 0 || took < c.atLeast || took > c.atLeast+c.slack {
					t.Errorf("%q after %v", b, took)
				}
			})
		})
	}
}

// G3: the longest time there is is no time that is over.
func TestLongestLimits(t *testing.T) {
	t.Parallel()
	p := newPipes()
	start(t, p, echo, func(s *http1.Server) { s.ReadHeader, s.ReadBody, s.Idle = math.MaxInt64, math.MaxInt64, math.MaxInt64 })
	l := p.dial(t)
	for range 3 {
		l.say(t, getA)
		if _, got := l.hear(t, http.MethodGet); got != `GET /a "" <nil>` {
			t.Error(got)
		}
	}
}

// G3: a body that does not come with its head has its time, and the next request
// its own.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		start(t, p, echo, func(s *http1.Server) {
			s.ReadHeader, s.ReadBody, s.Idle = 10*time.Second, 20*time.Second, 40*time.Second
		})
		ours, theirs := net.Pipe()
		p.accepted <- theirs
		l := newLine(t, ours)
		_ = ours.SetDeadline(time.Time{})
		const post = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
		for range 2 {
			l.say(t, post, "a")
			<-time.After(15 * time.Second)
			l.say(t, "bc")
			if _, got := l.hear(t, http.MethodPost); got != `POST /a "abc" <nil>` {
				t.Error(got)
			}
			<-time.After(30 * time.Second)
		}
		l.say(t, post, "a")
		began := time.Now()
		resp, got := l.hear(t, http.MethodPost)
		if took := time.Since(began); took != 20*time.Second || !strings.Contains(got, "timeout") || !resp.Close {
			t.Error(took, got, resp.Close)
		}
		l.closed(t)
	})
}

// G3: who takes nothing of what it is answered is left, whether or not its handler
// sees to that.
func TestTakesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, within, atLeast, atMost time.Duration
	}{
		"nobody sees to it":    {atLeast: 40 * time.Second, atMost: 45 * time.Second},
		"the handler does":     {own: 5 * time.Second, atLeast: 5 * time.Second, atMost: 5 * time.Second},
		"and is more patient":  {own: time.Hour, atLeast: time.Hour, atMost: time.Hour},
		"or nearly":            {within: 8 * time.Second, atLeast: 9 * time.Second, atMost: 9 * time.Second},
		"and less than before": {own: time.Hour, within: 8 * time.Second, atLeast: 9 * time.Second, atMost: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, took := newPipes(), make(chan time.Duration, 1)
				start(t, p, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/b" {
						return
					}
					began := time.Now()
					if c.own > 0 {
						_ = http.NewResponseController(w).SetWriteDeadline(began.Add(c.own))
					}
					if patient, ok := w.(interface{ WriteWithin(d, slack time.Duration) }); ok && c.within > 0 {
						patient.WriteWithin(c.within, c.within/8)
						<-time.After(time.Second / 2)
						patient.WriteWithin(c.within, c.within/8) // the deadline that is set will do
					}
					for err := error(nil); err == nil; {
						_, err = w.Write(make([]byte, 1<<10))
					}
					took <- time.Since(began)
				}, func(s *http1.Server) { s.Idle = 40 * time.Second })
				l := p.dial(t)
				l.get(t, "/a")
				l.say(t, strings.Replace(getA, "/a", "/b", 1))
				if d := <-took; d < c.atLeast || d > c.atMost {
					t.Error(d)
				}
			})
		})
	}
}

// G14: a request's context ends when its caller leaves, and when its handler
// returns.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	begun := make(chan context.Context, 1)
	var read sync.WaitGroup
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/aside": // the body is read in a goroutine of the handler
			read.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
		begun <- r.Context()
		if r.URL.Path != "/short" {
			<-r.Context().Done()
		}
	})
	for _, raw := range []string{
		getA,
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST /aside HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	} {
		l := dial(t, addr)
		l.say(t, raw)
		ctx := <-begun
		_ = l.Close()
		over(t, ctx)
	}
	read.Wait()
	l := dial(t, addr)
	if got := l.get(t, "/short"); got != "" {
		t.Error(got)
	}
	over(t, <-begun)
	if got := l.get(t, "/short"); got != "" {
		t.Error(got)
	}
	over(t, <-begun)
}

// TestReadsOnBehindItsHandler: who still reads a body when its handler returns is
// woken, and gets nothing of the next request.
func TestReadsOnBehindItsHandler(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		reads := make(chan struct{})
		go func() {
			var b [8]byte
			n, err := r.Body.Read(b[:])
			close(reads)
			for err == nil {
				n, err = r.Body.Read(b[:])
			}
			_ = n
			ended <- err
		}()
		<-reads
	})
	l := dial(t, addr)
	l.say(t, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nabc")
	if resp, _ := l.hear(t, http.MethodPost); !resp.Close {
		t.Error("the connection is kept in the middle of a body")
	}
	if err := <-ended; err == nil || errors.Is(err, io.EOF) {
		t.Error(err)
	}
	l.closed(t)
}

// TestPanics: a panic costs one caller, who sees the answer cut off.
func TestPanics(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/held":
			_, _ = io.WriteString(w, "part")
		case "/sent":
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
		case "/abort":
			panic(http.ErrAbortHandler)
		}
		panic("boom")
	}, func(s *http1.Server) { s.Logger = slog.New(slog.NewTextHandler(locked{&mu, &log}, nil)) })
	for path, want := range map[string]string{"/none": "", "/held": "", "/abort": "", "/sent": "4\r\npart\r\n"} {
		l := dial(t, addr)
		l.say(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		got, _ := io.ReadAll(l.r)
		if _, body, _ := strings.Cut(string(got), "\r\n\r\n"); body != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "boom"); n != 3 {
		t.Errorf("%d panics in the log:\n%s", n, log.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestShutdown: G31, what Shutdown does with connections in each state.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	p := newPipes()
	s := start(t, p, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_ = http.NewResponseController(w).Flush()
		}
		if r.URL.Path != "/short" {
			begun <- struct{}{}
			<-end
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})
	fresh, idle, crlf, half, live, stream := p.dial(t), p.dial(t), p.dial(t), p.dial(t), p.dial(t), p.dial(t)
	for _, l := range []*line{idle, crlf} {
		if got := l.get(t, "/short"); got != "/short" {
			t.Error(got)
		}
	}
	crlf.say(t, "\r\n")
	half.say(t, "GET /sh", "ort HTTP/1.1\r\nHost: x\r\n") // the second piece is read when the first has been looked at
	live.say(t, "GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	stream.say(t, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(stream.r, nil) // its head is out, and promises to keep the connection
	if err != nil || resp.Close {
		t.Fatal(err, resp)
	}
	<-begun
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	for _, l := range []*line{fresh, idle, crlf} {
		l.closed(t)
	}
	half.say(t, "\r\n")
	if resp, got := half.hear(t, http.MethodGet); got != "/short" || !resp.Close {
		t.Error(got, resp.Close)
	}
	close(end)
	if resp, got := live.hear(t, http.MethodGet); got != "/live" || !resp.Close {
		t.Error(got, resp.Close)
	}
	if got, err := io.ReadAll(resp.Body); string(got) != "/stream" || err != nil {
		t.Error(string(got), err)
	}
	_ = resp.Body.Close()
	for _, l := range []*line{half, live, stream} {
		l.closed(t)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestClose: handlers that are at work are told, and their callers cut off.
func TestClose(t *testing.T) {
	t.Parallel()
	begun := make(chan context.Context)
	p := newPipes()
	s := start(t, p, func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.Context()
		<-r.Context().Done()
	})
	l := p.dial(t)
	l.say(t, getA)
	ctx := <-begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	over(t, ctx)
	l.closed(t)
}

// TestAccept: what may pass is waited for, and what does not ends Serve.
func TestAccept(t *testing.T) {
	t.Parallel()
	inner := newPipes()
	l := &failing{pipes: inner, errs: []error{syscall.EMFILE, syscall.ECONNABORTED}}
	start(t, l, echo)
	if got := inner.dial(t).get(t, "/a"); got != `GET /a "" <nil>` {
		t.Error(got)
	}
	var log bytes.Buffer
	srv := &http1.Server{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := srv.Serve(&failing{pipes: newPipes(), errs: []error{syscall.EMFILE, syscall.EMFILE, io.ErrNoProgress}}); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="no new connections" error="too many open files"`) {
		t.Errorf("the log: %s", got)
	}
}

// A failing listener fails at first.
type failing struct {
	*pipes
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return f.pipes.Accept()
}
