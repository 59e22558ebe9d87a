package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

// isEvents reports whether the answer is a stream of events: it says so, or it says
// nothing, or plain text, and begins as one. Servers that forget the type, and those
// that guess it, are understood by clients, which do not look (G15).
func (a *answer) isEvents() bool {
	x, h := a.exchange, a.resp.Header
	if isSSE(h) {
		return true
	}
	if x.flight == nil || x.envelope != nil || x.dialect == dialectOther || a.resp.StatusCode != http.StatusOK {
		return false
	}
	if kind := h.Get("Content-Type"); kind != "" && !strings.HasPrefix(kind, "text/plain") || !a.beginsAsEvents() {
		return false
	}
	h["Content-Type"] = []string{"text/event-stream"}
	return true
}

// beginsAsEvents looks at the first bytes of the answer, and leaves them there.
func (a *answer) beginsAsEvents() bool {
	idle := time.AfterFunc(a.gateway.cfg.IdleTimeout, func() { a.cancel(errIdle) })
	defer idle.Stop()
	defer a.exchange.waited(time.Now())
	begun, rest := a.little[:0], io.Reader(a.resp.Body)
	is, known := false, false
	for !known && len(begun) < cap(begun) {
		n, err := a.resp.Body.Read(begun[len(begun):cap(begun)])
		begun = begun[:len(begun)+n]
		if is, known = beginEvents(begun); err != nil {
			known, rest = true, failed{err}
		}
	}
	a.resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(bytes.Clone(begun)), rest), a.resp.Body}
	return is
}

// failed is a reader of what cannot be read.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// beginEvents reports whether b is the beginning of a stream of events; known: it is
// long enough to tell.
func beginEvents(b []byte) (is, known bool) {
	known = len(b) >= len(bom) || !bytes.HasPrefix(bom, b)
	b = bytes.TrimLeft(bytes.TrimPrefix(b, bom), "\r\n")
	for _, field := range [...]string{":", "data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(b, []byte(field)) {
			return true, true
		}
		known = known && !bytes.HasPrefix([]byte(field), b)
	}
	return false, known
}
