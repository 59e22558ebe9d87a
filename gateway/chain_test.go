package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// within are the headers of a turn made inside another.
func within(parent, path string, d int) []string {
	h := lines("x-tangle-parent-turnid: "+parent, depth+strconv.Itoa(d))
	if path != "" {
		h = append(h, "x-agentbus-path: "+path)
	}
	return h
}

// TestDepthRegression: G7, a call inside a turn that this bus knows cannot claim
// to be less deep than it is, whether the turn is over or in flight, with or
// without its path; nor to belong to another run.
func TestDepthRegression(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []bool{false, true} {
		t.Run(strconv.FormatBool(inFlight), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			a, outer := newAgent(t, "critic", nil), newAgent(t, "outer", func(w http.ResponseWriter, r *http.Request) {
				<-release
				answerWith(http.StatusOK, completion)(w, r)
			})
			b := newBus(t, nil, a, outer)
			done := make(chan answer, 1)
			go func() { done <- b.call("outer", append(turn("r", "r.t0.outer"), depth+"1")...) }()
			outer.next(t)
			if !inFlight {
				close(release)
				<-done
			}
			below := agentbus.TurnKey{ID: "r.t0.outer"}.PathBelow()
			for i, c := range []struct {
				run, path string
				depth     int
				lies      string // what explain says; "": it passes
			}{
				{"r", "", 0, "depth_regression"},
				{"r", "", 1, "depth_regression"},
				{"r", below, 1, "depth_regression"},
				{"r", "", 2, ""},
				{"r", below, 3, ""},
				{"r", "0123456789abcdef", 0, ""}, // made inside another turn of that id (P17)
				{"r2", "", 2, "run_mismatch"},
				{"r2", below, 2, "run_mismatch"},
			} {
				id := "n" + strconv.Itoa(i)
				got := b.call("critic", append(turn(c.run, id), within("r.t0.outer", c.path, c.depth)...)...)
				if c.lies == "" {
					if got.status != http.StatusOK {
						t.Errorf("%+v: %v", c, got)
					}
					continue
				}
				refused(t, id, got, http.StatusBadRequest, agentbus.CodeInvalidLineage)
				if !strings.Contains(gjson.Get(got.body, "error.explain").Raw, c.lies) {
					t.Errorf("%+v: %v", c, got)
				}
			}
			// A GET is bounded by its parent too.
			get := append(turn("r", "get"), within("r.t0.outer", "", 0)...)
			refused(t, "GET", b.send(http.MethodGet, "/agents/critic/x", "", append(get, asAlice)...), http.StatusBadRequest, agentbus.CodeInvalidLineage)
			// I4: to another payer the turn is unknown, in whatever run.
			for _, r := range []string{"r", "r2"} {
				bobs := append(turn(r, "bob"), within("r.t0.outer", "", 0)...)
				if got := b.send(http.MethodPost, chatRoute, ask("critic"), append(bobs, asBob)...); got.status != http.StatusOK {
					t.Errorf("bob in %s: %v", r, got)
				}
			}
			if inFlight {
				close(release)
				<-done
			}
		})
	}
}

// TestRefusedParent: G7, a refused call executed nothing: nobody is inside it.
func TestRefusedParent(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	refused(t, "too deep", b.call("critic", append(turn("r", "p"), depth+"9")...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	if got := b.call("critic", append(turn("r", "c"), within("p", "", 1)...)...); got.status != http.StatusOK {
		t.Error(got)
	}
}

// TestSameTurnTwice: P17, of two turns with one id the one that the path names
// counts; without a path the least deep one does.
func TestSameTurnTwice(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil), newAgent(t, "writer", nil))
	deep := agentbus.TurnKey{Parent: "q", ID: "p"}
	for _, h := range [][]string{append(turn("r", "p"), depth+"0"), append(turn("r", "p"), within("q", "", 2)...)} {
		if got := b.call("critic", h...); got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	refused(t, "by its path", b.call("writer", append(turn("r", "a"), within("p", deep.PathBelow(), 2)...)...), http.StatusBadRequest, agentbus.CodeInvalidLineage)
	if got := b.call("writer", append(turn("r", "b"), within("p", "", 1)...)...); got.status != http.StatusOK {
		t.Errorf("without a path: %v", got)
	}
}

// A relayed counts what agents on real servers were answered that make the next
// call while they answer,
// through the bus.
type relayed struct {
	mu   sync.Mutex // guards last
	last []answer   // what the deepest calls were answered
}

// calls makes an agent that asks another one through the bus, with the body that
// change makes of its own, before it answers. It knows the lineage rules.
func (c *relayed) calls(b **bus, whom string, change func(body string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		l, err := agentbus.ParseLineage(r.Header)
		if err == nil {
			l, err = l.Next(l.Run.Turn(0, agentbus.Speaker(whom)), agentbus.Speaker(whom))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := http.Header{}
		l.SetHeaders(h)
		headers := lines(asRelay)
		for k, v := range h {
			headers = append(headers, k+": "+v[0])
		}
		got := (*b).send(http.MethodPost, "/agents/"+whom+"/chat/completions", change(string(body)), headers...)
		c.mu.Lock()
		c.last = append(c.last, got)
		c.mu.Unlock()
		answerWith(http.StatusOK, completion)(w, r)
	}
}

// deepest returns what the first call to be answered was answered: the deepest.
func (c *relayed) deepest() answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[0]
}

// TestCycles: G7, two agents that ask each other over real HTTP. With the same
// request the third call is refused; with one that changes, the way goes on to
// the depth limit and the record says so.
func TestCycles(t *testing.T) {
	t.Parallel()
	same := func(body string) string { return body }
	grows := func(body string) string { return strings.Replace(body, "hello", "hello again", 1) }
	for _, c := range []struct {
		mode       gateway.CycleMode
		change     func(string) string
		code       agentbus.Code // of the deepest call
		executions int
		note       string // of the third call, when it was served
	}{
		{"", same, agentbus.CodeCycleRefused, 2, ""},
		{"", grows, agentbus.CodeDepthExceeded, 5, "reentry"},
		{gateway.CyclesRefuse, same, agentbus.CodeCycleRefused, 2, ""},
		{gateway.CyclesRefuse, grows, agentbus.CodeCycleRefused, 2, ""},
		{gateway.CyclesWarn, same, agentbus.CodeDepthExceeded, 5, "cycle"},
		{gateway.CyclesWarn, grows, agentbus.CodeDepthExceeded, 5, "reentry"},
		{gateway.CyclesOff, same, agentbus.CodeDepthExceeded, 5, ""},
	} {
		name := string(c.mode) + "/" + c.change("hello")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *bus
			var calls relayed
			one, two := newAgent(t, "one", calls.calls(&b, "two", c.change)), newAgent(t, "two", calls.calls(&b, "one", c.change))
			b = newBus(t, func(cfg *gateway.Config) { cfg.Cycles, cfg.MaxDepth = c.mode, 10 }, one, two)
			if got := b.send(http.MethodPost, "/agents/one/chat/completions", ask("x"), append(turn("r", "r.t0.one"), asAlice)...); got.status != http.StatusOK {
				t.Fatal(got)
			}
			refused(t, name, calls.deepest(), http.StatusTooManyRequests, c.code)
			if n := one.executions() + two.executions(); n != c.executions {
				t.Errorf("%d executions, want %d", n, c.executions)
			}
			records := b.calls("r")
			last := records[len(records)-1]
			if last.State != agentbus.CallRefused || last.Code != c.code || last.Payer != "alice" {
				t.Errorf("refusal recorded as %+v", last)
			}
			third := records[2]
			if c.note != "" && !slices.Contains(third.Notes, c.note) || c.note == "" && slices.Contains(third.Notes, "reentry") {
				t.Errorf("the third call recorded as %+v", third)
			}
			if c.code == agentbus.CodeCycleRefused && !strings.Contains(calls.deepest().body, "one → two → one") {
				t.Errorf("the refusal does not tell the way: %v", calls.deepest())
			}
		})
	}
}

// TestDeepNesting: G7, what is as it should be passes, however deep.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	const deep = 8
	agents, names := make([]*agent, deep), make([]string, deep)
	var b *bus
	var calls relayed
	for i := range agents {
		names[i] = "a" + strconv.Itoa(i)
		var serve http.HandlerFunc
		if i < deep-1 {
			serve = calls.calls(&b, "a"+strconv.Itoa(i+1), func(body string) string { return body })
		}
		agents[i] = newAgent(t, names[i], serve)
	}
	b = newBus(t, func(cfg *gateway.Config) { cfg.MaxDepth = 100 }, agents...)
	if got := b.send(http.MethodPost, "/agents/a0/chat/completions", ask("x"), append(turn("r", "r.t0.a0"), asAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	for _, got := range calls.last {
		if got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if records := b.calls("r"); len(records) != deep || records[deep-1].Depth != 2*(deep-1) || records[deep-1].Notes != nil {
		t.Errorf("recorded as %+v", records)
	}
}

// TestForwardedRound: G7, a router that forwards a turn back to itself is told
// so, and does not wait for its own answer.
func TestForwardedRound(t *testing.T) {
	t.Parallel()
	var b *bus
	inner := make(chan answer, 1)
	a := newAgent(t, "router", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		req := httptest.NewRequestWithContext(r.Context(), http.MethodPost, b.url+chatRoute, bytes.NewReader(body))
		req.RequestURI, req.Header = "", r.Header.Clone()
		req.Header.Set("Authorization", "Bearer "+relayKey)
		resp, err := b.client.Do(req)
		if err != nil {
			inner <- answer{err: err}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		inner <- answer{resp.StatusCode, resp.Header, nil, string(got), err}
		answerWith(http.StatusOK, completion)(w, r)
	})
	b = newBus(t, nil, a)
	if got := b.call("router", turn("r", "t")...); got.status != http.StatusOK {
		t.Error(got)
	}
	refused(t, "round", <-inner, http.StatusTooManyRequests, agentbus.CodeCycleRefused)
}

// TestRunOf: G7, the run that a turn id names, as Turn makes it, and no other.
func TestRunOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[agentbus.TurnID]agentbus.RunID{
		"r.t0.critic": "r", "r.t12.t1": "r", "a.t0.b.t1.c": "a.t0.b", "run_1.t0.tool": "run_1",
		"t": "", "": "", ".t0.x": "", "r.t0": "", "r.t0.": "", "r.t01.x": "", "r.tx.y": "", "..": "",
	} {
		if got := gateway.RunOf(id); got != want {
			t.Errorf("%q is of run %q, want %q", id, got, want)
		}
	}
}

// A blindLedger cannot look anything up.
type blindLedger struct{ gateway.Ledger }

func (blindLedger) ParentCalls(context.Context, agentbus.Payer, agentbus.RunID, agentbus.TurnID) ([]agentbus.CallRecord, error) {
	return nil, errDisk
}

func (blindLedger) Lookup(context.Context, agentbus.Digest, agentbus.Digest) (agentbus.Reserved, bool, error) {
	return agentbus.Reserved{}, false, errDisk
}

// TestBlindLedger: a store that cannot be read refuses what needs it, to be tried
// again, and nothing else.
func TestBlindLedger(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, func(c *gateway.Config) {
		c.Ledger = blindLedger{c.Ledger}
		grant(agentbus.Grants{PerSecond: 1e-6, Burst: 1})(c)
	}, a)
	refused(t, "a parent", b.call("critic", append(turn("r", "t"), within("p", "", 1)...)...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	if got := b.call("critic", turn("r", "t")...); got.status != http.StatusOK {
		t.Errorf("no parent: %v", got)
	}
	refused(t, "no room", b.call("critic", turn("r", "t2")...), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
}
