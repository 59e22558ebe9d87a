package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// A16, A26, A28, A29, A31: what is refused, how, in both bindings.
func TestFaceRefuses(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), false)
	_, _, done := u.post(t, "", rpc("SendMessage", message("done", "x")))
	var answered struct {
		Result struct {
			Task struct {
				ID string `json:"id"`
			} `json:"task"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(done), &answered); err != nil || answered.Result.Task.ID == "" {
		t.Fatalf("%s: %v", done, err)
	}
	id := answered.Result.Task.ID
	for name, tt := range map[string]struct {
		path, body string
		header     []string
		status     int
		code       int // JSON-RPC
		reason     string
	}{
		"A26 no version":                {"", rpc("GetTask", `{"id":"x"}`), []string{"A2A-Version", ""}, 200, -32009, "VERSION_NOT_SUPPORTED"},
		"A26 another version":           {"", rpc("GetTask", `{"id":"x"}`), []string{"A2A-Version", "2.0"}, 200, -32009, "VERSION_NOT_SUPPORTED"},
		"A26 0.3 without compat":        {"", rpc("GetTask", `{"id":"x"}`), []string{"A2A-Version", "0.3"}, 200, -32009, "VERSION_NOT_SUPPORTED"},
		"A26 two versions":              {"?A2A-Version=1.0", rpc("GetTask", `{"id":"x"}`), nil, 200, -32602, "INVALID_PARAMS"},
		"A26 no version by REST":        {"/rest/message:send", message("a", "x"), []string{"A2A-Version", ""}, 400, 0, "VERSION_NOT_SUPPORTED"},
		"A29 content type":              {"", rpc("GetTask", `{"id":"x"}`), []string{"Content-Type", "text/plain"}, 200, -32005, "CONTENT_TYPE_NOT_SUPPORTED"},
		"A29 stream by REST":            {"/rest/message:stream", message("done", "other"), nil, 400, 0, "MESSAGE_ID_CONFLICT"},
		"A29 message to what is over":   {"", rpc("SendMessage", `{"message":{"messageId":"b","taskId":"`+id+`","role":"ROLE_USER","parts":[{"text":"x"}]}}`), nil, 200, -32004, "UNSUPPORTED_OPERATION"},
		"A29 subscribe to what is over": {"/rest/tasks/" + id + ":subscribe", "", nil, 400, 0, "UNSUPPORTED_OPERATION"},
		"A30 another context":           {"", rpc("SendMessage", `{"message":{"messageId":"c","taskId":"`+id+`","contextId":"no","role":"ROLE_USER","parts":[{"text":"x"}]}}`), nil, 200, -32602, "INVALID_PARAMS"},
		"X34 another's task":            {"", rpc("GetTask", `{"id":"`+id+`"}`), []string{"X-User", "bob"}, 200, -32001, "TASK_NOT_FOUND"},
		"X34 by REST":                   {"/rest/tasks/" + id + ":cancel", "", []string{"X-User", "bob"}, 404, 0, "TASK_NOT_FOUND"},
		"X35 conflict":                  {"", rpc("SendMessage", message("done", "other")), nil, 200, -32602, "MESSAGE_ID_CONFLICT"},
		"X36 webhook":                   {"", rpc("SendMessage", `{"message":{"messageId":"d","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"taskPushNotificationConfig":{"url":"http://a.example"}}}`), nil, 200, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		"X36 webhook, in snake_case":    {"", rpc("SendMessage", `{"message":{"messageId":"d","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"task_push_notification_config":{"url":"http://a.example"}}}`), nil, 200, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		"X36 webhook, of 0.3":           {"", rpc("SendMessage", `{"message":{"messageId":"d","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"pushNotificationConfig":{"url":"http://a.example"}}}`), nil, 200, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		"no such method":                {"", rpc("Dance", `{}`), nil, 200, -32601, "METHOD_NOT_FOUND"},
		"no such path":                  {"/rest/dance", `{}`, nil, 404, 0, "METHOD_NOT_FOUND"},
		"parameters of another kind":    {"", rpc("SendMessage", `[]`), nil, 200, -32602, "INVALID_PARAMS"},
		"no role":                       {"", rpc("SendMessage", `{"message":{"messageId":"e","parts":[{"text":"x"}]}}`), nil, 200, -32602, "INVALID_PARAMS"},
		"A38 a file":                    {"", rpc("SendMessage", `{"message":{"messageId":"f","role":"ROLE_USER","parts":[{"raw":"/9g=","mediaType":"image/jpeg","filename":"cat.jpg"}]}}`), nil, 200, -32005, "CONTENT_TYPE_NOT_SUPPORTED"},
		"A38 a part of nothing":         {"", rpc("SendMessage", `{"message":{"messageId":"g","role":"ROLE_USER","parts":[{"text":"x"},null]}}`), nil, 200, -32602, "INVALID_PARAMS"},
		"a page too long":               {"", rpc("ListTasks", `{"pageSize":101}`), nil, 200, -32602, "INVALID_PARAMS"},
		"A18 a page of none":            {"", rpc("ListTasks", `{"pageSize":0}`), nil, 200, -32602, "INVALID_PARAMS"},
		"A18 no task to read":           {"", rpc("GetTask", `{}`), nil, 200, -32602, "INVALID_PARAMS"},
		"A18 no task to cancel":         {"", rpc("CancelTask", `{"id":""}`), nil, 200, -32602, "INVALID_PARAMS"},
		"a state that is none":          {"", rpc("ListTasks", `{"status":"TASK_STATE_DONE"}`), nil, 200, -32602, "INVALID_PARAMS"},
		"a history of less than none":   {"", rpc("GetTask", `{"id":"`+id+`","historyLength":-1}`), nil, 200, -32602, "INVALID_PARAMS"},
		"such a history of a list":      {"", rpc("ListTasks", `{"historyLength":-1}`), nil, 200, -32602, "INVALID_PARAMS"},
		"such a history of an answer":   {"", rpc("SendMessage", strings.TrimSuffix(message("h", "x"), "}")+`,"configuration":{"historyLength":-1}}`), nil, 200, -32602, "INVALID_PARAMS"},
		"such a history by REST":        {"/rest/message:send", strings.TrimSuffix(message("h", "x"), "}") + `,"configuration":{"historyLength":-1}}`, nil, 400, 0, "INVALID_PARAMS"},
		"a token of nobody":             {"", rpc("ListTasks", `{"pageToken":"x"}`), nil, 200, -32602, "INVALID_PARAMS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, kind, body := u.post(t, tt.path, tt.body, tt.header...)
			if status != tt.status || kind != "application/json" {
				t.Errorf("status %d, %s", status, kind)
			}
			var got struct {
				ID    string `json:"id"`
				Error struct {
					Code int `json:"code"`
					Data []struct {
						Reason string `json:"reason"`
					} `json:"data"`
					Details []struct {
						Reason string `json:"reason"`
					} `json:"details"`
				} `json:"error"`
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			details := slices.Concat(got.Error.Data, got.Error.Details)
			if len(details) != 1 || details[0].Reason != tt.reason {
				t.Errorf("got %s", body)
			}
			if tt.code != 0 && (got.Error.Code != tt.code || got.ID != "q-7") {
				t.Errorf("got %s", body)
			}
		})
	}
}

// A29: an error before the first event of a JSON-RPC stream is its one event.
func TestFaceStreamError(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), false)
	status, kind, body := u.post(t, "", rpc("SubscribeToTask", `{"id":"none"}`))
	if status != 200 || kind != "text/event-stream" || !strings.HasPrefix(body, `data: {`) || !strings.Contains(body, "-32001") || strings.Count(body, "data:") != 1 {
		t.Errorf("%d %s: %s", status, kind, body)
	}
	// A18: to those who read it whole it is a whole answer; what is no error is a stream.
	status, kind, body = u.post(t, "", rpc("SubscribeToTask", `{"id":"none"}`), "User-Agent", "python-httpx/0.28.1")
	if status != 200 || kind != "application/json" || gjson.Get(body, "error.code").Int() != -32001 || gjson.Get(body, "id").Str != "q-7" {
		t.Errorf("%d %s: %s", status, kind, body)
	}
	if status, kind, _ = u.post(t, "", rpc("SendStreamingMessage", message("m", "x")), "User-Agent", "python-httpx/0.28.1"); status != 200 || kind != "text/event-stream" {
		t.Errorf("%d %s", status, kind)
	}
}

// A18: no member of an answer is named in snake_case, in metadata neither; and
// another bus reads there what was used.
func TestFaceTellsUsage(t *testing.T) {
	t.Parallel()
	used := agentbus.Usage{InputTokens: 7, CachedTokens: 2, OutputTokens: 5, Cost: 30, Estimated: true}
	u := newBus(t, a2a.FaceConfig{}, agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			yield(agentbus.Chunk{Text: "ok", Usage: &used, Finish: "stop"}, nil)
		}
	}), false)
	_, _, body := u.post(t, "", rpc("SendMessage", message("m", "x")))
	told := gjson.Get(body, "result.task.metadata.agentbus.usage").Raw
	if told != `{"cachedTokens":2,"costMicros":30,"estimated":true,"inputTokens":7,"outputTokens":5}` {
		t.Errorf("told %s in %s", told, body)
	}
	if found := regexp.MustCompile(`"[a-z]+(_[a-z]+)+":`).FindString(body); found != "" {
		t.Errorf("%s in %s", found, body)
	}
	b := newBackend(t, a2a.BackendConfig{URL: peer(t, func(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
		m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("ok"))
		m.SetMeta(a2a.MetadataKey, map[string]any{"usage": json.RawMessage(told)})
		emit(m)
	}, sdk.TransportProtocolJSONRPC, false)})
	if got, err := collect(t, b, call("hello")); err != nil || got.Usage != used {
		t.Errorf("read %+v: %v", got.Usage, err)
	}
}

// A4, A18: the members of a request may be named in snake_case, as the TCK names
// those of parameters: it is the same request. What an agent is told in metadata and
// data, and what is unknown, stays as it came. What has no parameters needs none.
func TestFaceReadsSnakeCase(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("%"), false)
	const told = `{"message":{"message_id":"s","context_id":"c 1","role":"ROLE_USER","parts":[{"text":"my_text","media_type":"text/plain"},{"data":{"task_id":"d"}}],"metadata":{"page_size":1}},"configuration":{"history_length":1}}`
	for _, c := range [][3]string{{"", rpc("SendMessage", told), "result."}, {"/rest/message:send", told, ""}} { // the second came before (A19)
		path := c[0]
		_, _, got := u.post(t, path, c[1])
		sent := gjson.Get(got, c[2]+"task.history.0")
		if sent.Get("messageId").Str != "s" || sent.Get("contextId").Str != "c 1" || sent.Get("parts.0.mediaType").Str != "text/plain" ||
			sent.Get("parts.1.data.task_id").Str != "d" || sent.Get("metadata.page_size").Int() != 1 {
			t.Errorf("%s: %s", path, got)
		}
	}
	if n := u.calls.Load(); n != 1 {
		t.Errorf("%d executions", n)
	}
	u.post(t, "", rpc("SendMessage", message("other", "x")))
	for params, want := range map[string]string{
		`{"context_id":"c 1"}`: "1 50 1", `{"page_size":1}`: "1 1 1", `{"context_id":"c 1","history_length":0}`: "1 50 0",
	} {
		_, _, got := u.post(t, "", rpc("ListTasks", params))
		list := gjson.Get(got, "result")
		if told := fmt.Sprint(len(list.Get("tasks").Array()), list.Get("pageSize").Int(), len(list.Get("tasks.0.history").Array())); told != want {
			t.Errorf("%s: %s, want %s: %s", params, told, want, got)
		}
	}
	resp, err := http.Get(u.URL + "/a2a/critic/rest/tasks?A2A-Version=1.0&pageSize=0")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a page of none: %d", resp.StatusCode)
	}
	for _, method := range []string{"ListTasks", "GetExtendedAgentCard"} {
		if _, _, got := u.post(t, "", `{"jsonrpc":"2.0","id":"q-7","method":"`+method+`"}`); !gjson.Get(got, "result").Exists() {
			t.Errorf("%s without parameters: %s", method, got)
		}
	}
}

// A29: no task is [], not null. A28: both slash forms, extensions in one line.
func TestFaceAnswers(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), false)
	if _, _, body := u.post(t, "/", rpc("ListTasks", `{}`)); !strings.Contains(body, `"tasks":[]`) {
		t.Errorf("got %s", body)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL+"/a2a/critic/rest/tasks/?A2A-Version=1.0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("A2A-Extensions", "https://unknown.example, "+a2a.ExtensionPolicy)
	resp, err := u.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !bytes.Contains(raw, []byte(`"tasks":[]`)) || resp.Header.Get("A2A-Extensions") != a2a.ExtensionPolicy {
		t.Errorf("%d %v: %s", resp.StatusCode, resp.Header, raw)
	}
}

// A caller of HTTP+JSON reads an answer as A2A 1.0 names it if it asks for that, as
// the SDK for JavaScript does; else as plain JSON.
func TestFaceContentType(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), true)
	const named, plain = "application/a2a+json", "application/json"
	for i, tt := range []struct{ path, version, accept, want string }{
		{"/rest/message:send", "1.0", "", plain},
		{"/rest/message:send", "1.0", "*/*", plain},
		{"/rest/message:send", "1.0", plain, plain},
		{"/rest/message:send", "1.0", named + ", " + plain, named},
		{"/rest/message:send", "1.0", plain + ", " + named + "; q=0.5", plain},
		{"/rest/message:send", "1.0", plain + "; q=0.1, " + named, named},
		{"/rest/message:send", "1.0", named + "; q=0, */*", plain},
		{"", "1.0", named, plain}, // of JSON-RPC it is not
	} {
		body := message(fmt.Sprint("m", i), "x")
		if tt.path == "" {
			body = rpc("SendMessage", body)
		}
		status, kind, got := u.post(t, tt.path, body, "A2A-Version", tt.version, "Accept", tt.accept)
		if status != http.StatusOK || kind != tt.want || !strings.Contains(got, "TASK_STATE_COMPLETED") {
			t.Errorf("%+v: %d %s %s", tt, status, kind, got)
		}
	}
}

// A28, A31: the card has our URLs, our security, an ETag, and says what is on.
func TestFaceCard(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), false)
	at := u.URL + "/a2a/critic/.well-known/agent-card.json"
	get := func(tag string) (status int, head http.Header, card sdk.AgentCard) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", tag)
		resp, err := u.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		_ = json.NewDecoder(resp.Body).Decode(&card) // a 304 has none
		return resp.StatusCode, resp.Header, card
	}
	_, head, card := get("")
	if head.Get("Cache-Control") != "public, max-age=300" || head.Get("Etag") == "" {
		t.Errorf("headers: %v", head)
	}
	want := []*sdk.AgentInterface{sdk.NewAgentInterface(u.URL+"/a2a/critic", "JSONRPC"), sdk.NewAgentInterface(u.URL+"/a2a/critic/rest", "HTTP+JSON")}
	if d := cmp.Diff(want, card.SupportedInterfaces); d != "" {
		t.Error(d)
	}
	if len(card.Capabilities.Extensions) != 1 || card.Capabilities.Extensions[0].Required || len(card.SecuritySchemes) != 1 || len(card.Skills) != 1 {
		t.Errorf("card: %+v", card)
	}
	if status, _, _ := get(head.Get("Etag")); status != http.StatusNotModified {
		t.Errorf("If-None-Match: %d", status)
	}
}

// A26: callers of 0.3 are served where that is on, and read the card as those of
// 1.0 do, with the SDK's reader of either.
func TestFaceCompat(t *testing.T) {
	t.Parallel()
	u := newBus(t, a2a.FaceConfig{}, speaks("ok"), true)
	at := u.URL + "/a2a/critic"
	for name, r := range map[string]*agentcard.Resolver{"1.0": agentcard.NewResolver(u.Client()), "0.3": {Client: u.Client(), CardParser: a2av0.NewAgentCardParser()}} {
		card, err := r.Resolve(t.Context(), at)
		if err != nil {
			t.Errorf("a reader of %s: %v", name, err)
			continue
		}
		want := sdk.NamedSecuritySchemes{"bearer": sdk.HTTPAuthSecurityScheme{Scheme: "Bearer"}}
		if diff := cmp.Diff(want, card.SecuritySchemes); diff != "" || len(card.SecurityRequirements) != 1 || len(card.SupportedInterfaces) != 4 {
			t.Errorf("a reader of %s reads %+v\n%s", name, card, diff)
		}
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}}`
	for _, version := range []string{"", "0.3"} {
		_, _, got := u.post(t, "", strings.Replace(body, `"m"`, fmt.Sprintf("%q", "m"+version), 1), "A2A-Version", version)
		if !strings.Contains(got, `"state":"completed"`) || !strings.Contains(got, `"kind":"task"`) {
			t.Errorf("version %q: %s", version, got)
		}
	}
	if _, _, got := u.post(t, "", rpc("SendMessage", message("n", "x"))); !strings.Contains(got, "TASK_STATE_COMPLETED") {
		t.Errorf("1.0: %s", got)
	}
}
