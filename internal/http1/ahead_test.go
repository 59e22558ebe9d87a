package http1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// The head of an answer costs what it holds, however its lines are cut.
func TestDirectReadsOddHeads(t *testing.T) { //nolint:paralleltest // it measures memory
	for name, head := range map[string]string{
		"one line that goes on": "A: b\r\n" + strings.Repeat(" x\n", 20<<10),
		"empty lines":           "A: b\r\n" + strings.Repeat(" \n", 400<<10),
	} {
		url := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"+head+"\r\nok", true)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := call(direct(t), post(t.Context(), t, url, "x"))
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; got != "200 ok" || err != nil || mib > 20 {
			t.Errorf("%s: %s, %v, for %d MiB", name, got, err, mib)
		}
	}
}
