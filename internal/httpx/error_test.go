package httpx_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// Section 3 of the protocol, P11, P12: the refusal of its example, to the byte.
func TestWriteErrorDepthRefusal(t *testing.T) {
	t.Parallel()
	l := agentbus.Lineage{Run: "conv_abc", Turn: "conv_abc.t0.critic", Depth: 4}
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "1") // of a middleware that meant well
	w.Header().Set("Content-Length", "3")
	httpx.WriteError(w, l, l.CheckDepth(4))
	const want = `{"error":{"message":"depth 4 reaches the limit of 4: this call would be hop 5 of run conv_abc","type":"invalid_request_error",` +
		`"param":null,"code":"bridge_depth_exceeded",` +
		`"run_id":"conv_abc","turn_id":"conv_abc.t0.critic","retryable":false,` +
		`"explain":{"rule":"P10","observed":4,"limit":4,"next":"answer from what you have, or ask the caller to raise the limit"}}}`
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("body (-want +got)\n%s", diff)
	}
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429 (P11)", w.Code)
	}
	header := http.Header{
		"Content-Type":   {"application/json"},
		"Cache-Control":  {"no-store"},
		"X-Should-Retry": {"false"},
		"X-Request-Id":   {w.Header().Get("X-Request-Id")},
	}
	if id := w.Header().Get("X-Request-Id"); !strings.HasPrefix(id, "req_") || len(id) != len("req_")+24 {
		t.Errorf("request id %q", id)
	}
	if diff := cmp.Diff(header, w.Header()); diff != "" {
		t.Errorf("header (-want +got)\n%s", diff)
	}
}

// P12: what may be retried says when, and what may not says so.
func TestWriteErrorRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err           *agentbus.Error
		seconds, ms   string
		should, typ   string
		authenticate  string
		status        int
		retryableBody bool
	}{
		{err: &agentbus.Error{Code: agentbus.CodeRateLimited}, status: 429, seconds: "1", ms: "1000", typ: "rate_limit_error", retryableBody: true},
		{err: &agentbus.Error{Code: agentbus.CodeOverloaded, RetryAfter: 1500 * time.Millisecond}, status: 503, seconds: "2", ms: "1500", typ: "server_error", retryableBody: true},
		{err: &agentbus.Error{Code: agentbus.CodeDraining, RetryAfter: time.Microsecond}, status: 503, seconds: "1", ms: "1", typ: "server_error", retryableBody: true},
		{err: &agentbus.Error{Code: agentbus.CodeOverloaded, RetryAfter: math.MaxInt64}, status: 503, seconds: "9223372037", ms: "9223372036854", typ: "server_error", retryableBody: true},
		{err: &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: 400}, status: 502, seconds: "1", ms: "1000", typ: "server_error", retryableBody: true},
		{err: &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: 503, Final: true, RetryAfter: time.Second}, status: 502, should: "false", typ: "server_error"}, // R11
		{err: &agentbus.Error{Code: agentbus.CodeUnauthenticated}, status: 401, should: "false", typ: "authentication_error", authenticate: `Bearer realm="agentbus"`},
		{err: &agentbus.Error{Code: agentbus.CodeForbidden}, status: 403, should: "false", typ: "permission_error"},
		{err: &agentbus.Error{Code: agentbus.CodeAgentRedirected}, status: 502, should: "false", typ: "server_error"},
		{err: &agentbus.Error{Code: agentbus.CodeChainFinal, RetryAfter: time.Second}, status: 429, should: "false", typ: "invalid_request_error"},
		{err: &agentbus.Error{Code: agentbus.CodeTurnMismatch}, status: 422, should: "false", typ: "invalid_request_error"},
	} {
		w := httptest.NewRecorder()
		httpx.WriteError(w, agentbus.Lineage{}, c.err)
		h := w.Header()
		got := []string{h.Get("Retry-After"), h.Get("Retry-After-Ms"), h.Get("X-Should-Retry"), h.Get("WWW-Authenticate")}
		if diff := cmp.Diff([]string{c.seconds, c.ms, c.should, c.authenticate}, got); diff != "" || w.Code != c.status {
			t.Errorf("%s: status %d, header (-want +got)\n%s", c.err.Code, w.Code, diff)
		}
		body := w.Body.String()
		if !strings.Contains(body, `"type":"`+c.typ+`"`) || strings.Contains(body, `"retryable":true`) != c.retryableBody {
			t.Errorf("%s: %s", c.err.Code, body)
		}
		if strings.Contains(body, "run_id") || strings.Contains(body, "explain") {
			t.Errorf("%s: absent ids and explain must be left out: %s", c.err.Code, body)
		}
	}
}

// P19: nothing of a foreign error is told.
func TestErrorBodyTellsNothingOfOtherErrors(t *testing.T) {
	t.Parallel()
	body := string(httpx.ErrorBody(agentbus.Lineage{}, errors.New("dial tcp: Bearer sk-secret")))
	if strings.Contains(body, "sk-secret") || !strings.Contains(body, `"code":"internal"`) {
		t.Error(body)
	}
	wrapped := &agentbus.Error{Code: agentbus.CodeForbidden, Message: "no", Err: errors.New("sk-secret")}
	if body := string(httpx.ErrorBody(agentbus.Lineage{}, wrapped)); strings.Contains(body, "sk-secret") {
		t.Error(body)
	}
}

func TestErrorBodySurvivesAnything(t *testing.T) {
	t.Parallel()
	odd := &agentbus.Error{Code: agentbus.CodeForbidden, Message: "a\n<b>", Explain: &agentbus.Explain{Observed: func() {}}}
	const want = `{"error":{"message":"a\n<b>","type":"permission_error","param":null,"code":"forbidden","retryable":false}}`
	if got := string(httpx.ErrorBody(agentbus.Lineage{}, odd)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(httpx.ErrorBody(agentbus.Lineage{}, nil)); !strings.Contains(got, `"internal"`) {
		t.Errorf("nil: %s", got)
	}
}
