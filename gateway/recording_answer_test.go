package gateway_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// says is a chunk of a stream that adds to what choice n says.
func says(n int, piece string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{"content":%s}}]}`+"\n\n", n, strconv.Quote(piece))
}

// U11, E28: the answer of a call is kept as its caller read it, in whatever way it
// came, and without credentials; of what does not count what had come.
func TestAnswersAreRecorded(t *testing.T) {
	t.Parallel()
	const most = 1024
	long := strings.Repeat(says(0, "é"), 40)
	larger := strings.Replace(completion, `{`, `{"image":"`+strings.Repeat("x", 64<<10)+`",`, 1)
	leak := strings.Replace(completion, `"hi"`, `"`+aliceKey+`, sk\u002dCANARY\u002dalice, `+agentKey+` \"x"`, 1)
	cases := map[string]struct {
		serve  http.HandlerFunc
		stream bool   // is asked for
		other  bool   // below /agents
		status int    // 0: 200
		want   string // "": what the caller read
		none   bool   // nothing is kept of it
		size   int    // 0: that of what the caller read
		cut    bool
	}{
		"whole":     {serve: answerWith(http.StatusOK, completion)},
		"stream":    {serve: streamWith(stream), stream: true},
		"gathered":  {serve: streamWith(stream)},
		"scattered": {serve: answerWith(http.StatusOK, completion), stream: true},
		"plain":     {serve: answerAs("text/plain", http.StatusOK, `it's \ "plain`), other: true},
		"empty":     {serve: answerAs("text/plain", http.StatusOK, ""), other: true},
		"refused":   {serve: answerWith(http.StatusBadRequest, `{"error":{"message":"no"}}`), status: http.StatusBadRequest},
		"failed":    {serve: answerWith(http.StatusInternalServerError, `{"error":{"message":"no"}}`), status: http.StatusInternalServerError},
		"page":      {serve: answerAs("text/html", http.StatusOK, "<b>no</b>"), status: http.StatusBadGateway, want: "<b>no</b>", size: 9},
		"broken":    {serve: streamWith(helloEvent + loEvent), stream: true, want: helloEvent + loEvent, size: len(helloEvent + loEvent)},
		"torn":      {serve: streamWith(helloEvent + `data: {"a":"\u00`), stream: true, want: helloEvent, size: len(helloEvent) + 16, cut: true},
		"bytes":     {serve: answerAs("image/png", http.StatusOK, "\xff\xfe"+aliceKey), other: true, none: true},
		"encoded":   {serve: encodedAs("gzip", "no gzip, "+aliceKey), other: true, none: true},
		"identity":  {serve: encodedAs("Identity", "as it is"), other: true},
		"long":      {serve: answerAs("text/plain", http.StatusOK, strings.Repeat("é", most)), other: true, want: strings.Repeat("é", most/2), cut: true},
		"on-and-on": {serve: streamWith(long + doneEvent), stream: true, want: strings.ToValidUTF8(long[:most], ""), cut: true},
		"larger":    {serve: answerWith(http.StatusOK, larger), none: true},
		"flood":     {serve: streamWith(strings.Repeat(long, 30) + doneEvent), stream: true, want: strings.ToValidUTF8(long[:most], ""), cut: true},
		"leak":      {serve: answerWith(http.StatusOK, leak), want: redactedLeak},
		"streamed-leak": {
			serve: streamWith(says(0, aliceKey) + says(0, "ghp_abcdefghijklmnopqrst1") + doneEvent), stream: true,
			want: says(0, "[redacted]") + says(0, "[REDACTED:github-token]") + doneEvent,
		},
		"leak-in-pieces": {serve: streamWith(says(0, "sk-CAN") + says(1, "so") + says(0, "ARY-al") + says(0, "ice") + doneEvent), stream: true, none: true},
		"spelled-leak":   {serve: streamWith(`data: {"choices":[{"delta":{"content":"sk\u002dCANARY-alice"}}]}` + "\n\n" + doneEvent), stream: true, none: true},
		"other-stream":   {serve: streamWith("data: 7\n\ndata: on\ndata: and on\n\n"), other: true},
		"leak-in-a-tool": {
			serve: streamWith(`data: {"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"sk-CAN"}},{"index":2,"function":{"arguments":"x"}}]}}]}` + "\n\n" +
				`data: {"choices":[{"delta":{"tool_calls":[{"index":2,"function":{"arguments":"x"}},{"index":1,"function":{"arguments":"ARY-alice"}}]}}]}` + "\n\n" + doneEvent), stream: true, none: true,
		},
		"leak-in-a-name": {serve: streamWith("data: {\"a\":\"b\",\"sk\\u002dCANARY-alice\":1}\n\n"), other: true, none: true},
		"abyss":          {serve: streamWith("data: " + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "\n\n"), other: true, none: true},
		"quoted-pieces":  {serve: streamWith("data: \"sk-CAN\"\n\ndata: \"ARY-alice\"\n\n"), other: true, none: true},
		"plain-pieces":   {serve: streamWith("data: ghp_\n\ndata: 12345678901234567890\n\n"), other: true, none: true},
	}
	var agents []*agent
	for name, c := range cases {
		a := newAgent(t, name, c.serve)
		a.Authorization = agentbus.NewCredential("Bearer " + agentKey)
		agents = append(agents, a)
	}
	b := newBus(t, func(c *gateway.Config) { recordsRequests(most)(c); c.MaxReply = 32 << 10 }, agents...)
	for name, c := range cases {
		body, route := ask(name), chatRoute
		if c.stream {
			body = askStream(name)
		}
		if c.other {
			route = "/agents/" + name + "/v2/x"
		}
		got := b.send(http.MethodPost, route, body, append(turn(name, name+".t0.a"), asAlice)...)
		if got.status != max(c.status, http.StatusOK) {
			t.Errorf("%s: answered %v", name, got)
		}
		want := &agentbus.RecordedBody{Body: c.want, Size: int64(c.size), Cut: c.cut}
		if c.want == "" && !c.none {
			want.Body = got.body
		}
		if c.size == 0 {
			want.Size = int64(len(got.body))
		}
		if diff := cmp.Diff(want, b.recording(name).Answer); diff != "" {
			t.Errorf("%s: recorded (-want +got):\n%s", name, diff)
		}
	}
}

// redactedLeak is a completion that said what it should not, written anew.
const redactedLeak = `{"choices":[{"finish_reason":"stop","index":0,"message":{"content":"[redacted], [REDACTED:call], [redacted] \"x","role":"assistant"}}],` +
	`"created":7,"id":"c1","model":"m","object":"chat.completion","usage":{"completion_tokens":20,"prompt_tokens":100,"total_tokens":120}}`

// encodedAs answers with a body that is said to have a content coding.
func encodedAs(coding, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", coding)
		answerAs("text/plain", http.StatusOK, body)(w, r)
	}
}

// U11: answers of A2A are recorded as they are passed on.
func TestAnswersOfA2AAreRecorded(t *testing.T) {
	t.Parallel()
	streams := rpc("r1", "SendStreamingMessage", say("m1"))
	for name, c := range map[string]struct {
		serve       http.HandlerFunc
		path, asked string
		want        string // "": what the caller read
	}{
		"whole":     {serve: answerWith(http.StatusOK, rpcDone), path: "/a2a/critic", asked: sendHi},
		"stream":    {serve: streamWith(rpcStream), path: "/a2a/critic", asked: streams},
		"scattered": {serve: answerWith(http.StatusOK, rpcDone), path: "/a2a/critic", asked: streams},
		"broken":    {serve: streamWith(rpcWorking + rpcChunk), path: "/a2a/critic", asked: streams, want: rpcWorking + rpcChunk},
		"error":     {serve: streamWith("data: " + restFault + "\n\n"), path: "/a2a/critic/rest/message:stream", asked: say("m1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBus(t, recordsRequests(1024), newA2A(t, "critic", c.serve))
			got := b.send(http.MethodPost, c.path, c.asked, append(turn("r", "r.t0.critic"), asAlice, "A2A-Version: 1.0")...)
			if c.want == "" {
				c.want = got.body
			}
			want := &agentbus.RecordedBody{Body: c.want, Size: int64(len(c.want))}
			if diff := cmp.Diff(want, b.recording("r").Answer); diff != "" || c.want == "" {
				t.Errorf("answered %v, recorded (-want +got):\n%s", got, diff)
			}
		})
	}
}

// U11: where no answer came there is none, and a duplicate adds nothing to what
// was recorded.
func TestAnswersThatAreNotRecorded(t *testing.T) {
	t.Parallel()
	gone := newAgent(t, "gone", answerWith(http.StatusFound, "elsewhere"))
	good := newAgent(t, "good", answerWith(http.StatusOK, completion))
	b := newBus(t, recordsRequests(300), gone, good)
	refused(t, "gone", b.call("gone", turn("gone", "gone.t0.x")...), http.StatusBadGateway, agentbus.CodeAgentRedirected)
	if rec := b.recording("gone"); rec.Answer != nil || rec.Out == nil {
		t.Errorf("of an attempt without an answer: %+v", rec)
	}
	b.call("good", turn("good", "good.t0.x")...)
	before := b.recording("good")
	if got := b.call("good", turn("good", "good.t0.x")...); got.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("the duplicate got %v", got)
	}
	if diff := cmp.Diff(before, b.recording("good")); diff != "" || before.Answer == nil {
		t.Errorf("after a duplicate (-before +after):\n%s", diff)
	}
}
