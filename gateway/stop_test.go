package gateway_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestStop: G14, the kill switch ends every live call of a run at once: whole
// ones, streams, duplicates that wait, calls that wait for a place, requests that
// are none. Nobody pays, new ones are refused, and other runs go on.
func TestStop(t *testing.T) {
	t.Parallel()
	g, busy := newTurnstile(t, "critic"), newTurnstile(t, "busy")
	busy.Concurrency, busy.Queue, busy.QueueTimeout = 1, 8, patience
	streamer := newAgent(t, "streamer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, helloEvent)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	b := newBus(t, nil, g.agent, busy.agent, streamer)
	answers, other := make(chan answer, 8), make(chan answer, 2)
	for range 2 {
		go func() { answers <- b.call("critic", turn("r", "t")...) }()
	}
	g.next(t)
	go func() { other <- b.call("busy", turn("r2", "t")...) }()
	busy.next(t)
	go func() { answers <- b.call("busy", turn("r", "queued")...) }()
	go func() {
		answers <- b.send(http.MethodGet, "/agents/critic/x", "", append(turn("r", "get"), asAlice)...)
	}()
	g.next(t)
	s := b.openStream("streamer", turn("r", "s")...)
	s.reads(helloEvent)
	b.serving(6)
	b.await("no run", func([]agentbus.CallRecord) bool { return b.QueuedAt("busy") == 1 && len(b.Live()) == 4 })
	var live []string
	for _, c := range b.Live() {
		live = append(live, string(c.Run)+" "+string(c.TurnKey.ID)+" "+string(c.State))
	}
	if diff := cmp.Diff([]string{"r t executing", "r2 t executing", "r get passed", "r s executing"}, live); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	if n := b.Stop("r"); n != 4 {
		t.Errorf("stopped %d calls, want 4", n)
	}
	for range 4 {
		refused(t, "stopped", <-answers, http.StatusForbidden, agentbus.CodeRunStopped)
	}
	rest, err := io.ReadAll(s.Body)
	if err == nil || !strings.Contains(string(rest), `"code":"run_stopped"`) {
		t.Errorf("the stream ends with %v %s", err, rest)
	}
	for _, name := range []string{"critic", "streamer"} {
		refused(t, "new", b.call(name, turn("r", "new-"+name)...), http.StatusForbidden, agentbus.CodeRunStopped)
	}
	refused(t, "again", b.call("critic", turn("r", "t")...), http.StatusForbidden, agentbus.CodeRunStopped)
	b.await("r", func(calls []agentbus.CallRecord) bool {
		voided := 0
		for _, c := range calls {
			if c.Cost != 0 || c.State == agentbus.CallSettled {
				t.Errorf("recorded as %+v", c)
			}
			if c.State == agentbus.CallVoided && c.Code == agentbus.CodeRunStopped {
				voided++
			}
		}
		return voided == 2
	})
	if b.Stop("r") != 0 || b.Stop("nobody's") != 0 {
		t.Error("stopping again stopped something")
	}
	busy.open <- struct{}{}
	if got := <-other; got.status != http.StatusOK {
		t.Errorf("another run: %v", got)
	}
	if n := busy.executions(); n != 1 {
		t.Errorf("a queued call of a stopped run was executed: %d", n)
	}
	b.serving(0)
	if live := b.Live(); len(live) != 0 {
		t.Errorf("live: %+v", live)
	}
}

// TestStopRace: G14, a call that arrives while its run is stopped is refused or
// ended, however they meet: none outlives the stop.
func TestStopRace(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b := newBus(t, nil, a)
	const n = 40
	answers := make(chan answer, n)
	for i := range n {
		go func() { answers <- b.call("critic", turn("r", "t"+strconv.Itoa(i))...) }()
	}
	a.next(t)
	b.Stop("r")
	for range n {
		refused(t, "stopped", <-answers, http.StatusForbidden, agentbus.CodeRunStopped)
	}
}

// TestStoppedAreBounded: G14, not more runs are remembered than are meant to be.
func TestStoppedAreBounded(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for i := range gateway.MaxStopped + 1 {
		b.Stop(agentbus.RunID("r" + strconv.Itoa(i)))
	}
	if got := b.call("critic", turn("r0", "t")...); got.status != http.StatusOK {
		t.Errorf("the one that was stopped first: %v", got)
	}
	refused(t, "the second", b.call("critic", turn("r1", "t")...), http.StatusForbidden, agentbus.CodeRunStopped)
}

// cutFirst is an agent in this process whose own calls are cut first when its run is
// stopped: it says so, before it is cut itself.
type cutFirst struct{ stop func() }

func (c *cutFirst) RoundTrip(*http.Request) (*http.Response, error) {
	c.stop()
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(`{"error":{"code":"run_stopped","message":"the run of a call was stopped"}}`)),
	}, nil
}

// TestStopOfWhoSaysSo: G14, a call whose agent says that its run was stopped is voided
// as the others of the run are, whichever of them is cut first.
func TestStopOfWhoSaysSo(t *testing.T) {
	t.Parallel()
	a, way := newAgent(t, "critic", nil), &cutFirst{}
	a.Transport = way
	b := newBus(t, nil, a)
	way.stop = func() { b.Stop("r") }
	refused(t, "stopped", b.call("critic", turn("r", "t")...), http.StatusForbidden, agentbus.CodeRunStopped)
	if c := b.one("r", agentbus.CallVoided); c.Code != agentbus.CodeRunStopped || c.Cost != 0 {
		t.Errorf("recorded as %+v", c)
	}
}
