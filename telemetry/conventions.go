package telemetry

import (
	"cmp"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	// The version of every name below: the last that has those of GenAI.
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/agentbus/agentbus"
)

// schemaURL says which version of the semantic conventions the spans keep.
const schemaURL = semconv.SchemaURL

// A row is one attribute of a span and where its value comes from. A value that
// is unset, "" or 0 is left out.
type row struct {
	key attribute.Key
	of  func(*agentbus.Observation) attribute.Value
}

// callRows are the attributes of both spans of a call: where it stands (G34).
// None of them is a credential, a payer or a text (P19).
var callRows = []row{
	{"agentbus.run", text(func(o *agentbus.Observation) string { return string(o.Call.Run) })},
	{"agentbus.turn", text(func(o *agentbus.Observation) string { return string(o.Call.TurnKey.ID) })},
	{"agentbus.parent_turn", text(func(o *agentbus.Observation) string { return string(o.Call.Parent) })},
	{"agentbus.speaker", text(func(o *agentbus.Observation) string { return o.Call.Speaker.Wire() })},
	{"agentbus.agent", text(func(o *agentbus.Observation) string { return o.Agent })},
}

// serverRows are the attributes of the span of a request.
var serverRows = []row{
	{semconv.HTTPRequestMethodKey, text(method)},
	{semconv.HTTPRouteKey, text(func(o *agentbus.Observation) string { return o.Route })},
	{semconv.HTTPResponseStatusCodeKey, number(func(o *agentbus.Observation) int64 { return int64(o.Call.Status) })},
	{semconv.ErrorTypeKey, text(func(o *agentbus.Observation) string { return string(o.Call.Code) })},
	{"agentbus.result", text(func(o *agentbus.Observation) string { return string(o.Result) })},
	{"agentbus.request_id", text(func(o *agentbus.Observation) string { return o.Call.RequestID })},
	{"agentbus.attempts", number(func(o *agentbus.Observation) int64 { return int64(o.Call.Attempts) })},
	{"agentbus.cost_micros", number(func(o *agentbus.Observation) int64 {
		if o.Result != agentbus.ResultSettled {
			return 0 // a duplicate is told the cost of the first; it has none
		}
		return int64(o.Call.Cost)
	})},
}

// clientRows are the attributes of the span of the call to the agent, in the
// words of the conventions for generative AI.
var clientRows = []row{
	{semconv.GenAIOperationNameKey, text(func(*agentbus.Observation) string { return operation })},
	{semconv.GenAIProviderNameKey, text(provider)},
	{semconv.GenAIAgentNameKey, text(func(o *agentbus.Observation) string { return o.Agent })},
	{semconv.GenAIConversationIDKey, text(func(o *agentbus.Observation) string { return string(o.Call.Run) })},
	{semconv.GenAIRequestModelKey, text(func(o *agentbus.Observation) string { return cmp.Or(o.Model, o.Agent) })},
	{semconv.GenAIUsageInputTokensKey, number(func(o *agentbus.Observation) int64 { return o.Call.Usage.InputTokens })},
	{semconv.GenAIUsageCacheReadInputTokensKey, number(func(o *agentbus.Observation) int64 { return o.Call.Usage.CachedTokens })},
	{semconv.GenAIUsageOutputTokensKey, number(func(o *agentbus.Observation) int64 { return o.Call.Usage.OutputTokens })},
	{semconv.HTTPRequestMethodKey, text(method)},
	{semconv.HTTPResponseStatusCodeKey, number(func(o *agentbus.Observation) int64 { return int64(o.Call.Status) })},
	{semconv.ErrorTypeKey, text(clientError)},
	{semconv.ServerAddressKey, text(func(o *agentbus.Observation) string { host, _ := hostPort(o.Host); return host })},
	{semconv.ServerPortKey, number(func(o *agentbus.Observation) int64 { _, port := hostPort(o.Host); return port })},
}

// self says whose spans these are.
func self(version string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.ServiceName("agentbus"), semconv.ServiceVersion(version)}
}

// operation is what the bus does with an agent, in the words of the conventions.
var operation = semconv.GenAIOperationNameInvokeAgent.Value.AsString()

func text(of func(*agentbus.Observation) string) func(*agentbus.Observation) attribute.Value {
	return func(o *agentbus.Observation) (v attribute.Value) {
		if s := of(o); s != "" {
			v = attribute.StringValue(s)
		}
		return v
	}
}

func number(of func(*agentbus.Observation) int64) func(*agentbus.Observation) attribute.Value {
	return func(o *agentbus.Observation) (v attribute.Value) {
		if n := of(o); n != 0 {
			v = attribute.Int64Value(n)
		}
		return v
	}
}

// attributes reads the rows of o.
func attributes(o *agentbus.Observation, tables ...[]row) []attribute.KeyValue {
	out := []attribute.KeyValue{attribute.Int("agentbus.depth", o.Call.Depth)} // 0 is a depth
	for _, table := range tables {
		for _, r := range table {
			if v := r.of(o); v.Type() != attribute.EMPTY {
				out = append(out, attribute.KeyValue{Key: r.key, Value: v})
			}
		}
	}
	return out
}

// method is a method as the conventions have it: a known one, or _OTHER.
func method(o *agentbus.Observation) string {
	switch o.Method {
	case http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
		http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace:
		return o.Method
	}
	return "_OTHER"
}

// provider is who an agent's words come from, as far as its kind tells.
func provider(o *agentbus.Observation) string {
	if o.Kind == "openai" {
		return semconv.GenAIProviderNameOpenAI.Value.AsString()
	}
	return "agentbus"
}

// clientError is why the call to the agent failed: a code of ours, or the status
// of the agent's own answer.
func clientError(o *agentbus.Observation) string {
	switch {
	case o.Call.Code != "":
		return string(o.Call.Code)
	case o.Call.Status >= http.StatusBadRequest:
		return strconv.Itoa(o.Call.Status)
	}
	return ""
}

func hostPort(hostport string) (host string, port int64) {
	host, text, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, 0
	}
	port, _ = strconv.ParseInt(text, 10, 32)
	return host, port
}
