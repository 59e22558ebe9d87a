package gateway_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// same checks that a duplicate was answered from memory: the same bytes, the
// request id and ids of the first, amount 0 (G23, I7).
func same(t *testing.T, what string, first, again answer) {
	t.Helper()
	if first.status != again.status || first.body != again.body || again.err != nil {
		t.Errorf("%s: first %v, then %v", what, first, again)
	}
	if how := again.header.Get("X-Agentbus-Replay"); how != "hit" && how != "attached" {
		t.Errorf("%s: x-agentbus-replay: %q", what, how)
	}
	if got := again.header.Get("X-Agentbus-Cost-Usd"); got != "0.000000" {
		t.Errorf("%s: the duplicate costs %s", what, got)
	}
	for _, h := range []string{"x-request-id", "x-tangle-runid", "x-tangle-turnid", "Content-Type"} {
		if first.header.Get(h) == "" || first.header.Get(h) != again.header.Get(h) {
			t.Errorf("%s: %s was %q, is %q", what, h, first.header.Get(h), again.header.Get(h))
		}
	}
}

// TestTwice: G20 to G23 and G26, the same turn twice is one execution and one
// charge, for whole answers, streams and final errors of the agent.
func TestTwice(t *testing.T) {
	t.Parallel()
	odd := ": hello\r\n\r\n" + strings.ReplaceAll(stream, "\n", "\r\n")
	for name, c := range map[string]struct {
		serve  http.HandlerFunc
		stream bool
		cost   agentbus.Micros
	}{
		"whole": {answerWith(http.StatusOK, completion), false, priced},
		"whole with headers": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Mine"] = []string{"a", "b"}
			answerWith(http.StatusOK, completion+" \n")(w, r)
		}), false, priced},
		"stream":           {streamWith(stream), true, priced},
		"stream in CRLF":   {streamWith(odd), true, priced},
		"bad request":      {answerWith(http.StatusBadRequest, `{"error":{"message":"no such model"}}`), false, 0},
		"not found, empty": {answerAs("text/plain", http.StatusNotFound, ""), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", c.serve)
			a.Price = price
			b := newBus(t, nil, a)
			do := b.call
			if c.stream {
				do = b.stream
			}
			first := do("critic", turn("r", "r.t0.critic")...)
			for range 2 {
				again := do("critic", turn("r", "r.t0.critic")...)
				same(t, name, first, again)
				if diff := cmp.Diff(first.header["X-Mine"], again.header["X-Mine"]); diff != "" {
					t.Errorf("header (-first +again):\n%s", diff)
				}
			}
			if n := a.executions(); n != 1 {
				t.Errorf("%d executions, want 1", n)
			}
			r := b.one("r", agentbus.CallSettled)
			if r.Cost != c.cost || r.Replays != 2 || r.Attempts != 1 || r.Status != first.status || r.Stream != c.stream {
				t.Errorf("recorded as %+v", r)
			}
			cost := first.header.Get("X-Agentbus-Cost-Usd")
			if c.stream {
				cost = first.trailer.Get("X-Agentbus-Cost-Usd")
			}
			if cost != c.cost.USD() {
				t.Errorf("the first was told to cost %s, want %s", cost, c.cost.USD())
			}
		})
	}
}

// TestKeys: G20, what makes two calls two: payer (I4), agent, run, path, parent
// and turn; and what does not: headers, depth, the route.
func TestKeys(t *testing.T) {
	t.Parallel()
	a, w := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		answerWith(http.StatusOK, `{"choices":[],"for":"`+r.Header.Get("x-tangle-forwarded-authorization")[len("Bearer "+canary):]+`"}`)(w, r)
	}), newAgent(t, "writer", nil)
	b := newBus(t, nil, a, w)
	base := lines(asAlice, run+"r", tid+"t")
	first := b.send(http.MethodPost, chatRoute, ask("critic"), base...)
	for name, headers := range map[string][]string{
		"payer":          lines(asBob, run+"r", tid+"t"),
		"run":            lines(asAlice, run+"r2", tid+"t"),
		"turn":           lines(asAlice, run+"r", tid+"t2"),
		"parent":         lines(asAlice, run+"r", tid+"t", "x-tangle-parent-turnid: p"),
		"path":           lines(asAlice, run+"r", tid+"t", "x-agentbus-path: 0123456789abcdef"),
		"another parent": lines(asAlice, run+"r", tid+"t", "x-tangle-parent-turnid: q"),
		"shifted":        lines(asAlice, run+"rt", tid+"t"),
	} {
		before := a.executions()
		got := b.send(http.MethodPost, chatRoute, ask("critic"), headers...)
		if got.header.Get("X-Agentbus-Replay") != "" || a.executions() != before+1 {
			t.Errorf("another %s was answered from memory: %v", name, got)
		}
		if name == "payer" && !strings.Contains(got.body, "bob") { // I4
			t.Errorf("bob reads %s", got.body)
		}
	}
	before := a.executions()
	for name, headers := range map[string][]string{
		"again":         base,
		"depth":         append(base, depth+"2"),
		"speaker":       append(base, "x-tangle-speaker: someone"),
		"other headers": append(base, "X-Retry: 1", "User-Agent: x"),
		"relayed":       lines(asRelay, forAlice, run+"r", tid+"t"),
		"upper case":    lines(asAlice, "X-TANGLE-RUNID: r", "X-TANGLE-TURNID: t"),
	} {
		same(t, name, first, b.send(http.MethodPost, chatRoute, ask("critic"), headers...))
	}
	same(t, "route", first, b.send(http.MethodPost, "/agents/critic/chat/completions", ask("critic"), base...))
	if n := a.executions(); n != before {
		t.Errorf("%d executions too many", n-before)
	}
	if got := b.send(http.MethodPost, "/agents/writer/chat/completions", ask("critic"), base...); got.header.Get("X-Agentbus-Replay") != "" || w.executions() != 1 {
		t.Errorf("another agent: %v", got)
	}
}

// TestMismatch: G20, the same turn with another request is refused, or executed
// as a call of its own; two of those at once are one execution.
func TestMismatch(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	first := b.call("critic", turn("r", "t")...)
	for _, path := range []string{"/agents/critic/chat/completions?x=1", "/agents/critic/v1/chat/completions"} {
		refused(t, path, b.send(http.MethodPost, path, ask("critic"), append(turn("r", "t"), asAlice)...), http.StatusUnprocessableEntity, agentbus.CodeTurnMismatch)
	}
	refused(t, "body", b.stream("critic", turn("r", "t")...), http.StatusUnprocessableEntity, agentbus.CodeTurnMismatch)
	same(t, "the first", first, b.call("critic", turn("r", "t")...))
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}

// TestMismatchInFlight: G20, also while the first is being executed.
func TestMismatchInFlight(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) { <-release; answerWith(http.StatusOK, completion)(w, r) })
	b := newBus(t, nil, a)
	done := make(chan answer)
	go func() { done <- b.call("critic", turn("r", "t")...) }()
	a.next(t)
	refused(t, "in flight", b.stream("critic", turn("r", "t")...), http.StatusUnprocessableEntity, agentbus.CodeTurnMismatch)
	close(release)
	if got := <-done; got.status != http.StatusOK {
		t.Error(got)
	}
}

// TestExecuteMismatch: G20 with ledger.on_mismatch: execute. Each other request
// is executed once, whether the turn's first is settled or in flight.
func TestExecuteMismatch(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "stream") {
			streamWith(stream)(w, r)
			return
		}
		<-release
		answerWith(http.StatusOK, completion)(w, r)
	})
	b := newBus(t, func(c *gateway.Config) { c.ExecuteMismatch = true }, a)
	first := make(chan answer)
	go func() { first <- b.call("critic", turn("r", "t")...) }()
	a.next(t)
	other := b.stream("critic", turn("r", "t")...)
	if other.status != http.StatusOK || other.header.Get("X-Agentbus-Replay") != "" {
		t.Errorf("in flight: %v", other)
	}
	close(release)
	<-first
	same(t, "settled", other, b.stream("critic", turn("r", "t")...))
	same(t, "the first", other, b.stream("critic", turn("r", "t")...))
	calls := b.await("r", func(calls []agentbus.CallRecord) bool { return len(calls) == 2 && calls[1].Replays == 2 })
	if cmp.Diff(calls[1].Notes, []string{"turn_reused"}) != "" || calls[0].Notes != nil || a.executions() != 2 {
		t.Errorf("%d executions, recorded as %+v", a.executions(), calls)
	}
}

// TestExecuteMismatchAtOnce: a mismatch that memory finds and one that the
// ledger finds are the same call: one execution.
func TestExecuteMismatchAtOnce(t *testing.T) {
	t.Parallel()
	release := map[string]chan struct{}{"first": make(chan struct{}), "other": make(chan struct{})}
	a := newAgent(t, "tool", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		<-release[string(body)]
		answerWith(http.StatusOK, string(body))(w, r)
	})
	b := newBus(t, func(c *gateway.Config) { c.ExecuteMismatch = true }, a)
	send := func(body string) chan answer {
		done := make(chan answer, 1)
		go func() { done <- b.send(http.MethodPost, "/agents/tool/x", body, append(turn("r", "t"), asAlice)...) }()
		return done
	}
	first := send("first")
	a.next(t)
	viaMemory := send("other") // the first is in flight: memory knows the key
	a.next(t)
	close(release["first"])
	<-first
	var viaLedger []chan answer // it is settled: the ledger knows it
	for range 4 {
		viaLedger = append(viaLedger, send("other"))
	}
	waiting := func(calls []agentbus.CallRecord) bool { return len(calls) == 2 && b.InFlight() == 5 }
	b.await("r", waiting)
	close(release["other"])
	got := <-viaMemory
	for _, c := range viaLedger {
		same(t, "at once", got, <-c)
	}
	if n := a.executions(); n != 2 {
		t.Errorf("%d executions, want 2", n)
	}
}

// TestInFlight: G22, duplicates of a call in flight are one upstream call and
// read the same bytes.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		t.Run(strconv.FormatBool(streaming), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				<-release
				if streaming {
					streamWith(stream)(w, r)
				} else {
					answerWith(http.StatusOK, completion)(w, r)
				}
			})
			a.Price = price
			b := newBus(t, nil, a)
			do, want := b.call, completion
			if streaming {
				do, want = b.stream, stream
			}
			const n = 16
			answers := make(chan answer, n)
			for range n {
				go func() { answers <- do("critic", turn("r", "t")...) }()
			}
			a.next(t)
			b.await("r", func([]agentbus.CallRecord) bool { return b.InFlight() == n })
			close(release)
			replays := 0
			for range n {
				got := <-answers
				if got.status != http.StatusOK || got.body != want || got.err != nil {
					t.Errorf("answer %v", got)
				}
				if got.header.Get("X-Agentbus-Replay") != "" {
					replays++
				}
			}
			if replays != n-1 || a.executions() != 1 {
				t.Errorf("%d replays of %d executions, want %d of 1", replays, a.executions(), n-1)
			}
			b.await("r", func(calls []agentbus.CallRecord) bool {
				return len(calls) == 1 && calls[0].Cost == priced && calls[0].Replays == n-1
			})
		})
	}
}

// TestFinishedIsNotInFlight: G23, a call is over once it is settled: its
// duplicate neither waits for a first caller who does not read, nor is it told
// that it attached.
func TestFinishedIsNotInFlight(t *testing.T) {
	t.Parallel()
	large := strings.Replace(completion, "hi", strings.Repeat("much ", 3<<20), 1)
	a := newAgent(t, "critic", answerWith(http.StatusOK, large))
	b := newBus(t, nil, a)
	slow, err := b.open(http.MethodPost, chatRoute, ask("critic"), append(turn("r", "t"), asAlice)...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Body.Close() }()
	got := b.call("critic", turn("r", "t")...)
	if how := got.header.Get("X-Agentbus-Replay"); how != "hit" || got.body != large {
		t.Errorf("x-agentbus-replay: %q, and %d bytes of %d", how, len(got.body), len(large))
	}
}

// TestAttachMidStream: G22, who attaches to a stream receives the frames so far
// and then the live ones.
func TestAttachMidStream(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	a := newAgent(t, "critic", streamUntil(more, streamRest(loEvent+usageEvent+doneEvent)))
	b := newBus(t, nil, a)
	first := b.openStream("critic", turn("r", "t")...)
	first.reads(helloEvent)
	second := b.openStream("critic", turn("r", "t")...)
	second.reads(helloEvent)
	if got := second.header.Get("X-Agentbus-Replay"); got != "attached" {
		t.Errorf("x-agentbus-replay: %q", got)
	}
	close(more)
	first.reads(loEvent + usageEvent + doneEvent)
	second.reads(loEvent + usageEvent + doneEvent)
	first.ends()
	second.ends()
	if a.executions() != 1 {
		t.Errorf("%d executions, want 1", a.executions())
	}
}

// TestAttachedToFailure: G22, duplicates of a call that fails read why, and the
// key is free (G20).
func TestAttachedToFailure(t *testing.T) {
	t.Parallel()
	release, failing := make(chan struct{}), atomic.Bool{}
	failing.Store(true)
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		if !failing.Load() {
			answerWith(http.StatusOK, completion)(w, r)
			return
		}
		<-release
		panic(http.ErrAbortHandler)
	})
	b := newBus(t, nil, a)
	answers := make(chan answer, 4)
	for range 4 {
		go func() { answers <- b.call("critic", "Idempotency-Key: k", run+"r") }()
	}
	b.await("r", func(calls []agentbus.CallRecord) bool { return len(calls) == 1 && b.InFlight() == 4 })
	close(release)
	for range 4 {
		got := <-answers
		refused(t, "attached", got, http.StatusBadGateway, agentbus.CodeAgentUnavailable)
		if got.header.Get("x-tangle-turnid") != "r.t0.critic" { // P7: the ids first minted
			t.Errorf("a duplicate reads turn %q", got.header.Get("x-tangle-turnid"))
		}
	}
	failing.Store(false)
	if got := b.call("critic", "Idempotency-Key: k", run+"r"); got.status != http.StatusOK || got.header.Get("x-tangle-turnid") != "r.t0.critic" {
		t.Errorf("the retry: %v %v", got, got.header)
	}
}

// TestAttachedToBrokenStream: G15, G22, duplicates of a stream that breaks off
// read why, as its own caller does.
func TestAttachedToBrokenStream(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	b := newBus(t, nil, newAgent(t, "critic", streamUntil(more, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })))
	streams := []*reading{b.openStream("critic", turn("r", "t")...), b.openStream("critic", turn("r", "t")...)}
	for _, s := range streams {
		s.reads(helloEvent)
	}
	close(more)
	for i, s := range streams {
		if got, err := io.ReadAll(s.Body); err == nil || !strings.Contains(string(got), `"code":"agent_unavailable"`) {
			t.Errorf("stream %d reads %q, %v", i, got, err)
		}
	}
}

// TestNotFinal: G23, an agent's "later" passes as it is, is not stored, costs
// nothing and leaves the key free; what it used is kept as unbilled (G20).
func TestNotFinal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 500, 502, 503, 529} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			const body = `{"error":{"message":"busy"},"usage":{"prompt_tokens":100,"completion_tokens":20}}`
			var failed atomic.Bool
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				if failed.Swap(true) {
					answerWith(http.StatusOK, completion)(w, r)
					return
				}
				w.Header().Set("Retry-After", "7")
				answerWith(status, body)(w, r)
			})
			a.Price = price
			b := newBus(t, nil, a)
			got := b.call("critic", turn("r", "t")...)
			if got.status != status || got.body != body || got.header.Get("Retry-After") != "7" || got.header.Get("X-Agentbus-Cost-Usd") != "0.000000" {
				t.Errorf("passed as %v %v", got, got.header)
			}
			if r := b.one("r", agentbus.CallVoided); r.Cost != 0 || r.Unbilled != priced || r.Status != status || r.Code != agentbus.CodeAgentUnavailable {
				t.Errorf("recorded as %+v", r)
			}
			if got := b.call("critic", turn("r", "t")...); got.body != completion || got.header.Get("X-Agentbus-Attempts") != "2" || got.header.Get("X-Agentbus-Replay") != "" {
				t.Errorf("the retry: %v", got)
			}
			if r := b.one("r", agentbus.CallSettled); r.Cost != priced || r.Unbilled != priced || r.Attempts != 2 {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}
