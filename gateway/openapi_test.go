package gateway_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/openapi"
)

var registered = regexp.MustCompile(`g\.mux\.Handle(?:Func)?\("([A-Z]+ /[^"]*)"`)

// Every route is in the document, and the document names nothing else but the
// agents' own APIs.
func TestDocumentNamesEveryRoute(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range registered.FindAllStringSubmatch(string(src), -1) {
			served = append(served, strings.ReplaceAll(m[1], "...}", "}"))
		}
	}
	slices.Sort(served)
	documented := slices.DeleteFunc(openapi.Read(t, "openapi.json").Operations(t), func(op string) bool {
		return strings.Contains(op, " /agents/{name}/") || strings.Contains(op, " /a2a/{name}")
	})
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("routes (-served +documented):\n%s", diff)
	}
}

// What each route answers is what the document says.
func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	d, b := openapi.Read(t, "openapi.json"), newBus(t, func(c *gateway.Config) { c.Version, c.Directory = "1", listed(t) }, newAgent(t, "critic", nil))
	check := func(method, pattern string, got answer, status int) {
		t.Helper()
		if got.status != status {
			t.Errorf("%s %s: %v, want %d", method, pattern, got, status)
		}
		d.Check(t, method, pattern, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
	}
	for _, path := range []string{"/healthz", "/readyz", "/version", "/openapi.json", "/v1/models"} {
		check(http.MethodGet, path, b.send(http.MethodGet, path, "", asAlice), http.StatusOK)
	}
	degraded := newBus(t, func(c *gateway.Config) { c.Degraded = func() []string { return []string{"a fault"} } })
	check(http.MethodGet, "/readyz", degraded.send(http.MethodGet, "/readyz", ""), http.StatusOK) // G30
	const webfinger = "/.well-known/webfinger"
	check(http.MethodGet, webfinger, b.send(http.MethodGet, webfinger+"?resource=acct:critic@bots.example.com", ""), http.StatusOK)
	check(http.MethodGet, webfinger, b.send(http.MethodGet, webfinger, ""), http.StatusBadRequest)
	check(http.MethodGet, "/.well-known/agent-card/{local}", b.send(http.MethodGet, "/.well-known/agent-card/critic", ""), http.StatusOK)
	check(http.MethodGet, "/.well-known/agent-card/{local}", b.send(http.MethodGet, "/.well-known/agent-card/nobody", ""), http.StatusNotFound)
	check(http.MethodGet, "/v1/models/{id}", b.send(http.MethodGet, "/v1/models/agent/critic", "", asAlice), http.StatusOK)
	check(http.MethodGet, "/v1/models/{id}", b.send(http.MethodGet, "/v1/models/nobody", "", asAlice), http.StatusNotFound)
	check(http.MethodGet, "/v1/models", b.send(http.MethodGet, "/v1/models", ""), http.StatusUnauthorized)
	check(http.MethodPost, "/v1/chat/completions", b.call("critic"), http.StatusOK)
	check(http.MethodPost, "/v1/chat/completions", b.stream("critic"), http.StatusOK)
	check(http.MethodPost, "/v1/chat/completions", b.call("critic", "x-tangle-forwarded-depth: 4", "x-tangle-runid: r", "x-tangle-turnid: r.t0.x"), http.StatusTooManyRequests)
	check(http.MethodPost, "/v1/responses", b.send(http.MethodPost, "/v1/responses", "{", asAlice), http.StatusBadRequest)
	check(http.MethodPost, "/agents/{name}/{path}", b.send(http.MethodPost, "/agents/critic/chat/completions", ask("critic"), asAlice), http.StatusOK)
	check(http.MethodGet, "/agents/{name}/{path}", b.send(http.MethodGet, "/agents/nobody/x", "", asAlice), http.StatusNotFound)
}

// P2, P3, P4, P7: the headers of a call have the grammar that the document says.
func TestDocumentedHeaders(t *testing.T) {
	t.Parallel()
	var d struct {
		Components struct {
			Parameters map[string]struct {
				Name, In string
				Schema   struct{ Pattern string }
			}
		}
	}
	file, err := os.ReadFile("openapi.json")
	if err == nil {
		err = json.Unmarshal(file, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := newBus(t, nil, newAgent(t, "critic", nil))
	for _, p := range d.Components.Parameters {
		grammar := regexp.MustCompile(p.Schema.Pattern)
		for _, value := range []string{"", "0", "a", "~!#+-.", "a b", "a,b", `a"b`, "-1", "123456789", "1234567890", strings.Repeat("x", 512), strings.Repeat("x", 513)} {
			headers := []string{p.Name + ": " + value}
			if strings.HasSuffix(p.Name, "turnid") {
				headers = append(headers, "x-tangle-runid: of-"+p.Name)
			}
			if got := b.call("critic", headers...); (got.status != http.StatusBadRequest) != grammar.MatchString(value) {
				t.Errorf("%s: %.20q of %d bytes is answered %v, and documented as %s", p.Name, value, len(value), got, p.Schema.Pattern)
			}
		}
	}
}
