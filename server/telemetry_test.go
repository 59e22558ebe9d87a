package server_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/otlptest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// TestSpansOfABus: G34 and I8, a call through a conversation of the bus is one
// trace from its caller's span down to the last agent, and no credential is in
// anything that is exported.
func TestSpansOfABus(t *testing.T) {
	t.Parallel()
	const canary = "sk-CANARY-trace"
	c := otlptest.New(t)
	a, b := newAgent(t, "a"), newAgent(t, "b")
	leaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"bad key `+r.Header.Get("Authorization")+" "+r.Header.Get(agentbus.HeaderForwardedAuthorization)+`"}}`)
	}))
	t.Cleanup(leaky.Close)
	yaml := fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1")
	yaml = strings.Replace(yaml, "agents:\n", fmt.Sprintf("agents:\n  leaky: {kind: openai, url: %q, api_key_env: KEY}\n", leaky.URL+"/v1"), 1)
	yaml = fmt.Sprintf("store: {url: 'sqlite:%s/bus.db'}\ntelemetry: {otlp: %q}\n", t.TempDir(), c.URL) + yaml
	cfg, _, err := config.Parse("test", []byte(yaml), config.Source{Env: func(name string) (string, bool) { return canary + "-agent", name == "KEY" }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: cfg, Keys: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "user-123", InterAgent: true}, Secret: agentbus.NewCredential(canary)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	send := func(agent, auth string, header ...string) int {
		r, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(`{"model":"`+agent+`","messages":[{"role":"user","content":"`+canary+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", auth)
		r.Header.Set(agentbus.HeaderForwardedAuthorization, "Bearer "+canary)
		r.Header.Set(agentbus.HeaderTraceParent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for _, got := range []struct{ status, want int }{
		{send("inner", "Bearer "+canary), http.StatusOK},
		{send("leaky", "Bearer "+canary), http.StatusInternalServerError},
		{send("a", "Bearer "+canary+"-unknown"), http.StatusUnauthorized},
		{send("a", "Bearer "+canary, agentbus.HeaderForwardedDepth, "9"), http.StatusTooManyRequests},
		{send("a", "Bearer "+canary, agentbus.HeaderForwardedDepth, canary), http.StatusBadRequest},
		{send(canary, "Bearer "+canary), http.StatusNotFound},
	} {
		if got.status != got.want {
			t.Errorf("status %d, want %d", got.status, got.want)
		}
	}
	srv.Close() // a span is made behind its answer
	closed(t, s)
	told, _ := agentbus.ParseTraceParent(b.headers()[0].Get(agentbus.HeaderTraceParent))
	got := strings.Join(c.Chain(hex.EncodeToString(told.Span[:])), " < ")
	if want := "invoke_agent b < POST /v1/chat/completions < invoke_agent inner < POST /v1/chat/completions < b7ad6b7169203331"; got != want {
		t.Errorf("the trace is %s, want %s", got, want)
	}
	failed := 0
	for _, s := range c.Spans() {
		if hex.EncodeToString(s.GetTraceId()) != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is of another trace", s.GetName())
		}
		if s.GetKind() == tracepb.Span_SPAN_KIND_SERVER && s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d error spans, want 5", failed)
	}
	if bytes.Contains(c.Raw(), []byte("CANARY")) {
		t.Errorf("a credential was exported: %q", c.Raw())
	}
}

// TestMetricsOfABus: G33, what callers name makes no series, and every figure is
// there over HTTP.
func TestMetricsOfABus(t *testing.T) {
	t.Parallel()
	b := serveFile(t, onlyAlice+oneEcho)
	b.post("alice-secret", "echo", "r0")
	b.post("alice-secret", "echo", "r0")
	b.post("alice-secret", "hostile", "r1")
	before := b.scrapeUntil(`agentbus_refusals_total{agent="-",code="agent_not_found"} 1`, `agentbus_requests_total{agent="echo",result="replayed"} 1`)
	for i := range 50 {
		name := fmt.Sprintf("hostile-%d", i)
		b.post("alice-secret", name, name)
		b.post(name, "echo", name)
		b.post("alice-secret", "echo", name)
		r, err := http.NewRequest(strings.ToUpper("hostile"), b.url+"/agents/"+name+"/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice-secret")
		r.Header.Set("X-Tangle-Speaker", name)
		b.do(r)
	}
	b.post("hostile", "echo", "r2")
	// A call is counted, and has left, behind its answer.
	after := b.scrapeUntil(`agentbus_requests_total{agent="echo",result="replayed"} 1`, `agentbus_charged_micro_usd_total{agent="echo"} 51000`, `agentbus_refusals_total{agent="-",code="agent_not_found"} 101`,
		`agentbus_store_queue_depth 0`, `agentbus_in_flight_requests 0`, `agentbus_config_current 1`, `agentbus_dedupe_hits_total{agent="echo"} 1`)
	if strings.Contains(strings.ToLower(after), "hostile") || strings.Contains(after, "alice") {
		t.Errorf("a caller made a series:\n%s", after)
	}
	count := func(text string) (n int) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "agentbus_") {
				n++
			}
		}
		return n
	}
	if n, m := count(before), count(after); m-n > 1 { // unauthenticated is a code that had not been seen
		t.Errorf("%d series became %d", n, m)
	}
}
