package http1_test

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An answer that net/http reads to its end is read with the same meaning.
func FuzzAnswer(f *testing.F) {
	for _, raw := range []string{
		ok,
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"HTTP/1.0 200\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\na: d \r\n\r\nuntil the end",
		"HTTP/1.1 200 OK\r\nA: b\n \n\t\r\nB:\n c\n\nuntil the end",
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nTrailer: X-A, x-b\r\n\r\n2;x=y\r\nok\r\n00\r\nx-a: 1\r\nX-C: 2\r\n\r\n",
		"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nok!",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 1\r\n\r\n3\r\nok!\r\n0\r\n\r\n",
	} {
		f.Add(raw)
	}
	answers := make(chan string, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if asked(bufio.NewReader(c)) {
				_, _ = io.WriteString(c, <-answers)
			}
			_ = c.Close()
		}
	}()
	f.Cleanup(func() { _ = l.Close(); <-done })
	f.Fuzz(func(t *testing.T, raw string) {
		r := post(t.Context(), t, "http://"+l.Addr().String(), "x")
		want, err := readByNetHTTP(raw, r)
		answers <- raw
		resp, fault := direct(t).RoundTrip(r) //nolint:bodyclose // wholeOf does
		if fault != nil {
			if err == nil && want.Status != http.StatusSwitchingProtocols { // nobody asked for that
				t.Fatalf("net/http reads %+v, this: %v", want, fault)
			}
			return
		}
		got, fault := wholeOf(resp)
		if err == nil && fault != nil || err == nil && cmp.Diff(want, got) != "" {
			t.Fatalf("%v\n%s", fault, cmp.Diff(want, got))
		}
	})
}

// An answered is what came of an answer.
type answered struct {
	Status          int
	Header, Trailer http.Header
	Length          int64
	Close           bool
	Body            string
}

// readByNetHTTP reads the answer that is no informational one.
func readByNetHTTP(raw string, r *http.Request) (answered, error) {
	b := bufio.NewReader(strings.NewReader(raw))
	for {
		resp, err := http.ReadResponse(b, r) //nolint:bodyclose // wholeOf does
		if err != nil {
			return answered{}, err
		}
		if resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
			return wholeOf(resp)
		}
	}
}

func wholeOf(resp *http.Response) (answered, error) {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	trailer := http.Header{}
	for name, values := range resp.Trailer {
		if values != nil {
			trailer[name] = values
		}
	}
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { return strings.Contains(name, " ") }) // no header
	return answered{resp.StatusCode, resp.Header, trailer, resp.ContentLength, resp.Close, string(body)}, err
}
