//go:build unix

package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// pair returns two ends of a connection.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// Who waits for something to come holds no room for it; what comes is read at once,
// up to the room, and ends and faults are told as the connection tells them.
func TestLateReader(t *testing.T) {
	t.Parallel()
	from, to := pair(t)
	in := input{first: longRoom}
	if in.late = lateFrom(to, &in); in.late == nil {
		t.Fatal("a connection of the system has no late reader")
	}
	if err := to.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := in.fill(to); !errors.Is(err, os.ErrDeadlineExceeded) || in.room != nil {
		t.Errorf("a read whose time is over: %v, with room: %t", err, in.room != nil)
	}
	if err := to.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	sent := strings.Repeat("x", 3*longRoom)
	if _, err := io.WriteString(from, sent); err != nil {
		t.Fatal(err)
	}
	if err := in.fill(to); err != nil || in.end < roomSize || in.full != (in.end == longRoom) {
		t.Errorf("the first read of %d bytes: %d, full: %t, %v", len(sent), in.end, in.full, err)
	}
	for got := len(in.take(in.end)); got < len(sent); got += len(in.take(in.end - in.at)) {
		if err := in.fill(to); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.fill(to); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.fill(to); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed connection: %v", err)
	}
}
