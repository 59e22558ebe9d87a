package httpx

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
)

// Write hands an answer to the connection. What net/http refuses before there is
// a request for a handler it answers itself, in plain text: the caller reads a
// refusal of the one table instead, of the shape that every other has. What a
// handler answers stays as it is, whatever an agent makes it look like.
func (c *strictConn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	cause, ok := unparsed(p)
	if !ok {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(refusalOf(cause)); err != nil {
		return 0, err // as it is: the server looks at its type
	}
	return len(p), nil
}

// unparsedHead is what net/http writes behind the status of such an answer.
const unparsedHead = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// unparsed returns why net/http refused a request in p, in words of its own; ""
// when it does not say. ok is false for any other answer.
func unparsed(p []byte) (cause string, ok bool) {
	const status = "HTTP/1.1 400"
	if len(p) < len(status) || p[9] != '4' && p[9] != '5' {
		return "", false
	}
	head, text, ok := bytes.Cut(p, []byte(unparsedHead))
	if !ok || bytes.Contains(head, []byte("\r\n")) {
		return "", false
	}
	if _, detail, found := strings.Cut(string(text), ": "); found {
		return detail, true // such as 400 Bad Request: malformed Host header
	}
	if strings.HasPrefix(string(text), "Unsupported") {
		return string(text), true
	}
	return "", true
}

// refusalOf is the answer to a request that could not be parsed, as it is sent.
func refusalOf(cause string) []byte {
	e := &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "this is no request of HTTP/1.1 that is served here",
		Explain: &agentbus.Explain{Rule: "G36", Next: "send the request in the plain form of RFC 9112"},
	}
	if cause != "" {
		e.Explain.Observed = cause
	}
	w := &unsent{header: http.Header{}}
	WriteError(w, agentbus.Lineage{}, e)
	answer := http.Response{
		StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Close: true,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
	}
	var b bytes.Buffer
	_ = answer.Write(&b) // into memory
	return b.Bytes()
}

// unsent is an answer in memory.
type unsent struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the head, to be filled.
func (w *unsent) Header() http.Header { return w.header }

// WriteHeader notes the status.
func (w *unsent) WriteHeader(status int) { w.status = status }

// Write adds to the body.
func (w *unsent) Write(p []byte) (int, error) { return w.body.Write(p) }
