package httpx_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/agentbus/agentbus/internal/httpx"
)

// strictServer runs a real server behind Strict and returns its address. Its
// handler answers with the method, the path and the body it read.
func strictServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	strict := httpx.Strict{MaxHeader: 8 << 10}
	srv := &http.Server{ConnContext: strict.ConnContext, ConnState: strict.ConnState, Handler: strict.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/says" { // in one write of its own
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(body)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s %q %v", r.Method, r.URL.Path, body, err)
	}))}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(strict.Listen(l)) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

// likeRefusal is what net/http says of what it cannot parse, word for word.
const likeRefusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"

var saysRefusal = fmt.Sprintf("POST /says HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(likeRefusal), likeRefusal)

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
	addr := strictServer(t)
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
		"unknown coding":           {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", []string{"400", refused, "Unsupported transfer encoding"}},
		"length no number":         {post + "Content-Length: 3x\r\n\r\nabc", []string{"400", refused}},
		"length with a sign":       {post + "Content-Length: +3\r\n\r\nabc", []string{"400", "X-Request-Id: req_", "X-Should-Retry: false", refused}}, // P12
		"method of the stand-in":   {"REFUSED /a HTTP/1.1\r\nHost: x\r\n\r\n", []string{"200 OK", "REFUSED /a"}},
		"cut head":                 {"GET /a HTTP/1.1\r\nHos", []string{""}},
		"space before the colon":   {get + "Content-Length : 3\r\n\r\nabc", []string{"400", refused, "invalid header name"}},
		"control character":        {get + "A: b\x01c\r\n\r\n", []string{"400", refused}},
		"no host":                  {"GET /a HTTP/1.1\r\n\r\n", []string{"400", refused, "missing required Host header"}},
		"another version":          {"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", []string{"400", refused, "unsupported protocol version"}},
		"no request":               {"hello\r\n\r\n", []string{"400", refused}},
		"malformed behind another": {plain + "hello\r\n\r\n", []string{"200 OK", `"abc"`, "400", refused}},
		"an answer like a refusal": {saysRefusal, []string{"200 OK", "\r\n\r\n" + likeRefusal}},
		"chunk size no number":     {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", []string{"invalid byte in chunk length"}},
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	strict, arrived := httpx.Strict{MaxHeader: 8 << 10}, make(chan bool, 1)
	srv := &http.Server{ConnContext: strict.ConnContext, Handler: strict.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- httpx.Arrived(r)
		_, _ = io.Copy(io.Discard, r.Body)
	}))}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(strict.Listen(l)) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	c, err := net.Dial("tcp", l.Addr().String())
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
		{"Content-Length: 4\r\n\r\nping" + head + "Content-Length: 4\r\n\r\np", "ing", []bool{false, false}}, // it takes one for the other
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
