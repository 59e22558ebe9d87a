package openai_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openai"
)

// A38, R22: an agent that answers that it waits makes an Ask of it; one that has
// no such code fails.
func TestAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   *agentbus.Ask
	}{
		{402, `{"error":{"code":"insufficient_quota","message":"no money"}}`, nil},
		{402, `{"error":{"code":"budget_exceeded","message":"no money"}}`, nil},
		{402, `{"error":{"code":"payment_required","message":"pay  first"}}`, &agentbus.Ask{Kind: agentbus.AskPolicy, Title: "pay first"}},
		{422, `{"error":{"code":"input_required","message":"which?"}}`, &agentbus.Ask{Kind: agentbus.AskClarification, Title: "which?"}},
		{422, `{"error":{"code":"input_required","message":"m","ask":"x"}}`, &agentbus.Ask{Kind: agentbus.AskClarification, Title: "m"}},
		{
			422, `{"error":{"code":"input_required","message":"m","ask":{"kind":"approval","title":"may I, @you?","prompt":"p","choices":["a","b"],"timeout":60000000000,"policy":{"k":"key-1"},"interrupts":["int_1"]}}}`,
			&agentbus.Ask{Kind: agentbus.AskApproval, Title: "may I, (at)you?", Prompt: "p", Choices: []string{"a", "b"}, Timeout: time.Minute, Policy: json.RawMessage(`{"k":"[redacted]"}`), Remote: "int_1"},
		},
	} {
		b := backend(t, openai.Config{Key: agentbus.NewCredential("key-1")}, answers(c.status, "application/json", c.body))
		_, err := agentbus.Collect(b.Call(t.Context(), call()))
		if diff := cmp.Diff(c.want, agentbus.AsError(err).Ask); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.body, diff)
		}
	}
}

// A38: what a backend asks is told to the caller, without what is secret of it.
func TestHandlerTellsWhatIsAsked(t *testing.T) {
	t.Parallel()
	asks := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "pay", Ask: &agentbus.Ask{
			Kind: agentbus.AskPolicy, Title: "pay", Policy: json.RawMessage(`[{"state":"s3cret","data":{"state":"s3cret"}}]`), Resume: json.RawMessage(`"t3cret"`), Interrupts: []agentbus.InterruptID{"int_1"},
		}}
	})
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	r.Header.Set("X-Tangle-Runid", "run-1")
	openai.Handler(openai.HandlerConfig{Backend: asks}).ServeHTTP(w, r)
	const want = `"run_id":"run-1","retryable":false,"ask":{"kind":"policy","title":"pay","policy":[{"data":{"state":"[redacted]"},"state":"[redacted]"}],"interrupts":["int_1"]}`
	if body := w.Body.String(); w.Code != http.StatusPaymentRequired || !strings.Contains(body, want) || strings.Contains(body, "3cret") {
		t.Errorf("%d %s", w.Code, body)
	}
}
