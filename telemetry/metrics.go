// Package telemetry tells the world outside how a bus does: figures for
// Prometheus (G33) and spans for OpenTelemetry (G34). It is told of each
// request by the gateway and of each commit by the store, and knows neither.
package telemetry

import (
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agentbus/agentbus"
)

// MetricsConfig configures [NewMetrics]. The functions are asked when the
// figures are read; nil: the figure is left out.
type MetricsConfig struct {
	Version  string     // of the product, for agentbus_build_info
	InFlight func() int // requests being served
	Detached func() int // calls that go on without their caller (G14)
	Queued   func() int // writes that wait for the store
	// Current reports whether the configuration in force is the file's (G30).
	Current func() bool
}

// Metrics are the figures of a bus for Prometheus (G33), in a registry of their
// own. Their labels are bounded: an agent is a configured one, "-" or
// the domain of agents elsewhere, codes and
// results are those of their tables; a run, a caller, a payer or a text of a
// caller is none. Metrics are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	commit   prometheus.Histogram
	commits  commits // the last of them

	requests, refusals, failures                   *prometheus.CounterVec
	tokens, charged, unbilled, replayed, retries   *prometheus.CounterVec
	addedLatency, firstByteLatency, upstreamWaited *prometheus.HistogramVec

	mu     sync.Mutex // guards the change of agents
	agents atomic.Pointer[map[string]*agentMetrics]
}

// nobody is the agent of a request that named none that is known.
const nobody = "-"

// buckets reach from what the bus adds to what an agent takes. Each is a series
// of every agent.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// NewMetrics returns the figures of a bus that has done nothing yet.
func NewMetrics(c MetricsConfig) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agentbus_store_commit_duration_seconds", Buckets: buckets, Help: "How long a transaction of the store took, with its sync.",
		}),
		requests: counters("agentbus_requests_total", "Requests that ended, by what became of them.", "agent", "result"),
		refusals: counters("agentbus_refusals_total", "Requests that were refused, by the code their caller read.", "agent", "code"),
		failures: counters("agentbus_failures_total", "Attempts that were voided, by their code.", "agent", "code"),
		tokens:   counters("agentbus_tokens_total", "Tokens of settled calls; cached ones are input too.", "agent", "kind"),
		charged:  counters("agentbus_charged_micro_usd_total", "What settled calls were charged, in millionths of a dollar.", "agent"),
		unbilled: counters("agentbus_unbilled_micro_usd_total", "What calls cost that nobody pays, in millionths of a dollar.", "agent"),
		replayed: counters("agentbus_dedupe_hits_total", "Duplicates that were answered from memory.", "agent"),
		retries:  counters("agentbus_retries_absorbed_total", "Requests that came again and did not reach their agent: answered from memory, with the call in flight, or as expired.", "agent"),

		addedLatency:     histograms("agentbus_added_latency_seconds", "How long a request that reached its agent took beyond the wait for the agent."),
		firstByteLatency: histograms("agentbus_time_to_first_byte_seconds", "Time from a request to the head of its answer."),
		upstreamWaited:   histograms("agentbus_upstream_latency_seconds", "How long the bus waited for the agent: for its head and for each piece of its answer."),
	}
	m.agents.Store(&map[string]*agentMetrics{})
	m.registry.MustRegister(
		m.commit, m.requests, m.refusals, m.failures, m.tokens, m.charged, m.unbilled, m.replayed, m.retries,
		m.addedLatency, m.firstByteLatency, m.upstreamWaited, buildInfo(c.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.gauge("agentbus_in_flight_requests", "Requests being served.", c.InFlight)
	m.gauge("agentbus_detached_calls", "Calls that go on without their caller.", c.Detached)
	m.gauge("agentbus_store_queue_depth", "Writes that wait for the store.", c.Queued)
	if c.Current != nil {
		m.gauge("agentbus_config_current", "1 when the configuration in force is the file's, 0 when a fault or a restart that is due keeps an older one.", func() int {
			if c.Current() {
				return 1
			}
			return 0
		})
	}
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"agent"})
}

func (m *Metrics) gauge(name, help string, read func() int) {
	if read != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) }))
	}
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "agentbus_build_info", Help: "What runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	g.Set(1)
	return g
}

// Handler serves the figures to who asks for them, in the text format alone: as
// OpenMetrics, two of the runtime's figures have one name, go_memstats_alloc_bytes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Committed is told how long a transaction of the store took.
func (m *Metrics) Committed(took time.Duration) {
	m.commit.Observe(took.Seconds())
	m.commits.add(took)
}

// Observe counts a request.
func (m *Metrics) Observe(o *agentbus.Observation) { m.agent(o.Agent).observe(o) }

// agent returns the figures of an agent, without a search for each of them.
func (m *Metrics) agent(name string) *agentMetrics {
	if name == "" {
		name = nobody
	}
	name, _, _ = strings.Cut(name, "/") // of an agent elsewhere, its domain
	if a, ok := (*m.agents.Load())[name]; ok {
		return a
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := *m.agents.Load()
	if a, ok := known[name]; ok {
		return a
	}
	a, more := newAgentMetrics(m, name), maps.Clone(known)
	more[name] = a
	m.agents.Store(&more)
	return a
}
