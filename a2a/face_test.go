package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A bus is a face before agents, with the least of a gateway before it: callers
// are who they say.
type bus struct {
	*httptest.Server
	face  *a2a.Face
	store *sqlite.Store
	calls atomic.Int32 // of the agent
}

// place opens the store of a test.
func place(t *testing.T, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Prepare(t, filepath.Join(dir, "bus.db"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newBus(t *testing.T, c a2a.FaceConfig, b agentbus.Backend, compat bool) *bus {
	t.Helper()
	u := &bus{store: place(t, t.TempDir())}
	counted := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		u.calls.Add(1)
		return b.Call(ctx, c)
	})
	c.Tasks, c.Owner = u.store, "p1"
	c.Agent = func(name string) (a2a.Served, bool) {
		return a2a.Served{Backend: counted, Compat: compat}, name == "critic"
	}
	if c.Extensions == nil {
		c.Extensions = []string{a2a.ExtensionPolicy}
	}
	f, err := a2a.NewFace(c)
	if err != nil {
		t.Fatal(err)
	}
	u.face = f
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, err := agentbus.ParseLineage(r.Header)
		if err != nil {
			a2a.WriteError(w, a2a.JSONRPC, nil, err)
			return
		}
		minted := l.Run == ""
		if minted {
			l.Run = agentbus.NewRunID()
			l.Turn = l.Run.Turn(0, "critic")
		}
		who := r.Header.Get("X-User")
		if who == "" {
			who = "ann"
		}
		req := &a2a.Request{Agent: "critic", Caller: agentbus.Principal{ID: who}, Payer: agentbus.Payer(who), Lineage: l.Forward(), Minted: minted, Base: "http://" + r.Host + "/a2a/critic"}
		f.ServeHTTP(w, r.WithContext(a2a.NewContext(r.Context(), req)))
	}))
	t.Cleanup(func() {
		u.Close()
		f.Close()
	})
	return u
}

// speaks is an agent that says what it is told to.
func speaks(pieces ...string) agentbus.Backend {
	return agentbus.BackendFunc(func(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for _, p := range pieces {
				if !yield(agentbus.Chunk{Text: strings.ReplaceAll(p, "%", c.Messages[len(c.Messages)-1].Content)}, nil) {
					return
				}
			}
			yield(agentbus.Chunk{Usage: &agentbus.Usage{InputTokens: 2, OutputTokens: 3, Cost: 40}, Finish: "stop"}, nil)
		}
	})
}

// gated is an agent that says one thing, then waits until it is let go on.
func gated(gate <-chan struct{}) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, _ *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			if !yield(agentbus.Chunk{Text: "one "}, nil) {
				return
			}
			select {
			case <-gate:
				yield(agentbus.Chunk{Text: "two"}, nil)
			case <-ctx.Done():
				yield(agentbus.Chunk{}, context.Cause(ctx))
			}
		}
	})
}

// client returns an SDK client of the bus.
func (u *bus) client(t *testing.T, binding sdk.TransportProtocol) *a2aclient.Client {
	t.Helper()
	resp, err := http.Get(u.URL + "/a2a/critic/.well-known/agent-card.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var card sdk.AgentCard
	if err := json.NewDecoder(resp.Body).Decode(&card); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	h := &http.Client{Transport: transport}
	c, err := a2aclient.NewFromCard(t.Context(), &card, a2aclient.WithDefaultsDisabled(), a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []sdk.TransportProtocol{binding}}),
		a2aclient.WithJSONRPCTransport(h), a2aclient.WithRESTTransport(h))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(text string) *sdk.SendMessageRequest {
	return &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text))}
}

func textOf(t *sdk.Task) string {
	var b strings.Builder
	for _, a := range t.Artifacts {
		for _, p := range a.Parts {
			b.WriteString(p.Text())
		}
	}
	return b.String()
}

func both(t *testing.T, f func(t *testing.T, binding sdk.TransportProtocol)) {
	t.Helper()
	for _, b := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			f(t, b)
		})
	}
}

// A25, E60: the SDK's client meets an agent of another kind as an A2A agent.
func TestFaceWithSDKClient(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		u := newBus(t, a2a.FaceConfig{}, speaks("you ", "said %"), false)
		c := u.client(t, binding)
		got, err := c.SendMessage(t.Context(), say("hi"))
		if err != nil {
			t.Fatal(err)
		}
		task, ok := got.(*sdk.Task)
		if !ok || task.Status.State != sdk.TaskStateCompleted || textOf(task) != "you said hi" || !strings.HasPrefix(string(task.ID), "run_") {
			t.Fatalf("got %+v", got)
		}
		var states []sdk.TaskState
		var text string
		for e, err := range c.SendStreamingMessage(t.Context(), say("ho")) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := e.(type) {
			case *sdk.Task:
				states, text = append(states, e.Status.State), textOf(e)
			case *sdk.TaskStatusUpdateEvent:
				states = append(states, e.Status.State)
			case *sdk.TaskArtifactUpdateEvent:
				text += e.Artifact.Parts[0].Text()
			}
		}
		if text != "you said ho" || states[len(states)-1] != sdk.TaskStateCompleted {
			t.Errorf("streamed %q, %v", text, states)
		}
		again, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID})
		if err != nil || textOf(again) != "you said hi" || len(again.History) != 1 {
			t.Errorf("get: %+v, %v", again, err)
		}
		none := 0
		if again, err = c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID, HistoryLength: &none}); err != nil || len(again.History) != 0 {
			t.Errorf("get without history: %+v, %v", again, err)
		}
		list, err := c.ListTasks(t.Context(), &sdk.ListTasksRequest{PageSize: 1})
		if err != nil || list.TotalSize != 2 || len(list.Tasks) != 1 || list.NextPageToken == "" || list.Tasks[0].Artifacts != nil {
			t.Fatalf("list: %+v, %v", list, err)
		}
		list, err = c.ListTasks(t.Context(), &sdk.ListTasksRequest{PageSize: 1, PageToken: list.NextPageToken, IncludeArtifacts: true})
		if err != nil || len(list.Tasks) != 1 || list.Tasks[0].ID != task.ID || textOf(list.Tasks[0]) != "you said hi" {
			t.Errorf("second page: %+v, %v", list, err)
		}
		card, err := c.GetExtendedAgentCard(t.Context(), &sdk.GetExtendedAgentCardRequest{})
		if err != nil || card.Name != "critic" || !card.Capabilities.Streaming || card.Capabilities.PushNotifications {
			t.Errorf("extended card: %+v, %v", card, err)
		}
	})
}

// A32: a task outlives its caller; several listen to it, from where it stands.
// A30: nothing else is said to it meanwhile.
func TestFaceSubscribe(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		gate := make(chan struct{})
		u := newBus(t, a2a.FaceConfig{}, gated(gate), false)
		c := u.client(t, binding)
		req := say("hi")
		req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
		got, err := c.SendMessage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		id := got.TaskInfo().TaskID
		ctx, leave := context.WithCancel(t.Context())
		for _, err := range c.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: id}) {
			if leave(); err != nil { // who leaves takes nothing along
				break
			}
		}
		leave()
		second := say("more")
		second.Message.TaskID = id
		if _, err := c.SendMessage(t.Context(), second); err == nil || binding == sdk.TransportProtocolJSONRPC && !errors.Is(err, sdk.ErrUnsupportedOperation) { // by REST the SDK reads reasons, and does not know this one
			t.Errorf("a second message: %v", err)
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, 3)
		for range 3 {
			wg.Go(func() {
				first, text := true, ""
				for e, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
					if err != nil {
						t.Error(err)
						break
					}
					if task, ok := e.(*sdk.Task); first {
						if !ok {
							t.Errorf("the first event is %T", e)
							break
						}
						text = textOf(task)
						begun <- struct{}{}
					} else if a, ok := e.(*sdk.TaskArtifactUpdateEvent); ok {
						text += a.Artifact.Parts[0].Text()
					}
					first = false
				}
				if text != "one two" {
					t.Errorf("heard %q", text)
				}
			})
		}
		for range 3 {
			<-begun
		}
		close(gate)
		wg.Wait()
		for _, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
			if !errors.Is(err, sdk.ErrUnsupportedOperation) { // A29
				t.Errorf("subscribe to what is over: %v", err)
			}
		}
		second.Message.ID = "another"
		if _, err := c.SendMessage(t.Context(), second); !errors.Is(err, sdk.ErrUnsupportedOperation) { // A29
			t.Errorf("a message to what is over: %v", err)
		}
		if _, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id}); !errors.Is(err, sdk.ErrTaskNotCancelable) {
			t.Errorf("cancel what is over: %v", err)
		}
	})
}

// A32, C17: a task that is cancelled ends its agent for good.
func TestFaceCancel(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		why := make(chan error, 1)
		began := make(chan struct{})
		slow := agentbus.BackendFunc(func(ctx context.Context, _ *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			return func(func(agentbus.Chunk, error) bool) {
				close(began)
				<-ctx.Done()
				why <- context.Cause(ctx)
			}
		})
		u := newBus(t, a2a.FaceConfig{}, slow, false)
		c := u.client(t, binding)
		req := say("hi")
		req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
		got, err := c.SendMessage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		task, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: got.TaskInfo().TaskID})
		if err != nil || task.Status.State != sdk.TaskStateCanceled {
			t.Errorf("got %+v, %v", task, err)
		}
		if err := <-why; !errors.Is(err, agentbus.ErrForGood) {
			t.Errorf("the agent read %v", err)
		}
	})
}

// post sends a raw request and returns status, content type and body.
func (u *bus) post(t *testing.T, path, body string, header ...string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL+"/a2a/critic"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", "1.0")
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := u.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(raw)
}

func rpc(method, params string) string {
	return `{"jsonrpc":"2.0","id":"q-7","method":"` + method + `","params":` + params + `}`
}

func message(id, text string) string {
	return `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}`
}

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

// X35, A19: a hundred times the same message is one execution, and one task.
func TestFaceDedupes(t *testing.T) {
	t.Parallel()
	gate, called := make(chan struct{}), make(chan struct{}, 100)
	u := newBus(t, a2a.FaceConfig{}, agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		called <- struct{}{}
		return gated(gate).Call(ctx, c)
	}), false)
	ids := make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			method, path := "SendMessage", ""
			body := rpc(method, `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}],"messageId":"m"},"configuration":{"historyLength":`+strconv.Itoa(i%3)+`}}`)
			if i%2 == 1 {
				body, path = message("m", "x"), "/rest/message:stream"
			}
			_, _, got := u.post(t, path, body)
			_, rest, _ := strings.Cut(got, `"id":"run_`)
			id, _, _ := strings.Cut(rest, `"`)
			if !strings.Contains(got, "COMPLETED") || !strings.Contains(got, "two") {
				t.Errorf("got %s", got)
			}
			ids <- id
		})
	}
	<-called
	close(gate)
	wg.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first || id == "" {
			t.Fatalf("tasks %q and %q", first, id)
		}
	}
	if n := u.calls.Load(); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// A19: what failed in a way that may pass executes again under the same message;
// what failed for good does not.
func TestFaceFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code       agentbus.Code
		executions int32
	}{{agentbus.CodeOverloaded, 2}, {agentbus.CodeForbidden, 1}} {
		code, executions := tt.code, tt.executions
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
				return agentbus.Chunk{}, &agentbus.Error{Code: code, Message: "not now"}
			}), false)
			for range 2 {
				if _, _, got := u.post(t, "", rpc("SendMessage", message("m", "x"))); !strings.Contains(got, "TASK_STATE_FAILED") || !strings.Contains(got, string(code)) {
					t.Errorf("got %s", got)
				}
			}
			if n := u.calls.Load(); n != executions {
				t.Errorf("%d executions", n)
			}
		})
	}
}

// C28, C19, E60, R22: what an agent asks for reaches the caller untouched, and
// the caller's answer the agent, in the same turn.
func TestFaceAsks(t *testing.T) {
	t.Parallel()
	policy := `{"kind":"payment_required","message":"pay","state":"s3cret","data":{"x402.payment.status":"payment-required","n":1}}`
	for name, tt := range map[string]struct {
		ask      agentbus.Ask
		state    sdk.TaskState
		meta     map[string]any
		decision agentbus.Decision
	}{
		"clarification": {agentbus.Ask{Kind: agentbus.AskClarification, Prompt: "which?"}, sdk.TaskStateInputRequired, nil, agentbus.DecisionGranted},
		"auth":          {agentbus.Ask{Kind: agentbus.AskAuth, Prompt: "who?"}, sdk.TaskStateAuthRequired, nil, agentbus.DecisionGranted},
		"policy": {
			agentbus.Ask{Kind: agentbus.AskPolicy, Policy: json.RawMessage(policy)},
			sdk.TaskStateInputRequired,
			map[string]any{"mentionable": map[string]any{"policy_resolution": map[string]any{"in_reply_to_state": "s3cret", "outcome": "denied"}}},
			agentbus.DecisionDenied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.ask.Resume = json.RawMessage(`{"task":"below"}`)
			var turns []agentbus.TurnID
			var answered *agentbus.Resolution
			u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
				turns = append(turns, c.Lineage.Turn)
				if answered = c.Resolution; answered == nil {
					return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeInputRequired, Message: "asks", Ask: &tt.ask}
				}
				return agentbus.Chunk{Text: "thanks"}, nil
			}), false)
			c := u.client(t, sdk.TransportProtocolJSONRPC)
			got, err := c.SendMessage(t.Context(), say("hi"))
			if err != nil {
				t.Fatal(err)
			}
			task := got.(*sdk.Task) //nolint:errcheck,forcetypeassert // it is one
			if task.Status.State != tt.state {
				t.Fatalf("got %+v", task.Status)
			}
			if name == "policy" {
				raw, _ := json.Marshal(task.Status.Message.Metadata["mentionable"])
				if string(raw) != `{"policy":{"data":{"n":1,"x402.payment.status":"payment-required"},"kind":"payment_required","message":"pay","state":"s3cret"}}` {
					t.Errorf("the policy part: %s", raw)
				}
				if task.Status.Message.Metadata["x402.payment.status"] != "payment-required" {
					t.Errorf("metadata: %v", task.Status.Message.Metadata)
				}
			}
			n := 0
			for e, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: task.ID}) { // A29
				if _, whole := e.(*sdk.Task); err != nil || !whole {
					t.Errorf("subscribe: %+v, %v", e, err)
				}
				n++
			}
			if n != 1 {
				t.Errorf("subscribe told %d events", n)
			}
			next := say("blue")
			next.Message.TaskID, next.Message.Metadata = task.ID, tt.meta
			for range 2 { // the second time it is known (A19)
				if got, err = c.SendMessage(t.Context(), next); err != nil {
					t.Fatal(err)
				}
			}
			if task = got.(*sdk.Task); task.Status.State != sdk.TaskStateCompleted || textOf(task) != "thanks" || len(task.History) != 3 { //nolint:errcheck,forcetypeassert // as above
				t.Errorf("got %+v", task)
			}
			if len(turns) != 2 || turns[0] != turns[1] || turns[0] == "" {
				t.Errorf("turns %v", turns)
			}
			if answered.Decision != tt.decision || answered.Text != "blue" || string(answered.Resume) != `{"task":"below"}` || answered.By != "ann" {
				t.Errorf("resolution %+v", answered)
			}
			if tt.meta != nil && string(answered.Policy) != `{"in_reply_to_state":"s3cret","outcome":"denied"}` {
				t.Errorf("policy resolution %s", answered.Policy)
			}
		})
	}
}

// C32, C19: the numbers of an offer, and of what pays for it, are those that were
// written, also in a task that is read from the store: who signs, signs them.
func TestC32NumbersAsTheyCame(t *testing.T) {
	t.Parallel()
	const offer, payload = `{"accepts":[{"<":1E+2,"amount":123456789012345678901,"tiny":1.50}]}`, `{"n":1.50,"value":9007199254740993}`
	ask := agentbus.Ask{
		Kind:   agentbus.AskPolicy,
		Policy: json.RawMessage(`{"kind":"payment_required","message":"pay","data":{"x402.payment.status":"payment-required","x402.payment.required":` + offer + `}}`),
	}
	var given string
	u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		if c.Resolution == nil {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "asks", Ask: &ask}
		}
		given = string(c.Resolution.Policy)
		return agentbus.Chunk{Text: "thanks"}, nil
	}), false)
	_, _, asked := u.post(t, "", rpc("SendMessage", message("m1", "hi")))
	id := gjson.Get(asked, "result.task.id").Str
	_, _, stored := u.post(t, "", rpc("GetTask", `{"id":"`+id+`"}`))
	for from, m := range map[string]gjson.Result{"the answer": gjson.Get(asked, "result.task.status.message"), "the store": gjson.Get(stored, "result.status.message")} {
		metadata := m.Get("metadata").Map() // whose keys have dots
		data := m.Get("parts.#.data").Array()
		if len(data) == 0 {
			t.Fatalf("%s: %s", from, m.Raw)
		}
		for _, told := range []gjson.Result{metadata["x402.payment.required"], metadata["mentionable"].Get("policy.data").Map()["x402.payment.required"], data[0].Get("data").Map()["x402.payment.required"]} {
			if got := strings.ReplaceAll(told.Raw, `\u003c`, "<"); got != offer {
				t.Errorf("%s: %s", from, got)
			}
		}
	}
	paid := `{"message":{"messageId":"m2","taskId":"` + id + `","role":"ROLE_USER","parts":[{"text":"paid"}],"metadata":{"x402.payment.payload":` + payload +
		`,"mentionable":{"policy_resolution":{"outcome":"granted","n":2.50}}}}}`
	u.post(t, "", rpc("SendMessage", paid))
	if want := `{"n":2.50,"outcome":"granted","x402.payment.payload":` + payload + `}`; given != want {
		t.Errorf("the agent was given %s", given)
	}
	_, _, over := u.post(t, "", rpc("GetTask", `{"id":"`+id+`"}`))
	history := gjson.Get(over, "result.history").Array()
	if len(history) != 3 || gjson.Get(over, "result.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatalf("over: %s", over)
	}
	for from, told := range map[string]gjson.Result{
		"the old offer": history[1].Get("metadata").Map()["x402.payment.required"], "its data": history[1].Get("parts.#.data").Array()[0].Get("data").Map()["x402.payment.required"],
	} {
		if got := strings.ReplaceAll(told.Raw, `\u003c`, "<"); got != offer {
			t.Errorf("over, %s: %s", from, got)
		}
	}
	if got := history[2].Get("metadata").Map()["x402.payment.payload"].Raw; got != payload {
		t.Errorf("over, what paid: %s", got)
	}
}

// A24: a context is remembered for its agent. K2, K3: it is the session that the
// agents below are told, and the root is what came.
func TestFaceContexts(t *testing.T) {
	t.Parallel()
	var calls []agentbus.Call
	u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		calls = append(calls, *c)
		return agentbus.Chunk{Text: "yes " + c.Messages[len(c.Messages)-1].Content}, nil
	}), false)
	send := func(id, contextID, user string, header ...string) {
		t.Helper()
		body := rpc("SendMessage", `{"message":{"messageId":"`+id+`","contextId":"`+contextID+`","role":"ROLE_USER","parts":[{"text":"`+id+`"}]}}`)
		if _, _, got := u.post(t, "", body, append([]string{"X-User", user}, header...)...); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, contextID) { // A30
			t.Fatalf("got %s", got)
		}
	}
	send("one", "chat 1 é", "ann")
	send("two", "chat 1 é", "ann", "X-Kagent-Root-Context-Id", "root-9")
	send("three", "chat 1 é", "bob")
	var said []string
	for i := range calls {
		var text strings.Builder
		for _, m := range calls[i].Messages {
			text.WriteString(m.Content + ";")
		}
		said = append(said, text.String())
	}
	if d := cmp.Diff([]string{"one;", "one;yes one;two;", "three;"}, said); d != "" {
		t.Error(d)
	}
	first, second := calls[0].Lineage, calls[1].Lineage
	if !strings.HasPrefix(first.ParentContext, "h.") || len(first.ParentContext) != 34 || first.RootContext != first.ParentContext {
		t.Errorf("K3: %q in %q", first.ParentContext, first.RootContext)
	}
	if second.ParentContext != first.ParentContext || second.RootContext != "root-9" {
		t.Errorf("K2: %q in %q", second.ParentContext, second.RootContext)
	}
}

// A32, G24: a task whose process died is executed again, in the same turn, where
// its credential is kept; else it has failed, and says why. A20: also when its
// message comes again.
func TestFaceRecovers(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"with its credential": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := place(t, t.TempDir())
			began, turns := make(chan struct{}), make(chan *agentbus.Call, 2)
			hangs := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
				return func(func(agentbus.Chunk, error) bool) {
					turns <- c
					close(began)
					<-ctx.Done()
				}
			})
			config := a2a.FaceConfig{Tasks: store, Owner: "p1", Agent: func(string) (a2a.Served, bool) { return a2a.Served{Backend: hangs}, true }}
			if sealed {
				config.Seal = func(task string, c agentbus.Credential) ([]byte, error) { return []byte(task + c.Reveal()), nil }
				config.Unseal = func(_ context.Context, task string, _ agentbus.Payer, sealed []byte) (agentbus.Credential, bool, error) {
					return agentbus.NewCredential(strings.TrimPrefix(string(sealed), task)), true, nil
				}
			}
			first, err := a2a.NewFace(config)
			if err != nil {
				t.Fatal(err)
			}
			l := agentbus.Lineage{Run: "run_x", Turn: "run_x.t0.critic", Auth: agentbus.NewCredential("Bearer sk-user-1234"), Depth: 1, Chain: &agentbus.AgentChain{Hop: 1, MaxHops: 4}}
			req := &a2a.Request{Agent: "critic", Caller: agentbus.Principal{ID: "ann"}, Payer: "ann", Lineage: l, Minted: true}
			serve := func(f *a2a.Face, ctx context.Context, body string) string {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/a2a/critic", strings.NewReader(body)).WithContext(a2a.NewContext(ctx, req))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("A2A-Version", "1.0")
				f.ServeHTTP(w, r)
				return w.Body.String()
			}
			body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true}}}`
			serve(first, t.Context(), body)
			<-began
			first.Close() // as a crash leaves it: nothing of the end is stored
			config.Owner = "p2"
			config.Agent = func(string) (a2a.Served, bool) {
				return a2a.Served{Backend: agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
					turns <- c
					return agentbus.Chunk{Text: "back"}, nil
				})}, true
			}
			second, err := a2a.NewFace(config)
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()
			if n, err := second.Recover(t.Context()); n != 1 || err != nil {
				t.Fatalf("recovered %d, %v", n, err)
			}
			body = strings.Replace(body, `,"configuration":{"returnImmediately":true}`, "", 1)
			got := serve(second, t.Context(), body)
			if !sealed {
				if !strings.Contains(got, "TASK_STATE_FAILED") || !strings.Contains(got, "outcome_unknown") {
					t.Errorf("got %s", got)
				}
				return
			}
			if !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, "back") {
				t.Errorf("got %s", got)
			}
			a, b := <-turns, <-turns
			if a.Lineage.Turn != b.Lineage.Turn || b.Lineage.Auth.Reveal() != "Bearer sk-user-1234" || *b.Lineage.Chain != *a.Lineage.Chain {
				t.Errorf("%+v, then %+v", a.Lineage, b.Lineage)
			}
			if stored, _, _ := store.Task(t.Context(), "run_x"); bytes.Contains(stored.Work, []byte("sk-user")) || stored.Work != nil || stored.Sealed != nil {
				t.Errorf("stored: %+v", stored)
			}
		})
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

// A2, A38: what the bus speaks of itself by its own client and face is the answer
// of the agent, with what it took.
func TestBackendOfFace(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, _ sdk.TransportProtocol) {
		t.Helper()
		u := newBus(t, a2a.FaceConfig{}, speaks("you ", "said %"), false)
		b := newBackend(t, a2a.BackendConfig{URL: u.URL + "/a2a/critic", Sessions: &memory{}})
		c := call("hello")
		for range 2 { // the second is a duplicate (A19, A21)
			got, err := collect(t, b, c)
			if err != nil || got.Text != "you said hello" || got.Usage.OutputTokens != 3 || got.Usage.Cost != 40 {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if n := u.calls.Load(); n != 1 {
			t.Errorf("%d executions", n)
		}
	})
}

// G31, A32: a face that drains takes nothing new, and what it executes to its end.
func TestFaceDrains(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	u := newBus(t, a2a.FaceConfig{}, gated(gate), false)
	c := u.client(t, sdk.TransportProtocolJSONRPC)
	req := say("hi")
	req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
	got, err := c.SendMessage(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	u.face.Drain(gone) // who does not wait
	if _, _, body := u.post(t, "", rpc("SendMessage", message("late", "x"))); !strings.Contains(body, "DRAINING") {
		t.Errorf("a new message: %s", body)
	}
	if _, err := c.SendMessage(t.Context(), req); err != nil { // what is known is answered
		t.Errorf("the same message: %v", err)
	}
	close(gate)
	u.face.Drain(t.Context())
	task, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: got.TaskInfo().TaskID})
	if err != nil || task.Status.State != sdk.TaskStateCompleted || textOf(task) != "one two" {
		t.Errorf("got %+v, %v", task, err)
	}
}

// A32: tasks are bounded: one too many is refused, to come again.
func TestFaceHasRoom(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	u := newBus(t, a2a.FaceConfig{MaxTasks: 1}, gated(gate), false)
	now := `,"configuration":{"returnImmediately":true}}`
	if _, _, body := u.post(t, "", rpc("SendMessage", strings.TrimSuffix(message("a", "x"), "}")+now)); !strings.Contains(body, "run_") {
		t.Fatalf("got %s", body)
	}
	if status, _, body := u.post(t, "", rpc("SendMessage", strings.TrimSuffix(message("b", "x"), "}")+now)); status != http.StatusServiceUnavailable || !strings.Contains(body, "OVERLOADED") {
		t.Errorf("%d %s", status, body)
	}
}
