package a2a_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// A4: what is read of a request, in both spellings, and its bytes stay.
func TestPeek(t *testing.T) {
	t.Parallel()
	type seen struct {
		Op                              a2a.Operation
		ID, Message, Context, Task, URL string
	}
	for _, c := range []struct {
		body string
		want seen
	}{
		{`{"jsonrpc":"2.0","id":"r1","method":"SendMessage","params":{"message":{"messageId":"m","contextId":"c","taskId":"t"}}}`, seen{"send", `"r1"`, "m", "c", "t", ""}},
		{`{"id":7,"method":"message/stream","params":{"message":{"message_id":"m\u0031","context_id":"c","task_id":"t"}}}`, seen{"stream", "7", "m1", "c", "t", ""}},
		{`{"id":null,"method":"GetTask","params":{"id":"t","tenant":"x"}}`, seen{"get", "null", "", "", "t", ""}},
		{`{"method":"ListTasks","params":{"contextId":"c","pageSize":5}}`, seen{"list", "", "", "c", "", ""}},
		{`{"method":"tasks/cancel","params":{"id":"t","metadata":{"a":1,"A":2}}}`, seen{"cancel", "", "", "", "t", ""}},
		{`{"method":"SubscribeToTask","params":{"id":"t"}}`, seen{"subscribe", "", "", "", "t", ""}},
		{`{"method":"CreateTaskPushNotificationConfig","params":{"taskId":"t","id":"cfg","url":"https://h/"}}`, seen{"push", "", "", "", "t", "https://h/"}},
		{`{"method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"url":"u"}}}`, seen{"push", "", "", "", "t", "u"}},
		{`{"method":"tasks/pushNotificationConfig/get","params":{"id":"t"}}`, seen{"push", "", "", "", "t", ""}},
		{`{"method":"SendMessage","params":{"message":{},"configuration":{"task_push_notification_config":{"url":"u"}}}}`, seen{"send", "", "", "", "", "u"}},
		{`{"method":"CreateTaskPushNotificationConfig","params":{"url":"a","config":{"url":"b","pushNotificationConfig":{"url":"c"}},"pushNotificationConfig":{"url":"d"}}}`, seen{"push", "", "", "", "", "a b c d"}},
		{`{"method":"x/y","params":[1]}`, seen{"other", "", "", "", "", ""}},
		{`{"method":"GetExtendedAgentCard"}`, seen{"card", "", "", "", "", ""}},
		{` {"params":{"message":null},"method":"SendMessage" , "id" : 1e2 } `, seen{"send", "1e2", "", "", "", ""}},
	} {
		body := []byte(c.body)
		got, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
		if diff := cmp.Diff(c.want, seen{got.Operation, string(got.ID), got.MessageID, got.ContextID, got.TaskID, strings.Join(got.WebhookURLs, " ")}); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", c.body, err, diff)
		}
		if string(body) != c.body {
			t.Errorf("%s was changed", c.body)
		}
		if string(a2a.PeekID(body)) != c.want.ID {
			t.Errorf("%s: id %s", c.body, a2a.PeekID(body))
		}
	}
}

// A4, X5, X6: what two readers could read differently is refused.
func TestPeekRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000)
	for body, code := range map[string]int{
		``: -32700, `{`: -32700, `{"method":"x"}{}`: -32700, `{"a":` + deep + `}`: -32700, "\xef\xbb\xbf{}": -32700,
		`[{"method":"GetTask","id":1}]`: -32600,
		`"x"`:                           -32600,
		`{"id":1}`:                      -32600,
		`{"id":{},"method":"x"}`:        -32600,
		`{"id":true,"method":"x"}`:      -32600,
		`{"method":"GetTask","method":"SendMessage"}`:                                                                           -32600,
		`{"method":"GetTask","Method":"SendMessage"}`:                                                                           -32600,
		`{"method":"GetTask","\u006dethod":"SendMessage"}`:                                                                      -32600,
		`{"method":"GetTask","params":{"id":"a"},"PARAMS":{"id":"b"}}`:                                                          -32600,
		`{"method":"GetTask","params":{"id":"a","Id":"b"}}`:                                                                     -32600,
		`{"method":"GetTask","params":{"id":"a","task_id":"b","taskId":"c"}}`:                                                   -32600,
		`{"method":"GetTask","params":{"id":5}}`:                                                                                -32602,
		`{"id":1,"method":7}`:                                                                                                   -32600, // no request, as JSON-RPC has it
		msg(`"taskId":"a","TaskID":"b"`):                                                                                        -32600,
		msg(`"taskId":"a","tas\u212aId":"b"`):                                                                                   -32600, // the Kelvin sign folds to k
		msg(`"messageId":"a","message_id":"a"`):                                                                                 -32600,
		msg(`"metadata":{},"metadata":{}`):                                                                                      -32600,
		msg(`"metadata":{"mentionable":{},"Mentionable":{}}`):                                                                   -32600,
		msg(`"metadata":{"mentionable":{"agent_chain":{},"agent_chain":{}}}`):                                                   -32600,
		msg(`"metadata":{"mentionable":{"Agent_Chain":{"hop":1}}}`):                                                             -32600, // X6
		msg(`"metadata":{"mentionable":{"agentChain":{"hop":1}}}`):                                                              -32600,
		msg(`"metadata":{"mentionable":{"agent_chain":{"hop":1,"HOP":9}}}`):                                                     -32600,
		msg(`"metadata":{"mentionable":{"recipient_capabilities":{"agent_chain":{"hop":1,"hop":2}}}}`):                          -32600,
		msg(`"metadata":{"mentionable":{"identity_evidence":[],"identity_evidence":[]}}`):                                       -32600, // C20: one of them would stay
		msg(`"metadata":{"mentionable":{"identity_evidence":[],"identity_Evidence":[]}}`):                                       -32600,
		msg(`"metadata":{"mentionable":{"chain_token":"a","chain_token":"b"}}`):                                                 -32600,
		msg(`"metadata":{"mentionable":{"verifiable_credentials":[],"Verifiable_credentials":[]}}`):                             -32600,
		msg(`"metadata":{"agentbus":{"x-tangle-runid":"a","X-Tangle-RunID":"b"}}`):                                              -32600,
		`{"method":"SendMessage","params":{"metadata":{"mentionable":1,"mentionable":2}}}`:                                      -32600,
		`{"method":"SendMessage","params":{"configuration":{"taskPushNotificationConfig":{},"TaskPushNotificationConfig":{}}}}`: -32600,
	} {
		c, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, []byte(body))
		e, _ := errors.AsType[*a2a.Error](err)
		if e == nil || e.Code != code || agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
			t.Errorf("%.90s: %v, want %d (%+v)", body, err, code, c)
		}
	}
}

// A4, X34, X36: over HTTP+JSON, readers of 0.3 know the message by the name of its
// field too, and a webhook by another name. What is read there is what they read.
func TestPeekReadsFieldsOf03(t *testing.T) {
	t.Parallel()
	send, _ := a2a.MethodAt(http.MethodPost, "/v1/message:send")
	body := []byte(`{"request":{"message_id":"m","task_id":"t","context_id":"c","metadata":{"agentbus":{"x-tangle-runid":"r1"},"mentionable":{"agent_chain":{"hop":1,"max_hops":4},"identity_evidence":[{}]}}},"configuration":{"push_notification":{"url":"u"}}}`)
	c, err := a2a.Peek(a2a.REST, send, body)
	if err != nil || c.MessageID != "m" || c.TaskID != "t" || c.ContextID != "c" || !c.Webhook || strings.Join(c.WebhookURLs, " ") != "u" {
		t.Fatalf("%+v, %v", c, err)
	}
	if h := a2a.MergeLineage(http.Header{}, &c, body); h.Get(agentbus.HeaderRunID) != "r1" {
		t.Errorf("lineage: %v", h)
	}
	if m, err := a2a.ReadMention(&c, body); err != nil || m.Chain == nil {
		t.Errorf("mention: %+v, %v", m, err)
	}
	if out, found := a2a.StripEvidence(body, &c); !found || strings.Contains(string(out), "identity_evidence") {
		t.Errorf("evidence stays: %s", out)
	}
	for body, code := range map[string]int{
		`{"message":{},"request":{}}`: -32600, `{"Request":{"taskId":"t"}}`: -32600,
		`{"request":{"taskId":"a","task_id":"b"}}`: -32600, `{"configuration":{"pushNotification":{},"push_notification":{}}}`: -32600,
	} {
		_, err := a2a.Peek(a2a.REST, send, []byte(body))
		if e, _ := errors.AsType[*a2a.Error](err); e == nil || e.Code != code {
			t.Errorf("%s: %v", body, err)
		}
	}
	if c, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, []byte(`{"method":"x","params":{"request":{"taskId":"t"},"message":{}}}`)); err != nil || c.TaskID != "" {
		t.Errorf("over JSON-RPC: %+v, %v", c, err)
	}
}

func msg(members string) string {
	return `{"id":1,"method":"SendMessage","params":{"message":{` + members + `}}}`
}

// A4: what stands elsewhere is the agent's to judge, twins included.
func TestPeekLooksAtItsPathsOnly(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		msg(`"parts":[{"text":"a","text":"b","Text":"c"}],"metadata":{"x402.payment.status":"a","X402.Payment.Status":"b","agent_chain":1,"Agent_Chain":2}`),
		msg(`"extra":{"messageId":"a","messageId":"b"},"metadata":{"mentionable":{"identity_evidence":[{"claims":{"a":1,"A":2}}]}}`),
		`{"method":"unknown/thing","params":{"data":{"id":1,"id":2}}}`,
	} {
		if _, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A5: one table for the names of both versions and the paths.
func TestMethods(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]a2a.Operation{
		"SendMessage": "send", "message/send": "send", "SendStreamingMessage": "stream", "message/stream": "stream",
		"GetTask": "get", "tasks/get": "get", "ListTasks": "list", "CancelTask": "cancel", "tasks/cancel": "cancel",
		"SubscribeToTask": "subscribe", "tasks/resubscribe": "subscribe", "GetExtendedAgentCard": "card",
		"agent/getAuthenticatedExtendedCard": "card", "tasks/pushNotificationConfig/delete": "push",
		"DeleteTaskPushNotificationConfig": "push", "": "other", "sendmessage": "other", "tasks/list": "other",
	} {
		if got := a2a.MethodOf(name).Operation; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for line, want := range map[string]string{
		"POST /message:send": "send ", "POST /message:send/": "send ", "POST //message:stream": "stream ", "POST /acme/message:send": "send ", "POST /v1/message:send": "send ",
		"GET /tasks": "list ", "GET /tasks/t1": "get t1", "GET /tasks/t%2F1": "get t/1", "POST /tasks/t1:cancel": "cancel t1", "GET /tasks/t1:subscribe": "subscribe t1", "POST /tasks/t1:subscribe/": "subscribe t1",
		"POST /tasks/t1/pushNotificationConfigs": "push t1", "DELETE /x/tasks/t1/pushNotificationConfigs/c": "push t1",
		"GET /extendedAgentCard": "card ", "GET /v1/card": "card ",
		"PUT /message:send": "other ", "GET /tasks/:cancel": "other ", "POST /tasks/t1": "other t1", "POST /acme/tasks/t%3A1:forget": "other t:1", "PUT /tasks/urn:1/x": "other urn:1", "GET /": "other ", "GET /tasks/%zz": "other ",
	} {
		verb, path, _ := strings.Cut(line, " ")
		m, task := a2a.MethodAt(verb, path)
		if got := string(m.Operation) + " " + task; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if m, _ := a2a.MethodAt(http.MethodPost, "/tasks/t/pushNotificationConfigs"); !m.Creates {
		t.Error("a configuration is created unnoticed")
	}
}

// A REST body is the parameters; the path names the task.
func TestPeekREST(t *testing.T) {
	t.Parallel()
	send := a2a.MethodOf("SendMessage")
	c, err := a2a.Peek(a2a.REST, send, []byte(`{"message":{"messageId":"m","taskId":"t"},"configuration":{"taskPushNotificationConfig":{"url":"u"}}}`))
	if err != nil || c.MessageID != "m" || c.TaskID != "t" || !c.Webhook {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := a2a.Peek(a2a.REST, send, nil); err != nil {
		t.Error(err)
	}
	if _, err := a2a.Peek(a2a.REST, send, []byte(`{"message":{"taskId":"t","task_id":"u"}}`)); err == nil {
		t.Error("two task ids were taken")
	}
}

func FuzzPeek(f *testing.F) {
	f.Add(msg(`"messageId":"a","metadata":{"mentionable":{"agent_chain":{"hop":1}},"agentbus":{}}`))
	f.Add(`{"method":"GetTask","params":{"id":"\ud800","ID":1e400}}`)
	f.Add(`[[[[`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, b := range []a2a.Binding{a2a.JSONRPC, a2a.REST} {
			body := []byte(text)
			c, err := a2a.Peek(b, a2a.Method{}, body)
			if string(body) != text {
				t.Fatal("the body was changed")
			}
			if err != nil {
				if _, ours := errors.AsType[*a2a.Error](err); !ours {
					t.Fatalf("%v is no error of A2A", err)
				}
				continue
			}
			var read struct {
				Method string
				Params struct{ Message struct{ TaskID string } }
			}
			if b == a2a.JSONRPC && json.Unmarshal(body, &read) == nil && (read.Method != c.Called || c.Operation.Executes() && read.Params.Message.TaskID != "" && read.Params.Message.TaskID != c.TaskID) {
				t.Fatalf("read %+v, encoding/json %+v", c, read)
			}
			if c.TakesMetadata() && len(strings.TrimSpace(text)) > 0 {
				edit(t, body, c.MetadataPath(a2a.MetadataKey))
			}
		}
	})
}

// edit sets and removes a member, and checks that nothing else changed.
func edit(t *testing.T, body []byte, path []string) {
	t.Helper()
	added, err := a2a.Set(body, []byte(`{"k":1}`), path...)
	if err != nil {
		return // something on the way is no object
	}
	if !json.Valid(added) {
		t.Fatalf("%s became %s", body, added)
	}
	removed, err := a2a.Set(added, nil, path...)
	if err != nil || !json.Valid(removed) {
		t.Fatalf("%s became %s, %v", added, removed, err)
	}
	again, err := a2a.Set(removed, []byte(`{"k":1}`), path...)
	if err != nil || !json.Valid(again) {
		t.Fatalf("%s became %s, %v", removed, again, err)
	}
}

// A6: bytes change only where metadata is added or removed.
func TestSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, value, path, want string }{
		{`{}`, `1`, "a", `{"a":1}`},
		{`{}`, `1`, "a.b", `{"a":{"b":1}}`},
		{` { "z" : 1.0 , "a" : { "b" : [1, 2 ] } } `, `{}`, "a.c", ` { "z" : 1.0 , "a" : {"c":{}, "b" : [1, 2 ] } } `},
		{`{"a":null}`, `1`, "a.b", `{"a":{"b":1}}`},
		{`{"a":null}`, ``, "a.b", `{"a":null}`},
		{`{"a":{"b":1,"c":2}}`, `3`, "a.b", `{"a":{"b":3,"c":2}}`},
		{`{"a":{"b":1,"c":2}}`, ``, "a.b", `{"a":{"c":2}}`},
		{`{"a":{"b":1, "c":2 }}`, ``, "a.c", `{"a":{"b":1 }}`},
		{`{"a":{"b":1}}`, ``, "a.b", `{"a":{}}`},
		{`{"a":{"b":1,"c":2,"d":3}}`, ``, "a.c", `{"a":{"b":1,"d":3}}`},
		{`{"a":{}}`, ``, "a.b.c", `{"a":{}}`},
		{`{"a":[]}`, `1`, "a.b", ``},
	} {
		var value []byte
		if c.value != "" {
			value = []byte(c.value)
		}
		got, err := a2a.Set([]byte(c.body), value, strings.Split(c.path, ".")...)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s, %s at %s: %s, %v, want %s", c.body, c.value, c.path, got, err, c.want)
		}
	}
	for body, want := range map[string]string{
		`{"id": 1 ,"result":{"id":"t"}}`: `{"id": "x" ,"result":{"id":"t"}}`, `{"result":{}}`: `{"result":{}}`, `[1]`: `[1]`, `{`: `{`, ``: ``,
	} {
		if got := a2a.WithID([]byte(body), []byte(`"x"`)); string(got) != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// The lineage in metadata completes the headers, and never makes a call less
// deep (P8).
func TestMergeLineage(t *testing.T) {
	t.Parallel()
	l := agentbus.Lineage{Run: "r", Turn: "r.t1.a", Parent: "r.t0.b", Depth: 2, Speaker: "a", RootContext: "root", Path: "0123456789abcdef"}
	body := []byte(msg(`"metadata":{"agentbus":` + string(a2a.LineageMetadata(l)) + `}`))
	c, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := agentbus.ParseLineage(a2a.MergeLineage(http.Header{}, &c, body))
	if diff := cmp.Diff(l, got, cmpopts.EquateComparable(agentbus.Credential{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, s := range []struct {
		header http.Header
		depth  int
		run    agentbus.RunID
		turn   agentbus.TurnID
	}{
		{http.Header{"X-Tangle-Runid": {"other"}}, 2, "other", ""},
		{http.Header{"X-Tangle-Runid": {"r"}, "X-Tangle-Forwarded-Depth": {"3"}}, 3, "r", "r.t1.a"},
		{http.Header{"X-Tangle-Runid": {"r"}, "X-Tangle-Turnid": {"r.t9.x"}}, 2, "r", "r.t9.x"},
	} {
		got, err := agentbus.ParseLineage(a2a.MergeLineage(s.header, &c, body))
		if err != nil || got.Depth != s.depth || got.Run != s.run || got.Turn != s.turn {
			t.Errorf("%v: %+v, %v", s.header, got, err)
		}
	}
	bad := []byte(msg(`"metadata":{"agentbus":{"x-tangle-forwarded-depth":"-1"}}`))
	if c, err = a2a.Peek(a2a.JSONRPC, a2a.Method{}, bad); err != nil {
		t.Fatal(err)
	}
	if _, err := agentbus.ParseLineage(a2a.MergeLineage(http.Header{}, &c, bad)); agentbus.CodeOf(err) != agentbus.CodeInvalidDepth {
		t.Error(err) // P3: never a silent 0
	}
}

// A6, G26: what was read of a request says where its message stands: metadata is
// written to the same place, and counted are the bytes of its parts.
func TestPeekKnowsTheMessage(t *testing.T) {
	t.Parallel()
	for body, says := range map[string]int{
		`{"method":"SendMessage","params":{"message":{"parts":[{"text":"12345"},{"data":{}}]}}}`:                                     7,
		`{"params" : {"message":{"metadata":{"agentbus":{"a":1},"b":2},"parts":[{"text":"\u0041"}]},"x":1},"method":"message/send"}`: 1,
		`{"method":"SendMessage","params":{"message":{"metadata":null}}}`:                                                            29,
		`{"method":"SendMessage","params":{"message":{"metadata":[]}}}`:                                                              27,
		`{"method":"SendMessage","params":{"message":null}}`:                                                                         16,
		`{"method":"SendMessage","params":[1]}`:                                                                                      3,
		`{"method":"SendMessage"}`:                                                                                                   0,
	} {
		call, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		want, refused := a2a.Set([]byte(body), []byte("{}"), call.MetadataPath("agentbus")...)
		got, err := call.SetMetadata([]byte(body), []byte("{}"), "agentbus")
		if string(got) != string(want) || (err == nil) != (refused == nil) {
			t.Errorf("%s became %s (%v), want %s (%v)", body, got, err, want, refused)
		}
		if n := call.SentBytes([]byte(body)); n != says {
			t.Errorf("%s says %d bytes, want %d", body, n, says)
		}
	}
	body := []byte(` {"message":{"parts":[{"text":"12"}]}} `)
	call, err := a2a.Peek(a2a.REST, a2a.MethodOf("SendMessage"), body)
	if n := call.SentBytes(body); n != 2 || err != nil {
		t.Errorf("%s says %d bytes, %v", body, n, err)
	}
	body = []byte(` {"request":{"parts":[{"text":"12"}]}} `)
	call, err = a2a.Peek(a2a.REST, a2a.MethodOf("SendMessage"), body)
	if n := call.SentBytes(body); n != len(body)-1 || err != nil {
		t.Errorf("%s says %d bytes, %v", body, n, err)
	}
}
