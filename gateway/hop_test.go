package gateway_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// TestHopByHop: G11, G12 and P5, what an agent hears of a request, whole: the
// headers of the connection, what the caller says of the way it came, and what
// would ask for bytes nobody can read stay behind; unknown ones pass.
func TestHopByHop(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", nil)
	a.Header = http.Header{"X-Config": {"c"}, "X-Tangle-Forwarded-Depth": {"0"}}
	b := newBus(t, nil, a)
	got := b.raw("PUT /agents/tool/x HTTP/1.1\r\nHost: bus.example\r\n" + asAlice + "\r\n" + strings.Join([]string{
		"Connection: keep-alive, X-Mine, close", "X-Mine: 1", "Keep-Alive: 5", "Proxy-Connection: x", "Proxy-Authorization: x", "TE: trailers", "Trailer: X-T",
		"Upgrade: h2c", "HTTP2-Settings: x", "Expect: 100-continue",
		"X-Forwarded-For: 6.6.6.6", "x-forwarded-host: evil", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1", "X-Forwarded-Prefix: /x", "X-Forwarded-User: root",
		"X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6", "Via: 1.0 before",
		"Accept-Encoding: gzip, br", "Idempotency-Key: k", "Cookie: c=1",
		"x_tangle_runid: r", "X-Unknown: a", "x-unknown: b", "Accept: */*", "Content-Type: text/x",
		run + "r", tid + "r.t0.tool", "x-tangle-speaker: the critic", depth + "2", "x-agentbus-path: 0123456789abcdef", "x-kagent-root-context-id: ctx",
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate: a=1", "tracestate: b=2",
	}, "\r\n") + "\r\nContent-Length: 3\r\n\r\nabc")
	if got.status != http.StatusOK {
		t.Fatal(got)
	}
	want := http.Header{
		"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"bus.example"}, "X-Forwarded-Proto": {"http"}, "Via": {"1.0 before", "1.1 agentbus"},
		"X-Unknown": {"a", "b"}, "Accept": {"*/*"}, "Accept-Encoding": {"identity"}, "Content-Type": {"text/x"}, "Content-Length": {"3"}, "X-Config": {"c"},
		"X-Tangle-Runid": {"r"}, "X-Tangle-Turnid": {"r.t0.tool"}, "X-Tangle-Speaker": {"the critic"}, "X-Tangle-Forwarded-Depth": {"3"},
		"X-Tangle-Forwarded-Authorization": {"Bearer " + aliceKey}, "X-Agentbus-Path": {"0123456789abcdef"}, "X-Kagent-Root-Context-Id": {"ctx"},
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Tracestate": {"a=1,b=2"},
	}
	heard := a.next(t).header
	// G34: a child span of the same trace, whose id is ours to choose.
	want["Traceparent"] = []string{"00-0af7651916cd43dd8448eb211c80319c-" + spanOf(heard.Get("Traceparent")) + "-01"}
	if diff := cmp.Diff(want, heard); diff != "" || spanOf(heard.Get("Traceparent")) == "b7ad6b7169203331" {
		t.Errorf("the agent heard (-want +heard):\n%s", diff)
	}
}

// TestJSONIsCalledJSON: G9, what was read as JSON is passed on as JSON, however its
// caller called it: curl -d says that it is a form, and servers refuse that. What is
// JSON already keeps its words, and the bodies of other APIs keep theirs.
func TestJSONIsCalledJSON(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", answerWith(http.StatusOK, completion))
	b := newBus(t, nil, a)
	for _, path := range []string{chatRoute, "/v1/responses", "/agents/a/chat/completions", "/agents/a/files"} {
		for said, want := range map[string]string{
			"": "application/json", "application/x-www-form-urlencoded": "application/json", "text/plain; charset=utf-8": "application/json", ";": "application/json",
			"application/json": "application/json", "application/json; charset=utf-8": "application/json; charset=utf-8", "application/x+json": "application/x+json",
		} {
			headers := []string{asAlice}
			if said != "" {
				headers = append(headers, "Content-Type: "+said)
			}
			if path == "/agents/a/files" {
				want = said
			}
			if got := b.send(http.MethodPost, path, ask("a"), headers...); got.status != http.StatusOK {
				t.Fatal(path, said, got)
			}
			if heard := a.next(t); heard.header.Get("Content-Type") != want || heard.body != ask("a") {
				t.Errorf("%s as %q: the agent heard %q %s", path, said, heard.header.Get("Content-Type"), heard.body)
			}
		}
	}
}

// TestHopByHopBack: G12, what the caller reads of an agent's headers: those of
// its connection, of the protocol and of the bus are not the agent's to say.
func TestHopByHopBack(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range []string{
			"Connection: X-Mine", "X-Mine: 1", "Keep-Alive: 5", "Proxy-Authenticate: x", "Upgrade: x",
			"X-Tangle-Runid: evil", "x-tangle-forwarded-authorization: evil", "X-Agentbus-Replay: hit", "X-Agentbus-Cost-Usd: 9", "X-Request-Id: evil", "X-Should-Retry: true",
			"X-Unknown: a", "X-Unknown: b", "Content-Type: text/x", "Via: 1.1 before", "Date: x", "ETag: e",
		} {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Add(name, value)
		}
		_, _ = io.WriteString(w, "abc")
	})
	b := newBus(t, nil, a)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		got := b.send(method, "/agents/tool/x", "", append(turn("r", "r.t0.tool"), asAlice)...)
		id := got.header.Get("X-Request-Id")
		if !strings.HasPrefix(id, "req_") || len(id) != 28 {
			t.Errorf("x-request-id %q", id)
		}
		want := http.Header{
			"X-Unknown": {"a", "b"}, "Content-Type": {"text/x"}, "Via": {"1.1 before", "1.1 agentbus"}, "Date": {"x"}, "Etag": {"e"}, "Content-Length": {"3"},
			"X-Request-Id": {id}, "X-Tangle-Runid": {"r"}, "X-Tangle-Turnid": {"r.t0.tool"},
			"X-Should-Retry": {"true"}, // it is the agent's to say of its own answer
		}
		if method == http.MethodPost {
			want["X-Agentbus-Attempts"], want["X-Agentbus-Cost-Usd"] = []string{"1"}, []string{"0.000000"}
		}
		if diff := cmp.Diff(want, got.header); diff != "" {
			t.Errorf("%s (-want +got):\n%s", method, diff)
		}
	}
}

// TestUpgrade: G12, connections are not upgraded on agent routes.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", nil)
	b := newBus(t, nil, a)
	for _, line := range []string{"Upgrade: websocket", "Upgrade: h2c, websocket", "upgrade: WebSocket"} {
		for _, to := range []string{"GET /agents/tool/x", "POST " + chatRoute, "POST /v1/responses"} {
			got := b.raw(to + " HTTP/1.1\r\nHost: bus\r\n" + asAlice + "\r\nConnection: Upgrade\r\n" + line + "\r\nContent-Length: " + strconv.Itoa(len(ask("tool"))) + "\r\n\r\n" + ask("tool"))
			refused(t, to+" "+line, got, http.StatusBadRequest, agentbus.CodeInvalidRequest)
		}
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

// TestPassedCut: what is no call and breaks off does not look whole.
func TestPassedCut(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newRawAgent(t, "tool", wire(okJSON+"\nContent-Length: 10", "abc")))
	if got := b.send(http.MethodGet, "/agents/tool/x", "", append(turn("r", "t"), asAlice)...); got.err == nil {
		t.Errorf("a part looks whole: %v", got)
	}
	if r := b.one("r", agentbus.CallPassed); r.Code != agentbus.CodeAgentUnavailable {
		t.Errorf("recorded as %+v", r)
	}
}

// TestHead: an answer without a body keeps its length.
func TestHead(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "tool", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/none":
			w.WriteHeader(http.StatusNoContent)
		case "/v1/same":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("Content-Length", "12345")
		}
	}))
	if got := b.send(http.MethodHead, "/agents/tool/x", "", asAlice); got.status != http.StatusOK || got.header.Get("Content-Length") != "12345" || got.err != nil {
		t.Errorf("HEAD: %v %v", got, got.header)
	}
	for path, status := range map[string]int{"none": http.StatusNoContent, "same": http.StatusNotModified} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if got := b.send(method, "/agents/tool/"+path, "", asAlice); got.status != status || got.body != "" || got.err != nil {
				t.Errorf("%s %s: %v", method, path, got)
			}
		}
	}
}

// TestPipelined: requests behind each other on one connection are each one call.
func TestPipelined(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	one := rawPost(chatRoute, ask("critic"), turn("r", "t")...)
	if got := b.raw(one + one + one); got.body != completion {
		t.Error(got)
	}
	b.await("r", func(calls []agentbus.CallRecord) bool {
		return len(calls) == 1 && calls[0].State == agentbus.CallSettled
	})
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}
