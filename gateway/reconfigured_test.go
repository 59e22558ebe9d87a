package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestReconfigured: G30, a gateway of another configuration has the calls of the
// one before in common with it; those end as they began.
func TestReconfigured(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		<-release
		answerWith(http.StatusOK, completion)(w, r)
	})
	a.Price = price
	dearer := &gateway.Target{Name: a.Name, Kind: a.Kind, URL: a.URL, Transport: a.Transport, Price: price}
	dearer.Price.Call += 1000
	var cfg gateway.Config
	b := newBus(t, func(c *gateway.Config) { cfg = *c }, a)
	cfg.Router, cfg.MaxDepth, cfg.Degraded = gateway.NewTable([]*gateway.Target{dearer}, nil), 2, func() []string { return []string{"a fault"} }
	next, err := b.Reconfigured(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(next)
	t.Cleanup(srv.Close)
	later := *b
	later.Gateway, later.url = next, srv.URL

	answers := make(chan answer, 2)
	go func() { answers <- b.call("critic", turn("r", "a")...) }()
	a.next(t)
	go func() { answers <- later.call("critic", turn("r", "a")...) }()
	for next.InFlight() < 2 {
		runtime.Gosched()
	}
	close(release)
	first, second := <-answers, <-answers
	if first.body != second.body || first.status != http.StatusOK || a.executions() != 1 {
		t.Errorf("a duplicate across the change: %v and %v, executed %d times", first, second, a.executions())
	}
	if c := b.one("r", agentbus.CallSettled); c.Cost != priced {
		t.Errorf("the call that was in flight was charged %s", c.Cost.USD())
	}
	later.call("critic", turn("s", "a")...)
	if c := b.one("s", agentbus.CallSettled); c.Cost != priced+1000 {
		t.Errorf("the call afterwards was charged %s", c.Cost.USD())
	}
	refused(t, "the new limit", later.call("critic", depth+"2"), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	if got := later.send(http.MethodGet, "/readyz", ""); got.status != http.StatusOK || !strings.Contains(got.body, `"degraded":["a fault"]`) {
		t.Errorf("readyz says %v", got)
	}
	if got := b.send(http.MethodGet, "/readyz", ""); strings.Contains(got.body, "degraded") {
		t.Errorf("readyz says %v", got)
	}
	next.Drain()
	refused(t, "the older one drains too", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeDraining)
	cfg.MaxDepth = -1
	if _, err := next.Reconfigured(cfg); err == nil {
		t.Error("a faulty configuration was taken")
	}
}
