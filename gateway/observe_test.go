package gateway_test

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// observations are what a gateway has told of its requests, in turn.
type observations chan agentbus.Observation

// Observe keeps a copy.
func (o observations) Observe(seen *agentbus.Observation) {
	kept, call := *seen, *seen.Call
	kept.Call = &call
	o <- kept
}

func (o observations) next(t *testing.T) agentbus.Observation {
	t.Helper()
	select {
	case seen := <-o:
		return seen
	case <-time.After(patience):
		t.Fatal("nothing was told of a request")
		return agentbus.Observation{}
	}
}

// watched starts a bus that tells what became of its requests.
func watched(t *testing.T, tracer gateway.Tracer, agents ...*agent) (*bus, observations) {
	t.Helper()
	o := make(observations, 64)
	return newBus(t, func(c *gateway.Config) { c.Observers, c.Tracer = []gateway.Observer{o}, tracer }, agents...), o
}

// TestObserve: G33, an observer is told of each request once, by the name of a
// configured agent or by none, and how long whom it waited for.
func TestObserve(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	critic, busy := newAgent(t, "critic", nil), newAgent(t, "busy", answerWith(http.StatusServiceUnavailable, "{}"))
	critic.Price = price
	held := newAgent(t, "held", func(w http.ResponseWriter, r *http.Request) {
		<-slow
		streamWith(stream)(w, r)
	})
	b, o := watched(t, nil, critic, busy, held)
	tests := []struct {
		name   string
		do     func() answer
		agent  string
		result agentbus.Result
		code   agentbus.Code
		called bool
	}{
		{"settled", func() answer { return b.call("critic", turn("r", "a")...) }, "critic", agentbus.ResultSettled, "", true},
		{"replayed", func() answer { return b.call("critic", turn("r", "a")...) }, "critic", agentbus.ResultReplayed, "", false},
		{"voided", func() answer { return b.call("busy") }, "busy", agentbus.ResultVoided, agentbus.CodeAgentUnavailable, true},
		{"too deep", func() answer { return b.call("critic", depth+"4") }, "critic", agentbus.ResultRefused, agentbus.CodeDepthExceeded, false},
		{"bad lineage", func() answer { return b.call("critic", depth+"x") }, "", agentbus.ResultRefused, agentbus.CodeInvalidDepth, false},
		{"unknown agent", func() answer { return b.call("hostile{}\n") }, "", agentbus.ResultRefused, agentbus.CodeAgentNotFound, false},
		{"unknown caller", func() answer { return b.send(http.MethodPost, chatRoute, ask("critic")) }, "", agentbus.ResultRefused, agentbus.CodeUnauthenticated, false},
		{"passed", func() answer { return b.send(http.MethodGet, "/agents/critic/x", "", asAlice) }, "critic", agentbus.ResultPassed, "", true},
		{"answered", func() answer { return b.send(http.MethodGet, "/v1/models", "", asAlice) }, "", agentbus.ResultAnswered, "", false},
	}
	for _, tt := range tests {
		tt.do()
		got := o.next(t)
		if got.Agent != tt.agent || got.Result != tt.result || got.Call.Code != tt.code || got.Called.IsZero() == tt.called {
			t.Errorf("%s: told of %q %s %s, called %v", tt.name, got.Agent, got.Result, got.Call.Code, got.Called)
		}
		if took := got.Call.Ended.Sub(got.Call.Began); got.FirstByte.IsZero() == (tt.name != "answered") || got.Upstream < 0 || got.Upstream > took || tt.called != (got.Upstream > 0) {
			t.Errorf("%s: waited %v of %v, first byte %v", tt.name, got.Upstream, took, got.FirstByte)
		}
	}
	done := make(chan answer, 2)
	for range 2 {
		go func() { done <- b.stream("held", turn("r", "s")...) }()
	}
	held.next(t)
	for b.InFlight() < 2 {
		runtime.Gosched()
	}
	close(slow)
	<-done
	<-done
	got := []agentbus.Result{o.next(t).Result, o.next(t).Result}
	slices.Sort(got)
	if diff := cmp.Diff([]agentbus.Result{agentbus.ResultAttached, agentbus.ResultSettled}, got); diff != "" {
		t.Errorf("a duplicate in flight (-want +got):\n%s", diff)
	}
}

// spanOf returns the span of a traceparent.
func spanOf(traceParent string) string {
	if c, ok := agentbus.ParseTraceParent(traceParent); ok {
		return c.String()[36:52]
	}
	return "none"
}

// sampling is a tracer that keeps traces that begin here, or none.
type sampling bool

// Sampled keeps what the caller keeps.
func (s sampling) Sampled(parent, _ agentbus.SpanContext) bool {
	if parent.IsZero() {
		return bool(s)
	}
	return parent.Sampled()
}

// TestTraceIsContinued: G34 and P2, a trace goes on as a child span whether or
// not this bus keeps it, and only a bus that keeps traces begins one.
func TestTraceIsContinued(t *testing.T) {
	t.Parallel()
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	tests := []struct {
		name   string
		tracer gateway.Tracer
		in     []string
		trace  string // "": none goes out; "new": one begins here
		flags  string
		state  string
	}{
		{"off", nil, lines("traceparent: 00-"+trace+"-"+span+"-01", "tracestate: a=1"), trace, "01", "a=1"},
		{"off, not sampled", nil, lines("traceparent: 00-" + trace + "-" + span + "-00"), trace, "00", ""},
		{"off, of a version to come", nil, lines("traceparent: cc-" + trace + "-" + span + "-01-x"), trace, "01", ""},
		{"off, malformed", nil, lines("traceparent: 00-"+trace+"-"+span, "tracestate: a=1"), "", "", ""},
		{"off, none", nil, nil, "", "", ""},
		{"on", sampling(true), lines("traceparent: 00-"+trace+"-"+span+"-01", "tracestate: a=1"), trace, "01", "a=1"},
		{"on, not sampled by the caller", sampling(true), lines("traceparent: 00-" + trace + "-" + span + "-00"), trace, "00", ""},
		{"on, malformed", sampling(true), lines("traceparent: x", "tracestate: a=1"), "new", "03", ""},
		{"on, none", sampling(true), nil, "new", "03", ""},
		{"on, none, not sampled", sampling(false), nil, "new", "02", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", nil)
			b, o := watched(t, tt.tracer, a)
			b.call("critic", tt.in...)
			h, seen := a.next(t).header, o.next(t)
			out, ok := agentbus.ParseTraceParent(h.Get("Traceparent"))
			if ok != (tt.trace != "") || len(h.Values("Traceparent")) > 1 || h.Get("Tracestate") != tt.state {
				t.Fatalf("the agent heard %q, %q", h.Values("Traceparent"), h.Values("Tracestate"))
			}
			if out != seen.Client || seen.Server.Trace != out.Trace || seen.TraceState != tt.state {
				t.Errorf("told of server %s and client %s, the agent heard %s", seen.Server, seen.Client, out)
			}
			if tt.trace == "" {
				return
			}
			id := out.String()
			if tt.trace != "new" && id[3:35] != tt.trace || id[53:] != tt.flags || id[36:52] == span {
				t.Errorf("the agent heard %s", id)
			}
			if tt.tracer != nil && seen.Server.Span == out.Span {
				t.Error("the call to the agent has the span of the request")
			}
			if !strings.Contains(b.log.text(), `"trace_id":"`+id[3:35]+`","span_id":"`+seen.Server.String()[36:52]+`"`) {
				t.Errorf("the log does not tell the span: %s", b.log.text())
			}
		})
	}
}

// TestTraceOfARefusal: G34, a request that is refused before its lineage is known
// has its place in its caller's trace all the same.
func TestTraceOfARefusal(t *testing.T) {
	t.Parallel()
	b, o := watched(t, sampling(true), newAgent(t, "critic", nil))
	b.call("critic", depth+"x", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if got := o.next(t); got.Server.Trace != got.Parent.Trace || got.Parent.String()[36:52] != "b7ad6b7169203331" {
		t.Errorf("told of span %s inside %s", got.Server, got.Parent)
	}
	b.call("critic", depth+"x")
	if got := o.next(t); got.Server.IsZero() || !got.Parent.IsZero() {
		t.Errorf("told of span %s inside %s", got.Server, got.Parent)
	}
}
