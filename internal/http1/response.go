package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// heldSize is how much of a body is held until it is flushed.
const heldSize = 4 << 10

// A buffer is room for bytes on their way out.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, heldSize)} }}

func newBuffer() *buffer {
	b, _ := buffers.Get().(*buffer)
	return b
}

// release gives the room back.
func (b *buffer) release() {
	if b != nil && cap(b.b) <= 16*heldSize {
		b.b = b.b[:0]
		buffers.Put(b)
	}
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

// bodiless reports whether an answer with this status has no body.
func bodiless(status int) bool {
	return status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified
}

func appendStatus(b []byte, status int) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(status), 10)
	return append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
}

// appendHead appends what is known of the head when the status is told, and notes
// what its header tells of the body.
func (w *response) appendHead(b []byte, status int) []byte {
	_, w.typed = w.header["Content-Type"]
	w.typed = w.typed || len(w.header["Content-Encoding"]) > 0
	if told := w.header["Content-Length"]; len(told) > 0 {
		if n, err := strconv.ParseUint(told[0], 10, 63); err == nil {
			w.length = int64(n)
		}
	}
	w.close = w.close || listed(w.header["Connection"], "close") || w.conn.server.leaving.Load()
	omitted := []string{"Connection", "Transfer-Encoding", "Content-Length", "Content-Type"}
	switch {
	case status == http.StatusNotModified:
	case bodiless(status) || w.length < 0:
		omitted = omitted[:3]
	default:
		omitted = omitted[:2]
	}
	if bodiless(status) {
		w.length = -1
	}
	return appendHeader(appendStatus(b, status), w.header, omitted)
}

// appendHeader appends header lines in the order of their names, but for those
// omitted, trailers, and what is no header.
func appendHeader(b []byte, h http.Header, omitted []string) []byte {
	var room [24]string
	names := room[:0]
	for name := range h {
		if token(name) && !slices.Contains(omitted, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range h[name] {
			b = appendField(b, name, v)
		}
	}
	return b
}

// appendField appends a header line. What would end it early is a space.
func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	at := len(b)
	b = append(b, strings.Trim(value, " \t\r\n")...)
	for i := at; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' || b[i] == 0 {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

// appendFraming appends the rest of the head: what depends on the body, of which
// held and p are the beginning, and when last is set the whole.
func (w *response) appendFraming(b, held, p []byte, last bool) []byte {
	w.sent = true
	if begins := held; !w.typed && !bodiless(w.status) {
		if len(begins) == 0 {
			begins = p
		}
		if len(begins) > 0 {
			b = appendField(b, "Content-Type", http.DetectContentType(begins))
		}
	}
	if _, told := w.header["Date"]; !told {
		b = append(time.Now().UTC().AppendFormat(append(b, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	switch {
	case bodiless(w.status) || w.length >= 0:
	case last && !w.hasTrailers():
		if w.request.Method != http.MethodHead || w.written > 0 {
			b = append(strconv.AppendInt(append(b, "Content-Length: "...), w.written, 10), "\r\n"...)
		}
	case w.request.Method == http.MethodHead: // it ends with the head
	case w.modern:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		w.chunked = true
	default:
		w.close = true
	}
	switch w.close = w.close || last && w.body.unread(); {
	case w.close:
		b = append(b, "Connection: close\r\n"...)
	case w.keep:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

// hasTrailers reports whether something is to stand behind the body.
func (w *response) hasTrailers() bool {
	if !w.modern {
		return false
	}
	for name := range w.header {
		if name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailers appends what stands behind the body: the headers that Trailer
// announced, and those of http.TrailerPrefix.
func (w *response) appendTrailers(b []byte) []byte {
	trailers := http.Header{}
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if values, ok := w.header[name]; ok {
				trailers[name] = values
			}
		}
	}
	for name, values := range w.header {
		if bare, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailers[http.CanonicalHeaderKey(bare)] = values
		}
	}
	return appendHeader(b, trailers, []string{"Transfer-Encoding", "Content-Length", "Trailer"}) // these are read too early to stand here
}
