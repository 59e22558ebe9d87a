package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// An Observer is told what became of each request that passed the stages, once,
// when it has ended (G33, G34). It returns at once, and neither keeps nor
// changes o. It is safe for concurrent use.
type Observer interface {
	Observe(o *agentbus.Observation)
}

// A Tracer decides which traces are kept (G34). parent is the caller's span;
// without one, it is zero and the trace begins with own. It returns at once and
// is safe for concurrent use.
type Tracer interface {
	Sampled(parent, own agentbus.SpanContext) bool
}

// place gives the request its place in the caller's trace, as a child span; it
// begins a trace only where somebody keeps it (G34). Without a tracer the bus
// has one span, whose id the agent and the access log are told.
func (g *Gateway) place(x *exchange, traceParent, traceState string) {
	o := &x.seen
	parent, ok := agentbus.ParseTraceParent(traceParent)
	switch {
	case ok:
		o.Parent, o.Server, o.TraceState = parent, parent.Child(), traceState
	case g.cfg.Tracer != nil:
		o.Server = agentbus.NewTrace()
	default:
		return
	}
	o.Client = o.Server
	if g.cfg.Tracer != nil {
		o.Server = o.Server.WithSampled(g.cfg.Tracer.Sampled(o.Parent, o.Server))
		o.Client = o.Server.Child()
	}
}

// calling notes that the agent is being called.
func (x *exchange) calling() { x.seen.Called = time.Now() }

// waited notes that the bus has waited for the agent since then.
func (x *exchange) waited(since time.Time) {
	x.seen.Answered = time.Now()
	x.seen.Upstream += x.seen.Answered.Sub(since)
}

// answering notes that an answer is on its way to the caller.
func (x *exchange) answering() { x.wrote, x.seen.FirstByte = true, time.Now() }

// tell tells the observers what became of the request.
func (g *Gateway) tell(r *http.Request, x *exchange) {
	if len(g.cfg.Observers) == 0 {
		return
	}
	o := &x.seen
	if o.Server.IsZero() { // refused before its lineage was known
		if values := r.Header["Traceparent"]; len(values) == 1 {
			g.place(x, values[0], strings.Join(r.Header["Tracestate"], ","))
		} else {
			g.place(x, "", "")
		}
	}
	o.Call, o.Result, o.Method, o.Route = &x.record, x.result(), r.Method, route(r)
	if t := x.target; t != nil {
		o.Agent, o.Kind, o.Model = t.Name, t.Kind, x.model()
	}
	for _, observer := range g.cfg.Observers {
		observer.Observe(o)
	}
}

func (x *exchange) result() agentbus.Result {
	switch {
	case x.replay == "hit":
		return agentbus.ResultReplayed
	case x.replay != "":
		return agentbus.ResultAttached
	case x.record.State == agentbus.CallSettled:
		return agentbus.ResultSettled
	case x.record.CallerLeft():
		return agentbus.ResultLeft
	case x.record.State == agentbus.CallVoided:
		return agentbus.ResultVoided
	case x.record.State == agentbus.CallPassed:
		return agentbus.ResultPassed
	case x.record.State == agentbus.CallRefused:
		return agentbus.ResultRefused
	case x.target != nil:
		return agentbus.ResultLeft
	}
	return agentbus.ResultAnswered
}

// route is the route a request came by, as it is configured: a set of few.
func route(r *http.Request) string {
	if strings.HasPrefix(r.URL.EscapedPath(), agentsPrefix) {
		return agentsPrefix + "{name}/{path...}"
	}
	if strings.HasPrefix(r.URL.EscapedPath(), a2aPrefix) {
		return a2aPrefix + "{name}/{path...}"
	}
	_, path, _ := strings.Cut(r.Pattern, " ")
	return path
}

// where tells the log which call a line is about (G32). The agent is a
// configured one or none.
func (x *exchange) where() slog.Attr {
	agent := ""
	if x.target != nil {
		agent = x.target.Name
	}
	return slog.Group("", slog.String("request_id", x.requestID),
		slog.String("run", string(x.lineage.Run)), slog.String("turn", string(x.lineage.Turn)), slog.String("parent_turn", string(x.lineage.Parent)),
		slog.Int("depth", x.lineage.Depth), slog.String("speaker", x.lineage.Speaker.Wire()),
		slog.String("caller", x.caller.ID), slog.String("payer", string(x.payer)), slog.String("agent", agent), x.traceAttr())
}

// traceAttr is where the request stands in its trace, for the log; nothing for a
// request of no trace.
func (x *exchange) traceAttr() slog.Attr {
	id := x.seen.Server.String()
	if id == "" {
		return slog.Attr{}
	}
	return slog.Group("", slog.String("trace_id", id[3:35]), slog.String("span_id", id[36:52]))
}

// InFlight returns how many requests are being served.
func (g *Gateway) InFlight() int { return int(g.inFlight.Load()) }

// Detached returns how many calls go on without their caller (G14).
func (g *Gateway) Detached() int { return len(g.slots) }
