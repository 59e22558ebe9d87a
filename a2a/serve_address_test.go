package a2a_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

func directory(t *testing.T, publicURL string, addresses ...string) *a2a.Directory {
	t.Helper()
	c := a2a.DirectoryConfig{PublicURL: publicURL, Version: "v1.2.3"}
	for i, a := range addresses {
		c.Agents = append(c.Agents, a2a.Published{Address: address(t, a), Agent: "agent" + string(rune('0'+i)), Streaming: true, Extensions: []string{"https://ext.example/v1"}})
	}
	d, err := a2a.NewDirectory(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// look asks d at a host, which may be that of the URL alone.
func look(d http.Handler, at string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, at, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// C36: WebFinger answers about an address with where its agent is.
func TestWebFingerOfOurAgents(t *testing.T) {
	t.Parallel()
	d := directory(t, "https://bus.example.com/", "@Critic@bots.example.com", "@clerk@bots.example.com")
	got := look(d, "https://bus.example.com/.well-known/webfinger?resource=acct%3Acritic%40BOTS.example.com")
	var answer any
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil || got.Code != http.StatusOK {
		t.Fatal(got.Code, got.Body)
	}
	want := map[string]any{"subject": "acct:Critic@bots.example.com", "links": []any{
		map[string]any{"rel": "self", "type": "application/json", "href": "https://bus.example.com/a2a/agent0/.well-known/agent-card.json"},
		map[string]any{"rel": "https://mentionable.dev/ns/rel/agent-card", "type": "application/json", "href": "https://bus.example.com/.well-known/agent-card/Critic"},
	}}
	if diff := cmp.Diff(want, answer); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for k, v := range map[string]string{"Content-Type": "application/jrd+json", "Cache-Control": "public, max-age=300", "Access-Control-Allow-Origin": "*"} {
		if got.Header().Get(k) != v {
			t.Errorf("%s: %q, want %q", k, got.Header().Get(k), v)
		}
	}
	again := look(d, "https://bus.example.com/.well-known/webfinger?resource=acct:critic@bots.example.com", "If-None-Match", got.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("the same again: %d %s", again.Code, again.Body)
	}
	one := look(d, "https://bus.example.com/.well-known/webfinger?resource=acct:clerk@bots.example.com&rel=self&rel=x")
	if rels := gjson.GetBytes(one.Body.Bytes(), "links.#.rel").Raw; rels != `["self"]` {
		t.Errorf("asked for self: %s", rels)
	}
}

// C36, RFC 7033: what is no question is a bad one, and whom nobody knows is not
// found. No answer names whom was asked for (X32).
func TestWebFingerRefuses(t *testing.T) {
	t.Parallel()
	d := directory(t, "", "@critic@bots.example.com")
	for query, want := range map[string]int{
		"": 400, "?": 400, "?rel=self": 400, "?resource=": 400, "?resource=critic": 400, "?resource=@critic@bots.example.com": 400,
		"?resource=acct:": 400, "?resource=acct:critic": 400, "?resource=acct:critic@localhost": 400, "?resource=%zz": 400,
		"?resource=acct:critic@bots.example.com&resource=acct:critic@bots.example.com": 400, "?resource=acct:a@b.c;x": 400,
		"?resource=acct:nobody@bots.example.com": 404, "?resource=acct:critic@example.com": 404, "?resource=https://bots.example.com/critic": 404,
		"?resource=mailto:critic@bots.example.com": 404, "?resource=acct:critic@bots.example.com": 200, "?resource=ACCT:critic@bots.example.com": 200,
	} {
		got := look(d, "https://bots.example.com/.well-known/webfinger"+query)
		if got.Code != want || want != http.StatusOK && (strings.Contains(got.Body.String(), "@") || strings.Contains(got.Header().Get("Cache-Control"), "public")) {
			t.Errorf("%s: %d %s, want %d", query, got.Code, got.Body, want)
		}
	}
}

// C36: links stay on the domain of the address, and https, whatever a request
// says of its host.
func TestLinksOfTheDirectory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ public, at, want string }{
		{"", "http://bots.example.com", "https://bots.example.com"},
		{"", "http://BUS.bots.example.com:8443", "https://bus.bots.example.com:8443"},
		{"", "http://evil.example", "https://bots.example.com"},
		{"", "http://127.0.0.1:8080", "https://bots.example.com"},
		{"https://bots.example.com/bus/", "http://evil.example", "https://bots.example.com/bus"},
	} {
		d := directory(t, tt.public, "@critic@bots.example.com")
		card := gjson.Get(look(d, tt.at+"/.well-known/agent-card/critic").Body.String(), "a2a.endpoint").Str
		link := gjson.Get(look(d, tt.at+"/.well-known/webfinger?resource=acct:critic@bots.example.com").Body.String(), "links.1.href").Str
		if card != tt.want+"/a2a/agent0" || link != tt.want+"/.well-known/agent-card/critic" {
			t.Errorf("%+v: %s, %s", tt, card, link)
		}
	}
	local := directory(t, "", "@critic@bots.localhost")
	if got := gjson.Get(look(local, "http://bots.localhost:8080/.well-known/agent-card/critic").Body.String(), "a2a.endpoint").Str; got != "http://bots.localhost:8080/a2a/agent0" {
		t.Error(got)
	}
}

// C36: the card of an address, by its local part; of several by the domain that
// was asked.
func TestCardsOfOurAgents(t *testing.T) {
	t.Parallel()
	d := directory(t, "", "@critic@bots.example.com", "@critic@example.com", "@clerk@bots.example.com")
	for at, want := range map[string]string{
		"https://bots.example.com/.well-known/agent-card/critic": "@critic@bots.example.com",
		"https://example.com/.well-known/agent-card/CRITIC":      "@critic@example.com",
		"https://www.example.com/.well-known/agent-card/critic":  "@critic@example.com",
		"https://elsewhere.example/.well-known/agent-card/clerk": "@clerk@bots.example.com",
		"https://evil.example/.well-known/agent-card/critic":     "",
		"https://bots.example.com/.well-known/agent-card/nobody": "",
		"https://bots.example.com/.well-known/agent-card/":       "",
		"https://bots.example.com/.well-known/agent-card/a/b":    "",
		"https://bots.example.com/.well-known/other":             "",
	} {
		got := look(d, at)
		if a := gjson.GetBytes(got.Body.Bytes(), "address").Str; a != want || (got.Code == http.StatusOK) != (want != "") || want == "" && got.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s, want %q", at, got.Code, got.Body, want)
		}
	}
	got := look(d, "https://bots.example.com/.well-known/agent-card/clerk")
	const want = `{"address":"@clerk@bots.example.com","name":"agent2","version":"1.2.3","protocol_version":"0.1",` +
		`"a2a":{"endpoint":"https://bots.example.com/a2a/agent2","transport":"https+jsonrpc","capabilities":{"streaming":true,"extensions":[{"uri":"https://ext.example/v1"}]},` +
		`"skills":[{"id":"agent2","name":"agent2","input_modes":["text/plain"],"output_modes":["text/plain"]}],"input_modes":["text/plain"],"output_modes":["text/plain"],"auth":{"schemes":["bearer"]}},` +
		`"mentionable":{"supported_inbound":["a2a"]}}`
	if diff := cmp.Diff(want, got.Body.String()); diff != "" || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNewDirectoryRefuses(t *testing.T) {
	t.Parallel()
	a := a2a.Published{Address: address(t, "@a@b.c"), Agent: "a"}
	for name, c := range map[string]a2a.DirectoryConfig{
		"one address twice": {Agents: []a2a.Published{a, {Address: address(t, "@A@b.c"), Agent: "b"}}},
		"no address":        {Agents: []a2a.Published{{Agent: "a"}}},
		"no URL":            {PublicURL: "bus", Agents: []a2a.Published{a}},
	} {
		if _, err := a2a.NewDirectory(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// C35, C36: what a bus publishes, another one resolves.
func TestWhatIsServedResolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := directory(t, "", "@Critic@example.com", "@critic@bots.example.com")
	w.mux.Handle("/.well-known/", d)
	r := w.resolver(t, a2a.ResolverConfig{Domains: []string{"example.com", "bots.example.com"}})
	for a, want := range map[string]string{"@critic@example.com": "https://example.com/a2a/agent0", "@CRITIC@bots.example.com": "https://bots.example.com/a2a/agent1"} {
		got, err := r.Resolve(t.Context(), address(t, a))
		if err != nil || got.Endpoint.String() != want {
			t.Errorf("%s: %v, %v, want %s", a, got.Endpoint, err, want)
		}
	}
	_, err := r.Resolve(t.Context(), address(t, "@nobody@example.com"))
	if agentbus.CodeOf(err) != agentbus.CodeAgentNotFound {
		t.Errorf("nobody: %v", err)
	}
}

// C36: no question makes a directory fail, or answer with what is no JSON.
func FuzzDirectory(f *testing.F) {
	c := a2a.DirectoryConfig{Agents: []a2a.Published{{Agent: "critic"}}}
	c.Agents[0].Address, _ = agentbus.ParseAddress("@critic@bots.example.com")
	d, err := a2a.NewDirectory(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/.well-known/webfinger", "resource=acct:critic@bots.example.com", "bots.example.com")
	f.Add("/.well-known/agent-card/critic", "", "x.bots.example.com:1")
	f.Add("/.well-known/agent-card/critic", "", "evil.example/.bots.example.com:80@x")
	f.Add("/.well-known/agent-card/../critic", "resource=%", "[::1]:80")
	f.Fuzz(func(t *testing.T, path, query, host string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Host: host, Header: http.Header{}}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 400 && w.Code != 404 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if endpoint := gjson.GetBytes(w.Body.Bytes(), "a2a.endpoint").Str; endpoint != "" {
			if u, err := url.Parse(endpoint); err != nil || "."+u.Hostname() != ".bots.example.com" && !strings.HasSuffix(u.Hostname(), ".bots.example.com") || u.User != nil {
				t.Errorf("%s leads to %s", host, endpoint)
			}
		}
	})
}
