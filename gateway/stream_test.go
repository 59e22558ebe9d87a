package gateway_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/http1"
)

// A reading is a streamed answer that is being read.
type reading struct {
	*http.Response
	t      *testing.T
	header http.Header
}

// openStream asks an agent as alice for a stream, and returns when its head is here.
func (b *bus) openStream(name string, headers ...string) *reading {
	resp, err := b.open(http.MethodPost, chatRoute, askStream(name), append(headers, asAlice)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	return &reading{resp, b.t, resp.Header}
}

// reads reads exactly the bytes of want.
func (r *reading) reads(want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(r.Body, got)
	if diff := cmp.Diff(want, string(got[:n])); diff != "" || err != nil {
		r.t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// ends checks that nothing more comes.
func (r *reading) ends() {
	r.t.Helper()
	if more, err := io.ReadAll(r.Body); len(more) > 0 || err != nil {
		r.t.Errorf("the stream goes on with %q %v", more, err)
	}
}

// TestFlushed: G9, the head and each event reach the caller as the agent sends
// them: the agent sends the next only when the caller has read the last.
func TestFlushed(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		for _, e := range []string{"", helloEvent, ": ping\n\n", "data: {\"choices\":[{\"delta\":{\"cont", "ent\":\"lo\"}}]}\n", "\n", usageEvent, doneEvent} {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	b := newBus(t, nil, a)
	r := b.openStream("critic")
	if ct := r.header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type %q", ct)
	}
	for _, e := range []string{helloEvent, ": ping\n\n", "data: {\"choices\":[{\"delta\":{\"cont", "ent\":\"lo\"}}]}\n", "\n", usageEvent, doneEvent} {
		next <- struct{}{}
		r.reads(e)
	}
	next <- struct{}{}
	r.ends()
}

// TestFlushedOther: G9, also what is no call and no chat.
func TestFlushedOther(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	a := newAgent(t, "tool", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{"data: 1\n\n", "data: 2\n\n"} {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	b := newBus(t, nil, a)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		resp, err := b.open(method, "/agents/tool/events", "", asAlice)
		if err != nil {
			t.Fatal(err)
		}
		r := &reading{resp, t, resp.Header}
		r.reads("data: 1\n\n")
		next <- struct{}{}
		r.reads("data: 2\n\n")
		next <- struct{}{}
		r.ends()
		_ = resp.Body.Close()
	}
}

// TestStreamBytes: G10 and I7, a stream passes byte for byte, whatever its line
// ends, and is settled on the usage it told.
func TestStreamBytes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"LF":              stream,
		"CRLF":            strings.ReplaceAll(stream, "\n", "\r\n"),
		"CR":              strings.ReplaceAll(stream, "\n", "\r"),
		"BOM":             "\xef\xbb\xbf" + stream,
		"comments":        ": hi\n\n:\n" + strings.ReplaceAll(stream, "\n\n", "\n: x\n\n"),
		"fields":          "retry: 3\nid: 1\nevent: message\n" + stream,
		"no space":        strings.ReplaceAll(stream, "data: ", "data:"),
		"many lines":      helloEvent + "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":100,\ndata: \"completion_tokens\":20}}\n\n" + doneEvent,
		"no blank line":   strings.TrimSuffix(stream, "\n"),
		"no line end":     strings.TrimSuffix(stream, "\n\n"),
		"spaces":          helloEvent + usageEvent + "data:  [DONE] \n\n",
		"behind the end":  stream + ": bye\n\n",
		"looks like done": helloEvent + "data: [DONE] not\n\n" + usageEvent + doneEvent,
		"long":            strings.Repeat(helloEvent, 3000) + usageEvent + doneEvent,
		"long event":      `data: {"choices":[],"x":"` + strings.Repeat("x", 300<<10) + "\"}\n\n" + usageEvent + doneEvent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", streamWith(body))
			a.Price = price
			b := newBus(t, nil, a)
			first := b.stream("critic", turn("r", "t")...)
			if first.err != nil || first.body != body {
				t.Errorf("%v: %s", first.err, cmp.Diff(body, first.body))
			}
			if got := first.trailer.Get("X-Agentbus-Cost-Usd"); got != priced.USD() {
				t.Errorf("the trailer says it costs %q", got)
			}
			same(t, name, first, b.stream("critic", turn("r", "t")...))
			if r := b.one("r", agentbus.CallSettled); r.Cost != priced {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}

// TestDoneWaits: G21, the end of a stream is not told before it is settled. What
// only looked like the end is not held back for long.
func TestDoneWaits(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{helloEvent + "data: [DONE]", " and more\n\n", helloEvent, usageEvent + doneEvent} {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	b := newBus(t, nil, a)
	r := b.openStream("critic", turn("r", "t")...)
	r.reads(helloEvent)
	next <- struct{}{}
	r.reads("data: [DONE] and more\n\n")
	next <- struct{}{}
	r.reads(helloEvent)
	next <- struct{}{}
	r.reads(usageEvent + doneEvent)
	if c := b.calls("r"); c[0].State != agentbus.CallSettled {
		t.Errorf("the end was told of a call that is %s", c[0].State)
	}
	next <- struct{}{}
	r.ends()
}

// TestBackPressure: G9, a caller that does not read stops the agent: what is in
// between is bounded.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	const total, bound = 64 << 20, 24 << 20 // the buffers of two pairs of sockets included
	piece := []byte(`data: {"choices":[],"x":"` + strings.Repeat("x", 64<<10) + "\"}\n\n")
	sent, stuck := 0, make(chan int, 1)
	a := newRawAgent(t, "critic", func(c net.Conn, _ *http.Request) {
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) //nolint:errcheck,forcetypeassert // it is one
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
		for sent < total {
			_ = c.SetWriteDeadline(inAWhile())
			n, err := c.Write(piece)
			if sent += n; err != nil {
				break
			}
		}
		stuck <- sent
	})
	b := newBus(t, func(c *gateway.Config) { c.MaxReply = 1 << 20 }, a)
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, rawPost(chatRoute, askStream("critic"))); err != nil {
		t.Fatal(err)
	}
	if n := <-stuck; n > bound {
		t.Errorf("the agent could send %d bytes to a caller that reads none", n)
	}
}

// TestConverted: G15, an answer in the other form than the one asked for is
// converted, noted, and given to duplicates as the first read it.
func TestConverted(t *testing.T) {
	t.Parallel()
	const (
		tools = `data: {"id":"c","created":9007199254740993,"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}}]}` + "\n\n" +
			`data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}]}}]}` + "\n\n" +
			`data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":":1}"}}]}}]}` + "\n\n" +
			`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" + doneEvent
		two = `data: {"choices":[{"index":1,"delta":{"content":"b"}}],"usage":null}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":"a","reasoning_content":"be"}},{"index":1,"delta":{"content":"B"}}]}` + "\n\n" +
			`data: {"choices":[{"index":0,"delta":{"content":"A","reasoning_content":"cause"},"finish_reason":"stop"}]}` + "\n\n" + doneEvent
		response = `{"id":"x","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":1,"output_tokens":2}}`
		message  = `{"role":"assistant","content":"a","tool_calls":[{"id":"q","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	)
	for name, c := range map[string]struct {
		serve      http.HandlerFunc
		path, ask  string
		want, note string
	}{
		"stream for a whole": {
			streamWith(stream), chatRoute, ask("critic"),
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"content":"hello","role":"assistant"}}],"id":"c1","object":"chat.completion","usage":{"completion_tokens":20,"prompt_tokens":100}}`, "converted:stream",
		},
		"stream in CR with a BOM": {
			streamWith("\xef\xbb\xbf" + strings.ReplaceAll(stream, "\n", "\r")), chatRoute, ask("critic"),
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"content":"hello","role":"assistant"}}],"id":"c1","object":"chat.completion","usage":{"completion_tokens":20,"prompt_tokens":100}}`, "converted:stream",
		},
		"tool calls": {
			streamWith(tools), chatRoute, ask("critic"),
			`{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{\"x\":1}","name":"f"},"id":"a","type":"function"},` +
				`{"function":{"arguments":"{}","name":"g"},"id":"b","type":"function"}]}}],"created":9007199254740993,"id":"c","object":"chat.completion"}`, "converted:stream",
		},
		"two choices": {
			streamWith(two), chatRoute, ask("critic"),
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"content":"aA","reasoning_content":"because","role":"assistant"}},{"finish_reason":null,"index":1,"message":{"content":"bB","role":"assistant"}}],"object":"chat.completion","usage":null}`, "converted:stream",
		},
		"no choice": {
			streamWith(usageEvent + doneEvent), chatRoute, ask("critic"), `{"choices":[],"id":"c1","object":"chat.completion","usage":{"completion_tokens":20,"prompt_tokens":100}}`, "converted:stream",
		},
		"nothing": {streamWith(doneEvent), chatRoute, ask("critic"), `{"choices":[],"object":"chat.completion"}`, "converted:stream"},
		"no choice for a stream": {
			answerWith(http.StatusOK, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}`), chatRoute, askStream("critic"),
			`data: {"choices":[],"object":"chat.completion.chunk","usage":{"completion_tokens":0,"prompt_tokens":1}}` + "\n\n" + doneEvent, "converted:whole",
		},
		"whole for a stream": {
			answerWith(http.StatusOK, completion), chatRoute, askStream("critic"),
			`data: {"choices":[{"delta":{"content":"hi","role":"assistant"},"finish_reason":null,"index":0}],"created":7,"id":"c1","model":"m","object":"chat.completion.chunk"}` + "\n\n" +
				`data: {"choices":[{"delta":{},"finish_reason":"stop","index":0}],"created":7,"id":"c1","model":"m","object":"chat.completion.chunk","usage":{"completion_tokens":20,"prompt_tokens":100,"total_tokens":120}}` + "\n\n" + doneEvent, "converted:whole",
		},
		"two choices for a stream": {
			answerWith(http.StatusOK, `{"choices":[{"index":0,"message":`+message+`,"finish_reason":"stop"},{"index":1,"message":{"content":"b"},"finish_reason":"length","logprobs":{"content":[]}}]}`), chatRoute, askStream("critic"),
			`data: {"choices":[{"delta":{"content":"a","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"q","index":0,"type":"function"}]},"finish_reason":null,"index":0}],"object":"chat.completion.chunk"}` + "\n\n" +
				`data: {"choices":[{"delta":{},"finish_reason":"stop","index":0}],"object":"chat.completion.chunk"}` + "\n\n" +
				`data: {"choices":[{"delta":{"content":"b"},"finish_reason":null,"index":1,"logprobs":{"content":[]}}],"object":"chat.completion.chunk"}` + "\n\n" +
				`data: {"choices":[{"delta":{},"finish_reason":"length","index":1}],"object":"chat.completion.chunk"}` + "\n\n" + doneEvent, "converted:whole",
		},
		"stream of a response": {
			streamWith("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":" + response + "}\n\n"),
			"/v1/responses", ask("critic"), response, "converted:stream",
		},
		"response for a stream": {
			answerWith(http.StatusOK, response+"\n"), "/v1/responses", askStream("critic"),
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":0,\"response\":" + response + "}\n\n", "converted:whole",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", c.serve)
			b := newBus(t, nil, a)
			first := b.send(http.MethodPost, c.path, c.ask, append(turn("r", "t"), asAlice)...)
			if diff := cmp.Diff(c.want, first.body); diff != "" || first.err != nil || first.status != http.StatusOK {
				t.Errorf("%v (-want +got):\n%s", first, diff)
			}
			ct := map[string]string{"converted:stream": "application/json", "converted:whole": "text/event-stream"}[c.note]
			if got := first.header.Get("Content-Type"); got != ct {
				t.Errorf("Content-Type %q, want %q", got, ct)
			}
			same(t, name, first, b.send(http.MethodPost, c.path, c.ask, append(turn("r", "t"), asAlice)...))
			if r := b.one("r", agentbus.CallSettled); len(r.Notes) != 1 || r.Notes[0] != c.note {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}

// TestConvertedAtTheEnd: G15, a stream that answers a request for none is whole with its
// last event, whatever the agent does with the connection then.
func TestConvertedAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]http.HandlerFunc{
		"breaks":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"is still": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				streamWith(stream)(w, r)
				_ = http.NewResponseController(w).Flush()
				then(w, r)
			})
			b := newBus(t, nil, a)
			first := b.call("critic", turn("r", "t")...)
			if first.status != http.StatusOK || gjson.Get(first.body, "choices.0.message.content").Str != "hello" {
				t.Fatal(first)
			}
			same(t, name, first, b.call("critic", turn("r", "t")...))
			if n := len(a.heard); n != 1 {
				t.Errorf("the agent was asked %d times", n)
			}
		})
	}
}

// TestConvertedFailure: G15, so it is with a response that says that it failed, which is
// passed on as it came, and settles nothing.
func TestConvertedFailure(t *testing.T) {
	t.Parallel()
	const failed = `{"status":"failed","error":{"message":"no"},"output":[]}`
	b := newBus(t, nil, newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		streamWith("event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":"+failed+"}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	if got := b.send(http.MethodPost, "/v1/responses", ask("critic"), append(turn("r", "t"), asAlice)...); got.status != http.StatusOK || got.body != failed {
		t.Error(got)
	}
	b.one("r", agentbus.CallVoided)
}

// TestStreamOfAnyStatus: G9, G23, a stream is passed on as it came under every status
// that tells a success.
func TestStreamOfAnyStatus(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", answerAs("text/event-stream", http.StatusAccepted, stream))
	b := newBus(t, nil, a)
	for _, path := range []string{chatRoute, "/agents/critic/jobs"} {
		first := b.send(http.MethodPost, path, askStream("critic"), append(turn("r", path), asAlice)...)
		if first.status != http.StatusAccepted || first.body != stream {
			t.Errorf("%s: %v", path, first)
		}
		same(t, path, first, b.send(http.MethodPost, path, askStream("critic"), append(turn("r", path), asAlice)...))
	}
	if n := len(a.heard); n != 2 {
		t.Errorf("the agent was asked %d times", n)
	}
	// G15: one that cannot have events is none.
	empty := newBus(t, nil, newAgent(t, "critic", answerAs("text/event-stream", http.StatusNoContent, "")))
	refused(t, "no content", empty.stream("critic", turn("r", "t")...), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
}

// TestConvertedInFlight: G22, duplicates that wait for a converted answer read
// what its caller reads.
func TestConvertedInFlight(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) { <-release; answerWith(http.StatusOK, completion)(w, r) })
	b := newBus(t, nil, a)
	const n = 8
	answers := make(chan answer, n)
	for range n {
		go func() { answers <- b.stream("critic", turn("r", "t")...) }()
	}
	b.await("r", func([]agentbus.CallRecord) bool { return b.InFlight() == n })
	close(release)
	first := <-answers
	for range n - 1 {
		if got := <-answers; got.body != first.body || got.err != nil || !strings.HasSuffix(got.body, doneEvent) {
			t.Errorf("first %v, then %v", first, got)
		}
	}
}

// TestLargeStream: G25, a stream that is too large to keep passes, is charged,
// and a duplicate is told that it is gone.
func TestLargeStream(t *testing.T) {
	t.Parallel()
	big := strings.Repeat(helloEvent, 40<<10) + usageEvent + doneEvent
	a := newAgent(t, "critic", streamWith(big))
	a.Price = price
	b := newBus(t, func(c *gateway.Config) { c.MaxReply = 1 << 20 }, a)
	if got := b.stream("critic", turn("r", "t")...); got.body != big || got.err != nil {
		t.Errorf("%d bytes of %d, %v", len(got.body), len(big), got.err)
	}
	refused(t, "duplicate", b.stream("critic", turn("r", "t")...), http.StatusGone, agentbus.CodeReplyExpired)
	if calls := b.calls("r"); len(calls) != 2 || calls[0].Cost != priced || calls[1].Cost != 0 {
		t.Errorf("recorded as %+v", calls)
	}
}

// TestLongestLimits: G3, the longest time there is is no time that is over.
func TestLongestLimits(t *testing.T) {
	t.Parallel()
	b := newBus(t, func(c *gateway.Config) {
		c.IdleTimeout, c.CallTimeout, c.BodyTimeout = math.MaxInt64, math.MaxInt64, math.MaxInt64
		c.BudgetWait, c.DetachTimeout = math.MaxInt64, math.MaxInt64
	}, newAgent(t, "critic", streamWith(helloEvent+usageEvent+doneEvent)))
	if got := b.stream("critic", turn("r", "t")...); got.err != nil || !strings.HasSuffix(got.body, doneEvent) {
		t.Error(got)
	}
	same(t, "again", b.stream("critic", turn("r", "t")...), b.stream("critic", turn("r", "t")...))
}

// TestNearby: the transport for agents nearby carries the same answers: whole,
// streamed, cut, and by a caller that leaves.
func TestNearby(t *testing.T) {
	t.Parallel()
	direct := func(a *agent) *agent {
		d := &http1.Direct{Else: a.Transport}
		t.Cleanup(d.CloseIdleConnections)
		a.Transport = d
		return a
	}
	whole, streaming := direct(newAgent(t, "whole", nil)), direct(newAgent(t, "streaming", streamWith(stream)))
	cut := direct(newAgent(t, "cut", func(w http.ResponseWriter, r *http.Request) {
		streamWith(helloEvent)(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	b := newBus(t, nil, whole, streaming, cut)
	for i := range 3 {
		if got := b.call("whole"); got.body != completion {
			t.Errorf("whole, %d: %v", i, got)
		}
		if got := b.stream("streaming"); got.body != stream || got.err != nil {
			t.Errorf("stream, %d: %v", i, got)
		}
		if got := b.stream("cut"); got.err == nil || !errors.Is(got.err, io.ErrUnexpectedEOF) || !bytes.HasPrefix([]byte(got.body), []byte(helloEvent)) {
			t.Errorf("cut, %d: %v", i, got)
		}
		if got := b.send(http.MethodPut, "/agents/whole/x", strconv.Itoa(i), asAlice); got.status != http.StatusOK {
			t.Errorf("put, %d: %v", i, got)
		}
	}
}

// TestLastLineFeed: G9, the last byte of a stream goes on too, when it comes by
// itself behind the carriage return that ended it.
func TestLastLineFeed(t *testing.T) {
	t.Parallel()
	body := strings.ReplaceAll(stream, "\n", "\r\n")
	a := newAgent(t, "critic", streamWith(body))
	a.Transport = bytewise{a.Transport}
	b := newBus(t, nil, a)
	for range 2 { // the answer, then its copy from memory
		if got := b.stream("critic", turn("r", "t")...); got.body != body || got.err != nil {
			t.Errorf("%q, %v", got.body, got.err)
		}
	}
}

// bytewise has every answer come in single bytes.
type bytewise struct{ next http.RoundTripper }

func (b bytewise) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{iotest.OneByteReader(resp.Body), resp.Body}
	}
	return resp, err
}
