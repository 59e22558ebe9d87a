package http1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/agentbus/agentbus/internal/http1"
	"github.com/agentbus/agentbus/internal/httpx"
)

// serve runs a server of h and returns its address. The server is shut down, and
// waited for, at the end of the test.
func serve(t *testing.T, h http.HandlerFunc, more ...func(*http1.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http1.Server{Handler: h, MaxHeader: 8 << 10, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range more {
		change(srv)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// echo answers with the method, the path and the body it read.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s %q %v", r.Method, r.URL.Path, body, err)
}

// talk sends raw bytes, in pieces of the given size, and returns all that comes
// back until the server closes.
func talk(t *testing.T, addr, raw string, piece int) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for s := raw; s != ""; {
		n := min(piece, len(s))
		if _, err := io.WriteString(c, s[:n]); err != nil {
			break
		}
		s = s[n:]
	}
	_ = c.(*net.TCPConn).CloseWrite() //nolint:errcheck // it is one
	b, err := io.ReadAll(iotest.DataErrReader(bufio.NewReader(c)))
	if err != nil && len(b) == 0 {
		t.Fatal(err)
	}
	return string(b)
}

// TestStrict: G36, requests that two servers could read differently.
func TestStrict(t *testing.T) {
	t.Parallel()
	addr := serve(t, echo)
	const get, post = "GET /a HTTP/1.1\r\nHost: x\r\n", "POST /a HTTP/1.1\r\nHost: x\r\n"
	const plain = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
	refused := `"code":"invalid_request"`
	for name, c := range map[string]struct {
		raw  string
		want []string // in this order
	}{
		"plain":                    {get + "\r\n", []string{"200 OK", `GET /a ""`}},
		"length":                   {plain, []string{"200 OK", `"abc"`}},
		"chunked":                  {post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{"200 OK", `"abc"`}},
		"chunked, trailer":         {post + "Transfer-Encoding: chunked\r\nTrailer: x\r\n\r\n3;e=1\r\nabc\r\n0\r\nx: 1\r\n\r\n" + get + "\r\n", []string{`"abc"`, `GET /a ""`}},
		"pipelined":                {plain + get + "\r\n" + plain, []string{`"abc"`, `GET /a`, `"abc"`}},
		"both lengths":             {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{"400", refused}},
		"both lengths, reversed":   {post + "transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n", []string{"400", refused}},
		"two lengths":              {post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", []string{"400", refused}},
		"two codings":              {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", []string{"400", refused}},
		"folded":                   {get + "A: b\r\n c\r\n\r\n", []string{"400", refused}},
		"folded by tab":            {get + "A: b\r\n\tc\r\n\r\n", []string{"400", refused}},
		"bare LF":                  {"GET /a HTTP/1.1\nHost: x\n\n", []string{"400", refused}},
		"bare LF in a header":      {get + "A: b\nContent-Length: 3\r\n\r\n", []string{"400", refused}},
		"bare CR":                  {get + "A: b\rc\r\n\r\n", []string{"400", refused}},
		"header block over limit":  {get + "A: " + strings.Repeat("x", 9<<10) + "\r\n\r\n", []string{"413", `"code":"request_too_large"`}},
		"behind a good one":        {plain + get + "A: b\r\n c\r\n\r\n", []string{"200 OK", `"abc"`, "400", refused}},
		"behind a chunked one":     {post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + "GET /b HTTP/1.1\n\n", []string{"200 OK", `POST /a ""`, "400", refused}},
		"nothing behind a refusal": {get + "A: b\r\n c\r\n\r\n" + plain, []string{"400"}},
		"unknown coding":           {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", []string{"400", "not chunked alone", refused}},
		"length no number":         {post + "Content-Length: 3x\r\n\r\nabc", []string{"400", refused}},
		"length with a sign":       {post + "Content-Length: +3\r\n\r\nabc", []string{"400", "X-Request-Id: req_", "X-Should-Retry: false", refused}}, // P12
		"cut head":                 {"GET /a HTTP/1.1\r\nHos", []string{"400", "was cut", refused}},
		"space before the colon":   {get + "Content-Length : 3\r\n\r\nabc", []string{"400", "name of a header", refused}},
		"control character":        {get + "A: b\x01c\r\n\r\n", []string{"400", refused}},
		"no host":                  {"GET /a HTTP/1.1\r\n\r\n", []string{"400", "lacks the required Host header", refused}},
		"another version":          {"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", []string{"400", "version of HTTP", refused}},
		"no request":               {"hello\r\n\r\n", []string{"400", refused}},
		"malformed behind another": {plain + "hello\r\n\r\n", []string{"200 OK", `"abc"`, "400", refused}},
		"chunk size no number":     {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", []string{"no hexadecimal number"}},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, piece), func(t *testing.T) {
				t.Parallel()
				got := talk(t, addr, c.raw, piece)
				rest := got
				for _, want := range c.want {
					_, after, ok := strings.Cut(rest, want)
					if !ok {
						t.Fatalf("no %q in its place in\n%s", want, got)
					}
					rest = after
				}
				if name == "nothing behind a refusal" && strings.Contains(got, "200 OK") {
					t.Errorf("answered behind a refusal:\n%s", got)
				}
			})
		}
	}
}

// G3: a body that has come whole needs no patience, one that is under way does.
func TestArrived(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool, 1)
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- httpx.Arrived(r)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const head = "POST / HTTP/1.1\r\nHost: a\r\n"
	for _, sent := range []struct {
		now, later string
		want       []bool // of each request
	}{
		{"Content-Length: 4\r\n\r\nping", "", []bool{true}},
		{"Content-Length: 4\r\n\r\npi", "ng", []bool{false}},
		{"Content-Length: 4\r\n\r\nping" + head + "Content-Length: 4\r\n\r\np", "ing", []bool{true, false}},
		{"Transfer-Encoding: chunked\r\n\r\n4\r\nping\r\n", "0\r\n\r\n", []bool{false}},
		{"Content-Length: 0\r\n\r\n", "", []bool{true}},
	} {
		_, _ = io.WriteString(c, head+sent.now)
		for i, want := range sent.want {
			if got := <-arrived; got != want {
				t.Errorf("%q, request %d: %t, want %t", sent.now, i, got, want)
			}
		}
		_, _ = io.WriteString(c, sent.later)
	}
	if httpx.Arrived(&http.Request{}) {
		t.Error("a request of another server has arrived")
	}
}

// G36: a request that comes while the one before it is answered is read from its
// first byte on, though net/http waits for that byte alone.
func TestNextRequestComesEarly(t *testing.T) {
	t.Parallel()
	begun, sent := make(chan struct{}, 1), make(chan struct{}, 1)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/first" {
			begun <- struct{}{}
			<-sent
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	r := bufio.NewReader(c)
	for i := range 3 {
		_, _ = io.WriteString(c, "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none")
		<-begun
		_, _ = io.WriteString(c, "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo")
		if i > 0 {
			<-time.After(2 * http1.Patience) // now somebody does, most likely
		}
		sent <- struct{}{}
		for _, want := range []string{"/first one", "/second two"} {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); string(got) != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			_ = resp.Body.Close()
		}
	}
}
