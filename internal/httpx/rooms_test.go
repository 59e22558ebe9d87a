package httpx_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/httpx"
)

// An answer that comes faster than it is read is read in large pieces, and what
// was read ahead is lost neither within an answer nor between two of one
// connection.
func TestDirectReadsAhead(t *testing.T) {
	t.Parallel()
	var chunked, want strings.Builder
	for i := range 300 {
		piece := fmt.Sprintf("%d %s;", i, strings.Repeat("x", i*7%1500))
		want.WriteString(piece)
		_, _ = fmt.Fprintf(&chunked, "%x\r\n%s\r\n", len(piece), piece)
	}
	plain := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", want.Len(), &want)
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, nth int) {
		for i := 0; asked(r); i++ {
			answer := plain
			if i%2 == 0 {
				answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked.String() + "0\r\n\r\n"
			}
			if nth > 0 {
				answer = ok
			}
			_, _ = io.WriteString(c, answer)
		}
	})
	d := direct(t)
	for range 6 {
		got, err := call(d, post(t.Context(), t, url, "x"))
		if diff := cmp.Diff("200 "+want.String(), got); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
	}
}

// G36: a request that comes while the one before it is answered is read from its
// first byte on, though net/http waits for that byte alone.
func TestStrictReadsBehindAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, sent := make(chan struct{}, 1), make(chan struct{}, 1)
	strict := httpx.Strict{MaxHeader: 8 << 10}
	srv := &http.Server{ConnContext: strict.ConnContext, Handler: strict.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/first" {
			begun <- struct{}{}
			<-sent
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	}))}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(strict.Listen(l)) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	r := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none")
		<-begun
		_, _ = io.WriteString(c, "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo")
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
