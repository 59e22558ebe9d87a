package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/httpx"
)

// wire is an agent's answer as it stands on the wire.
func wire(head string, body ...string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n"+strings.Join(body, ""))
	}
}

// reset cuts the connection behind what was sent, without a goodbye.
func reset(serve func(net.Conn, *http.Request)) func(net.Conn, *http.Request) {
	return func(c net.Conn, r *http.Request) {
		serve(c, r)
		_ = c.(*net.TCPConn).SetLinger(0) //nolint:errcheck,forcetypeassert // it is one
	}
}

const (
	okJSON    = "HTTP/1.1 200 OK\nContent-Type: application/json\nConnection: close"
	okSSE     = "HTTP/1.1 200 OK\nContent-Type: text/event-stream\nConnection: close"
	errorData = `data: {"error":{"message":"out of @luck"}}` + "\n\n"
)

// TestBrokenAnswers: G15 and G20, an answer that is broken is a failed attempt:
// amount 0, no success told, and the key is free for the next attempt, which
// succeeds.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve  func(net.Conn, *http.Request)
		stream bool // asked for
		status int  // that the caller reads; 200: a cut stream
		told   string
	}{
		"hangs up":                {func(net.Conn, *http.Request) {}, false, 502, "could not be reached"},
		"resets":                  {reset(func(net.Conn, *http.Request) {}), false, 502, ""},
		"no HTTP":                 {wire("hello"), false, 502, ""},
		"cut head":                {wire("HTTP/1.1 200 OK\nContent-Ty"), false, 502, ""},
		"two lengths":             {wire("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2", "ab"), false, 502, ""},
		"promises too much":       {wire(okJSON+"\nContent-Length: 9999", completion), false, 502, "broke off"},
		"promises too little":     {wire(okJSON+"\nContent-Length: 10", completion), false, 502, "is not one of its API"},
		"reset in the body":       {reset(wire(okJSON+"\nContent-Length: 9999", completion)), false, 502, ""},
		"bad chunk":               {wire(okJSON+"\nTransfer-Encoding: chunked", "zz\r\n"+completion), false, 502, ""},
		"chunks cut":              {wire(okJSON+"\nTransfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(completion), completion)), false, 502, ""},
		"HTML":                    {wire("HTTP/1.1 200 OK\nContent-Type: text/html\nConnection: close", "<html>@home</html>"), false, 502, "is not one of its API"},
		"empty":                   {wire(okJSON + "\nContent-Length: 0"), false, 502, "is not one of its API"},
		"no content for a stream": {wire(okSSE + "\nContent-Length: 0"), true, 200, "before its last event"},
		"garbage":                 {wire(okJSON, "\x00\x01garbage"), false, 502, "is not one of its API"},
		"a list":                  {wire(okJSON, "[1]"), false, 502, "is not one of its API"},
		"two objects":             {wire(okJSON, "{}{}"), false, 502, "is not one of its API"},
		"compressed":              {wire(okJSON+"\nContent-Encoding: gzip", "\x1f\x8b\x08"), false, 502, "in a content coding"}, // G11
		"a compressed stream":     {wire(okSSE+"\nContent-Encoding: br", "\x1f\x8b\x08"), true, 502, "in a content coding"},
		"no choices for a stream": {wire(okJSON, `{"x":1}`), true, 502, "is not one of its API"},
		"no content at all":       {wire("HTTP/1.1 204 No Content"), false, 502, "is not one of its API"},
		"HTML under 202":          {wire("HTTP/1.1 202 Accepted\nContent-Type: text/html\nConnection: close", "<html>"), false, 502, "is not one of its API"},
		"no end":                  {wire(okSSE, helloEvent+usageEvent), true, 200, "before its last event"},
		"no end, no stream asked": {wire(okSSE, helloEvent+usageEvent), false, 502, "before its last event"},
		"cut in an event":         {wire(okSSE, helloEvent+`data: {"choi`), true, 200, "before its last event"},
		"reset in the stream":     {reset(wire(okSSE+"\nTransfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(helloEvent), helloEvent))), true, 200, "broke off"},
		"error in the stream":     {wire(okSSE, helloEvent, errorData, doneEvent), true, 200, "out of ·luck"},
		"an event of an error":    {wire(okSSE, helloEvent, "event: error\ndata: {\"message\":\"out of @luck\"}\n\n", doneEvent), true, 200, "out of ·luck"},
		"error first":             {wire(okSSE, errorData), true, 200, "out of ·luck"},
		"error for a whole":       {wire(okSSE, helloEvent, errorData, doneEvent), false, 502, "out of ·luck"},
		"an endless end":          {wire(okSSE, helloEvent, "data: {\"x\":1}\n\ndata: [DONE"), true, 200, "before its last event"},
		"switches protocols":      {wire("HTTP/1.1 101 Switching Protocols\nUpgrade: x\nConnection: Upgrade"), false, 502, ""},
		"only promises":           {wire("HTTP/1.1 103 Early Hints"), false, 502, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			a := newRawAgent(t, "critic", func(conn net.Conn, r *http.Request) {
				switch {
				case !broken.Swap(true):
					c.serve(conn, r)
				case c.stream:
					wire(okSSE, stream)(conn, r)
				default:
					wire(okJSON, completion)(conn, r)
				}
			})
			a.Price = price
			b := newBus(t, nil, a)
			do, want := b.call, completion
			if c.stream {
				do, want = b.stream, stream
			}
			got := do("critic", turn("r", "t")...)
			if c.status != http.StatusOK {
				refused(t, name, got, c.status, agentbus.CodeAgentUnavailable)
			} else if got.err == nil || strings.Contains(got.body, "[DONE]") && !strings.Contains(name, "error") {
				t.Errorf("a broken stream looks whole: %v", got)
			}
			if ours := got.body[max(strings.LastIndex(got.body, `{"error"`), 0):]; !strings.Contains(ours, c.told) || strings.Contains(ours, "@") {
				t.Errorf("told %v, want %q", got, c.told)
			}
			if r := b.one("r", agentbus.CallVoided); r.Cost != 0 || r.Code != agentbus.CodeAgentUnavailable {
				t.Errorf("recorded as %+v", r)
			}
			if got := do("critic", turn("r", "t")...); got.body != want || got.err != nil || got.header.Get("X-Agentbus-Attempts") != "2" {
				t.Errorf("the retry: %v", got)
			}
			if r := b.one("r", agentbus.CallSettled); r.Cost != priced || a.executions() != 2 {
				t.Errorf("after %d executions recorded as %+v", a.executions(), r)
			}
		})
	}
}

// TestErrorUnder200: G15, {"error":…} under 200 is a failed attempt, which the
// caller reads as the agent said it.
func TestErrorUnder200(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, body string }{
		{chatRoute, `{"error":{"message":"no"},"usage":{"prompt_tokens":100,"completion_tokens":20}}`},
		{chatRoute, `{"error":"no","usage":{"prompt_tokens":100,"completion_tokens":20}}`},
		{"/v1/responses", `{"status":"failed","error":{"message":"no"},"output":[],"usage":{"input_tokens":100,"output_tokens":20}}`},
	} {
		a := newAgent(t, "critic", answerWith(http.StatusOK, c.body))
		a.Price = price
		b := newBus(t, nil, a)
		for range 2 {
			if got := b.send(http.MethodPost, c.path, ask("critic"), append(turn("r", "t"), asAlice)...); got.status != http.StatusOK || got.body != c.body || got.header.Get("X-Agentbus-Replay") != "" {
				t.Errorf("passed as %v", got)
			}
		}
		if r := b.one("r", agentbus.CallVoided); r.Cost != 0 || r.Unbilled != 2*priced || r.Attempts != 2 {
			t.Errorf("recorded as %+v", r)
		}
	}
}

// TestErrorThenLeft: G15, an error that the agent told is why its stream failed, also
// where a driver reads it, and leaves, while the agent still holds the stream open.
func TestErrorThenLeft(t *testing.T) {
	t.Parallel()
	told := "data: {\"error\":{\"message\":\"no\"}}\n\n"
	b := newBus(t, nil, newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, told)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx := gateway.WithInProcess(t.Context(), gateway.InProcess{Payer: "alice", Caller: agentbus.Principal{ID: "alice"}})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+chatRoute, strings.NewReader(askStream("critic")))
	if err != nil {
		t.Fatal(err)
	}
	agentbus.Lineage{Run: "r", Turn: "t", Depth: 1}.SetHeaders(r.Header)
	resp, err := httpx.Memory(b.Gateway).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(told))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != told {
		t.Errorf("read %q, %v", got, err)
	}
	_ = resp.Body.Close()
	if r := b.one("r", agentbus.CallVoided); r.Message != "the agent reported an error in its stream: no" {
		t.Errorf("recorded as %+v", r)
	}
}

// TestUnbilled: G20, what a cut stream had used is kept, and paid by nobody.
func TestUnbilled(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", streamWith(helloEvent+usageEvent))
	a.Price = price
	b := newBus(t, nil, a)
	b.stream("critic", turn("r", "t")...)
	if r := b.one("r", agentbus.CallVoided); r.Unbilled != priced || r.Cost != 0 || r.Usage.OutputTokens != 20 {
		t.Errorf("recorded as %+v", r)
	}
}

// TestNoSecondRequest: G11, the gateway never sends a POST twice by itself,
// whatever it carries and whether the connection was used before.
func TestNoSecondRequest(t *testing.T) {
	t.Parallel()
	// The agent answers the first request on a connection, and hangs up on the second.
	a := newAgent(t, "tool", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/warm") {
			answerWith(http.StatusOK, "{}")(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	})
	b := newBus(t, nil, a)
	executed := 0
	for _, body := range []string{"", "{}", strings.Repeat("x", 100<<10)} {
		for _, header := range []string{"X-None: 1", "Idempotency-Key: " + strconv.Itoa(len(body)), "X-Idempotency-Key: k"} {
			if got := b.send(http.MethodPost, "/agents/tool/warm", "", asAlice); got.status != http.StatusOK {
				t.Fatal(got)
			}
			executed++
			refused(t, header, b.send(http.MethodPost, "/agents/tool/x", body, asAlice, header), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
			if executed++; a.executions() != executed {
				t.Errorf("a body of %d bytes with %s was sent %d times", len(body), header, a.executions()-executed+1)
				executed = a.executions()
			}
		}
	}
}

// TestUnreachable: an agent that is not there is 502, and may be retried.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, gone(t))
	refused(t, "call", b.call("gone", turn("r", "t")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
	refused(t, "stream", b.stream("gone", turn("r", "t2")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
	refused(t, "get", b.send(http.MethodGet, "/agents/gone/x", "", asAlice), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
	if log := b.log.text(); !strings.Contains(log, "refused") {
		t.Errorf("the log does not tell why: %s", log)
	}
}

// TestHugeAnswer: G25, 100 MB pass through without being kept, are charged by
// estimate, and a duplicate is told that the answer is gone.
func TestHugeAnswer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it answers with 110 MiB")
	}
	huge := func(status, size int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			piece := strings.Repeat(" ", 1<<20)
			_, _ = io.WriteString(w, "{"+piece[2:]+"}")
			for range size>>20 - 1 {
				_, _ = io.WriteString(w, piece)
			}
		}
	}
	good, bad := newAgent(t, "good", huge(http.StatusOK, 100<<20)), newAgent(t, "bad", huge(http.StatusInternalServerError, 10<<20))
	good.Price = agentbus.Price{Output: 1_000_000}
	b := newBus(t, func(c *gateway.Config) { c.MaxReply = 1<<20 + 5 }, good, bad)
	read := func(name string) (status int, n int64, err error) {
		resp, err := b.open(http.MethodPost, chatRoute, ask(name), append(turn(name, "t"), asAlice)...)
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		n, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, n, err
	}
	if status, n, err := read("good"); status != http.StatusOK || n != 100<<20 || err != nil {
		t.Errorf("%d, %d bytes, %v", status, n, err)
	}
	refused(t, "duplicate", b.call("good", turn("good", "t")...), http.StatusGone, agentbus.CodeReplyExpired)
	if c := b.calls("good")[0]; c.State != agentbus.CallSettled || c.Cost != 100<<20/4 || !c.Usage.Estimated {
		t.Errorf("recorded as %+v", c)
	}
	if status, n, err := read("bad"); status != http.StatusInternalServerError || n != 10<<20 || err != nil { // the agent's own answer passes as it is
		t.Errorf("%d, %d bytes, %v", status, n, err)
	}
	if r := b.one("bad", agentbus.CallVoided); r.Cost != 0 {
		t.Errorf("recorded as %+v", r)
	}
}

// TestUsageOfHugeAnswer: G26, what an answer tells of its usage counts, also
// when it is too large to be kept.
func TestUsageOfHugeAnswer(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "painter", answerWith(http.StatusOK, strings.Replace(completion, `{`, `{"image":"`+strings.Repeat("x", 64<<10)+`",`, 1)))
	a.Price = price
	plain := newAgent(t, "plain", answerWith(http.StatusOK, completion))
	plain.Price = price
	b := newBus(t, func(c *gateway.Config) { c.MaxReply = 32 << 10 }, a, plain)
	b.call("plain", turn("plain", "t")...)
	if got := b.call("painter", turn("painter", "t")...); got.status != http.StatusOK || got.err != nil {
		t.Fatalf("%d %v", got.status, got.err)
	}
	small, large := b.one("plain", agentbus.CallSettled), b.one("painter", agentbus.CallSettled)
	if large.Usage != small.Usage || large.Cost != small.Cost || large.Cost == 0 || large.Usage.Estimated {
		t.Errorf("recorded as %+v, want the usage of %+v", large, small)
	}
}

// TestErrorForAStream: G15, an error under status 200 in place of a stream is
// told as one, so that no client takes it for a stream of nothing, and is charged
// 0.
func TestErrorForAStream(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", answerWith(http.StatusOK, "{\"error\":\n{\"message\":\"out of luck\"}}"))
	a.Price = price
	b := newBus(t, nil, a)
	got := b.stream("critic", turn("r", "t")...)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream" || got.body != `data: {"error":{"message":"out of luck"}}`+"\n\n" {
		t.Errorf("%v %v", got, got.header)
	}
	if r := b.one("r", agentbus.CallVoided); r.Cost != 0 || r.Code != agentbus.CodeAgentUnavailable {
		t.Errorf("recorded as %+v", r)
	}
}

// TestTypeUntold: an answer that tells no type is JSON where it was found to be,
// and is not guessed elsewhere, the second time neither (G23).
func TestTypeUntold(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newRawAgent(t, "critic", wire("HTTP/1.1 200 OK\nConnection: close", completion)))
	for _, again := range []string{"", "hit"} {
		got := b.call("critic", turn("r", "t")...)
		if got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Agentbus-Replay") != again || got.body != completion {
			t.Errorf("%v %v", got, got.header)
		}
		got = b.send(http.MethodPost, "/agents/critic/tool", "x", append(turn("r", "other"), asAlice)...)
		if _, told := got.header["Content-Type"]; told || got.header.Get("X-Agentbus-Replay") != again || got.body != completion {
			t.Errorf("%v %v", got, got.header)
		}
	}
}

// TestEventsUntold: G15, a stream that tells no type, or that of plain text as servers
// in Go guess it, is one where it begins so, wherever it is cut: it flows as it comes,
// is charged by its usage, and made whole for who asked for that. What is neither is
// refused as before.
func TestEventsUntold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   string
		pieces []string
		whole  bool // it is a stream
	}{
		"no type":       {"", []string{stream}, true},
		"plain text":    {"Content-Type: text/plain; charset=utf-8\n", []string{"\n", "dat", stream[3:]}, true},
		"comment":       {"", []string{"", "\xef\xbb\xbf: hi\n\n", stream}, true},
		"words":         {"", []string{"dat", "abase"}, false},
		"nothing":       {"", nil, false},
		"lines":         {"", []string{strings.Repeat("\n", 2000), stream}, false},
		"breaks off":    {"Content-Length: 9\n", []string{"da"}, false},
		"another type":  {"Content-Type: text/html\n", []string{stream}, false},
		"a JSON stream": {"Content-Type: application/x-ndjson\n", []string{completion}, true}, // as it was: a whole answer
	} {
		a := newRawAgent(t, "critic", func(conn net.Conn, _ *http.Request) {
			_, _ = io.WriteString(conn, strings.ReplaceAll("HTTP/1.1 200 OK\n"+c.kind+"Connection: close\n\n", "\n", "\r\n"))
			for _, p := range c.pieces {
				_, _ = io.WriteString(conn, p)
			}
		})
		a.Price = price
		b := newBus(t, nil, a)
		streamed, whole := b.stream("critic", turn("s", "t")...), b.call("critic", turn("w", "t")...)
		if !c.whole {
			refused(t, name, streamed, http.StatusBadGateway, agentbus.CodeAgentUnavailable)
			refused(t, name, whole, http.StatusBadGateway, agentbus.CodeAgentUnavailable)
			continue
		}
		if streamed.header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(streamed.body, doneEvent) || streamed.err != nil {
			t.Errorf("%s: streamed %v %v", name, streamed, streamed.header)
		}
		if whole.header.Get("Content-Type") == "" || !strings.HasPrefix(gjson.Get(whole.body, "choices.0.message.content").Str, "h") {
			t.Errorf("%s: whole %v %v", name, whole, whole.header)
		}
		if s, w := b.one("s", agentbus.CallSettled), b.one("w", agentbus.CallSettled); s.Cost != priced || w.Cost != priced {
			t.Errorf("%s: charged %d and %d", name, s.Cost, w.Cost)
		}
	}
}

// TestEventsBegin: G15, of no beginning of a stream it is said that it is none, however
// little of it came; of what can become none it is said at once.
func TestEventsBegin(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"data:", "\n\r\nevent:", ":", "\xef\xbb\xbfid:", "\xef\xbb\xbf\nretry:"} {
		for i := range len(s) {
			if is, known := gateway.BeginEvents([]byte(s[:i])); is || known {
				t.Errorf("%q of %q: %t, %t", s[:i], s, is, known)
			}
		}
		if is, known := gateway.BeginEvents([]byte(s)); !is || !known {
			t.Errorf("%q: %t, %t", s, is, known)
		}
	}
	for _, s := range []string{"{", "datab", "\xefd", "\xef\xbbd", "\xef\xbb\xbf{", "\n{", " "} {
		if is, known := gateway.BeginEvents([]byte(s)); is || !known {
			t.Errorf("%q: %t, %t", s, is, known)
		}
	}
}

// TestEventsUntoldFlow: G9, such a stream is passed on as it comes.
func TestEventsUntoldFlow(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, _ *http.Request) { // whose type net/http guesses
		for _, e := range []string{"d", helloEvent[1:], loEvent, usageEvent + doneEvent} {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
			if e != "d" {
				<-next
			}
		}
	})
	b := newBus(t, nil, a)
	r := b.openStream("critic", turn("r", "t")...)
	for _, e := range []string{helloEvent, loEvent, usageEvent + doneEvent} {
		r.reads(e)
		next <- struct{}{}
	}
}

// TestHugeGarbage: G15, also what is too large to keep must look like an answer;
// one that breaks off is cut and costs nothing.
func TestHugeGarbage(t *testing.T) {
	t.Parallel()
	page, cut := strings.Repeat("<p>", 1<<20), "{"+strings.Repeat(" ", 2<<20)
	html := newAgent(t, "html", answerAs("text/html", http.StatusOK, page))
	sse := newAgent(t, "sse", streamWith(strings.Repeat(helloEvent, 20<<10)+doneEvent))
	blank := newAgent(t, "blank", answerWith(http.StatusOK, cut[1:]))
	breaks := newRawAgent(t, "breaks", wire(okJSON+"\nContent-Length: 99999999", cut))
	breaks.Price = price
	b := newBus(t, func(c *gateway.Config) { c.MaxReply = 1 << 20 }, html, sse, blank, breaks)
	for _, name := range []string{"html", "sse", "blank"} {
		refused(t, name, b.call(name, turn(name, "t")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
		b.one(name, agentbus.CallVoided)
	}
	if got := b.call("breaks", turn("breaks", "t")...); got.err == nil {
		t.Errorf("a part of an answer looks whole: %d bytes", len(got.body))
	}
	if r := b.one("breaks", agentbus.CallVoided); r.Cost != 0 {
		t.Errorf("recorded as %+v", r)
	}
}
