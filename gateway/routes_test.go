package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestNames: G1, an agent answers to its name, its aliases and the built-in
// aliases, exactly.
func TestNames(t *testing.T) {
	t.Parallel()
	critic := newAgent(t, "critic", nil)
	critic.aliases = []string{"judge", "team/critic"}
	b := newBus(t, nil, critic, newAgent(t, "writer", nil))
	for _, name := range []string{"critic", "judge", "team/critic", "bridge/sandbox/critic", "agent/critic"} {
		if got := b.call(name); got.status != http.StatusOK || got.body != completion {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"Critic", "critic ", "bridge/openai/critic", "agent/judge", "bridge/sandbox/", "@critic"} {
		got := b.call(name)
		refused(t, name, got, http.StatusNotFound, agentbus.CodeAgentNotFound)
		if message := gjson.Get(got.body, "error.message").Str; !strings.HasSuffix(message, "you may call: critic, writer") || strings.Contains(message, "@") {
			t.Errorf("%q: message %q", name, message)
		}
		if got, want := gjson.Get(got.body, "error.explain.supported").Raw, `["critic","writer"]`; got != want {
			t.Errorf("%q: supported %s, want %s", name, got, want)
		}
	}
	if n := critic.executions(); n != 5 {
		t.Errorf("critic was called %d times, want 5", n)
	}
}

// TestBytesForwarded: G1, the bytes go on as they came, unknown fields, spacing
// and odd numbers included, but for a model that the agent maps to its own.
func TestBytesForwarded(t *testing.T) {
	t.Parallel()
	plain, mapped := newAgent(t, "plain", nil), newAgent(t, "mapped", nil)
	mapped.Model = "gpt-x"
	b := newBus(t, nil, plain, mapped)
	const body = "{ \"x_unknown\" : [1.0e0, 18446744073709551616, \"\\ud83d\"],\r\n\t\"model\":\"%\" ,\"messages\":[{\"role\":\"user\",\"content\":\"é \\u00e9 </script>\"}], \"n\":1 } \n"
	for _, c := range []struct {
		agent        *agent
		path, as, to string
	}{
		{plain, chatRoute, "plain", "plain"},
		{plain, chatRoute, "bridge/sandbox/plain", "bridge/sandbox/plain"},
		{plain, "/agents/plain/chat/completions", "anything", "anything"},
		{mapped, chatRoute, "mapped", "gpt-x"},
		{mapped, "/agents/mapped/v1/chat/completions", "anything", "gpt-x"},
	} {
		if got := b.send(http.MethodPost, c.path, strings.Replace(body, "%", c.as, 1), asAlice); got.status != http.StatusOK {
			t.Errorf("%s to %s: %v", c.path, c.as, got)
			continue
		}
		h := c.agent.next(t)
		if diff := cmp.Diff(strings.Replace(body, "%", c.to, 1), h.body); diff != "" {
			t.Errorf("%s to %s: the body changed (-sent +heard):\n%s", c.path, c.as, diff)
		}
		if h.uri != "/v1/chat/completions" {
			t.Errorf("%s to %s: came to %s", c.path, c.as, h.uri)
		}
	}
}

// TestPrefixRoute: G1, /agents/{name}/… passes any method, path and query as it
// came, with the base path of the agent or without; other methods than POST are
// recorded as passed and never deduplicated (G20).
func TestPrefixRoute(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Tool", r.Method)
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("did " + r.Method))
	})
	b := newBus(t, nil, a)
	for _, c := range []struct{ method, path, want string }{
		{http.MethodGet, "/agents/tool/files", "/v1/files"},
		{http.MethodGet, "/agents/tool/v1/files", "/v1/files"},
		{http.MethodGet, "/agents/tool/v1", "/v1"},
		{http.MethodGet, "/agents/tool/v1beta", "/v1/v1beta"},
		{http.MethodGet, "/agents/tool", "/v1"},
		{http.MethodGet, "/agents/tool/", "/v1/"},
		{http.MethodPut, "/agents/tool/files/a%2Fb%20c", "/v1/files/a%2Fb%20c"},
		{http.MethodDelete, "/agents/tool/files/a?force=1&b=%2f+x", "/v1/files/a?force=1&b=%2f+x"},
		{http.MethodPatch, "/agents/tool/a;b=c/d,e/~f", "/v1/a;b=c/d,e/~f"},
		{http.MethodOptions, "/agents/tool/x", "/v1/x"},
		{http.MethodGet, "/agents/tool/x//y///", "/v1/x//y///"},
		{http.MethodPost, "/agents/tool/x//y", "/v1/x//y"},
		{http.MethodGet, "/agents/agent%2Ftool/x", "/v1/x"},
		{http.MethodGet, "/agents/bridge%2fsandbox%2ftool/x", "/v1/x"},
	} {
		body := ""
		if c.method != http.MethodGet {
			body = "no json"
		}
		got := b.send(c.method, c.path, body, asAlice)
		if got.status != http.StatusAccepted || got.body != "did "+c.method || got.header.Get("X-Tool") != c.method {
			t.Errorf("%s %s: %v", c.method, c.path, got)
			continue
		}
		if h := a.next(t); h.method != c.method || h.uri != c.want || h.body != body {
			t.Errorf("%s %s came as %s %s %q, want %s", c.method, c.path, h.method, h.uri, h.body, c.want)
		}
	}
}

// TestOneSpelling: G1, a route of the bus is what it is called, and no other way
// to write it.
func TestOneSpelling(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	for _, path := range []string{"/v1/chat%2Fcompletions", "/v1/chat/completions/", "/V1/chat/completions"} {
		refused(t, path, b.send(http.MethodPost, path, ask("critic"), asAlice), http.StatusNotFound, agentbus.CodeAgentNotFound)
	}
	if got := b.send(http.MethodPost, chatRoute+"?a=b", ask("critic"), asAlice); got.status != http.StatusOK {
		t.Errorf("with a query: %v", got)
	}
}

// TestOtherMethods: G20, only POST is a call; the same PUT twice is done twice,
// and each is recorded as passed.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", nil)
	b := newBus(t, nil, a)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead} {
		for range 2 {
			got := b.send(method, "/agents/tool/x", "", append(turn("r", "r.t0."+method), asAlice)...)
			if got.status != http.StatusOK || got.header.Get("X-Agentbus-Replay") != "" {
				t.Errorf("%s: %v", method, got)
			}
		}
	}
	if n := a.executions(); n != 8 {
		t.Errorf("the agent was called %d times, want 8", n)
	}
	calls := b.await("r", func(calls []agentbus.CallRecord) bool { return len(calls) == 8 })
	for _, c := range calls {
		if c.State != agentbus.CallPassed || c.Payer != "alice" || c.Agent != "tool" || c.Cost != 0 || c.Status != http.StatusOK {
			t.Errorf("recorded as %+v", c)
		}
	}
}

// TestNoWayAround: G1, a path cannot leave the agent's base, whatever its
// spelling, and methods that a proxy must not pass on are refused.
func TestNoWayAround(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", nil)
	b := newBus(t, nil, a)
	for _, path := range []string{
		"/agents/tool/../x", "/agents/tool/%2e%2e/x", "/agents/tool/a/%2E./x", "/agents/tool/./x", "/agents/tool/x/..", "/agents/tool/v1/../x",
		"/agents/../agents/tool/x", "/agents/tool/..%2fx", "/agents/tool/..%5cx", `/agents/tool/..\x`,
	} {
		refused(t, path, b.raw("GET "+path+" HTTP/1.1\r\nHost: bus\r\n"+asAlice+"\r\n\r\n"), http.StatusBadRequest, agentbus.CodeInvalidRequest)
	}
	for _, method := range []string{http.MethodTrace, http.MethodConnect, "post", "Post"} { // G20: only POST is a call, and agents differ in what they read of case
		refused(t, method, b.raw(method+" /agents/tool/x HTTP/1.1\r\nHost: bus\r\n"+asAlice+"\r\n\r\n"), http.StatusBadRequest, agentbus.CodeInvalidRequest)
	}
	for _, path := range []string{"/agents/", "/agents//x", "/agents/nobody/x", "/agents/tool%00/x"} {
		refused(t, path, b.raw("GET "+path+" HTTP/1.1\r\nHost: bus\r\n"+asAlice+"\r\n\r\n"), http.StatusNotFound, agentbus.CodeAgentNotFound)
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

// TestNoSuchRoute: what is not on the surface is 404, and says what is.
func TestNoSuchRoute(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "tool", nil))
	for _, c := range [][2]string{{"POST", "/v1/embeddings"}, {"GET", "/"}, {"GET", "/.well-known/webfinger"}, {"POST", "/.well-known/webfinger"}, {"POST", "/v1//chat/completions"}, {"GET", "/v1/../v1/models"}, {"GET", "/v1//models/"}} {
		refused(t, c[0]+" "+c[1], b.send(c[0], c[1], "", asAlice), http.StatusNotFound, agentbus.CodeAgentNotFound)
	}
}

// TestMethods: section 1 of the gateway's rules, a path of the surface that is asked
// by a method that it does not take is 405, and says which it takes.
func TestMethods(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "tool", nil))
	for _, c := range [][3]string{
		{"GET", chatRoute, "POST"},
		{"DELETE", "/v1/responses", "POST"},
		{"POST", "/v1/models", "GET, HEAD"},
		{"DELETE", "/v1/models/tool", "GET, HEAD"},
		{"PUT", "/healthz", "GET, HEAD"},
		{"POST", "/readyz", "GET, HEAD"},
		{"POST", "/version", "GET, HEAD"},
		{"OPTIONS", "/openapi.json", "GET, HEAD"},
		{"POST", "/.well-known/agent-card.json", "GET, HEAD"},
	} {
		got := b.send(c[0], c[1], "", asAlice)
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != c[2] || got.header.Get("X-Should-Retry") != "false" ||
			gjson.Get(got.body, "error.code").Str != string(agentbus.CodeInvalidRequest) || len(gjson.Get(got.body, "error.explain.supported").Array()) != len(strings.Split(c[2], ", ")) {
			t.Errorf("%s %s: %v", c[0], c[1], got)
		}
	}
}

// A3: the JSON-RPC address of an agent takes POST, and says so in the form of JSON-RPC;
// who is not known is told that first.
func TestA3MethodsOfTheRPCAddress(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		for _, path := range []string{"/a2a/critic", "/a2a/critic/"} {
			got := b.send(method, path, "", asAlice)
			if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "POST" || gjson.Get(got.body, "error.code").Int() != -32602 ||
				gjson.Get(got.body, "error.data.0.reason").Str != "INVALID_REQUEST" {
				t.Errorf("%s %s: %v", method, path, got)
			}
		}
	}
	if got := b.send(http.MethodGet, "/a2a/critic", ""); got.status != http.StatusUnauthorized || got.header.Get("Allow") != "" {
		t.Error(got)
	}
	if n := a.executions(); n != 0 {
		t.Errorf("%d executions", n)
	}
}

// TestBadBodies: G9, a body that two readers could read as two requests is no
// call.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for _, body := range []string{
		"", "null", "[]", `"critic"`, "{", `{"model":"critic"}{}`, `{"model":"critic","model":"writer"}`, `{"model":"critic","MODEL":"writer"}`,
		`{"model":["critic"]}`, `{"model":null}`, `{"model":""}`, `{}`, `{"model":"critic","stream":"yes"}`, `{"model":"critic",}`,
		`{"model":"critic","stream":true,"stream":false}`, `{"model":"critic","x":` + strings.Repeat("[", 1e5) + `}`, "\xef\xbb\xbf{\"model\":\"critic\"}",
	} {
		refused(t, body, b.send(http.MethodPost, chatRoute, body, asAlice), http.StatusBadRequest, agentbus.CodeInvalidRequest)
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

// TestCodedBody: G9, a body in a coding is named as that.
func TestCodedBody(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	got := b.send(http.MethodPost, chatRoute, "\x1f\x8b\x08", asAlice, "Content-Encoding: gzip")
	refused(t, "gzip", got, http.StatusUnsupportedMediaType, agentbus.CodeUnsupportedContent)
	refused(t, "identity", b.send(http.MethodPost, chatRoute, "{", asAlice, "Content-Encoding: identity"), http.StatusBadRequest, agentbus.CodeInvalidRequest)
}

// TestStages: G2, the policy is one list, in this order.
func TestStages(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil)
	want := []string{"recover", "record", "limits", "lineage", "identify", "payer", "route", "authorize", "depth", "chain", "ledger", "admit", "reserve", "proxy"}
	if diff := cmp.Diff(want, b.Stages()); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

// TestConfig: what New refuses, all at once.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := gateway.New(gateway.Config{MaxDepth: -1})
	for _, want := range []string{"Router", "Owner", "MaxDepth"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New says %v; it should name %s", err, want)
		}
	}
}

// TestRefusalsRecorded: G2, unauthenticated is 401 and leaves no entry; every
// later refusal has its payer and target.
func TestRefusalsRecorded(t *testing.T) {
	t.Parallel()
	b := newBus(t, func(c *gateway.Config) { c.RefuseForwarded = true }, newAgent(t, "critic", nil))
	for name, headers := range map[string][]string{
		"no key":                {},
		"no scheme":             {"Authorization: " + aliceKey},
		"another scheme":        {"Authorization: Basic " + aliceKey},
		"unknown key":           {asAlice + "x"},
		"forwarded credential":  {forAlice},
		"bad forwarded":         {asRelay, forAlice + "x"},
		"forwarded as no token": {asRelay, "x-tangle-forwarded-authorization: " + aliceKey},
	} {
		got := b.send(http.MethodPost, chatRoute, ask("critic"), append(turn("nobody", "nobody.t0.critic"), headers...)...)
		refused(t, name, got, http.StatusUnauthorized, agentbus.CodeUnauthenticated)
		if got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
	twoKeys := b.send(http.MethodPost, chatRoute, ask("critic"), append(turn("nobody", "nobody.t0.critic"), asAlice+", Bearer "+bobKey)...)
	refused(t, "two keys", twoKeys, http.StatusBadRequest, agentbus.CodeDuplicateHeader)
	if calls := b.calls("nobody"); len(calls) != 0 {
		t.Errorf("unauthenticated calls left entries: %+v", calls)
	}
	for run, c := range map[string]struct {
		headers []string
		model   string
		status  int
		code    agentbus.Code
	}{
		"unknown":   {nil, "nobody", http.StatusNotFound, agentbus.CodeAgentNotFound},
		"deep":      {[]string{"x-tangle-forwarded-depth: 9"}, "critic", http.StatusTooManyRequests, agentbus.CodeDepthExceeded},
		"forwarder": {[]string{"x-tangle-forwarded-authorization: Bearer " + bobKey}, "critic", http.StatusForbidden, agentbus.CodeUntrustedForwarder},
		"key":       {[]string{"Idempotency-Key: "}, "critic", http.StatusBadRequest, agentbus.CodeInvalidRequest},
	} {
		got := b.send(http.MethodPost, chatRoute, ask(c.model), append(turn(run, run+".t0.x"), append(c.headers, asAlice)...)...)
		refused(t, run, got, c.status, c.code)
		r := b.one(run, agentbus.CallRefused)
		if r.Payer != "alice" || r.Caller != "alice" || r.Agent != c.model || r.Status != c.status || r.Code != c.code || r.Cost != 0 || r.Attempts != 0 {
			t.Errorf("%s: recorded as %+v", run, r)
		}
	}
}

// Most clients show the message of an error and nothing else: it names what was
// asked, and where that may be.
func TestNothingHere(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "critic", nil))
	for path, want := range map[string]string{
		"/chat/completions":                "there is no POST /chat/completions here; the base URL of an OpenAI client ends in /v1",
		"/v1/embeddings":                   "there is no POST /v1/embeddings here; an agent that has it is called at /agents/NAME/embeddings",
		"/v1/completions":                  "there is no POST /v1/completions here; send messages to POST /v1/chat/completions",
		"/v1/chat/completions/":            "there is no POST /v1/chat/completions/ here; write the path without the slash at its end",
		"/v1//embeddings":                  "there is no POST /v1//embeddings here; write the path without empty segments or dots",
		"/threads":                         "there is no POST here; call POST /v1/chat/completions,",
		"/v1/files/@critic/":               "there is no POST /v1/files/(at)critic/ here; an agent that has it",
		"/v1/" + strings.Repeat("x", 9000): "there is no POST /v1/" + strings.Repeat("x", 124) + "… here; an agent",
	} {
		got := b.send(http.MethodPost, path, ask("critic"), asAlice)
		refused(t, path, got, http.StatusNotFound, agentbus.CodeAgentNotFound)
		if message := gjson.Get(got.body, "error.message").Str; !strings.HasPrefix(message, want) {
			t.Errorf("%.64s: %s", path, message)
		}
	}
}
