package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
)

// What an A2A agent of these tests says.
const (
	taskDone   = `{"id":"task-1","contextId":"ctx-1","status":{"state":"TASK_STATE_COMPLETED"},"x":1.50,"metadata":{"usage":{"input_tokens":100,"output_tokens":20}}}`
	rpcDone    = `{"jsonrpc":"2.0","id":"r1","result":{"task":` + taskDone + `}}`
	rpcWorking = `data: {"jsonrpc":"2.0","id":"r1","result":{"task":{"id":"task-1","contextId":"ctx-1","status":{"state":"TASK_STATE_WORKING"}}}}` + "\n\n"
	rpcChunk   = `data: {"jsonrpc":"2.0","id":"r1","result":{"artifactUpdate":{"taskId":"task-1","contextId":"ctx-1","artifact":{"parts":[{"text":"hé"}]}}}}` + "\r\n\r\n"
	rpcEnd     = `data: {"jsonrpc":"2.0","id":"r1","result":{"statusUpdate":{"taskId":"task-1","contextId":"ctx-1","status":{"state":"TASK_STATE_COMPLETED"},"metadata":{"usage":{"input_tokens":100,"output_tokens":20}}}}}` + "\n\n"
	rpcStream  = rpcWorking + rpcChunk + rpcEnd
	rpcFault   = `{"jsonrpc":"2.0","id":"r1","error":{"code":-32602,"message":"bad parts"}}`
	restFault  = `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task","details":[]}}`
	restBegin  = `data: {"task":{"id":"task-1","contextId":"ctx-1","status":{"state":"TASK_STATE_WORKING"}}}` + "\n\n"
	restEnd    = `data: {"task":` + taskDone + "}\n\n"
)

// rpc is a JSON-RPC request.
func rpc(id, method, params string) string {
	return `{"jsonrpc":"2.0", "id":"` + id + `","method":"` + method + `","params":` + params + `}`
}

// say is the parameters of a send.
func say(messageID string) string {
	return `{"message":{"messageId":"` + messageID + `","role":"ROLE_USER","parts":[{"text":"hi"}]}}`
}

var sendHi = rpc("r1", "SendMessage", say("m1"))

// newA2A starts an A2A agent that answers with serve, and has a card.
func newA2A(t *testing.T, name string, serve http.HandlerFunc) *agent {
	t.Helper()
	var a *agent
	a = newAgent(t, name, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/.well-known/agent-card.json") {
			<-a.heard // no test asks for it
			base := "http://" + r.Host
			answerWith(http.StatusOK, `{"name":"`+name+`","supportedInterfaces":[{"url":"`+base+`/rpc/","protocolBinding":"JSONRPC","protocolVersion":"1.0"},`+
				`{"url":"`+base+`/http","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}],"capabilities":{"streaming":true,"pushNotifications":true},"skills":[],"signatures":[{}],"documentationUrl":"`+base+`/docs"}`)(w, r)
			return
		}
		serve(w, r)
	})
	a.Target = target(t, name, strings.TrimSuffix(a.URL.String(), "/v1"))
	a.Kind, a.A2A = "a2a", &gateway.A2AAgent{}
	a.Price = price
	return a
}

// code returns the code of an A2A error, and its HTTP status.
func fault(got answer) string {
	return fmt.Sprintf("%d %d %s", got.status, gjson.Get(got.body, "error.code").Int(), gjson.Get(got.body, "error.data.0.reason").Str+gjson.Get(got.body, "error.details.0.reason").Str)
}

// withoutLineage takes the bus's metadata out of a request.
func withoutLineage(t *testing.T, body string, path ...string) string {
	t.Helper()
	out, err := a2a.Set([]byte(body), nil, append(path, a2a.MetadataKey)...)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(string(out), `"metadata":{}`) || strings.Contains(string(out), `"metadata":{},`) {
		if out, err = a2a.Set(out, nil, path...); err != nil {
			t.Fatal(err)
		}
	}
	return string(out)
}

// A2, A3, A4, A6, A7: a call passes byte for byte, but for the lineage in its
// metadata, to exactly the URL of the card; its answer comes back as it is.
func TestA2ACall(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	a.Authorization = agentbus.NewCredential("Bearer " + agentKey)
	a.A2A.Forward = []string{"X-Extra"}
	b := newBus(t, nil, a)
	for _, path := range []string{"/a2a/critic", "/a2a/critic/?tenant=x%2Fy"} {
		got := b.send(http.MethodPost, path, sendHi, asAlice, "x-tangle-runid: run1", "x-tangle-turnid: run1.t"+strconv.Itoa(len(path))+".critic",
			"A2A-Version: 1.0", "A2A-Extensions: https://a", "A2A-Extensions: https://b, https://c", "X-Extra: 1", "X-Other: x-canary", "Cookie: c=1", "x-user-id: mallory", "x-kagent-source: agent",
			"x-kagent-root-context-id: root-1", "Content-Type: application/json", "Last-Event-ID: 4", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		if got.status != http.StatusOK || got.body != rpcDone {
			t.Fatal(got)
		}
		h := a.next(t)
		_, query, _ := strings.Cut(path, "?")
		if want := strings.TrimSuffix("/rpc/?"+query, "?"); h.uri != want {
			t.Errorf("came to %s, want %s", h.uri, want)
		}
		if back := withoutLineage(t, h.body, "params", "message", "metadata"); back != sendHi {
			t.Errorf("the body changed: %s", back)
		}
		want := `{"x-kagent-root-context-id":"root-1","x-tangle-forwarded-depth":"1","x-tangle-runid":"run1","x-tangle-turnid":"run1.t` + strconv.Itoa(len(path)) + `.critic"}`
		if told := gjson.Get(h.body, "params.message.metadata.agentbus").Raw; told != want {
			t.Errorf("lineage in metadata: %s", told)
		}
		for name, want := range map[string]string{ // A7, A9, P8, P22, K5
			"Authorization": "Bearer " + agentKey, "X-Tangle-Forwarded-Authorization": "Bearer " + aliceKey, "X-Tangle-Forwarded-Depth": "1", "X-Tangle-Runid": "run1",
			"A2a-Version": "1.0", "A2a-Extensions": "https://a, https://b, https://c", "X-Extra": "1", "X-Other": "", "Cookie": "", "X-Kagent-Root-Context-Id": "root-1",
			"X-User-Id": "", "X-Kagent-Source": "", "Accept-Encoding": "identity", "Last-Event-Id": "4", // X30
		} {
			if got := strings.Join(h.header[name], "|"); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	for _, c := range b.calls("run1") { // G26: the agent tells what it used
		if c.State != agentbus.CallSettled || c.Cost != priced {
			t.Errorf("%+v", c)
		}
	}
	if b.clean(); holds(t, b.path, "x-canary") { // K11
		t.Error("a header that nobody listed was stored")
	}
}

// clean checks that no credential is where it must not be (P19).
func (b *bus) clean() {
	b.t.Helper()
	if strings.Contains(b.log.text(), canary) {
		b.t.Error("a credential is in the log")
	}
	if holds(b.t, b.path, canary) {
		b.t.Error("a credential is in the store")
	}
}

// A3: HTTP+JSON below the mount; what is no call passes, and is recorded so.
func TestA2ARest(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		body := taskDone
		if r.Method == http.MethodPost && !strings.Contains(r.URL.Path, ":cancel") {
			body = `{"task":` + taskDone + `}`
		}
		w.Header().Set("Set-Cookie", "s=1")
		w.Header().Set("X-Agent", "1")
		answerWith(http.StatusOK, body)(w, r)
	})
	b := newBus(t, nil, a)
	for line, state := range map[string]agentbus.CallState{
		"POST /message:send " + say("m"): agentbus.CallSettled, "GET /tasks/task-1?historyLength=2": agentbus.CallPassed, "POST /tasks/task-1:cancel {\"metadata\":{\"a\":1}}": agentbus.CallPassed, "GET /tasks/": agentbus.CallPassed, "PATCH /custom%2Fx {}": agentbus.CallPassed,
	} {
		part := strings.SplitN(line+" ", " ", 3)
		run := "run" + strconv.Itoa(len(line))
		got := b.send(part[0], "/a2a/critic/rest"+part[1], strings.TrimSpace(part[2]), asAlice, "x-tangle-runid: "+run)
		if got.status != http.StatusOK || got.header.Get("X-Agent") != "1" || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", line, got)
		}
		if h := a.next(t); h.uri != "/http"+part[1] || h.method != part[0] {
			t.Errorf("%s came as %s %s", line, h.method, h.uri)
		}
		b.await(run, func(c []agentbus.CallRecord) bool { return len(c) == 1 && c[0].State == state })
	}
}

// A14, A16: refusals in the caller's binding, with its id; nothing comes to the
// agent.
func TestA2ARefusals(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, func(c *gateway.Config) { c.MaxBody = 4096 }, a, newAgent(t, "chat", nil))
	post := func(path, body string, headers ...string) answer {
		return b.send(http.MethodPost, path, body, headers...)
	}
	for _, c := range []struct {
		what, want, id string
		got            answer
	}{
		{"nobody", "401 -32000 UNAUTHENTICATED", "r1", post("/a2a/critic", sendHi)},
		{"depth", "429 -32000 BRIDGE_DEPTH_EXCEEDED", "r1", post("/a2a/critic", sendHi, asAlice, "x-tangle-forwarded-depth: 4", "x-tangle-runid: r")},
		{"depth in metadata", "429 -32000 BRIDGE_DEPTH_EXCEEDED", "r1", post("/a2a/critic", rpc("r1", "SendMessage", `{"message":{"metadata":{"agentbus":{"x-tangle-forwarded-depth":"4"}}}}`), asAlice)},
		{"bad depth", "400 -32602 INVALID_DEPTH", "r1", post("/a2a/critic", sendHi, asAlice, "x-tangle-forwarded-depth: -1")},
		{"two roots", "400 -32602 DUPLICATE_HEADER", "r1", post("/a2a/critic", sendHi, asAlice, "x-kagent-root-context-id: a", "x-kagent-root-context-id: b")}, // K5
		{"long root", "400 -32602 INVALID_LINEAGE", "r1", post("/a2a/critic", sendHi, asAlice, "x-kagent-root-context-id: "+strings.Repeat("x", 257))},
		{"unknown", "404 -32000 AGENT_NOT_FOUND", "r1", post("/a2a/nobody", sendHi, asAlice)},
		{"no face", "404 -32000 AGENT_NOT_FOUND", "r1", post("/a2a/chat", sendHi, asAlice)},
		{"REST", "404 404 AGENT_NOT_FOUND", "", post("/a2a/nobody/rest/message:send", say("m"), asAlice)},
		{"REST nobody", "401 401 UNAUTHENTICATED", "", post("/a2a/critic/rest/message:send", say("m"))},
		{"batch", "200 -32600 INVALID_REQUEST", "", post("/a2a/critic", "["+sendHi+"]", asAlice)},
		{"no JSON", "200 -32700 PARSE_ERROR", "", post("/a2a/critic", "{", asAlice)},
		{"twice", "200 -32600 INVALID_REQUEST", "r1", post("/a2a/critic", rpc("r1", "GetTask", `{"id":"a","id":"b"}`), asAlice)},
		{"REST twice", "400 400 INVALID_REQUEST", "", post("/a2a/critic/rest/message:send", `{"message":{"taskId":"a","task_id":"b"}}`, asAlice)},
		{"large", "413 -32000 REQUEST_TOO_LARGE", "", post("/a2a/critic", rpc("r1", "SendMessage", `"`+strings.Repeat("x", 5000)+`"`), asAlice)},
		{"GET", "405 -32602 INVALID_REQUEST", "", b.send(http.MethodGet, "/a2a/critic", "", asAlice)},
		{"elsewhere", "404 -32000 AGENT_NOT_FOUND", "r1", post("/a2a/critic/elsewhere", sendHi, asAlice)},
		{"dots", "400 400 INVALID_REQUEST", "", post("/a2a/critic/rest/%2e%2e/x", "{}", asAlice)},
		{"two versions", "400 -32602 DUPLICATE_HEADER", "r1", post("/a2a/critic?A2A-Version=0.3", sendHi, asAlice, "A2A-Version: 1.0")}, // A8
		{"one version twice", "400 -32602 DUPLICATE_HEADER", "r1", post("/a2a/critic", sendHi, asAlice, "A2A-Version: 1.0", "A2A-Version: 1.0")},
		{"webhook", "200 -32003 PUSH_NOTIFICATION_NOT_SUPPORTED", "r1", post("/a2a/critic", rpc("r1", "SendMessage", `{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"https://h/"}}}`), asAlice)}, // A17, X36
		{"old webhook", "200 -32003 PUSH_NOTIFICATION_NOT_SUPPORTED", "r1", post("/a2a/critic", rpc("r1", "message/stream", `{"message":{},"configuration":{"pushNotificationConfig":{"url":"https://h/"}}}`), asAlice)},
		{"REST webhook of 0.3", "400 400 PUSH_NOTIFICATION_NOT_SUPPORTED", "", post("/a2a/critic/rest/v1/message:send", `{"message":{},"configuration":{"pushNotification":{"url":"https://h/"}}}`, asAlice)},
		{"webhooks", "200 -32003 PUSH_NOTIFICATION_NOT_SUPPORTED", "r1", post("/a2a/critic", rpc("r1", "CreateTaskPushNotificationConfig", `{"taskId":"t","url":"https://h/"}`), asAlice)},
		{"REST webhooks", "400 400 PUSH_NOTIFICATION_NOT_SUPPORTED", "", post("/a2a/critic/rest/tasks/t/pushNotificationConfigs", `{"url":"https://h/"}`, asAlice)},
	} {
		if got := fault(c.got); got != c.want || gjson.Get(c.got.body, "id").Str != c.id {
			t.Errorf("%s: %s, want %s with id %q: %v", c.what, got, c.want, c.id, c.got)
		}
		if strings.Contains(strings.ReplaceAll(c.got.body, "@type", ""), "@") { // X32
			t.Errorf("%s: a mention in %s", c.what, c.got.body)
		}
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent heard of %d of them", n)
	}
	if got := b.call("critic"); got.code() != agentbus.CodeInvalidRequest { // without a bridge
		t.Error(got)
	}
	if got := post("/agents/critic/rpc/", sendHi, asAlice); got.code() != agentbus.CodeInvalidRequest { // not around A12 and A17
		t.Error(got)
	}
	b.clean()
}

// A11, G21, G22, G23: a stream passes unchanged and is stored; a duplicate gets
// the same events under the id of its own request.
func TestA2AStream(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", streamWith(rpcStream))
	b := newBus(t, nil, a)
	stream := rpc("r1", "SendStreamingMessage", say("m1"))
	same := turn("run1", "run1.t0.critic")
	got := b.send(http.MethodPost, "/a2a/critic", stream, append(same, asAlice)...)
	if got.body != rpcStream || got.err != nil || got.header.Get("Content-Type") != "text/event-stream" {
		t.Error(got)
	}
	again := b.send(http.MethodPost, "/a2a/critic", strings.Replace(stream, "r1", "other", 1), append(same, asAlice)...)
	if want := strings.ReplaceAll(rpcStream, `"id":"r1"`, `"id":"other"`); again.body != want || again.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("%s", cmp.Diff(want, again.body))
	}
	if c := b.one("run1", agentbus.CallSettled); c.Cost != priced || a.executions() != 2 { // with the card
		t.Errorf("%+v, %d executions", c, a.executions())
	}
	other := b.send(http.MethodPost, "/a2a/critic", strings.Replace(stream, "hi", "ho", 1), append(same, asAlice)...)
	if fault(other) != "422 -32602 TURN_MISMATCH" {
		t.Error(other)
	}
}

// A14: the forms of an error before the first event, in both bindings, and behind it.
func TestA2AErrorsOfAgents(t *testing.T) {
	t.Parallel()
	const failed = `{"jsonrpc":"2.0","id":"r1","error":{"code":-32603,"message":"broken"}}`
	rpcStreaming, restStreaming := rpc("r1", "SendStreamingMessage", say("m1")), "/a2a/critic/rest/message:stream"
	for _, c := range []struct {
		name, path, body string
		serve            http.HandlerFunc
		status           int
		kind, want       string
		state            agentbus.CallState
	}{
		{"JSON to a stream", "/a2a/critic", rpcStreaming, answerWith(200, rpcFault), 200, "text/event-stream", "data: " + rpcFault + "\n\n", agentbus.CallSettled},
		{"JSON failure to a stream", "/a2a/critic", rpcStreaming, answerWith(200, failed), 200, "text/event-stream", "data: " + failed + "\n\n", agentbus.CallVoided},
		{"JSON result to a stream", "/a2a/critic", rpcStreaming, answerWith(200, rpcDone), 200, "text/event-stream", "data: " + rpcDone + "\n\n", agentbus.CallSettled},
		{"an event", "/a2a/critic", rpcStreaming, streamWith("data: " + failed + "\n\n"), 200, "text/event-stream", "data: " + failed + "\n\n", agentbus.CallVoided},
		{"a final event", "/a2a/critic", rpcStreaming, streamWith("data: " + rpcFault + "\n\n"), 200, "text/event-stream", "data: " + rpcFault + "\n\n", agentbus.CallSettled},
		{"an event over REST", restStreaming, say("m"), streamWith(": hi\n\ndata: " + restFault + "\n\n"), 404, "application/json", restFault, agentbus.CallSettled},
		{"status 503", "/a2a/critic", rpcStreaming, answerAs("text/plain", 503, "later"), 503, "text/plain", "later", agentbus.CallVoided},
		{"status 400", "/a2a/critic", sendHi, answerWith(400, `{"x":1}`), 400, "application/json", `{"x":1}`, agentbus.CallSettled},
		{"an error", "/a2a/critic", sendHi, answerWith(200, rpcFault), 200, "application/json", rpcFault, agentbus.CallSettled},
		{"a failure", "/a2a/critic", sendHi, answerWith(200, failed), 200, "application/json", failed, agentbus.CallVoided},
		{"a stream over REST", restStreaming, say("m"), streamWith(restEnd), 200, "text/event-stream", restEnd, agentbus.CallSettled},
		{"an event behind another over REST", restStreaming, say("m"), streamWith(restBegin + "data: " + restFault + "\n\n"), 200, "text/event-stream", restBegin + "data: " + restFault + "\n\n", agentbus.CallSettled},
		{"a connection broken behind the end", "/a2a/critic", rpcStreaming, func(w http.ResponseWriter, r *http.Request) { // G15
			streamWith(rpcStream)(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 200, "text/event-stream", rpcStream, agentbus.CallSettled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newA2A(t, "critic", c.serve)
			b := newBus(t, nil, a)
			got := b.send(http.MethodPost, c.path, c.body, append(turn("run1", "run1.t0.critic"), asAlice)...)
			if got.status != c.status || got.body != c.want || got.header.Get("Content-Type") != c.kind || got.err != nil {
				t.Errorf("%v %v", got, got.header)
			}
			call := b.one("run1", c.state)
			if failed := gjson.Get(strings.TrimPrefix(c.want, "data: "), "error").Exists() || c.status >= 400; failed && call.Cost != 0 {
				t.Errorf("an error cost %d", call.Cost)
			}
			if n := a.Upstreams()[0].Failures; n != 0 && c.state == agentbus.CallSettled { // G13
				t.Errorf("%d failures of the URL", n)
			}
			if c.state == agentbus.CallSettled {
				again := b.send(http.MethodPost, c.path, c.body, append(turn("run1", "run1.t0.critic"), asAlice)...)
				if again.status != got.status || again.body != got.body || again.header.Get("X-Agentbus-Replay") != "hit" {
					t.Errorf("again: %v", again)
				}
			}
		})
	}
}

// A14, A18: the SDK for Python and the TCK read an error before a stream as the
// whole answer that the agent wrote, and our own too. What may be asked for again is
// kept as an event, which everybody reads; so is what is no error.
func TestA2AErrorsReadWhole(t *testing.T) {
	t.Parallel()
	const python, version = "User-Agent: python-httpx/0.28.1", "A2A-Version: 1.0"
	serve := func(body string) *agent { return newA2A(t, "critic", answerWith(http.StatusOK, body)) }
	event, stream := "data: "+rpcFault+"\n\n", rpc("r1", "SendStreamingMessage", say("m1"))
	for _, c := range []struct {
		name, answer, body string
		headers            []string
		want               string
	}{
		{"a subscription", rpcFault, rpc("r1", "SubscribeToTask", `{"id":"none"}`), []string{python, version}, rpcFault},
		{"a call", rpcFault, stream, []string{python, version}, rpcFault},
		{"a call with a key", rpcFault, stream, append(turn("run1", "run1.t0.critic"), python, version), event},
		{"0.3", rpcFault, stream, []string{python}, event},
		{"another client", rpcFault, stream, []string{version}, event},
		{"a result", rpcDone, stream, []string{python, version}, "data: " + rpcDone + "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kind := map[bool]string{true: "text/event-stream", false: "application/json"}[strings.HasPrefix(c.want, "data: ")]
			got := newBus(t, nil, serve(c.answer)).send(http.MethodPost, "/a2a/critic", c.body, append(c.headers, asAlice)...)
			if got.status != http.StatusOK || got.body != c.want || got.header.Get("Content-Type") != kind {
				t.Errorf("%v %v", got, got.header)
			}
		})
	}
	got := newBus(t, nil, serve(rpcDone)).send(http.MethodPost, "/a2a/critic", rpc("r1", "message/stream", `{"message":{},"configuration":{"pushNotificationConfig":{"url":"https://h/"}}}`), python, version, asAlice)
	if fault(got) != "200 -32003 PUSH_NOTIFICATION_NOT_SUPPORTED" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("our own: %v %v", got, got.header)
	}
}

// A15: a redirect is refused in the caller's binding. X33, G15: a stream without
// its end is a failed attempt, and is cut; that of another task is none (A34).
func TestA2ABrokenAgents(t *testing.T) {
	t.Parallel()
	redirect := newA2A(t, "redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
	})
	b := newBus(t, nil, redirect, newA2A(t, "empty", streamWith("")), newA2A(t, "working", streamWith(rpcWorking)),
		newA2A(t, "another", streamWith(rpcWorking+strings.NewReplacer("task-1", "task-2", "_WORKING", "_COMPLETED").Replace(rpcWorking))),
		newA2A(t, "resting", streamWith(restBegin)), newA2A(t, "page", answerAs("text/html", 200, "<p>")))
	if got := b.send(http.MethodPost, "/a2a/redirect", sendHi, asAlice); fault(got) != "502 -32000 AGENT_REDIRECTED" {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/page", sendHi, asAlice); fault(got) != "502 -32000 AGENT_UNAVAILABLE" {
		t.Error(got)
	}
	for _, name := range []string{"empty", "working", "another"} {
		got := b.send(http.MethodPost, "/a2a/"+name, rpc("r1", "SendStreamingMessage", say("m")), append(turn(name, name+".t0.x"), asAlice)...)
		last := got.body[strings.LastIndex(got.body, "data: ")+6:]
		if got.err == nil || gjson.Get(last, "error.code").Int() != -32000 || gjson.Get(last, "id").Str != "r1" || !strings.Contains(last, "ended before its last event") {
			t.Errorf("%s: %v", name, got)
		}
		b.one(name, agentbus.CallVoided)
	}
	// A33: over HTTP+JSON an error is told by the type of its event, for those who do not look for it in answers.
	got := b.send(http.MethodPost, "/a2a/resting/rest/message:stream", say("m"), append(turn("resting", "resting.t0.x"), asAlice)...)
	_, last, typed := strings.Cut(got.body, "\n\nevent: error\ndata: ")
	if got.err == nil || !typed || gjson.Get(last, "error.status").Str != "UNAVAILABLE" {
		t.Errorf("resting: %v", got)
	}
	b.one("resting", agentbus.CallVoided)
}

// A11: a silent stream is kept alive between its events, and what keeps it alive
// is not stored.
func TestA2AKeepAlive(t *testing.T) {
	t.Parallel()
	more := make(chan bool)
	a := newA2A(t, "critic", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(s string) { _, _ = w.Write([]byte(s)); _ = http.NewResponseController(w).Flush() }
		send(rpcWorking)
		<-more
		send(rpcChunk[:20])
		<-more
		send(rpcChunk[20:] + rpcEnd)
	})
	b := newBus(t, func(c *gateway.Config) { c.A2A.KeepAlive = 10 * time.Millisecond }, a)
	headers := append(turn("run1", "run1.t0.critic"), asAlice)
	resp, err := b.open(http.MethodPost, "/a2a/critic", rpc("r1", "SendStreamingMessage", say("m1")), headers...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var read strings.Builder
	buf := make([]byte, 4096)
	until := func(done func(string) bool) {
		for !done(read.String()) {
			n, err := resp.Body.Read(buf)
			read.Write(buf[:n])
			if err != nil && !done(read.String()) {
				t.Fatalf("%v after %q", err, read.String())
			}
		}
	}
	until(func(s string) bool { return strings.Count(s, ": keepalive\n\n") >= 2 })
	more <- true
	more <- true // an event goes on when it is whole
	until(func(s string) bool { return strings.HasSuffix(s, rpcEnd) })
	if got := strings.ReplaceAll(read.String(), ": keepalive\n\n", ""); got != rpcStream {
		t.Errorf("%q", got)
	}
	if again := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "SendStreamingMessage", say("m1")), headers...); again.body != rpcStream {
		t.Errorf("stored: %q", again.body)
	}
}

// A20: the message id stands in for an Idempotency-Key where the agent is
// configured so, and only there.
func TestA2ADedupe(t *testing.T) {
	t.Parallel()
	yes, no := newA2A(t, "yes", answerWith(http.StatusOK, rpcDone)), newA2A(t, "no", answerWith(http.StatusOK, rpcDone))
	yes.A2A.DedupeByMessage = true
	b := newBus(t, nil, yes, no)
	for name, want := range map[string]string{"yes": "hit", "no": ""} {
		for i, id := range []string{"a", "b"} {
			got := b.send(http.MethodPost, "/a2a/"+name, rpc(id, "SendMessage", say("m1")), asAlice)
			if replay := got.header.Get("X-Agentbus-Replay"); got.status != 200 || i == 1 && replay != want {
				t.Errorf("%s: %v, replay %q", name, got, replay)
			}
			if want != "" && i == 1 && gjson.Get(got.body, "id").Str != "b" {
				t.Errorf("%s: the answer is to another request: %v", name, got)
			}
		}
	}
	before := yes.executions() // X35
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			id := "p" + strconv.Itoa(i)
			if got := b.send(http.MethodPost, "/a2a/yes", rpc(id, "SendMessage", say("m2")), asAlice); gjson.Get(got.body, "id").Str != id && got.header.Get("X-Agentbus-Replay") != "" {
				t.Errorf("%s: %v", id, got)
			}
		})
	}
	if all.Wait(); yes.executions() != before+1 {
		t.Errorf("%d executions of one message", yes.executions()-before)
	}
	if got := b.send(http.MethodPost, "/a2a/yes", rpc("c", "SendMessage", say("m1")), asBob); got.header.Get("X-Agentbus-Replay") != "" {
		t.Error("a payer got another's answer")
	}
	if got := b.send(http.MethodPost, "/a2a/yes", strings.Replace(sendHi, "hi", "ho", 1), asAlice); fault(got) != "422 -32602 TURN_MISMATCH" {
		t.Error(got)
	}
}

// holds reports whether text stands in the files of a store.
func holds(t *testing.T, path, text string) bool {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + end)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if strings.Contains(string(content), text) {
			return true
		}
	}
	return false
}
