package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// An agent that is configured as one of A2A is reached behind /a2a, by those who
// may call it, and its card names the bus (A3, A10, A17).
func TestA2AAgentsAreConfigured(t *testing.T) {
	t.Parallel()
	heard := make(chan http.Header, 16)
	var agent *httptest.Server
	agent = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			_, _ = fmt.Fprintf(w, `{"name":"c","supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"pushNotifications":true}}`, agent.URL)
			return
		}
		heard <- r.Header.Clone()
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`)
	}))
	t.Cleanup(agent.Close)
	s := open(t, "public_url: https://bus.example.com\na2a: {default_agent: critic, dedupe: message_id, push: passthrough}\n"+
		"agents: {critic: {kind: a2a, url: '"+agent.URL+"', default_version: '1.0', forward_headers: [x-tenant], push: deny}, open: {kind: a2a, urls: ['"+agent.URL+"/x']}, chat: {kind: builtin, builtin: echo}}")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	send := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, bus.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		r.Header.Set("X-Tenant", "acme")
		resp, err := bus.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	say := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":` + params + `}`
	}
	for range 2 { // the second time from memory
		if status, body := send(http.MethodPost, "/a2a/critic", say(`{"message":{"messageId":"m"}}`)); status != http.StatusOK || gjson.Get(body, "result.id").Str != "t1" {
			t.Errorf("%d %s", status, body)
		}
	}
	if h := <-heard; len(heard) != 0 || h.Get("A2A-Version") != "1.0" || h.Get("X-Tenant") != "acme" {
		t.Errorf("%d more, %v", len(heard), h)
	}
	for path, able := range map[string]bool{"/.well-known/agent-card.json": false, "/a2a/open/.well-known/agent-card.json": true} {
		status, body := send(http.MethodGet, path, "")
		if status != http.StatusOK || gjson.Get(body, "capabilities.pushNotifications").Bool() != able || !strings.HasPrefix(gjson.Get(body, "supportedInterfaces.0.url").Str, "https://bus.example.com/a2a/") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for agent, want := range map[string]int64{"critic": -32003, "open": -32000} { // 169.254.169.254 is on no public network
		if _, body := send(http.MethodPost, "/a2a/"+agent, say(`{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"https://169.254.169.254/"}}}`)); gjson.Get(body, "error.code").Int() != want {
			t.Errorf("%s: %s", agent, body)
		}
	}
	task, found, err := s.Store().RemoteTask(t.Context(), "critic", "t1")
	if err != nil || !found || task.Payer != "user-123" || task.Upstream != agent.URL || task.Context != "c1" {
		t.Errorf("%+v, %t, %v", task, found, err)
	}
}

// A3, A26: with a2a.compat cards stand at their former path too, which clients of 0.3
// ask: below each agent, with or without a slash at its end, and at the root.
func TestCardsAtTheirFormerPath(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/agent-card.json" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"name":"c","supportedInterfaces":[{"url":"https://c.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
	}))
	t.Cleanup(agent.Close)
	of := func(compat string) func(path string) (int, string) {
		s := open(t, "a2a: {"+compat+"default_agent: chat}\nagents: {chat: {kind: builtin, builtin: echo}, far: {kind: a2a, url: '"+agent.URL+"'}}")
		bus := httptest.NewServer(s.Handler())
		t.Cleanup(bus.Close)
		return func(path string) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, bus.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			return sent(t, bus.Client(), r)
		}
	}
	on, off := of("compat: '0.3', "), of("")
	for _, mount := range []string{"", "/a2a/chat", "/a2a/c%68at", "/a2a/far"} {
		_, want := on(mount + "/.well-known/agent-card.json")
		for _, end := range []string{"", "/"} {
			if status, got := on(mount + "/.well-known/agent.json" + end); (mount != "" || end == "") && (status != http.StatusOK || got != want) {
				t.Errorf("%s%s: %d %s", mount, end, status, got)
			}
		}
		if status, got := off(mount + "/.well-known/agent.json"); status == http.StatusOK {
			t.Errorf("%s without compat: %d %s", mount, status, got)
		}
	}
	if status, got := on("/a2a/chat/rest/.well-known/agent.json"); status != http.StatusNotFound {
		t.Errorf("below rest: %d %s", status, got)
	}
}
