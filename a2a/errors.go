package a2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Binding is a way to write A2A over HTTP.
type Binding string

// The bindings, as agent cards name them. gRPC is neither served nor proxied (A1).
const (
	JSONRPC Binding = "JSONRPC"
	REST    Binding = "HTTP+JSON"
)

// The standard codes of A2A errors (A16), as JSON-RPC writes them. CodeServer is
// that of everything for which there is no standard.
const (
	CodeParse                   = -32700
	CodeInvalidRequest          = -32600
	CodeMethodNotFound          = -32601
	CodeInvalidParams           = -32602
	CodeInternal                = -32603
	CodeServer                  = -32000
	CodeTaskNotFound            = -32001
	CodeTaskNotCancelable       = -32002
	CodePushNotSupported        = -32003
	CodeUnsupportedOperation    = -32004
	CodeContentTypeNotSupported = -32005
	CodeInvalidAgentResponse    = -32006
	CodeExtendedCardMissing     = -32007
	CodeExtensionRequired       = -32008
	CodeVersionNotSupported     = -32009
)

// The domains of error details: who defines the reason.
const (
	DomainA2A = "a2a-protocol.org"
	DomainBus = "agentbus"
)

const errorInfoType = "type.googleapis.com/google.rpc.ErrorInfo"

// standards is the one table of the standard codes (A16).
var standards = map[int]struct {
	status       int // of the REST binding; JSON-RPC has them on HTTP 200
	grpc, reason string
}{
	CodeParse:                   {http.StatusBadRequest, "INVALID_ARGUMENT", "PARSE_ERROR"},
	CodeInvalidRequest:          {http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_REQUEST"},
	CodeMethodNotFound:          {http.StatusNotFound, "UNIMPLEMENTED", "METHOD_NOT_FOUND"},
	CodeInvalidParams:           {http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_PARAMS"},
	CodeInternal:                {http.StatusInternalServerError, "INTERNAL", "INTERNAL_ERROR"},
	CodeTaskNotFound:            {http.StatusNotFound, "NOT_FOUND", "TASK_NOT_FOUND"},
	CodeTaskNotCancelable:       {http.StatusBadRequest, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"},
	CodePushNotSupported:        {http.StatusBadRequest, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"},
	CodeUnsupportedOperation:    {http.StatusBadRequest, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"},
	CodeContentTypeNotSupported: {http.StatusBadRequest, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"},
	CodeInvalidAgentResponse:    {http.StatusInternalServerError, "INTERNAL", "INVALID_AGENT_RESPONSE"},
	CodeExtendedCardMissing:     {http.StatusBadRequest, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"},
	CodeExtensionRequired:       {http.StatusBadRequest, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"},
	CodeVersionNotSupported:     {http.StatusBadRequest, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"},
}

// codeOf maps the codes of the bus that have a standard one; all others are
// CodeServer.
var codeOf = map[string]int{
	string(agentbus.CodeInvalidRequest):  CodeInvalidParams,
	string(agentbus.CodeInvalidDepth):    CodeInvalidParams,
	string(agentbus.CodeInvalidLineage):  CodeInvalidParams,
	string(agentbus.CodeDuplicateHeader): CodeInvalidParams,
	string(agentbus.CodeTurnMismatch):    CodeInvalidParams,
	string(agentbus.CodeRunNotFound):     CodeTaskNotFound,
	string(agentbus.CodeInternal):        CodeInternal,
}

// An Error is an error as A2A writes it, in either binding (A16). Those of the
// bus come from [ErrorOf], standard ones from [Standard], an agent's from
// [ReadError].
type Error struct {
	Code     int    // of JSON-RPC
	Reason   string // for machines, such as TASK_NOT_FOUND
	Domain   string // who defines the reason: DomainA2A, DomainBus or an agent's own
	Message  string
	Metadata map[string]string
	Status   int // HTTP status of the REST binding; 0: as Code or the bus code says
	Err      error
}

// Error returns the code, the reason and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("a2a error %d %s: %s", e.Code, e.Reason, e.Message)
}

// Unwrap returns what the bus makes of the error, which stands in records.
func (e *Error) Unwrap() error { return e.Err }

// Standard returns err as callers of A2A read it under a standard code, and a
// reason of its own unless that is "". Its message and explanation are those of
// err, which is an [agentbus.Error].
func Standard(code int, reason string, err *agentbus.Error) *Error {
	if reason == "" {
		reason = standards[code].reason
	}
	meta := explained(err)
	delete(meta, "code")
	return &Error{Code: code, Reason: reason, Domain: DomainA2A, Message: err.Message, Metadata: meta, Err: err}
}

// ErrorOf returns err as A2A writes it: as it is when it is an *Error, else with
// the reason and the HTTP status of its code of the bus. An error that is none
// of ours is CodeInternal, and nothing of it is told.
func ErrorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	b := agentbus.AsError(err)
	if b == nil {
		b = &agentbus.Error{Code: agentbus.CodeInternal, Message: "no error to report"}
	}
	code, ok := codeOf[string(b.Code)]
	if !ok {
		code = CodeServer
	}
	return &Error{
		Code: code, Reason: strings.ToUpper(string(b.Code)), Domain: DomainBus, Message: b.Message,
		Metadata: explained(b), Status: b.Code.Status(), Err: b,
	}
}

// explained returns what the details of an error say beside its reason.
func explained(b *agentbus.Error) map[string]string {
	m := map[string]string{"code": string(b.Code), "retryable": strconv.FormatBool(b.Retryable())}
	if x := b.Explain; x != nil {
		for k, v := range map[string]any{"observed": x.Observed, "limit": x.Limit} {
			if v != nil {
				m[k] = fmt.Sprint(v)
			}
		}
		for k, v := range map[string]string{"rule": x.Rule, "next": x.Next} {
			if v != "" {
				m[k] = v
			}
		}
	}
	return m
}

// HTTPStatus returns the status under which a binding carries e: standard errors
// are answers of JSON-RPC, on 200.
func (e *Error) HTTPStatus(b Binding) int {
	known, standard := standards[e.Code]
	switch {
	case b == JSONRPC && e.Domain != DomainBus:
		return http.StatusOK
	case e.Status != 0:
		return e.Status
	case standard:
		return known.status
	}
	return http.StatusInternalServerError
}

type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (e *Error) details() []errorInfo {
	return []errorInfo{{Type: errorInfoType, Reason: e.Reason, Domain: e.Domain, Metadata: e.Metadata}}
}

// Body returns the body that a binding carries e in: one line of JSON without a
// newline, so that it is also the data of an event. id is the id of the JSON-RPC
// request, as it came; empty: null.
func (e *Error) Body(b Binding, id []byte) []byte {
	var body any
	if b == REST {
		status := e.HTTPStatus(REST)
		body = map[string]any{"error": map[string]any{
			"code": status, "status": e.grpc(status), "message": e.Message, "details": e.details(),
		}}
	} else {
		if len(id) == 0 {
			id = []byte("null")
		}
		body = map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "error": map[string]any{
			"code": e.Code, "message": e.Message, "data": e.details(),
		}}
	}
	if out, err := json.Marshal(body); err == nil {
		return out
	}
	return e.Body(b, nil) // the id is no JSON
}

// Event returns e as an event of a stream of a binding. That of HTTP+JSON has
// the type error, by which the SDK for JavaScript tells it from an answer; others
// read the data, whatever the type.
func (e *Error) Event(b Binding, id []byte) []byte {
	event := "data: "
	if b == REST {
		event = "event: error\ndata: "
	}
	return append(append([]byte(event), e.Body(b, id)...), "\n\n"...)
}

// grpc returns the name that the REST binding gives the error's status.
func (e *Error) grpc(status int) string {
	if e.Domain != DomainBus {
		if known, ok := standards[e.Code]; ok {
			return known.grpc
		}
	}
	if name, ok := grpcNames[status]; ok {
		return name
	}
	if status >= http.StatusInternalServerError {
		return "INTERNAL"
	}
	return "FAILED_PRECONDITION"
}

var grpcNames = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusForbidden:             "PERMISSION_DENIED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusConflict:              "ABORTED",
	http.StatusGone:                  "NOT_FOUND",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
	http.StatusUnprocessableEntity:   "INVALID_ARGUMENT",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

// WriteError answers a request with err in the shape of its binding (A16). id is
// the id of the JSON-RPC request as it came, empty when none is known. The
// headers say whether the request may be retried, as [httpx.WriteError] does.
func WriteError(w http.ResponseWriter, b Binding, id []byte, err error) {
	e := ErrorOf(err)
	httpx.WriteErrorAs(w, e, e.HTTPStatus(b), "application/json", e.Body(b, id))
}

// WriteStreamError is WriteError for a request that is answered with a stream. A
// client that finds 200 reads events, and some look at nothing else: what would be
// a whole answer under 200 is the one event of a stream (A14), but for those of
// [TakesWholeError].
func WriteStreamError(w http.ResponseWriter, b Binding, id []byte, err error) {
	if e := ErrorOf(err); e.HTTPStatus(b) == http.StatusOK {
		httpx.WriteErrorAs(w, e, http.StatusOK, "text/event-stream", e.Event(b, id))
		return
	}
	WriteError(w, b, id, err)
}

// ReadError reads the error of an answer of either binding: of a JSON-RPC
// response, of an event that is one, or of a REST body. found is false when the
// answer tells no error.
func ReadError(body []byte) (e *Error, found bool) {
	var answer struct {
		JSONRPC string          `json:"jsonrpc"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Error) == 0 || string(answer.Error) == "null" {
		return nil, false //nolint:nilerr // what cannot be read tells no error
	}
	var told struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
		Details json.RawMessage `json:"details"`
	}
	if json.Unmarshal(answer.Error, &told) != nil {
		return &Error{Code: CodeInternal, Message: "the agent told an error that cannot be read"}, true
	}
	e = &Error{Code: told.Code, Message: told.Message}
	if answer.JSONRPC != "" || told.Code < 0 {
		e.readInfo(told.Data)
		return e, true
	}
	e.Code, e.Status = CodeServer, told.Code
	e.readInfo(told.Details)
	e.Code = e.codeOfReason()
	return e, true
}

// readInfo reads the first ErrorInfo of the details; what else they hold is the
// agent's.
func (e *Error) readInfo(details json.RawMessage) {
	var all []json.RawMessage
	if json.Unmarshal(details, &all) != nil {
		return
	}
	for _, raw := range all {
		var info errorInfo
		if json.Unmarshal(raw, &info) == nil && info.Type == errorInfoType {
			e.Reason, e.Domain, e.Metadata = info.Reason, info.Domain, info.Metadata
			return
		}
	}
}

// codeOfReason returns the code of an error that came by REST, which tells only
// reason and status.
func (e *Error) codeOfReason() int {
	if e.Domain == DomainBus {
		if code, ok := codeOf[strings.ToLower(e.Reason)]; ok {
			return code
		}
		return CodeServer
	}
	for code, known := range standards {
		if known.reason == e.Reason && e.Reason != "" {
			return code
		}
	}
	return CodeServer
}

// maxMessage is how much of an agent's words goes into a message of ours.
const maxMessage = 300

// plain makes an agent's words fit for one of our messages: one short line
// without what a relay could take for a mention (X32).
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r < 0x20 || r == 0x7f:
			return ' '
		case r == '@':
			return '·'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// Bus returns the error as the bus speaks of it: with the code of a bus further
// down where it tells one, else with the one that comes closest.
func (e *Error) Bus() *agentbus.Error {
	if e.Err != nil {
		return agentbus.AsError(e.Err)
	}
	out := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: plain(e.Message), Status: e.HTTPStatus(REST)}
	code := agentbus.Code(e.Metadata["code"])
	if e.Domain == DomainBus && code.Known() {
		out.Code, out.Final = code, e.Metadata["retryable"] == "false"
		out.Explain = &agentbus.Explain{Rule: e.Metadata["rule"], Next: e.Metadata["next"]}
		return out
	}
	switch e.Code {
	case CodeParse, CodeInvalidRequest, CodeInvalidParams, CodeMethodNotFound, CodePushNotSupported, CodeUnsupportedOperation, CodeTaskNotCancelable, CodeExtensionRequired:
		out.Code = agentbus.CodeInvalidRequest
	case CodeTaskNotFound:
		out.Code = agentbus.CodeRunNotFound
	case CodeContentTypeNotSupported:
		out.Code = agentbus.CodeUnsupportedContent
	case CodeVersionNotSupported:
		out.Code = agentbus.CodeUnsupportedVersion
	}
	return out
}
