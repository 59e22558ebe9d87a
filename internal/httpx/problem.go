package httpx

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
)

// A Problem is the body of an error on admin routes: RFC 9457, with the members
// that the other surfaces have too.
type Problem struct {
	Type      string            `json:"type"`  // "urn:agentbus:error:" and the code
	Title     string            `json:"title"` // the code in words
	Status    int               `json:"status"`
	Detail    string            `json:"detail"`
	Instance  string            `json:"instance,omitempty"` // "urn:agentbus:request:" and the request id
	Code      agentbus.Code     `json:"code"`
	Retryable bool              `json:"retryable"`
	Explain   *agentbus.Explain `json:"explain,omitempty"`
}

// WriteProblem answers a request with err as problem+json (RFC 9457), under a status
// of its own; 0: that of the code. The header is that of [WriteError]; it tells as
// little of an error that is not ours.
func WriteProblem(w http.ResponseWriter, err error, status int) {
	e := agentbus.AsError(err)
	if e == nil {
		e = &agentbus.Error{Code: agentbus.CodeInternal, Message: "no error to report"}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	status = cmp.Or(status, e.Code.Status())
	writeErrorHead(w, e, status)
	p := Problem{
		Type: "urn:agentbus:error:" + string(e.Code), Title: strings.ReplaceAll(string(e.Code), "_", " "),
		Status: status, Detail: e.Message, Instance: "urn:agentbus:request:" + w.Header().Get("X-Request-Id"),
		Code: e.Code, Retryable: e.Retryable(), Explain: e.Explain,
	}
	body, err := oneLine(p)
	if err != nil { // an Observed or Limit that is no JSON
		p.Explain = nil
		body, _ = oneLine(p)
	}
	_, _ = w.Write(body) // a caller that has left cannot be told
}
