package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
)

// A10, X37: the card names this bus, and nothing of the agent's.
func TestA2ACard(t *testing.T) {
	t.Parallel()
	a, old := newA2A(t, "critic", nil), newAgent(t, "old", nil)
	old.Target = target(t, "old", strings.TrimSuffix(old.URL.String(), "/v1"))
	old.A2A = &gateway.A2AAgent{}
	host := a.URL.Host
	b := newBus(t, func(c *gateway.Config) { c.A2A.DefaultAgent = "critic" }, a, old)
	for _, path := range []string{"/a2a/critic/.well-known/agent-card.json", "/a2a/critic/.well-known/agent-card.json/", "/.well-known/agent-card.json"} {
		got := b.send(http.MethodGet, path, "")
		tag := got.header.Get("Etag")
		if got.status != http.StatusOK || strings.Contains(got.body, host) || gjson.Get(got.body, "signatures").Exists() || tag != a2a.ETag([]byte(got.body)) {
			t.Errorf("%s: %v", path, got)
		}
		if urls := gjson.Get(got.body, "supportedInterfaces.#.url").Raw; urls != `["`+b.url+`/a2a/critic","`+b.url+`/a2a/critic/rest"]` || got.header.Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("%s: %s, %v", path, urls, got.header)
		}
		if head := b.send(http.MethodHead, path, ""); head.status != http.StatusOK || head.header.Get("ETag") != tag || head.body != "" {
			t.Errorf("HEAD %s: %v", path, head)
		}
		if again := b.send(http.MethodGet, path, "", "If-None-Match: "+tag); again.status != http.StatusNotModified || again.body != "" {
			t.Errorf("%s: %v", path, again)
		}
		if own := b.send(http.MethodGet, path, "", asAlice); own.header.Get("Cache-Control") != "private, max-age=300" {
			t.Error(own.header)
		}
	}
	if got := b.send(http.MethodGet, "/a2a/old/.well-known/agent-card.json", ""); got.status != http.StatusBadGateway {
		t.Error(got) // it answers with a chat
	}
	if got := b.send(http.MethodGet, "/a2a/nobody/.well-known/agent-card.json", ""); got.status != http.StatusNotFound {
		t.Error(got)
	}
	none := newBus(t, nil, a)
	if got := none.send(http.MethodGet, "/.well-known/agent-card.json", ""); got.status != http.StatusNotFound || gjson.Get(got.body, "error.details.0.metadata.rule").Str != "A3" {
		t.Error(got)
	}
}

// A10: what the card names as base: the configured URL, or the request, or what
// a trusted proxy says, and nobody else.
func TestA2ABase(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", nil)
	forwarded := []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example, bus.example.com"}
	for want, change := range map[string]func(*gateway.Config){
		"http://127.0.0.1":            nil,
		"https://public.example.com/": func(c *gateway.Config) { c.A2A.PublicURL = "https://public.example.com/" },
		"https://bus.example.com/":    func(c *gateway.Config) { c.A2A.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} },
	} {
		got := newBus(t, change, a).send(http.MethodGet, "/a2a/critic/.well-known/agent-card.json", "", forwarded...)
		if u := gjson.Get(got.body, "supportedInterfaces.0.url").Str; !strings.HasPrefix(u, want) {
			t.Errorf("%s, want %s", u, want)
		}
	}
}

// A10: the extended card too, over both bindings.
func TestA2AExtendedCard(t *testing.T) {
	t.Parallel()
	var base string
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		card := `{"name":"x","supportedInterfaces":[{"url":"` + base + `/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"signatures":[{}],"note":"see ` + base + `/x"}`
		if r.Method == http.MethodPost {
			card = `{"jsonrpc":"2.0","id":"r1","result":` + card + `}`
		}
		answerWith(http.StatusOK, card)(w, r)
	})
	base = a.URL.String()
	b := newBus(t, nil, a)
	for path, got := range map[string]answer{
		"result.": b.send(http.MethodPost, "/a2a/critic", rpc("r1", "GetExtendedAgentCard", "{}"), asAlice),
		"":        b.send(http.MethodGet, "/a2a/critic/rest/extendedAgentCard", "", asAlice),
	} {
		if gjson.Get(got.body, path+"supportedInterfaces.0.url").Str != b.url+"/a2a/critic" || strings.Contains(got.body, a.URL.Host) || strings.Contains(got.body, "signatures") ||
			got.header.Get("Etag") != a2a.ETag([]byte(got.body)) || !strings.HasPrefix(got.header.Get("Cache-Control"), "private") {
			t.Errorf("%v %v", got, got.header)
		}
	}
	if got := b.send(http.MethodGet, "/a2a/critic/rest/extendedAgentCard", ""); got.status != http.StatusUnauthorized {
		t.Error(got)
	}
}

// A8: an agent that is told a version when callers name none.
func TestA2ADefaultVersion(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	a.A2A.DefaultVersion = "1.0"
	b := newBus(t, nil, a)
	for _, c := range []struct {
		path, want string
		headers    []string
	}{
		{"/a2a/critic", "1.0", nil}, {"/a2a/critic", "0.3", []string{"a2a-version: 0.3"}}, {"/a2a/critic?A2A-Version=0.3", "", nil},
	} {
		_ = b.send(http.MethodPost, c.path, sendHi, append(c.headers, asAlice)...)
		if got := strings.Join(a.next(t).header["A2a-Version"], "|"); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.path, c.headers, got, c.want)
		}
	}
}

// A17: where webhooks may pass, their URL is judged first.
func TestA2APushPassthrough(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	a.A2A.Push = true
	b := newBus(t, func(c *gateway.Config) {
		c.A2A.Webhook = func(_ context.Context, u string) error {
			if strings.HasPrefix(u, "https://good/") {
				return nil
			}
			return &agentbus.Error{Code: agentbus.CodeForbidden, Message: "not there"}
		}
	}, a)
	hook := func(u string) answer {
		return b.send(http.MethodPost, "/a2a/critic", rpc("r1", "CreateTaskPushNotificationConfig", `{"taskId":"t","url":"`+u+`"}`), asAlice)
	}
	if got := hook("https://good/"); got.status != http.StatusOK || a.executions() == 0 {
		t.Error(got)
	}
	if got := hook("http://169.254.169.254/"); fault(got) != "403 -32000 FORBIDDEN" {
		t.Error(got)
	}
	if card := b.send(http.MethodGet, "/a2a/critic/.well-known/agent-card.json", ""); !gjson.Get(card.body, "capabilities.pushNotifications").Bool() {
		t.Error(card)
	}
}

// A3: agents of other dialects are served by their face, behind the stages.
func TestA2AFace(t *testing.T) {
	t.Parallel()
	asked := make(chan *a2a.Request, 8)
	face := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, _ := a2a.FromContext(r.Context())
		asked <- q
		if r.Header.Get("X-Panic") != "" {
			panic(errors.New("broken"))
		}
		w.WriteHeader(http.StatusTeapot)
	})
	b := newBus(t, func(c *gateway.Config) { c.Face = face }, newAgent(t, "chat", nil))
	got := b.send(http.MethodPost, "/a2a/agent%2Fchat", sendHi, asAlice, "x-tangle-runid: run1", "x-tangle-forwarded-depth: 1")
	q := <-asked
	if got.status != http.StatusTeapot || q.Agent != "chat" || q.Payer != "alice" || q.Lineage.Depth != 2 || q.Lineage.Run != "run1" || q.Base != b.url+"/a2a/chat" {
		t.Errorf("%v %+v", got, q)
	}
	b.await("run1", func(c []agentbus.CallRecord) bool {
		return len(c) == 1 && c[0].State == agentbus.CallPassed && c[0].Status == http.StatusTeapot
	})
	if got := b.send(http.MethodGet, "/a2a/chat/.well-known/agent-card.json", ""); got.status != http.StatusTeapot || (<-asked).Payer != "" {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/chat", sendHi, asAlice, "X-Panic: 1"); fault(got) != "500 -32603 INTERNAL" {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/chat", "[]", asAlice); fault(got) != "200 -32600 INVALID_REQUEST" {
		t.Error(got)
	}
}

// The gateway's Edit sees each request, and may refuse it.
func TestA2AEdit(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, func(c *gateway.Config) {
		c.A2A.Edit = func(_ context.Context, r *a2a.Request, call *a2a.Call, body []byte) ([]byte, error) {
			if call.MessageID == "bad" {
				return nil, a2a.Standard(a2a.CodeInvalidParams, "", &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "bad " + r.Agent})
			}
			return a2a.Set(body, []byte(`{"hop":1}`), call.MetadataPath("mentionable", "agent_chain")...)
		}
	}, a)
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "SendMessage", say("bad")), asAlice); fault(got) != "200 -32602 INVALID_PARAMS" || a.executions() != 0 {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/critic", sendHi, asAlice); got.status != http.StatusOK {
		t.Error(got)
	}
	if h := a.next(t); gjson.Get(h.body, "params.message.metadata.mentionable.agent_chain.hop").Int() != 1 {
		t.Error(h.body)
	}
}
