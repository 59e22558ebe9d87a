package httpx_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// Section 3 of the protocol: RFC 9457 on admin routes, from the one table.
func TestWriteProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{
			&agentbus.Error{Code: agentbus.CodeRunNotFound, Message: "there is no run <x>", Err: errors.New("sk-secret"), Explain: &agentbus.Explain{Next: "list them"}},
			404,
			`{"type":"urn:agentbus:error:run_not_found","title":"run not found","status":404,"detail":"there is no run <x>",` +
				`"instance":"urn:agentbus:request:req_1","code":"run_not_found","retryable":false,"explain":{"next":"list them"}}`,
		},
		{
			&agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "m", Explain: &agentbus.Explain{Observed: func() {}}},
			503,
			`{"type":"urn:agentbus:error:store_unavailable","title":"store unavailable","status":503,"detail":"m",` +
				`"instance":"urn:agentbus:request:req_1","code":"store_unavailable","retryable":true}`,
		},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("X-Request-Id", "req_1")
		httpx.WriteProblem(w, c.err, 0)
		if diff := cmp.Diff(c.want, w.Body.String()); diff != "" || w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %v, body (-want +got)\n%s", w.Code, w.Header(), diff)
		}
	}
	for _, err := range []error{errors.New("Bearer sk-secret"), nil} { // P19: nothing of a foreign error is told
		w := httptest.NewRecorder()
		httpx.WriteProblem(w, err, 0)
		if body := w.Body.String(); w.Code != 500 || strings.Contains(body, "sk-secret") || !strings.Contains(body, `"code":"internal"`) {
			t.Errorf("%d %s", w.Code, body)
		}
	}
}
