package agentbus

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// A Code tells a machine what went wrong. Codes are on the wire: they are never
// renamed and never reused.
type Code string

// The codes of the bus. A refusal says that policy said no; a failure, that
// something broke. [Code.Status] and [Code.Retryable] read their table.
const (
	CodeInvalidRequest      Code = "invalid_request"
	CodeInvalidDepth        Code = "invalid_depth"
	CodeInvalidLineage      Code = "invalid_lineage"
	CodeDuplicateHeader     Code = "duplicate_header"
	CodeUnauthenticated     Code = "unauthenticated"
	CodePaymentRequired     Code = "payment_required"
	CodeBudgetExceeded      Code = "budget_exceeded"
	CodeInputRequired       Code = "input_required"
	CodeForbidden           Code = "forbidden"
	CodeUntrustedForwarder  Code = "untrusted_forwarder"
	CodeRunStopped          Code = "run_stopped"
	CodeAgentNotFound       Code = "agent_not_found"
	CodeRunNotFound         Code = "run_not_found"
	CodeNotFound            Code = "not_found" // neither agent nor run: on admin routes
	CodeReplyExpired        Code = "reply_expired"
	CodeRequestTooLarge     Code = "request_too_large"
	CodeUnsupportedVersion  Code = "unsupported_version"
	CodeUnsupportedContent  Code = "unsupported_content"
	CodeTurnMismatch        Code = "turn_mismatch"
	CodeDepthExceeded       Code = "bridge_depth_exceeded"
	CodeCycleRefused        Code = "cycle_refused"
	CodeChainFinal          Code = "chain_final"
	CodeRateLimited         Code = "rate_limited"
	CodeOverloaded          Code = "overloaded"
	CodeLeaseLost           Code = "lease_lost"
	CodeRunConflict         Code = "run_conflict"
	CodeOutcomeUnknown      Code = "outcome_unknown"
	CodeStoreUnavailable    Code = "store_unavailable"
	CodeIdentityUnavailable Code = "identity_unavailable"
	CodeDraining            Code = "draining"
	CodeAgentUnavailable    Code = "agent_unavailable"
	CodeCircuitOpen         Code = "circuit_open"
	CodeAgentRedirected     Code = "agent_redirected"
	CodeDeadlineExceeded    Code = "deadline_exceeded"
	CodeInternal            Code = "internal"
)

// codes is the one table of codes (P11, section 3 of the protocol).
var codes = map[Code]struct {
	status    int
	retryable bool
}{
	CodeInvalidRequest:      {http.StatusBadRequest, false},
	CodeInvalidDepth:        {http.StatusBadRequest, false},
	CodeInvalidLineage:      {http.StatusBadRequest, false},
	CodeDuplicateHeader:     {http.StatusBadRequest, false},
	CodeUnauthenticated:     {http.StatusUnauthorized, false},
	CodePaymentRequired:     {http.StatusPaymentRequired, false},
	CodeBudgetExceeded:      {http.StatusPaymentRequired, false},
	CodeInputRequired:       {http.StatusUnprocessableEntity, false},
	CodeForbidden:           {http.StatusForbidden, false},
	CodeUntrustedForwarder:  {http.StatusForbidden, false},
	CodeRunStopped:          {http.StatusForbidden, false},
	CodeAgentNotFound:       {http.StatusNotFound, false},
	CodeRunNotFound:         {http.StatusNotFound, false},
	CodeNotFound:            {http.StatusNotFound, false},
	CodeReplyExpired:        {http.StatusGone, false},
	CodeRequestTooLarge:     {http.StatusRequestEntityTooLarge, false},
	CodeUnsupportedVersion:  {http.StatusBadRequest, false},
	CodeUnsupportedContent:  {http.StatusUnsupportedMediaType, false},
	CodeTurnMismatch:        {http.StatusUnprocessableEntity, false},
	CodeDepthExceeded:       {http.StatusTooManyRequests, false},
	CodeCycleRefused:        {http.StatusTooManyRequests, false},
	CodeChainFinal:          {http.StatusTooManyRequests, false},
	CodeRateLimited:         {http.StatusTooManyRequests, true},
	CodeOverloaded:          {http.StatusServiceUnavailable, true},
	CodeLeaseLost:           {http.StatusConflict, false},
	CodeRunConflict:         {http.StatusConflict, false},
	CodeOutcomeUnknown:      {http.StatusConflict, false},
	CodeStoreUnavailable:    {http.StatusServiceUnavailable, true},
	CodeIdentityUnavailable: {http.StatusServiceUnavailable, true},
	CodeDraining:            {http.StatusServiceUnavailable, true},
	CodeAgentUnavailable:    {http.StatusBadGateway, true},
	CodeCircuitOpen:         {http.StatusServiceUnavailable, true},
	CodeAgentRedirected:     {http.StatusBadGateway, false},
	CodeDeadlineExceeded:    {http.StatusGatewayTimeout, true},
	CodeInternal:            {http.StatusInternalServerError, false},
}

// Known reports whether c is a code of the bus.
func (c Code) Known() bool { _, ok := codes[c]; return ok }

// Status returns the HTTP status of c; 500 for a code that is not ours.
func (c Code) Status() int {
	if row, ok := codes[c]; ok {
		return row.status
	}
	return http.StatusInternalServerError
}

// Retryable reports whether the same request may succeed later. Every other
// answer tells clients not to retry (P12).
func (c Code) Retryable() bool { return codes[c].retryable }

// An Error is what went wrong, for three readers: a code for machines, a
// message for the caller, a cause for the operator. Message and Explain are
// sent; they never hold a credential, a stack or an @name that a relay could
// take for a mention. Err is logged and never crosses the wire.
type Error struct {
	Code       Code          `json:"code"`
	Message    string        `json:"message"`
	Explain    *Explain      `json:"explain,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // when a retryable error may be retried; 0: the client decides
	Status     int           `json:"status,omitempty"`      // HTTP status of another party's answer that this error reports; 0 when the error is our own
	Final      bool          `json:"final,omitempty"`       // another party said that the same request is not to be sent again (R11)
	Ask        *Ask          `json:"ask,omitempty"`         // what the agent wants to be told before it can answer (R22); nil: nothing would help
	// Policy is the policy part by which an agent refused, as it came (C19, C27);
	// nil: there is none. What an agent waits for stands in Ask.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Children are what became of each of several agents that were asked at once,
	// when some of them gave no answer (C18); it is not stored.
	Children []Child `json:"-"`
	Err      error   `json:"-"`
}

// Explain tells a caller which rule decided, on what, and what to do next.
type Explain struct {
	Rule      string   `json:"rule,omitempty"`
	Observed  any      `json:"observed,omitempty"` // a number, or a short string
	Limit     any      `json:"limit,omitempty"`
	Supported []string `json:"supported,omitempty"` // what would have been accepted
	Next      string   `json:"next,omitempty"`
}

// Error returns the code, the message and the cause.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed later: not where another
// party said that it is final.
func (e *Error) Retryable() bool { return e.Code.Retryable() && !e.Final }

// Is reports whether target is an *Error of the same code, so that
// errors.Is(err, &Error{Code: CodeLeaseLost}) asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// AsError returns the first *Error in err's chain, or err as a CodeInternal
// whose message tells nothing of it. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: "the bus failed; its operator finds the cause in the log under this request id", Err: err}
}

// CodeOf returns the code of err: "" for nil, CodeInternal for an error that is
// not ours.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}
