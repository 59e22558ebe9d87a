package gateway

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/agentbus/agentbus/a2a"
)

// allowedA2A are the headers of a caller that an A2A agent is told (A7). The
// lineage is written from what was parsed, credentials from what is configured.
var allowedA2A = map[string]bool{
	"Content-Type": true, "Accept": true, "A2a-Version": true, "A2a-Extensions": true, "X-A2a-Extensions": true,
	"Last-Event-Id": true, "User-Agent": true, "Via": true,
}

func (x *exchange) allowed(name string) bool {
	return allowedA2A[name] || slices.Contains(x.target.A2A.Forward, name)
}

// speak completes the headers of a request to an A2A agent: extensions in one
// field (A9), and the version that the operator sets for callers that name none
// (A8).
func (x *exchange) speak(h http.Header) {
	for _, name := range [...]string{"A2a-Extensions", "X-A2a-Extensions"} {
		if values := h[name]; len(values) > 1 {
			h[name] = []string{strings.Join(values, ", ")}
		}
	}
	if len(h["A2a-Version"]) == 0 && !x.envelope.asksVersion && x.envelope.version != "" {
		h["A2a-Version"] = []string{x.envelope.version}
	}
}

// stamped returns the body as it goes to the agent: as it came, with the lineage
// of the next hop in the metadata where there is room for it (A6).
func (x *exchange) stamped() []byte {
	e := x.envelope
	if e.out != nil {
		return e.out
	}
	body := x.body
	if e.body != nil {
		body = e.body
	}
	if x.target.A2A != nil && e.call.TakesMetadata() && len(bytes.TrimSpace(body)) > 0 {
		told := a2a.LineageMetadata(x.lineageOut())
		var with []byte
		var err error
		if e.body == nil {
			with, err = e.call.SetMetadata(body, told, a2a.MetadataKey)
		} else { // what was read stands elsewhere now
			with, err = a2a.Set(body, told, e.call.MetadataPath(a2a.MetadataKey)...)
		}
		if err == nil {
			body = with // else its metadata is no object: the agent says what it thinks of that
		}
	}
	if x.target.A2A != nil {
		body = x.mentioned(body)
	}
	e.out = body
	return body
}

// repeatable reports whether the request may be sent again after bytes of it
// were sent (A15).
func (x *exchange) repeatable() bool {
	return x.envelope != nil && x.envelope.call.Operation.Repeatable()
}

// messageKey returns what stands in for an Idempotency-Key, where the agent is
// configured so (A20); else "".
func (x *exchange) messageKey() string {
	if e := x.envelope; e != nil && x.target.A2A.DedupeByMessage && e.call.MessageID != "" {
		return "message_id " + e.call.MessageID
	}
	return ""
}

// digested returns the pieces of the body that say what is asked. The id of a
// JSON-RPC request is none of them: it differs with each try. Nor is where the
// call stands: it differs at each hop, and a call that goes round in a circle
// would never be the same again (C12).
func (x *exchange) digested() (pieces [][]byte) {
	from := 0
	if e := x.envelope; e != nil {
		for _, s := range e.call.Varies {
			pieces, from = append(pieces, x.body[from:s.At]), s.Over
		}
	}
	return append(pieces, x.body[from:])
}

// A respeller gives an answer from memory the JSON-RPC id of the request that it
// now answers.
type respeller struct {
	id     []byte
	stream *a2a.StreamID // nil: the answer is no stream
}

// respeller returns what gives an answer with header h the caller's own id; nil
// when it needs none.
func (x *exchange) respeller(h http.Header) *respeller {
	e := x.envelope
	if e == nil || e.binding != a2a.JSONRPC || len(e.call.ID) == 0 {
		return nil
	}
	r := &respeller{id: e.call.ID}
	if isSSE(h) {
		r.stream = &a2a.StreamID{ID: r.id}
	}
	return r
}

// feed returns what to send of the next piece of the answer.
func (r *respeller) feed(b []byte, last bool) []byte {
	switch {
	case r == nil:
		return b
	case r.stream == nil:
		return a2a.WithID(b, r.id)
	}
	if b = r.stream.Feed(b); last {
		b = append(b, r.stream.Flush()...)
	}
	return b
}
