package a2a_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/a2a"
)

const newCard = `{"name":"critic","x":{"n":1.50},"supportedInterfaces":[
 {"url":"http://10.0.0.7:9002/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"acme"},
 {"url":"http://10.0.0.7:9002/rpc2","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
 {"url":"http://10.0.0.7:9002/rpc3","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
 {"url":"grpc://other.internal:50051","protocolBinding":"GRPC","protocolVersion":"1.0"},
 {"url":"http://other.internal:9/api","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}],
 "capabilities":{"streaming":true,"pushNotifications":true,"extensions":[{"uri":"https://ext","params":{"see":"http://10.0.0.7:9002/p"}}]},
 "securitySchemes":{"k":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://10.0.0.7/.well-known/openid"}}},
 "securityRequirements":[{"schemes":{"k":{"list":[]}}}],"documentationUrl":"http://10.0.0.7:9002/docs","iconUrl":"https://cdn.example.com/i.png",
 "description":"reach me at 10.0.0.7:9002 or HTTP://Other.Internal:9/api","signatures":[{"protected":"p","signature":"s"}],"skills":[{"id":"s","securityRequirements":[]}]}`

const oldCard = `{"name":"old","protocolVersion":"0.3.0","url":"http://agent:9/a2a","preferredTransport":"JSONRPC",
 "additionalInterfaces":[{"url":"http://agent:9/a2a","transport":"JSONRPC"},{"url":"http://agent:9/v1","transport":"HTTP+JSON"},{"url":"agent:1","transport":"GRPC"}],
 "security":[{"k":[]}],"securitySchemes":{"k":{"type":"apiKey"}},"capabilities":{"pushNotifications":true},"description":"an agent of agents","signatures":[]}`

func rewritten(t *testing.T, card string, e a2a.CardEdit) map[string]any {
	t.Helper()
	e.Base = "https://bus.example.com/a2a/critic"
	out, err := a2a.RewriteCard([]byte(card), e)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	for _, host := range append(e.Hosts, "10.0.0.7", "internal", "agent:9") {
		if strings.Contains(strings.ToLower(string(out)), host) {
			t.Errorf("%s remains in %s", host, out)
		}
	}
	return c
}

// A10, X37: a card of A2A 1.0 names this bus and nothing of the agent's host.
func TestRewriteCard(t *testing.T) {
	t.Parallel()
	c := rewritten(t, newCard, a2a.CardEdit{})
	want := []any{
		map[string]any{"url": "https://bus.example.com/a2a/critic", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "acme"},
		map[string]any{"url": "https://bus.example.com/a2a/critic", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
		map[string]any{"url": "https://bus.example.com/a2a/critic/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
	}
	if diff := cmp.Diff(want, c["supportedInterfaces"]); diff != "" {
		t.Error(diff)
	}
	for _, gone := range []string{"signatures", "documentationUrl", "security"} {
		if v, ok := c[gone]; ok {
			t.Errorf("%s is still %v", gone, v)
		}
	}
	able, _ := c["capabilities"].(map[string]any)
	if able["pushNotifications"] != false || able["streaming"] != true || c["iconUrl"] == nil || c["x"] == nil {
		t.Errorf("%v", c)
	}
	if diff := cmp.Diff(map[string]any{"bearer": map[string]any{"httpAuthSecurityScheme": map[string]any{"scheme": "Bearer"}}}, c["securitySchemes"]); diff != "" {
		t.Error(diff)
	}
	kept := rewritten(t, strings.ReplaceAll(newCard, "https://10.0.0.7/", "https://id.example.com/"), a2a.CardEdit{KeepSecurity: true, Push: true})
	if schemes, _ := kept["securitySchemes"].(map[string]any); schemes["k"] == nil {
		t.Error("the agent's schemes were replaced under passthrough")
	}
	if able, _ := kept["capabilities"].(map[string]any); able["pushNotifications"] != true {
		t.Error("push is denied where it is allowed")
	}
}

// A10: a card of A2A 0.3.
func TestRewriteOldCard(t *testing.T) {
	t.Parallel()
	c := rewritten(t, oldCard, a2a.CardEdit{Hosts: []string{"agent:9"}})
	want := []any{
		map[string]any{"url": "https://bus.example.com/a2a/critic", "transport": "JSONRPC"},
		map[string]any{"url": "https://bus.example.com/a2a/critic/rest", "transport": "HTTP+JSON"},
	}
	if diff := cmp.Diff(want, c["additionalInterfaces"]); diff != "" || c["url"] != "https://bus.example.com/a2a/critic" {
		t.Error(c["url"], diff)
	}
	if c["description"] != "an agent of agents" { // a word, not a host
		t.Error(c["description"])
	}
	if _, ok := c["security"].([]any); !ok || c["securityRequirements"] != nil {
		t.Errorf("security %v", c["security"])
	}
	both := rewritten(t, strings.Replace(newCard, "{", `{"url":"https://10.0.0.7/","protocolVersion":"0.3",`, 1), a2a.CardEdit{})
	bearer := map[string]any{"bearer": map[string]any{"type": "http", "scheme": "Bearer", "httpAuthSecurityScheme": map[string]any{"scheme": "Bearer"}}}
	if diff := cmp.Diff(bearer, both["securitySchemes"]); diff != "" || both["security"] == nil || both["securityRequirements"] == nil {
		t.Errorf("a card of both versions: %v\n%s", both, diff)
	}
	grpc := rewritten(t, `{"url":"grpc://g:1","preferredTransport":"GRPC","additionalInterfaces":[{"url":"http://g/x","transport":"HTTP+JSON"}]}`, a2a.CardEdit{})
	if grpc["preferredTransport"] != "HTTP+JSON" || grpc["url"] != "https://bus.example.com/a2a/critic/rest" {
		t.Error(grpc)
	}
}

// A10, X37: what the bus edits or takes out it takes out in every other spelling too:
// the SDK for Go, whose reader does not look at the case of names, reads nothing of
// the agent's.
func TestRewriteRespeltCard(t *testing.T) {
	t.Parallel()
	card := strings.NewReplacer(`"signatures"`, `"Signatures"`, `"skills":[{"id":"s","securityRequirements"`, `"skills":[{"id":"s","SecurityRequirements"`,
		`"tenant"`, `"URL":"http://10.0.0.7/x","tenant"`, `"pushNotifications":true`, `"pushNotifications":true,"PushNotifications":true`, `{"name"`,
		`{"\u017fignatures":[{"protected":"p","signature":"s"}],"SupportedInterfaces":[{"url":"http://10.0.0.7/"}],"SecuritySchemes":{"k":{"mtlsSecurityScheme":{}}},
		"SECURITYREQUIREMENTS":[{"schemes":{"k":[]}}],"Capabilities":{"pushNotifications":true},"DocumentationURL":"http://10.0.0.7/","name"`).Replace(newCard)
	raw, err := json.Marshal(rewritten(t, card, a2a.CardEdit{}))
	if err != nil {
		t.Fatal(err)
	}
	var read sdk.AgentCard
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Signatures) > 0 || read.DocumentationURL != "" || read.Capabilities.PushNotifications || len(read.SecuritySchemes) != 1 || len(read.SecurityRequirements) != 1 || len(read.Skills[0].SecurityRequirements) > 0 {
		t.Errorf("read as %+v", read)
	}
	older, err := json.Marshal(rewritten(t, strings.NewReplacer(`"transport"`, `"Url":"http://agent:9/x","transport"`, `"url":"http://agent:9/a2a","pre`, `"Url":"http://agent:9/x","url":"http://agent:9/a2a","pre`).Replace(oldCard),
		a2a.CardEdit{Hosts: []string{"agent:9"}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{
		"Signatures", "\u017fignatures", "SupportedInterfaces", "SecuritySchemes", "SECURITYREQUIREMENTS", "SecurityRequirements", "Capabilities", "PushNotifications",
		"DocumentationURL", "URL", "Url",
	} {
		if quoted := `"` + gone + `"`; strings.Contains(string(raw), quoted) || strings.Contains(string(older), quoted) {
			t.Errorf("%s is still in %s or %s", gone, raw, older)
		}
	}
	for _, i := range read.SupportedInterfaces {
		if !strings.HasPrefix(i.URL, "https://bus.example.com/") {
			t.Errorf("leads to %s", i.URL)
		}
	}
	if passed := rewritten(t, strings.ReplaceAll(card, "https://10.0.0.7/", "https://id.example.com/"), a2a.CardEdit{KeepSecurity: true, Push: true}); passed["SecuritySchemes"] == nil {
		t.Error("the agent's schemes were taken out under passthrough")
	}
}

func TestRewriteExtended(t *testing.T) {
	t.Parallel()
	e := a2a.CardEdit{Base: "https://bus.example.com/a2a/critic"}
	out, err := a2a.RewriteExtended([]byte(`{"jsonrpc":"2.0", "result":`+newCard+`, "id":"7"}`), a2a.JSONRPC, e)
	if err != nil || !strings.HasPrefix(string(out), `{"jsonrpc":"2.0", "result":{`) || strings.Contains(string(out), "10.0.0.7") {
		t.Errorf("%s, %v", out, err)
	}
	for _, same := range []string{`{"jsonrpc":"2.0","error":{"code":-32007},"id":1}`, ``} {
		if out, err := a2a.RewriteExtended([]byte(same), a2a.JSONRPC, e); string(out) != same || err != nil {
			t.Errorf("%s: %s, %v", same, out, err)
		}
	}
	if _, err := a2a.RewriteExtended([]byte(`[]`), a2a.REST, e); err == nil {
		t.Error("a list passed for a card")
	}
	// What a client that reads names in any case would take for the card.
	for _, hidden := range []string{
		`{"jsonrpc":"2.0","Result":` + newCard + `,"id":1}`, `{"jsonrpc":"2.0","result":null,"RESULT":` + newCard + `,"id":1}`,
		`{"jsonrpc":"2.0","result":{},"result":` + newCard + `,"id":1}`, `{"jsonrpc":"2.0","result":` + newCard + `} x`, `[{"result":` + newCard + `}]`, `{`,
		`{"jsonrpc":"2.0","error":{"code":-1},"re\u017fult":` + newCard + `}`,
	} {
		if out, err := a2a.RewriteExtended([]byte(hidden), a2a.JSONRPC, e); err == nil {
			t.Errorf("passed: %s", out)
		}
	}
	out, err = a2a.RewriteExtended([]byte(`{"error":null,`+newCard[1:]), a2a.REST, e)
	if strings.Contains(string(out), "10.0.0.7") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	all := a2a.Interfaces([]byte(newCard))
	for _, c := range []struct {
		b       a2a.Binding
		version string
		want    string
	}{
		{a2a.JSONRPC, "1.0", "http://10.0.0.7:9002/rpc"},
		{a2a.JSONRPC, "1.0.1", "http://10.0.0.7:9002/rpc"},
		{a2a.JSONRPC, "", "http://10.0.0.7:9002/rpc3"},
		{a2a.JSONRPC, "9", "http://10.0.0.7:9002/rpc"},
		{a2a.REST, "", "http://other.internal:9/api"},
	} {
		if got := a2a.Endpoint(all, c.b, c.version); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.b, c.version, got, c.want)
		}
	}
	if got := a2a.Endpoint(a2a.Interfaces([]byte(oldCard)), a2a.REST, "0.3"); got != "http://agent:9/v1" {
		t.Error(got)
	}
	if got := a2a.Endpoint(a2a.Interfaces([]byte(`nonsense`)), a2a.REST, ""); got != "" {
		t.Error(got)
	}
}

// A10: a strong tag, and 304 for who has it.
func TestWriteCard(t *testing.T) {
	t.Parallel()
	card, tag := []byte(`{}`), a2a.ETag([]byte(`{}`))
	for ifNone, want := range map[string]int{"": 200, `"other"`: 200, tag: 304, `"x", W/` + tag: 304, "*": 304} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("If-None-Match", ifNone)
		if got := a2a.WriteCard(w, r, card, ifNone == tag); got != want || w.Code != want || w.Header().Get("Etag") != tag {
			t.Errorf("%s: %d, %v", ifNone, w.Code, w.Header())
		}
		if private := strings.HasPrefix(w.Header().Get("Cache-Control"), "private"); private != (ifNone == tag) {
			t.Error(w.Header())
		}
	}
}

// What answers and events of both versions tell.
func TestReadFrame(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]struct {
		tasks string
		end   bool
	}{
		`{"id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}}`:                    {"t/c ", false},
		`{"id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`:                  {"t/c ", true},
		`{"id":1,"result":{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}}`: {"t/c ", true},
		`{"id":1,"result":{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELLED"}}}}`:      {"t/c ", true},
		`{"id":1,"result":{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{}}}}`:                                {"t/c ", false},
		`{"id":1,"result":{"message":{"messageId":"m"}}}`:                                                                  {"", true},
		`{"id":1,"result":{"id":"t","contextId":"c","status":{"state":"working"},"kind":"task"}}`:                          {"t/c ", false},
		`{"id":1,"result":{"kind":"status-update","taskId":"t","status":{"state":"working"},"final":true}}`:                {"t/ ", true},
		`{"id":1,"result":{"kind":"artifact-update","taskId":"t"}}`:                                                        {"t/ ", false},
		`{"id":1,"result":{"kind":"message","taskId":"t"}}`:                                                                {"t/ ", true},
		`{"id":1,"result":{"tasks":[{"id":"a"},{"id":"b","contextId":"c"}]}}`:                                              {"a/ b/c ", false},
		`{"id":1,"error":{"code":-32001,"message":"x"}}`:                                                                   {"", true},
		`{"id":1,"result":null}`: {"", false}, `[1]`: {"", false}, `{`: {"", false},
	} {
		f, valid := a2a.ReadFrame([]byte(data), a2a.JSONRPC)
		var tasks strings.Builder
		for _, r := range f.Tasks {
			tasks.WriteString(r.ID + "/" + r.Context + " ")
		}
		if tasks.String() != want.tasks || f.End != want.end || (f.Err != nil) != strings.Contains(data, "error") || valid != (data != "{") {
			t.Errorf("%s: %+v", data, f)
		}
	}
	f, _ := a2a.ReadFrame([]byte(`{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED","message":{"metadata":{"usage":{}}}},"metadata":{}}}`), a2a.REST)
	if len(f.Metadata) != 2 || !f.End {
		t.Errorf("%+v", f)
	}
}

// A duplicate's stream has its own id, wherever it was cut.
func TestStreamID(t *testing.T) {
	t.Parallel()
	const stream = ": keepalive\n\nid: 4\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"id\":\"a\"}}\r\n\r\ndata:{\"id\":\"a\"}\n\ndata: no json\n\ndata: {\"id\":\"a\"}"
	want := strings.ReplaceAll(strings.ReplaceAll(stream, `"2.0","id":"a"`, `"2.0","id":"b"`), `{"id":"a"}`+"\n", `{"id":"b"}`+"\n")
	want = strings.TrimSuffix(want, `{"id":"a"}`) + `{"id":"b"}`
	for cut := range len(stream) {
		s := a2a.StreamID{ID: []byte(`"b"`)}
		got := string(s.Feed([]byte(stream[:cut]))) + string(s.Feed([]byte(stream[cut:]))) + string(s.Flush())
		if got != want {
			t.Fatalf("cut at %d: %q, want %q", cut, got, want)
		}
	}
	// G10: so has one with a BOM, in CR, or with data over several lines.
	for _, stream := range []string{
		"\xef\xbb\xbfdata: {\"id\":\"a\"}\n\ndata: {\"id\":\"a\"}\n\n",
		"data: {\"id\":\"a\"}\r\rdata: {\"id\":\"a\"}\r\r: x\r\r",
		"event: x\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":\"a\",\nid: 4\ndata:\"result\":{\"id\":5}}\n\n",
		"data: {\r\ndata: \"id\":\"a\"}\r\n\r\n",
	} {
		want := strings.ReplaceAll(stream, `"id":"a"`, `"id":"b"`)
		for cut := range len(stream) {
			s := a2a.StreamID{ID: []byte(`"b"`)}
			got := string(s.Feed([]byte(stream[:cut]))) + string(s.Feed([]byte(stream[cut:])))
			if got != want {
				t.Fatalf("cut at %d: %q, want %q", cut, got, want)
			}
		}
	}
	if got := string(a2a.Event([]byte("{\n \"a\": 1 }"))); got != "data: {\"a\":1}\n\n" {
		t.Errorf("%q", got)
	}
	if got := string(a2a.Event([]byte("a\nb"))); got != "data: a\ndata: b\n\n" {
		t.Errorf("%q", got)
	}
}

// A10, X37: of a member that stands twice in a card the bus takes one for
// everything: what it calls, what it shows, and whose hosts must not remain.
func TestCardsWithTwins(t *testing.T) {
	t.Parallel()
	card := []byte(`{"name":"x","description":"at two.example:9","supportedInterfaces":[{"url":"http://one.example:9/a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],` +
		`"supportedInterfaces":[{"url":"http://two.example:9/b","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"SupportedInterfaces":[{"url":"http://three.example:9/c","protocolBinding":"JSONRPC"}]}`)
	if all := a2a.Interfaces(card); len(all) != 1 || all[0].URL != "http://two.example:9/b" {
		t.Errorf("called: %+v", all)
	}
	shown, err := a2a.RewriteCard(card, a2a.CardEdit{Base: "https://bus.example.com/a2a/x", Hosts: []string{"one.example:9", "three.example:9"}})
	if err != nil || strings.Contains(string(shown), ".example:9") || strings.Count(string(shown), `"supportedInterfaces"`) != 1 {
		t.Errorf("%s, %v", shown, err)
	}
}
