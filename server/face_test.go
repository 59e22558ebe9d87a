package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// keyed sends a credential with every request.
type keyed struct {
	key    string
	header http.Header
	base   *http.Transport
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", k.key)
	maps.Copy(r.Header, k.header)
	return k.base.RoundTrip(r)
}

// a2aClient returns a client of a2a-go's of an agent of the bus.
func a2aClient(t *testing.T, bus *httptest.Server, agent, key string, header http.Header) *a2aclient.Client {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	h := &http.Client{Transport: keyed{key, header, base}}
	resp, err := h.Get(bus.URL + "/a2a/" + agent + "/.well-known/agent-card.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var card sdk.AgentCard
	if err := json.NewDecoder(resp.Body).Decode(&card); err != nil {
		t.Fatal(err)
	}
	c, err := a2aclient.NewFromCard(t.Context(), &card, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(h))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A25, E60: agents of every kind are A2A agents of the bus: a task is a run, and
// its call is one of the ledger's, with the depth, the payer and the price of any.
func TestAgentsAsA2AAgents(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	s := open(t, "agents:\n  a: {kind: openai, url: \""+a.URL+"/v1\", price: {call: 0.01}}\n  echo: {kind: builtin, builtin: echo}\n  talk: {kind: conversation, conversation: talk}\nconversations:\n  talk: {participants: [{agent: a}, {agent: echo}], max_turns: 2}\n")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	for agent, want := range map[string]string{"a": "a ", "echo": "hello", "talk": "[a] a "} {
		got, err := a2aClient(t, bus, agent, "Bearer user-secret", nil).SendMessage(t.Context(), &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("hello"))})
		if err != nil {
			t.Fatal(err)
		}
		task, ok := got.(*sdk.Task)
		if !ok || task.Status.State != sdk.TaskStateCompleted || len(task.Artifacts) == 0 || !strings.Contains(task.Artifacts[0].Parts[0].Text(), want) {
			t.Fatalf("%s: %+v", agent, got)
		}
		calls, err := s.Store().Calls(t.Context(), agentbus.RunID(task.ID))
		if err != nil {
			t.Fatal(err)
		}
		var settled []agentbus.CallRecord
		for i := range calls {
			if calls[i].State == agentbus.CallSettled && calls[i].Parent == "" {
				settled = append(settled, calls[i])
			}
		}
		if len(settled) != 1 || settled[0].Agent != agent || settled[0].Payer != "user-123" || settled[0].Caller != "user-123" || settled[0].Depth != 0 {
			t.Errorf("%s: %+v", agent, calls)
		}
		if agent == "a" && settled[0].Cost != 10_000 {
			t.Errorf("cost %d", settled[0].Cost)
		}
	}
	for _, h := range a.headers()[:1] {
		if h.Get("X-Tangle-Forwarded-Depth") == "0" || h.Get("X-Tangle-Forwarded-Authorization") == "" {
			t.Errorf("the agent was told %v", h)
		}
	}
}

// P9, P10: a call over A2A is refused at the depth at which any is, and one above
// is served: the face is no hop of its own.
func TestDepthOverA2A(t *testing.T) {
	t.Parallel()
	s := open(t, "agents: {echo: {kind: builtin, builtin: echo}}")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	for depth, served := range map[string]bool{"3": true, "4": false} {
		c := a2aClient(t, bus, "echo", "Bearer user-secret", http.Header{"X-Tangle-Forwarded-Depth": {depth}})
		got, err := c.SendMessage(t.Context(), &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("hello"))})
		if task, _ := got.(*sdk.Task); served && (err != nil || task.Status.State != sdk.TaskStateCompleted) || !served && err == nil {
			t.Errorf("depth %s: %+v, %v", depth, got, err)
		}
	}
}

// X34: a task is its caller's, through the whole bus.
func TestTasksAreTheirCallers(t *testing.T) {
	t.Parallel()
	s := open(t, "agents: {echo: {kind: builtin, builtin: echo}}")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	got, err := a2aClient(t, bus, "echo", "Bearer user-secret", nil).SendMessage(t.Context(), &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("hello"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a2aClient(t, bus, "echo", "Bearer other-secret", nil).GetTask(t.Context(), &sdk.GetTaskRequest{ID: got.TaskInfo().TaskID}); err == nil {
		t.Error("another read the task")
	}
}

// X34, X35, A19: who calls on behalf of others has the tasks, the messages and the
// contexts of each payer apart.
func TestTasksAreTheirPayers(t *testing.T) {
	t.Parallel()
	s := open(t, "agents: {echo: {kind: builtin, builtin: echo}}")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	ids := map[sdk.TaskID]bool{}
	for _, payer := range []string{"user-secret", "other-secret"} {
		c := a2aClient(t, bus, "echo", "Bearer sandbox-secret", http.Header{agentbus.HeaderForwardedAuthorization: {"Bearer " + payer}})
		list, err := c.ListTasks(t.Context(), &sdk.ListTasksRequest{})
		if err != nil || len(list.Tasks) != 0 {
			t.Errorf("%s sees %+v, %v", payer, list, err)
		}
		for id := range ids {
			if _, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: id}); err == nil {
				t.Error("another payer's task was read")
			}
		}
		m := sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("hello"))
		m.ID, m.ContextID = "m1", "shared"
		for range 2 { // once for each payer
			got, err := c.SendMessage(t.Context(), &sdk.SendMessageRequest{Message: m})
			if err != nil {
				t.Fatal(err)
			}
			ids[got.TaskInfo().TaskID] = true
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d tasks of two payers", len(ids))
	}
}

// A38: one bus is the A2A agent of another: a model of its callers, whole and as a
// stream, and a participant of its conversations, in one context for each run
// (A24), with lineage and payer as those of any agent.
func TestBusOverA2A(t *testing.T) {
	t.Parallel()
	far := open(t, "agents: {echo: {kind: builtin, builtin: echo}}")
	var seen []http.Header
	var mu sync.Mutex
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Clone())
		mu.Unlock()
		r.Header.Set("Authorization", "Bearer user-secret")
		far.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(there.Close)
	s := open(t, "agents:\n  far: {kind: a2a, url: \""+there.URL+"/a2a/echo\", headers: {x-tenant: blue-tenant}, price: {call: 0.01}}\n  b: {kind: builtin, builtin: echo}\nconversations:\n  talk: {participants: [{agent: far}, {agent: b}], max_turns: 4}\n")
	here := httptest.NewServer(s.Handler())
	t.Cleanup(here.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, stream := range []string{"false", "true"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, here.URL+"/v1/chat/completions", strings.NewReader(`{"model":"far","stream":`+stream+`,"messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		resp, err := here.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "hello") {
			t.Errorf("stream %s: %d %s", stream, resp.StatusCode, body)
		}
	}
	mu.Lock()
	last := seen[len(seen)-1]
	seen = nil
	mu.Unlock()
	for name, want := range map[string]string{"X-Tenant": "blue-tenant", "X-Tangle-Forwarded-Depth": "1", "A2a-Version": "1.0", "X-Tangle-Forwarded-Authorization": "Bearer user-secret"} {
		if got := last.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("the agent was told %s: %q", name, got)
		}
	}
	got := converse(t, s, server.Start{Conversation: "talk", Seed: "hello"})
	if len(got.Turns) != 4 || got.Turns[0].Reply.Text == "" || got.Turns[2].Reply.Text == "" || got.Spent != 20_000 {
		t.Fatalf("%+v", got)
	}
	tasks, total, err := far.Store().Tasks(t.Context(), agentbus.TaskQuery{Agent: "echo", Principal: "user-123", Limit: 10})
	if err != nil || total != 4 {
		t.Fatalf("%d tasks, %v", total, err)
	}
	if tasks[0].Context != tasks[1].Context || tasks[2].Context == tasks[1].Context {
		t.Errorf("contexts %q %q %q", tasks[0].Context, tasks[1].Context, tasks[2].Context)
	}
}

// A32: a caller that has ended its half of the connection is taken for one that has
// left, and reads how far its task is and where to ask; its task goes on.
func TestFaceTellsWhoMayStillRead(t *testing.T) {
	t.Parallel()
	asked, held := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-held
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(agent.Close)
	addr, stop := serveAt(t, open(t, "agents: {writer: {kind: openai, url: '"+agent.URL+"/v1', model: x}}"))
	t.Cleanup(stop)
	t.Cleanup(release)
	ask := func(half bool) gjson.Result {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`
		_, err = fmt.Fprintf(conn, "POST /a2a/writer HTTP/1.1\r\nHost: bus\r\nAuthorization: Bearer user-secret\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if c, ok := conn.(*net.TCPConn); half && ok && err == nil {
			<-asked // so that its task is there
			err = c.CloseWrite()
		}
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s, %v", resp.StatusCode, got, err)
		}
		return gjson.GetBytes(got, "result.task")
	}
	first := ask(true)
	if s := first.Get("status.state").Str; s != "TASK_STATE_WORKING" && s != "TASK_STATE_SUBMITTED" {
		t.Error(first.Raw)
	}
	release()
	if over := ask(false); over.Get("id").Str != first.Get("id").Str || over.Get("status.state").Str != "TASK_STATE_COMPLETED" {
		t.Error(over.Raw)
	}
}
