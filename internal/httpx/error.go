// Package httpx is what every HTTP surface of the bus shares: the one writer of
// error bodies, and a transport that stays in memory.
package httpx

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// DefaultRetryAfter is what a retryable error without a time of its own tells
// its caller to wait.
const DefaultRetryAfter = time.Second

// WriteError answers a request with err, in the OpenAI shape of section 3 of
// the protocol. The status is that of the error's code, also when the error
// reports another party's answer; that of a policy part which refused is its own
// (C27). An answer that must not be retried says
// x-should-retry: false and has no Retry-After (P12); one that may be has
// Retry-After and retry-after-ms, a second unless the error says otherwise.
//
// An err that is no [agentbus.Error] is CodeInternal, and nothing of it is
// told. The ids are those of l; absent ones are left out. An answer without an
// x-request-id gets one. Nothing else of the header of w is changed.
func WriteError(w http.ResponseWriter, l agentbus.Lineage, err error) {
	e := agentbus.AsError(err)
	if e == nil {
		e = &agentbus.Error{Code: agentbus.CodeInternal, Message: "no error to report"}
	}
	status := e.Code.Status()
	if e.Policy != nil {
		status = agentbus.ReadPolicyPart(e.Policy).Kind.Status()
	}
	WriteErrorAs(w, e, status, "application/json", ErrorBody(l, e))
}

// WriteErrorAs answers a request with err under a status and in a body of another
// dialect's, of a media type, with the headers that every error has.
func WriteErrorAs(w http.ResponseWriter, err error, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	writeErrorHead(w, agentbus.AsError(err), status)
	_, _ = w.Write(body) // a caller that has left cannot be told
}

// writeErrorHead writes the status and the header that every error has, whatever
// the shape of its body.
func writeErrorHead(w http.ResponseWriter, e *agentbus.Error, status int) {
	h := w.Header()
	if h.Get("X-Request-Id") == "" {
		h.Set("X-Request-Id", NewRequestID())
	}
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	if e.Retryable() {
		wait := e.RetryAfter
		if wait <= 0 {
			wait = DefaultRetryAfter
		}
		h.Set("Retry-After", strconv.FormatInt(int64((wait-1)/time.Second)+1, 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(max(1, wait.Milliseconds()), 10))
		h.Del("X-Should-Retry")
	} else {
		h.Del("Retry-After")
		h.Del("Retry-After-Ms")
		h.Set("X-Should-Retry", "false")
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="agentbus"`)
	}
	w.WriteHeader(status)
}

// NewRequestID returns an id for one request: "req_" and 96 random bits.
func NewRequestID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return "req_" + hex.EncodeToString(b[:])
}

// errorBody is the shape of an error on OpenAI routes.
type errorBody struct {
	Message   string            `json:"message"`
	Type      string            `json:"type"`
	Param     *string           `json:"param"` // always null
	Code      agentbus.Code     `json:"code"`
	Run       agentbus.RunID    `json:"run_id,omitempty"`
	Turn      agentbus.TurnID   `json:"turn_id,omitempty"`
	Retryable bool              `json:"retryable"`
	Explain   *agentbus.Explain `json:"explain,omitempty"`
	// Ask is what would let the same turn be answered: what may be shown of it.
	Ask *agentbus.Ask `json:"ask,omitempty"`
}

// ErrorBody returns the body that [WriteError] writes: one line of JSON without
// a newline, so that it is also the data of a server-sent event.
func ErrorBody(l agentbus.Lineage, err error) []byte {
	e := agentbus.AsError(err)
	if e == nil {
		e = &agentbus.Error{Code: agentbus.CodeInternal, Message: "no error to report"}
	}
	body := errorBody{
		Message: e.Message, Type: errorType(e.Code), Code: e.Code, Run: l.Run, Turn: l.Turn,
		Retryable: e.Retryable(), Explain: e.Explain, Ask: e.Ask,
	}
	if b, plain := body.plain(); plain {
		return b
	}
	type answer struct {
		Error errorBody `json:"error"`
	}
	b, err := oneLine(answer{body})
	if err != nil { // an Observed or Limit that is no JSON
		body.Explain = nil
		b, _ = oneLine(answer{body})
	}
	return b
}

// plain returns the body as oneLine writes it, where it holds nothing but what is
// plain: a refusal is to be cheap.
func (e *errorBody) plain() (b []byte, plain bool) {
	p := rawjson.NewPlain(make([]byte, 0, 512))
	p.Open("error")
	p.Text("message", e.Message)
	p.Text("type", e.Type)
	p.Null("param")
	p.Text("code", string(e.Code))
	p.Optional("run_id", string(e.Run))
	p.Optional("turn_id", string(e.Turn))
	p.Bool("retryable", e.Retryable)
	if x := e.Explain; x != nil {
		p.Open("explain")
		p.Optional("rule", x.Rule)
		if x.Observed != nil {
			p.Any("observed", x.Observed)
		}
		if x.Limit != nil {
			p.Any("limit", x.Limit)
		}
		if len(x.Supported) > 0 {
			p.Odd()
		}
		p.Optional("next", x.Next)
		p.Close()
	}
	if e.Ask != nil {
		p.Odd()
	}
	p.Close()
	p.Close()
	return p.Bytes()
}

// oneLine returns v as JSON, with <, > and & as they are.
func oneLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// errorType returns the OpenAI type of errors with code c.
func errorType(c agentbus.Code) string {
	switch status := c.Status(); {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests && c.Retryable():
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}
