package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/http1"
)

// A reel is a connection whose caller has said all it will say, in pieces of a
// size, and takes every answer.
type reel struct {
	mu     sync.Mutex
	rest   []byte
	piece  int
	past   bool // the read deadline has passed
	closed chan struct{}
	once   sync.Once
}

func (r *reel) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.past:
		return 0, os.ErrDeadlineExceeded
	case len(r.rest) == 0:
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(r.piece, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reel) SetReadDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = !t.IsZero() && t.Before(time.Now())
	return nil
}

func (r *reel) Write(p []byte) (int, error)      { return len(p), nil }
func (r *reel) Close() error                     { r.once.Do(func() { close(r.closed) }); return nil }
func (r *reel) SetDeadline(t time.Time) error    { return r.SetReadDeadline(t) }
func (r *reel) SetWriteDeadline(time.Time) error { return nil }
func (r *reel) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (r *reel) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// read is what was understood of a request.
type read struct {
	Method, Target, Proto, Host, URL string
	Header                           http.Header
	Length                           int64
	Coding                           []string
	Close                            bool
	Body                             string
}

// understood reads the body of r. What net/http adds to the header, or leaves in,
// is left out.
func understood(r *http.Request) (read, error) {
	body, err := io.ReadAll(r.Body)
	h := r.Header.Clone()
	if h.Get("Pragma") == "no-cache" {
		h.Del("Cache-Control")
	}
	h.Del("Trailer")
	return read{r.Method, r.RequestURI, r.Proto, r.Host, r.URL.String(), h, r.ContentLength, r.TransferEncoding, r.Close, string(body)}, err
}

// FuzzRequests: G36, what is served is what net/http reads too, in the same way,
// in whatever pieces it comes.
func FuzzRequests(f *testing.F) {
	for _, raw := range requests {
		f.Add([]byte(raw), 1)
		f.Add([]byte(raw+getA), 1000)
	}
	f.Add([]byte("\r\n"+getA+"\r\n"+getA), 1)
	f.Add([]byte("\r\n\r\n"), 1)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\nPragma: no-cache\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n"), 3)
	var got []read
	p := newPipes()
	s := &http1.Server{MaxHeader: 1 << 10, Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if one, err := understood(r); err == nil {
			got = append(got, one)
		}
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(p) }()
	f.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, raw []byte, piece int) {
		got = nil
		c := &reel{rest: raw, piece: max(piece, 1), closed: make(chan struct{})}
		p.accepted <- c
		select {
		case <-c.closed:
		case <-time.After(patience):
			t.Fatal("hangs")
		}
		reader := bufio.NewReaderSize(bytes.NewReader(raw), 64<<10)
		for _, one := range got {
			if b, _ := reader.Peek(2); string(b) == "\r\n" { // before a request
				_, _ = reader.Discard(2)
			}
			r, err := http.ReadRequest(reader)
			if err != nil && strings.Contains(err.Error(), "bad trailer key") { // here trailers are left out
				return
			}
			if err != nil {
				t.Fatalf("served %+v: %v", one, err)
			}
			want, err := understood(r)
			if diff := cmp.Diff(want, one); diff != "" || err != nil {
				t.Fatal(diff, err)
			}
		}
	})
}
