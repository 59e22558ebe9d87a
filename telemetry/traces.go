package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentbus/agentbus"
)

// TracesConfig configures [NewTraces].
type TracesConfig struct {
	// OTLP is the base URL of a collector that takes OTLP over HTTP, such as
	// http://127.0.0.1:4318; "": the standard variables of OpenTelemetry decide,
	// OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
	OTLP    string
	Version string       // of the product
	Logger  *slog.Logger // hears of spans that could not be delivered; nil: nobody does
}

// Traces sends the spans of a bus to a collector (G34): one of each request, and
// one of each call to an agent. They are made of what the gateway tells when a
// request has ended, and wait in a bounded queue; what does not fit is dropped,
// so that no call ever waits for a collector. Traces are safe for concurrent use.
type Traces struct {
	tracer  trace.Tracer
	sampler sdktrace.Sampler
	close   func() error
}

// NewTraces returns the traces of a bus, or nil when neither the configuration
// nor the environment names a collector, or OTEL_SDK_DISABLED=true or
// OTEL_TRACES_EXPORTER=none says that there are to be none. Close them.
//
// Of the standard variables those of the exporter, the batches, the sampler and
// the resource are obeyed. The protocol is http/protobuf.
func NewTraces(ctx context.Context, c TracesConfig) (*Traces, error) {
	if !wanted(c.OTLP) {
		return nil, nil //nolint:nilnil // no traces is no failure
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	sampler, err := samplerOf(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	var options []otlptracehttp.Option
	if c.OTLP != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(c.OTLP)))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(self(c.Version)...),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last wins
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(told{exporter, c.Logger}), sdktrace.WithResource(about),
		sdktrace.WithIDGenerator(given{}), sdktrace.WithSampler(sdktrace.AlwaysSample()), // Sampled has decided
	)
	return &Traces{
		tracer:  provider.Tracer("github.com/agentbus/agentbus", trace.WithInstrumentationVersion(c.Version), trace.WithSchemaURL(schemaURL)),
		sampler: sampler,
		close: func() error {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
			defer cancel()
			return provider.Shutdown(last)
		},
	}, nil
}

// wanted reports whether anybody named a collector, and nobody said no.
func wanted(otlp string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return otlp != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// tracesURL is where a collector at base takes spans.
func tracesURL(base string) string {
	const path = "/v1/traces"
	return strings.TrimSuffix(strings.TrimSuffix(base, "/"), path) + path
}

// samplerOf reads the standard variables of the sampler. The decision is made
// when a request begins, before the SDK hears of it.
func samplerOf(name, arg string) (sdktrace.Sampler, error) {
	ratio := 1.0
	if arg != "" {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || ratio < 0 || ratio > 1 {
			return nil, errors.New("OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1")
		}
	}
	switch name {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), nil
	}
	return nil, errors.New("OTEL_TRACES_SAMPLER names no sampler of OpenTelemetry")
}

// Close sends the spans that wait, for a few seconds at most, and drops the rest.
func (t *Traces) Close() error { return t.close() }

// closePatience is how long a collector may take for the last spans.
const closePatience = 5 * time.Second

// Sampled decides whether the spans of a request are kept; without a parent the
// trace begins with own.
func (t *Traces) Sampled(parent, own agentbus.SpanContext) bool {
	return t.sampler.ShouldSample(sdktrace.SamplingParameters{
		ParentContext: within(parent, ""), TraceID: own.Trace, Kind: trace.SpanKindServer,
	}).Decision == sdktrace.RecordAndSample
}

// Observe makes the spans of a request.
func (t *Traces) Observe(o *agentbus.Observation) {
	if !o.Server.Sampled() {
		return
	}
	ctx := within(o.Parent, o.TraceState)
	ctx, server := t.tracer.Start(withSpan(ctx, o.Server), strings.TrimSpace(method(o)+" "+o.Route),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(o.Call.Began),
		trace.WithAttributes(attributes(o, callRows, serverRows)...))
	if o.Call.Code != "" { // the code alone: a message may hold words of an agent
		server.SetStatus(otelcodes.Error, string(o.Call.Code))
	}
	if !o.Called.IsZero() {
		_, client := t.tracer.Start(withSpan(ctx, o.Client), operation+" "+o.Agent,
			trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(o.Called),
			trace.WithAttributes(attributes(o, callRows, clientRows)...))
		if why := clientError(o); why != "" {
			client.SetStatus(otelcodes.Error, why)
		}
		client.End(trace.WithTimestamp(o.Answered))
	}
	server.End(trace.WithTimestamp(o.Call.Ended))
}

// within is a context inside the span of a caller.
func within(parent agentbus.SpanContext, state string) context.Context {
	ctx := context.Background()
	if parent.IsZero() {
		return ctx
	}
	ts, _ := trace.ParseTraceState(state) // a malformed one is dropped (W3C)
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: parent.Trace, SpanID: parent.Span, TraceFlags: trace.TraceFlags(parent.Flags), TraceState: ts, Remote: true,
	}))
}

type spanKey struct{}

// withSpan says which span the next one under ctx is.
func withSpan(ctx context.Context, c agentbus.SpanContext) context.Context {
	return context.WithValue(ctx, spanKey{}, c)
}

// given are the ids that the gateway has given to spans already: the agent was
// told them long before a span is made.
type given struct{}

// NewIDs returns the ids of a span that begins a trace.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(spanKey{}).(agentbus.SpanContext) // Observe puts it there
	return c.Trace, c.Span
}

// NewSpanID returns the id of a span inside another.
func (g given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// told is an exporter whose failures are logged by the bus, and not by a logger
// that belongs to the whole process.
type told struct {
	sdktrace.SpanExporter

	log *slog.Logger
}

// ExportSpans sends spans.
func (t told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := t.SpanExporter.ExportSpans(ctx, spans); err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "spans lost", slog.Int("spans", len(spans)), slog.Any("error", err))
	}
	return nil
}
