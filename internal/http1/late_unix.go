//go:build unix

package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// A lateReader reads what comes on a connection of the system, and takes room for it
// only once something has come: who waits holds none, and what came at once is read
// at once.
type lateReader struct {
	in  *input
	raw syscall.RawConn
	try func(fd uintptr) bool // attempt; a method value of its own for each read would be memory
	n   int                   // what the last attempt returned
	err error
}

// lateFrom returns the reader of what comes on c into in; nil where c is none of the
// system's, such as one of TLS.
func lateFrom(c net.Conn, in *input) *lateReader {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	l := &lateReader{in: in, raw: raw}
	l.try = l.attempt
	return l
}

// fill waits for something to read, and reads it.
func (l *lateReader) fill() error {
	l.in.release()
	switch err := l.raw.Read(l.try); {
	case err != nil:
		return err //nolint:wrapcheck // it is the connection's
	case l.err != nil:
		return os.NewSyscallError("read", l.err)
	case l.n == 0:
		return io.EOF
	}
	return nil
}

// attempt reads what is there, and reports whether that is anything, an end or a
// fault.
func (l *lateReader) attempt(fd uintptr) bool {
	in := l.in
	in.make()
	for {
		n, err := syscall.Read(int(fd), in.buf)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			in.release()
			return false
		}
		l.n, l.err = max(n, 0), err
		in.end = l.n
		in.full = in.end == len(in.buf)
		return true
	}
}
