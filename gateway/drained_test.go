package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// U14: an agent that was taken out gets no new calls; those under way go on,
// duplicates of finished ones are answered from memory, and once it is in again
// it is called.
func TestDrained(t *testing.T) {
	t.Parallel()
	g, other := newTurnstile(t, "critic"), newAgent(t, "other", answerWith(http.StatusOK, `{}`))
	b := newBus(t, nil, g.agent, other)
	first := make(chan answer, 1)
	go func() { first <- b.call("critic", turn("r", "t1")...) }()
	g.next(t)
	b.SetDrained([]string{"critic"})
	got := b.call("critic", turn("r", "t2")...)
	refused(t, "new", got, http.StatusServiceUnavailable, agentbus.CodeDraining)
	if got.header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After: %q", got.header.Get("Retry-After"))
	}
	if got := b.call("other", turn("r", "t3")...); got.status != http.StatusOK {
		t.Errorf("another agent: %v", got)
	}
	g.open <- struct{}{}
	if got := <-first; got.status != http.StatusOK {
		t.Errorf("under way: %v", got)
	}
	if got := b.call("critic", turn("r", "t1")...); got.status != http.StatusOK || got.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("a duplicate: %v", got)
	}
	b.SetDrained(nil)
	go func() { first <- b.call("critic", turn("r", "t2")...) }()
	g.next(t)
	g.open <- struct{}{}
	if got := <-first; got.status != http.StatusOK {
		t.Errorf("in again: %v", got)
	}
}

// U14: a probe finds out which URLs answer, and one that was left out and does is
// called again. It shows the agent's credential and nobody else's.
func TestProbe(t *testing.T) {
	t.Parallel()
	good := newAgent(t, "good", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" && r.Header.Get("Authorization") == "Bearer own" {
			w.WriteHeader(http.StatusNotFound) // which is an answer
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	down := gone(t)
	a := several(t, "a", good, down)
	a.Authorization, a.Eject = agentbus.NewCredential("Bearer own"), gateway.Eject{Failures: 1, For: time.Hour, AtMost: time.Hour}
	b := newBus(t, nil, a)
	for i := range 4 {
		b.call("a", turn("r", string(rune('a'+i)))...)
	}
	eventually(t, "both URLs are left out", func() bool {
		u := a.Upstreams()
		return !u[0].EjectedUntil.IsZero() && !u[1].EjectedUntil.IsZero()
	})
	found := a.Probe(t.Context())
	if len(found) != 2 || !found[0].Good() || found[0].Status != http.StatusNotFound || found[1].Good() || found[1].Err == nil {
		t.Fatalf("found %+v", found)
	}
	if u := a.Upstreams(); !u[0].EjectedUntil.IsZero() || u[1].EjectedUntil.IsZero() {
		t.Errorf("URLs: %+v", u)
	}
}
