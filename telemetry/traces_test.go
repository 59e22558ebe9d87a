package telemetry_test

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/telemetry"
)

// A receiver is a collector that takes OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	paths    []string
	resource map[string]string
	schema   string
	spans    []*tracepb.Span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	c := &receiver{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &in); err != nil {
			t.Errorf("the collector got no spans: %v", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paths = append(c.paths, r.URL.Path)
		for _, rs := range in.GetResourceSpans() {
			c.resource = values(rs.GetResource().GetAttributes())
			for _, ss := range rs.GetScopeSpans() {
				c.schema = ss.GetSchemaUrl()
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func values(attributes []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range attributes {
		if s, ok := kv.GetValue().GetValue().(*common.AnyValue_StringValue); ok {
			m[kv.GetKey()] = s.StringValue
		} else {
			m[kv.GetKey()] = strings.TrimSpace(kv.GetValue().String())
		}
	}
	return m
}

// unset takes the standard variables away for a test.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME",
	} {
		t.Setenv(name, "")
	}
}

func opened(t *testing.T, c telemetry.TracesConfig) *telemetry.Traces {
	t.Helper()
	traces, err := telemetry.NewTraces(t.Context(), c)
	if err != nil || traces == nil {
		t.Fatal(traces, err)
	}
	return traces
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// call is an observation of a call inside the caller's span.
func call(change func(*agentbus.Observation)) *agentbus.Observation {
	o := seen("critic", agentbus.ResultSettled, agentbus.CallRecord{
		TurnKey: agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "r", Parent: "r.t0.boss", ID: "r.t1.critic"},
		Caller:  "bob", Speaker: "critic", Depth: 2, Status: 200, Attempts: 1, Cost: 607, Message: "canary",
		Usage: agentbus.Usage{InputTokens: 100, OutputTokens: 20},
	})
	o.Kind, o.Model, o.Host, o.Method, o.Route = "openai", "gpt-x", "agents.example:9001", http.MethodPost, "/v1/chat/completions"
	o.Called, o.Answered = o.Call.Began.Add(time.Millisecond), o.Call.Began.Add(91*time.Millisecond)
	o.Parent, _ = agentbus.ParseTraceParent(caller)
	o.Server = o.Parent.Child()
	o.Client, o.TraceState = o.Server.Child(), "a=1"
	if change != nil {
		change(o)
	}
	return o
}

// TestSpans: G34, a call is a server span inside the caller's and a client span
// inside that, with the ids that the agent was told.
func TestSpans(t *testing.T) {
	unset(t)
	c := newReceiver(t)
	traces := opened(t, telemetry.TracesConfig{OTLP: c.URL + "/", Version: "1.2.3"})
	o := call(nil)
	traces.Observe(o)
	if err := traces.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 2 {
		t.Fatalf("%d spans", len(c.spans))
	}
	client, server := c.spans[0], c.spans[1]
	for _, s := range []struct {
		span        *tracepb.Span
		own, parent agentbus.SpanContext
		kind        tracepb.Span_SpanKind
		name        string
	}{
		{server, o.Server, o.Parent, tracepb.Span_SPAN_KIND_SERVER, "POST /v1/chat/completions"},
		{client, o.Client, o.Server, tracepb.Span_SPAN_KIND_CLIENT, "invoke_agent critic"},
	} {
		if !bytes.Equal(s.span.GetTraceId(), o.Parent.Trace[:]) || !bytes.Equal(s.span.GetSpanId(), s.own.Span[:]) || !bytes.Equal(s.span.GetParentSpanId(), s.parent.Span[:]) {
			t.Errorf("%s is span %x inside %x", s.name, s.span.GetSpanId(), s.span.GetParentSpanId())
		}
		if s.span.GetKind() != s.kind || s.span.GetName() != s.name || s.span.GetTraceState() != "a=1" {
			t.Errorf("%s is a span %q of kind %s", s.name, s.span.GetName(), s.span.GetKind())
		}
	}
	if took := time.Duration(server.GetEndTimeUnixNano() - server.GetStartTimeUnixNano()); took != 100*time.Millisecond {
		t.Errorf("the server span took %v", took)
	}
	where := map[string]string{
		"agentbus.run": "r", "agentbus.turn": "r.t1.critic", "agentbus.parent_turn": "r.t0.boss", "agentbus.speaker": "critic",
		"agentbus.depth": "int_value:2", "agentbus.agent": "critic", "http.request.method": "POST", "http.response.status_code": "int_value:200",
	}
	check := func(name string, span *tracepb.Span, more map[string]string) {
		maps.Copy(more, where)
		if diff := cmp.Diff(more, values(span.GetAttributes())); diff != "" {
			t.Errorf("attributes of the %s span (-want +got):\n%s", name, diff)
		}
	}
	check("server", server, map[string]string{
		"http.route": "/v1/chat/completions", "agentbus.result": "settled", "agentbus.attempts": "int_value:1", "agentbus.cost_micros": "int_value:607",
	})
	check("client", client, map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "openai", "gen_ai.agent.name": "critic", "gen_ai.conversation.id": "r",
		"gen_ai.request.model": "gpt-x", "gen_ai.usage.input_tokens": "int_value:100", "gen_ai.usage.output_tokens": "int_value:20",
		"server.address": "agents.example", "server.port": "int_value:9001",
	})
	if c.resource["service.name"] != "agentbus" || c.resource["service.version"] != "1.2.3" || !strings.HasPrefix(c.schema, "https://opentelemetry.io/schemas/1.") {
		t.Errorf("resource %v, schema %s", c.resource, c.schema)
	}
	if diff := cmp.Diff([]string{"/v1/traces"}, c.paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// TestRefusalsAreErrorSpans: G34, a refusal is an error span with its code, and
// nothing that was said.
func TestRefusalsAreErrorSpans(t *testing.T) {
	unset(t)
	c := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL+"/own/path")
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	traces := opened(t, telemetry.TracesConfig{})
	traces.Observe(call(func(o *agentbus.Observation) { // refused at the door
		o.Called, o.Client, o.Result, o.Call.Status = time.Time{}, agentbus.SpanContext{}, agentbus.ResultRefused, http.StatusTooManyRequests
		o.Call.Code, o.Method, o.Parent, o.TraceState = agentbus.CodeDepthExceeded, "CANARY", agentbus.SpanContext{}, ""
	}))
	traces.Observe(call(func(o *agentbus.Observation) { // the agent's own final answer
		o.Call.Status = http.StatusUnprocessableEntity
	}))
	traces.Observe(call(func(o *agentbus.Observation) { o.Server = o.Server.WithSampled(false) }))
	if err := traces.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 3 || c.paths[0] != "/own/path" || c.resource["service.name"] != "mine" {
		t.Fatalf("%d spans to %s of %v", len(c.spans), c.paths, c.resource)
	}
	refused, client, server := c.spans[0], c.spans[1], c.spans[2]
	got := values(refused.GetAttributes())
	if refused.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || refused.GetStatus().GetMessage() != "bridge_depth_exceeded" ||
		got["error.type"] != "bridge_depth_exceeded" || got["http.request.method"] != "_OTHER" || len(refused.GetParentSpanId()) > 0 {
		t.Errorf("the refusal is %v", refused)
	}
	if client.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || values(client.GetAttributes())["error.type"] != "422" || server.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the agent's own refusal is %v in %v", client, server)
	}
	for _, s := range c.spans {
		if strings.Contains(strings.ToLower(s.String()), "canary") || strings.Contains(s.String(), "alice") {
			t.Errorf("a span holds what it must not: %v", s)
		}
	}
}

// TestTracesAreOffByDefault: G34, who names no collector sends nothing.
func TestTracesAreOffByDefault(t *testing.T) {
	for _, tt := range []struct {
		name, otlp string
		env        map[string]string
		on, fails  bool
	}{
		{"nothing", "", nil, false, false},
		{"configured", "http://127.0.0.1:1", nil, true, false},
		{"variable", "", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, false},
		{"disabled", "http://127.0.0.1:1", map[string]string{"OTEL_SDK_DISABLED": "true"}, false, false},
		{"no exporter", "http://127.0.0.1:1", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false, false},
		{"unknown sampler", "http://127.0.0.1:1", map[string]string{"OTEL_TRACES_SAMPLER": "dice"}, false, true},
		{"sampler out of range", "http://127.0.0.1:1", map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			unset(t)
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			traces, err := telemetry.NewTraces(t.Context(), telemetry.TracesConfig{OTLP: tt.otlp})
			if (traces != nil) != tt.on || (err != nil) != tt.fails {
				t.Fatal(traces, err)
			}
			if traces != nil {
				if err := traces.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestSampled: the standard sampler decides before a span is made.
func TestSampled(t *testing.T) {
	kept, _ := agentbus.ParseTraceParent(caller)
	dropped := kept.WithSampled(false)
	for sampler, want := range map[string][3]bool{ // begun here, inside a kept one, inside a dropped one
		"":                         {true, true, false},
		"always_on":                {true, true, true},
		"always_off":               {false, false, false},
		"parentbased_always_off":   {false, true, false},
		"parentbased_traceidratio": {true, true, false},
	} {
		t.Run(sampler, func(t *testing.T) {
			unset(t)
			t.Setenv("OTEL_TRACES_SAMPLER", sampler)
			traces := opened(t, telemetry.TracesConfig{OTLP: "http://127.0.0.1:1"})
			defer func() { _ = traces.Close() }()
			got := [3]bool{traces.Sampled(agentbus.SpanContext{}, kept), traces.Sampled(kept, kept.Child()), traces.Sampled(dropped, dropped.Child())}
			if got != want {
				t.Errorf("sampled %v, want %v", got, want)
			}
		})
	}
}

// TestADeadCollectorHoldsNobodyUp: G34, a collector that does not answer costs a
// line in the log, and what does not fit into the queue.
func TestADeadCollectorHoldsNobodyUp(t *testing.T) {
	unset(t)
	dead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(dead.Close)
	var log strings.Builder
	traces := opened(t, telemetry.TracesConfig{OTLP: dead.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	o := call(nil)
	for range 10_000 { // the queue holds 2,048 spans
		traces.Observe(o)
	}
	if err := traces.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "spans lost") {
		t.Errorf("the log says %q", log.String())
	}
}
