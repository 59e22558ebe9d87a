package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

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
	b = append(b, trim(value, blankOrEnd)...)
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
		b = append(append(append(b, "Date: "...), w.conn.server.date.now()...), "\r\n"...)
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

// A date is what the Date header says. It is written once a second, however many
// answers have it.
type date struct{ atomic.Pointer[moment] }

// A moment is a second since 1970, and what it is called.
type moment struct {
	second int64
	text   string
}

func (d *date) now() string {
	now := time.Now()
	m := d.Load()
	if m == nil || m.second != now.Unix() {
		m = &moment{now.Unix(), now.UTC().Format(http.TimeFormat)}
		d.Store(m)
	}
	return m.text
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
