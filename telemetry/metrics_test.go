package telemetry_test

import (
	"bufio"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape reads the figures over HTTP, one a series.
func scrape(t *testing.T, m *telemetry.Metrics) map[string]string {
	t.Helper()
	srv := httptest.NewServer(m.Handler())
	defer srv.Close()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	series, lines := map[string]string{}, bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if at := strings.LastIndex(lines.Text(), " "); at > 0 && !strings.HasPrefix(lines.Text(), "#") {
			series[lines.Text()[:at]] = lines.Text()[at+1:]
		}
	}
	return series
}

// seen is an observation of a request that took 100 ms, of which the agent took 90.
func seen(agent string, r agentbus.Result, c agentbus.CallRecord) *agentbus.Observation {
	c.Began = time.Unix(1000, 0)
	c.Ended = c.Began.Add(100 * time.Millisecond)
	o := &agentbus.Observation{Call: &c, Agent: agent, Result: r, FirstByte: c.Began.Add(50 * time.Millisecond)}
	if r == agentbus.ResultSettled || r == agentbus.ResultVoided {
		o.Called, o.Upstream = c.Began, 90*time.Millisecond
	}
	return o
}

// TestMetrics: G33, what is counted of each result.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics(telemetry.MetricsConfig{
		Version: "1.2.3", InFlight: func() int { return 3 }, Detached: func() int { return 2 }, Queued: func() int { return 7 }, Current: func() bool { return true },
	})
	used := agentbus.Usage{InputTokens: 100, CachedTokens: 40, OutputTokens: 20}
	m.Observe(seen("critic", agentbus.ResultSettled, agentbus.CallRecord{Usage: used, Cost: 607, Unbilled: 3}))
	m.Observe(seen("critic", agentbus.ResultReplayed, agentbus.CallRecord{Usage: used}))
	m.Observe(seen("critic", agentbus.ResultAttached, agentbus.CallRecord{}))
	m.Observe(seen("critic", agentbus.ResultVoided, agentbus.CallRecord{Usage: used, Unbilled: 50, Code: agentbus.CodeAgentUnavailable}))
	m.Observe(seen("critic", agentbus.ResultLeft, agentbus.CallRecord{Unbilled: 4, Code: agentbus.CodeAgentUnavailable, State: agentbus.CallVoided, Status: agentbus.StatusCallerLeft}))
	m.Observe(seen("critic", agentbus.ResultRefused, agentbus.CallRecord{Code: agentbus.CodeDepthExceeded}))
	m.Observe(seen("critic", agentbus.ResultRefused, agentbus.CallRecord{Code: agentbus.CodeReplyExpired}))
	m.Observe(seen("", agentbus.ResultRefused, agentbus.CallRecord{Code: agentbus.CodeUnauthenticated}))
	if p50, p99 := m.CommitLatency(); p50 != 0 || p99 != 0 {
		t.Errorf("commits took %v, %v before the first", p50, p99)
	}
	m.Committed(2 * time.Millisecond)
	if p50, p99 := m.CommitLatency(); p50 != 2*time.Millisecond || p99 != 2*time.Millisecond { // U16
		t.Errorf("commits took %v, %v", p50, p99)
	}
	got := scrape(t, m)
	for series, want := range map[string]string{
		`agentbus_requests_total{agent="critic",result="settled"}`:             "1",
		`agentbus_requests_total{agent="critic",result="refused"}`:             "2",
		`agentbus_requests_total{agent="critic",result="left"}`:                "1",
		`agentbus_requests_total{agent="-",result="refused"}`:                  "1",
		`agentbus_refusals_total{agent="critic",code="bridge_depth_exceeded"}`: "1",
		`agentbus_refusals_total{agent="-",code="unauthenticated"}`:            "1",
		`agentbus_failures_total{agent="critic",code="agent_unavailable"}`:     "1",
		`agentbus_tokens_total{agent="critic",kind="input"}`:                   "100",
		`agentbus_tokens_total{agent="critic",kind="cached"}`:                  "40",
		`agentbus_tokens_total{agent="critic",kind="output"}`:                  "20",
		`agentbus_charged_micro_usd_total{agent="critic"}`:                     "607",
		`agentbus_unbilled_micro_usd_total{agent="critic"}`:                    "57",
		`agentbus_dedupe_hits_total{agent="critic"}`:                           "1",
		`agentbus_retries_absorbed_total{agent="critic"}`:                      "3",
		`agentbus_added_latency_seconds_count{agent="critic"}`:                 "2",
		`agentbus_added_latency_seconds_bucket{agent="critic",le="0.01"}`:      "2",
		`agentbus_added_latency_seconds_bucket{agent="critic",le="0.005"}`:     "0",
		`agentbus_upstream_latency_seconds_bucket{agent="critic",le="0.1"}`:    "2",
		`agentbus_upstream_latency_seconds_bucket{agent="critic",le="0.05"}`:   "0",
		`agentbus_time_to_first_byte_seconds_count{agent="critic"}`:            "7",
		`agentbus_store_commit_duration_seconds_count`:                         "1",
		`agentbus_in_flight_requests`:                                          "3",
		`agentbus_detached_calls`:                                              "2",
		`agentbus_store_queue_depth`:                                           "7",
		`agentbus_config_current`:                                              "1",
	} {
		if got[series] != want {
			t.Errorf("%s is %q, want %q", series, got[series], want)
		}
	}
	for _, prefix := range []string{"agentbus_build_info{", "go_goroutines", "process_cpu_seconds_total"} {
		if !some(got, prefix) {
			t.Errorf("there is no %s", prefix)
		}
	}
}

func some(series map[string]string, prefix string) bool {
	for name := range series {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// TestMetricsAreBounded: G33, nothing a caller or an agent says makes a series or
// stops the counting.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics(telemetry.MetricsConfig{})
	observe := func(text string) {
		m.Observe(seen("", agentbus.ResultRefused, agentbus.CallRecord{
			TurnKey: agentbus.TurnKey{Agent: text, Run: agentbus.RunID(text), ID: agentbus.TurnID(text), Payer: agentbus.Payer(text)},
			Caller:  text, Speaker: agentbus.Speaker(text), Code: agentbus.Code(text), Message: text,
		}))
	}
	observe("x")
	before := scrape(t, m)
	for _, text := range []string{"canary\n# HELP", `canary"} 1`, strings.Repeat("canary", 1000), "canary\xff"} {
		observe(text)
	}
	m.Observe(seen("", agentbus.ResultSettled, agentbus.CallRecord{Usage: agentbus.Usage{InputTokens: math.MinInt64}, Cost: -1}))
	m.Observe(seen("", "canary", agentbus.CallRecord{}))
	after := scrape(t, m)
	for series := range after {
		if strings.Contains(series, "canary") {
			t.Errorf("a caller made the series %s", series)
		}
	}
	if diff := cmp.Diff(len(before), len(after)); diff != "" {
		t.Errorf("the number of series (-before +after):\n%s", diff)
	}
}

// TestObserveAllocatesNothing: what every call pays is counters only.
func TestObserveAllocatesNothing(t *testing.T) {
	m := telemetry.NewMetrics(telemetry.MetricsConfig{})
	o := seen("critic", agentbus.ResultSettled, agentbus.CallRecord{Usage: agentbus.Usage{InputTokens: 1, OutputTokens: 1}, Cost: 1})
	if n := testing.AllocsPerRun(100, func() { m.Observe(o) }); n > 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := telemetry.NewMetrics(telemetry.MetricsConfig{})
	o := seen("critic", agentbus.ResultSettled, agentbus.CallRecord{Usage: agentbus.Usage{InputTokens: 1, OutputTokens: 1}, Cost: 1})
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(o)
	}
}

// G33: who prefers OpenMetrics, as Prometheus does, reads the text format: a strict
// reader of the other would refuse the runtime's figures, and with them all of ours.
func TestMetricsAreText(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(telemetry.NewMetrics(telemetry.MetricsConfig{}).Handler())
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if said := resp.Header.Get("Content-Type"); err != nil || !strings.HasPrefix(said, "text/plain; version=0.0.4") || !strings.Contains(string(body), "\n# TYPE go_memstats_alloc_bytes_total counter\n") {
		t.Errorf("%s, %v:\n%s", said, err, body)
	}
}
