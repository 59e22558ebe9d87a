package a2a_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

var refused = &agentbus.Error{
	Code: agentbus.CodeDepthExceeded, Message: "depth 4 reaches the limit of 4",
	Explain: &agentbus.Explain{Rule: "P10", Observed: 4, Limit: 4, Next: "answer"},
}

// A16: codes, statuses and reasons of both bindings.
func TestErrorShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		code      int
		rpc, rest int
		reason    string
		domain    string
		grpc      string
	}{
		{refused, -32000, 429, 429, "BRIDGE_DEPTH_EXCEEDED", a2a.DomainBus, "RESOURCE_EXHAUSTED"},
		{&agentbus.Error{Code: agentbus.CodeInvalidDepth}, -32602, 400, 400, "INVALID_DEPTH", a2a.DomainBus, "INVALID_ARGUMENT"},
		{&agentbus.Error{Code: agentbus.CodeTurnMismatch}, -32602, 422, 422, "TURN_MISMATCH", a2a.DomainBus, "INVALID_ARGUMENT"},
		{&agentbus.Error{Code: agentbus.CodeRunNotFound}, -32001, 404, 404, "RUN_NOT_FOUND", a2a.DomainBus, "NOT_FOUND"},
		{&agentbus.Error{Code: agentbus.CodeUnauthenticated}, -32000, 401, 401, "UNAUTHENTICATED", a2a.DomainBus, "UNAUTHENTICATED"},
		{&agentbus.Error{Code: agentbus.CodeAgentRedirected}, -32000, 502, 502, "AGENT_REDIRECTED", a2a.DomainBus, "UNAVAILABLE"},
		{errors.New("secret"), -32603, 500, 500, "INTERNAL", a2a.DomainBus, "INTERNAL"},
		{a2a.Standard(a2a.CodeTaskNotFound, "", refused), -32001, 200, 404, "TASK_NOT_FOUND", a2a.DomainA2A, "NOT_FOUND"},
		{a2a.Standard(a2a.CodeMethodNotFound, "", refused), -32601, 200, 404, "METHOD_NOT_FOUND", a2a.DomainA2A, "UNIMPLEMENTED"},
		{a2a.Standard(a2a.CodeInvalidParams, "MESSAGE_ID_CONFLICT", refused), -32602, 200, 400, "MESSAGE_ID_CONFLICT", a2a.DomainA2A, "INVALID_ARGUMENT"},
		{a2a.Standard(a2a.CodeInvalidAgentResponse, "", refused), -32006, 200, 500, "INVALID_AGENT_RESPONSE", a2a.DomainA2A, "INTERNAL"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			rpc, rest := httptest.NewRecorder(), httptest.NewRecorder()
			a2a.WriteError(rpc, a2a.JSONRPC, []byte(`"7"`), c.err)
			a2a.WriteError(rest, a2a.REST, nil, c.err)
			var r struct {
				ID    string
				Error struct {
					Code int
					Data []struct{ Reason, Domain string }
				}
			}
			var h struct {
				Error struct {
					Code    int
					Status  string
					Details []struct{ Reason, Domain string }
				}
			}
			if err := errors.Join(json.Unmarshal(rpc.Body.Bytes(), &r), json.Unmarshal(rest.Body.Bytes(), &h)); err != nil {
				t.Fatal(err)
			}
			got := []any{r.ID, r.Error.Code, rpc.Code, rest.Code, h.Error.Code, h.Error.Status, r.Error.Data[0].Reason, h.Error.Details[0].Domain}
			want := []any{"7", c.code, c.rpc, c.rest, c.rest, c.grpc, c.reason, c.domain}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(rpc.Body.String()+rest.Body.String(), "secret") {
				t.Error("an error that is none of ours was told")
			}
			if rpc.Header().Get("X-Should-Retry") == "" && rpc.Header().Get("Retry-After") == "" {
				t.Error("nothing says whether to retry")
			}
		})
	}
}

// A33: an error in a stream of HTTP+JSON is told from an answer by the type of its
// event; in one of JSON-RPC, as any other, by its member.
func TestErrorEvents(t *testing.T) {
	t.Parallel()
	e := a2a.ErrorOf(refused)
	for b, before := range map[a2a.Binding]string{a2a.REST: "event: error\ndata: ", a2a.JSONRPC: "data: "} {
		want := before + string(e.Body(b, []byte("7"))) + "\n\n"
		if got := string(e.Event(b, []byte("7"))); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// A16: what the bus writes it reads, from either binding.
func TestErrorRoundTrip(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		refused, &agentbus.Error{Code: agentbus.CodeInvalidLineage, Message: "m"},
		&agentbus.Error{Code: agentbus.CodeAgentUnavailable}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Final: true}, // R11
		a2a.Standard(a2a.CodePushNotSupported, "", &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "m"}),
	} {
		want := a2a.ErrorOf(err)
		for _, b := range []a2a.Binding{a2a.JSONRPC, a2a.REST} {
			got, found := a2a.ReadError(want.Body(b, []byte("1")))
			if !found || got.Code != want.Code || got.Reason != want.Reason || got.Domain != want.Domain {
				t.Errorf("%s: %+v, want %+v", b, got, want)
			}
			if read := got.Bus(); read.Code != agentbus.CodeOf(err) || read.Retryable() != agentbus.AsError(err).Retryable() {
				t.Errorf("%s: read as %+v, want %v", b, read, err)
			}
		}
	}
}

func TestReadError(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]agentbus.Code{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:  "",
		`{"jsonrpc":"2.0","id":1,"error":null}`: "",
		`[]`:                                    "",
		`{`:                                     "",
		`{"jsonrpc":"2.0","error":7}`:           agentbus.CodeAgentUnavailable,
		`{"jsonrpc":"2.0","error":{"code":-32001,"message":"gone, ask @x@y.org"}}`:                  agentbus.CodeRunNotFound,
		`{"error":{"code":400,"details":[{},{"@type":"` + infoType + `","reason":"PARSE_ERROR"}]}}`: agentbus.CodeInvalidRequest,
		`{"error":{"code":503,"message":"later"}}`:                                                  agentbus.CodeAgentUnavailable,
	} {
		e, found := a2a.ReadError([]byte(body))
		if found != (want != "") {
			t.Errorf("%s: found %t", body, found)
			continue
		}
		if !found {
			continue
		}
		if b := e.Bus(); b.Code != want || strings.Contains(b.Message, "@") { // X32
			t.Errorf("%s: %v, want %s", body, b, want)
		}
	}
}

const infoType = "type.googleapis.com/google.rpc.ErrorInfo"

func TestErrorKeepsNoBadID(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	a2a.WriteError(w, a2a.JSONRPC, []byte("{nonsense"), refused)
	if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"id":null`) {
		t.Error(w.Code, w.Body)
	}
}
