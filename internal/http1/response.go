package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A response is the answer to a request: what its handler writes to. As that of
// http.Server, it is for one goroutine at a time.
//
// The head is made as the handler tells the status, but for what depends on the
// body; the body is held up to heldSize, and goes with the head in one write.
type response struct {
	conn    *conn
	to      io.Writer
	request *http.Request
	cancel  context.CancelFunc // of the request
	body    *body              // of the request; nil: it has none
	modern  bool               // HTTP/1.1
	keep    bool               // a caller of HTTP/1.0 asked for another request
	close   bool               // there is none
	timed   bool               // the handler set a write deadline

	header    http.Header
	status    int     // 0: it is not told
	head      *buffer // what is known of it; nil: it is sent, or not begun
	held      *buffer // of the body, not sent; nil: nothing
	sent      bool    // the head is
	typed     bool    // the handler told the type, or that there is none
	length    int64   // of the body, as the handler told; -1: it did not
	written   int64   // of the body
	chunked   bool
	proceeded sync.Mutex // guards sent and status against [body]'s 100 Continue
	err       error      // why nothing can be written any more
}

// Header returns the header, to be filled before the status is told; trailers
// until the end.
func (w *response) Header() http.Header { return w.header }

// WriteHeader tells the status. One below 200, of which 101 is none, is sent at
// once, and another may follow.
func (w *response) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	if status < 100 || status > 999 { // the handler is wrong
		status = http.StatusInternalServerError
	}
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.proceeded.Lock()
	w.status = status
	w.proceeded.Unlock()
	w.head = newBuffer()
	w.head.b = w.appendHead(w.head.b, status)
}

// inform sends an answer before the answer. HTTP/1.0 has none.
func (w *response) inform(status int) {
	if !w.modern {
		return
	}
	b := newBuffer()
	defer b.release()
	b.b = append(appendHeader(appendStatus(b.b, status), w.header, []string{"Connection", "Transfer-Encoding", "Content-Length"}), "\r\n"...)
	_ = w.write(b.b) // the answer proper tells that the caller has left
}

// proceed tells a caller that waits for it to send the body.
func (w *response) proceed() error {
	w.proceeded.Lock()
	defer w.proceeded.Unlock()
	if w.status != 0 {
		return nil
	}
	_, err := io.WriteString(w.to, "HTTP/1.1 100 Continue\r\n\r\n")
	return err //nolint:wrapcheck // it is the connection's
}

// Write writes to the body. More than was told is http.ErrContentLength.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case bodiless(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	case w.err != nil:
		return 0, w.err
	}
	w.written += int64(len(p))
	if len(p) == 0 {
		return 0, nil
	}
	if w.request.Method == http.MethodHead {
		w.sniff(p)
		return len(p), nil
	}
	if w.held == nil {
		w.held = newBuffer()
	}
	if len(w.held.b)+len(p) <= heldSize {
		w.held.b = append(w.held.b, p...)
		return len(p), nil
	}
	if err := w.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sniff tells the type of a body that is not sent.
func (w *response) sniff(p []byte) {
	if !w.typed && w.head != nil {
		w.typed, w.head.b = true, appendField(w.head.b, "Content-Type", http.DetectContentType(p))
	}
}

// Flush sends what is held.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what is held. It is for http.ResponseController, as the
// methods below.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.sent && w.held == nil {
		return w.err
	}
	return w.send(nil, false)
}

// SetReadDeadline sets until when the body of the request can be read.
func (w *response) SetReadDeadline(t time.Time) error {
	w.conn.unknown = true
	return w.conn.net.SetReadDeadline(t) //nolint:wrapcheck // it is the connection's
}

// SetWriteDeadline sets until when the answer can be written.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.timed, w.conn.late = true, true
	return w.conn.net.SetWriteDeadline(t) //nolint:wrapcheck // it is the connection's
}

// WriteWithin gives a caller a time to take what is written from now on, and up to
// slack more: a deadline that does is not moved.
func (w *response) WriteWithin(d, slack time.Duration) {
	w.timed = true
	w.conn.writeWithin(d, slack)
}

// EnableFullDuplex does nothing: a body may be read when the answer has begun.
func (w *response) EnableFullDuplex() error { return nil }

// errShort ends a connection whose caller waits for more.
var errShort = errors.New("the handler wrote less than it told")

// end sends the rest of the answer. The connection cannot be used after an error.
func (w *response) end() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	err := w.err
	if err == nil && (!w.sent || w.held != nil || w.chunked) {
		err = w.send(nil, true)
	}
	w.head.release()
	w.held.release()
	w.head, w.held = nil, nil
	if err == nil && w.length > w.written && w.request.Method != http.MethodHead && !bodiless(w.status) {
		err = errShort
	}
	return err
}

// maxCopied is up to which size what is written is copied, to go in one piece
// with what stands around it.
const maxCopied = 16 << 10

// send sends the head, unless it was, and what is held of the body, with p behind
// it; last ends the body.
func (w *response) send(p []byte, last bool) error {
	out := w.head
	if out == nil {
		out = newBuffer()
	}
	held := []byte(nil)
	if w.held != nil {
		held = w.held.b
	}
	if !w.sent {
		out.b = w.appendFraming(out.b, held, p, last)
	}
	tail := ""
	if n := len(held) + len(p); w.chunked && n > 0 {
		out.b = append(strconv.AppendInt(out.b, int64(n), 16), "\r\n"...)
		tail = "\r\n"
	}
	out.b = append(out.b, held...)
	var err error
	if len(p) > maxCopied {
		err = w.write(out.b, p)
		out.b, p = out.b[:0], nil
	}
	out.b = append(append(out.b, p...), tail...)
	if last && w.chunked {
		out.b = append(w.appendTrailers(append(out.b, "0\r\n"...)), "\r\n"...)
	}
	if err == nil && len(out.b) > 0 {
		err = w.write(out.b)
	}
	w.held.release()
	out.release()
	w.head, w.held = nil, nil
	return err
}

// write writes pieces to the caller, who has left when that fails.
func (w *response) write(pieces ...[]byte) error {
	w.renew()
	var err error
	if len(pieces) == 1 {
		_, err = w.to.Write(pieces[0])
	} else {
		all := net.Buffers(pieces)
		_, err = all.WriteTo(w.to)
	}
	if err != nil {
		w.err, w.close = err, true
		w.cancel()
	}
	return err //nolint:wrapcheck // it is the connection's
}

// renew gives a caller its time to take the next piece, where the handler gives
// it none.
func (w *response) renew() {
	if c := w.conn; !w.timed {
		c.writeWithin(c.server.Idle, c.server.Idle/8)
	}
}
