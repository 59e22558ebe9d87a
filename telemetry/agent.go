package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentbus/agentbus"
)

// agentMetrics are the figures of one agent.
type agentMetrics struct {
	results                         map[agentbus.Result]prometheus.Counter
	refusals, failures              *prometheus.CounterVec // by code
	input, cached, output           prometheus.Counter
	charged, unbilled, hits, absorb prometheus.Counter
	added, firstByte, upstream      prometheus.Observer
}

// results are all that a request can come to. Each is there from the start, so
// that a rate of none reads as 0.
var results = []agentbus.Result{
	agentbus.ResultSettled, agentbus.ResultVoided, agentbus.ResultReplayed, agentbus.ResultAttached,
	agentbus.ResultRefused, agentbus.ResultPassed, agentbus.ResultAnswered, agentbus.ResultLeft,
}

func newAgentMetrics(m *Metrics, name string) *agentMetrics {
	label := prometheus.Labels{"agent": name}
	a := &agentMetrics{
		results:  make(map[agentbus.Result]prometheus.Counter, len(results)),
		refusals: m.refusals.MustCurryWith(label), failures: m.failures.MustCurryWith(label),
		input: m.tokens.WithLabelValues(name, "input"), cached: m.tokens.WithLabelValues(name, "cached"), output: m.tokens.WithLabelValues(name, "output"),
		charged: m.charged.WithLabelValues(name), unbilled: m.unbilled.WithLabelValues(name),
		hits: m.replayed.WithLabelValues(name), absorb: m.retries.WithLabelValues(name),
		added: m.addedLatency.WithLabelValues(name), firstByte: m.firstByteLatency.WithLabelValues(name), upstream: m.upstreamWaited.WithLabelValues(name),
	}
	for _, r := range results {
		a.results[r] = m.requests.WithLabelValues(name, string(r))
	}
	return a
}

func (a *agentMetrics) observe(o *agentbus.Observation) {
	c := o.Call
	if n, ok := a.results[o.Result]; ok {
		n.Inc()
	}
	switch o.Result {
	case agentbus.ResultSettled:
		a.input.Add(amount(c.Usage.InputTokens))
		a.cached.Add(amount(c.Usage.CachedTokens))
		a.output.Add(amount(c.Usage.OutputTokens))
		a.charged.Add(amount(int64(c.Cost)))
		a.unbilled.Add(amount(int64(c.Unbilled)))
	case agentbus.ResultVoided:
		a.failures.WithLabelValues(code(c.Code)).Inc()
		a.unbilled.Add(amount(int64(c.Unbilled)))
	case agentbus.ResultReplayed:
		a.hits.Inc()
		a.absorb.Inc()
	case agentbus.ResultAttached:
		a.absorb.Inc()
	case agentbus.ResultRefused:
		a.refusals.WithLabelValues(code(c.Code)).Inc()
		if c.Code == agentbus.CodeReplyExpired {
			a.absorb.Inc()
		}
	case agentbus.ResultLeft:
		a.unbilled.Add(amount(int64(c.Unbilled)))
	case agentbus.ResultPassed, agentbus.ResultAnswered:
	}
	if !o.FirstByte.IsZero() {
		a.firstByte.Observe(o.FirstByte.Sub(c.Began).Seconds())
	}
	if !o.Called.IsZero() {
		a.upstream.Observe(o.Upstream.Seconds())
		a.added.Observe(max(0, c.Ended.Sub(c.Began)-o.Upstream).Seconds())
	}
}

// amount is what a counter may be raised by: agents report these figures.
func amount(n int64) float64 { return float64(max(0, n)) }

// code is the label of a code: one of the table, whatever it is.
func code(c agentbus.Code) string {
	if !c.Known() {
		return nobody
	}
	return string(c)
}
