package a2a_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// C35: the way from an address to an agent, as it is meant to be.
func TestResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mux.HandleFunc("GET example.com/.well-known/webfinger", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "resource=acct:CRITIC@example.com" || r.Header.Get("Accept") != "application/jrd+json, application/json" {
			t.Errorf("asked %s for %s", r.URL.RawQuery, r.Header.Get("Accept"))
		}
		rw.Header().Set("Content-Type", "application/jrd+json")
		_, _ = rw.Write([]byte(criticJRD))
	})
	w.answer("GET example.com/card", "application/json", cardOf("@Critic@example.com", "https://bots.example.com/a2a"))
	got, err := w.resolver(t, a2a.ResolverConfig{}).Resolve(t.Context(), address(t, "@CRITIC@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Address.String() != "@Critic@example.com" || got.Endpoint.String() != "https://bots.example.com/a2a" || got.Transport != a2a.TransportJSONRPC || got.Card.Name != "Critic" || !got.Card.A2A.Capabilities.Streaming {
		t.Errorf("%+v", got)
	}
}

// C35, X31: what an address may not lead to. Each row changes one thing.
func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	const good = "@critic@example.com"
	card := cardOf(good, "https://example.com/a2a")
	link := func(rel, kind, href string) string {
		return `{"subject":"acct:critic@example.com","links":[{"rel":"` + rel + `","type":"` + kind + `","href":"` + href + `"}]}`
	}
	rel, legacy := "https://mentionable.dev/ns/rel/agent-card", "https://mentionable.dev/agent-card"
	tests := []struct {
		name, jrd, card string
		want            agentbus.Code
	}{
		{"as it is meant", criticJRD, card, ""},
		{"legacy relation", link(legacy, "application/json", "https://example.com/card"), card, ""},
		{"both, the legacy one elsewhere", `{"subject":"acct:critic@example.com","links":[{"rel":"` + legacy + `","type":"application/json","href":"https://10.0.0.1/"},{"rel":"` + rel + `","type":"application/json","href":"https://example.com/card"}]}`, card, ""},
		{"card on another host", link(rel, "application/json", "https://cards.example.com/card"), card, ""},

		{"another subject", strings.Replace(criticJRD, "acct:critic@", "acct:clerk@", 1), card, agentbus.CodeForbidden},
		{"subject of another domain", strings.Replace(criticJRD, "critic@example.com", "critic@evil.example", 1), card, agentbus.CodeForbidden},
		{"subject in another form", strings.Replace(criticJRD, "acct:critic@", "@critic@", 1), card, agentbus.CodeForbidden},
		{"no subject", `{"links":[]}`, card, agentbus.CodeForbidden},
		{"no link", `{"subject":"acct:critic@example.com"}`, card, agentbus.CodeAgentNotFound},
		{"another type", link(rel, "text/html", "https://example.com/card"), card, agentbus.CodeAgentNotFound},
		{"another relation", link("self", "application/json", "https://example.com/card"), card, agentbus.CodeAgentNotFound},
		{"relative link", link(rel, "application/json", "/card"), card, agentbus.CodeAgentUnavailable},
		{"no descriptor", `["x"]`, card, agentbus.CodeAgentUnavailable},
		{"card at the metadata service", link(rel, "application/json", "https://169.254.169.254/card"), card, agentbus.CodeForbidden},
		{"card inside", link(rel, "application/json", "https://inside.example.com/card"), card, agentbus.CodeForbidden},
		{"card over plain HTTP", link(rel, "application/json", "http://example.com/card"), card, agentbus.CodeForbidden},
		{"card in a file", link(rel, "application/json", "file:///etc/passwd"), card, agentbus.CodeForbidden},

		{"card of another address", criticJRD, cardOf("@clerk@example.com", "https://example.com/a2a"), agentbus.CodeForbidden},
		{"card of another domain", criticJRD, cardOf("@critic@evil.example", "https://example.com/a2a"), agentbus.CodeForbidden},
		{"card of nobody", criticJRD, `{}`, agentbus.CodeForbidden},
		{"no card", criticJRD, `"x"`, agentbus.CodeAgentUnavailable},
		{"address is no address", criticJRD, cardOf("critic", "https://example.com/a2a"), agentbus.CodeAgentUnavailable},
		{"endpoint elsewhere", criticJRD, cardOf(good, "https://evil.example/a2a"), agentbus.CodeForbidden},
		{"endpoint on a domain that ends the same", criticJRD, cardOf(good, "https://evilexample.com/a2a"), agentbus.CodeForbidden},
		{"endpoint above", criticJRD, cardOf(good, "https://com/a2a"), agentbus.CodeForbidden},
		{"endpoint with the domain as user", criticJRD, cardOf(good, "https://example.com@evil.example/a2a"), agentbus.CodeForbidden},
		{"endpoint with a user", criticJRD, cardOf(good, "https://u:p@example.com/a2a"), agentbus.CodeForbidden},
		{"endpoint over plain HTTP", criticJRD, cardOf(good, "http://example.com/a2a"), agentbus.CodeForbidden},
		{"endpoint at a port", criticJRD, cardOf(good, "https://example.com:22/a2a"), agentbus.CodeForbidden},
		{"endpoint is no URL", criticJRD, cardOf(good, "a2a"), agentbus.CodeAgentUnavailable},
		{"another transport", criticJRD, strings.Replace(card, "https+jsonrpc", "carrier-pigeon", 1), agentbus.CodeAgentUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.names["inside.example.com"] = [][]string{{"10.0.0.1"}}
			w.answer("/.well-known/webfinger", "application/jrd+json", tt.jrd)
			w.answer("/card", "application/json", tt.card)
			got, err := w.resolver(t, a2a.ResolverConfig{}).Resolve(t.Context(), address(t, good))
			if agentbus.CodeOf(err) != tt.want || (got.Endpoint != nil) != (tt.want == "") {
				t.Errorf("%v, %v, want %q", got.Endpoint, err, tt.want)
			}
			if err != nil && strings.Contains(agentbus.AsError(err).Message, "@") { // X32
				t.Errorf("%v names somebody", err)
			}
			for _, to := range w.dialed {
				if to != somewhere+":443" {
					t.Errorf("dialed %s", to)
				}
			}
		})
	}
}

// C35: nobody is asked about a domain that is not listed.
func TestOnlyListedDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.resolver(t, a2a.ResolverConfig{Domains: []string{"bots.example.com"}})
	for _, a := range []string{"@critic@example.com", "@critic@sub.bots.example.com", "@critic@evil.example"} {
		if _, err := r.Resolve(t.Context(), address(t, a)); agentbus.CodeOf(err) != agentbus.CodeAgentNotFound || r.Knows(address(t, a)) {
			t.Errorf("%s: %v", a, err)
		}
	}
	if _, err := r.Resolve(t.Context(), agentbus.Address{}); agentbus.CodeOf(err) != agentbus.CodeAgentNotFound {
		t.Error(err)
	}
	if lookups, dialed := w.asked(); len(lookups)+len(dialed) > 0 {
		t.Errorf("looked up %v, dialed %v", lookups, dialed)
	}
	for _, domain := range []string{"", "localhost", "Example.com", "example.com.", "*.example.com", "bücher.example", "10.0.0.1"} {
		if _, err := a2a.NewResolver(a2a.ResolverConfig{Dialer: w.dialer(t), Domains: []string{domain}}); err == nil {
			t.Errorf("%q was taken", domain)
		}
	}
	if _, err := a2a.NewResolver(a2a.ResolverConfig{}); err == nil {
		t.Error("a resolver without a dialer was made")
	}
}

// C35: an answer counts for 300 seconds and no longer, a failure for 10; who
// asks at once asks together.
func TestResolvedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked atomic.Int32
	w.mux.HandleFunc("example.com/.well-known/webfinger", func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		rw.Header().Set("Content-Type", "application/jrd+json")
		if strings.Contains(r.URL.RawQuery, "critic") {
			_, _ = rw.Write([]byte(criticJRD))
		}
	})
	w.answer("example.com/card", "application/json", cardOf("@critic@example.com", "https://example.com/a2a"))
	now := time.Unix(1_700_000_000, 0)
	r := w.resolver(t, a2a.ResolverConfig{Now: func() time.Time { return now }})
	resolve := func(a string) {
		t.Helper()
		_, err := r.Resolve(t.Context(), address(t, a))
		if (err == nil) != strings.Contains(strings.ToLower(a), "critic") {
			t.Errorf("%s: %v", a, err)
		}
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { resolve("@critic@example.com") })
	}
	all.Wait()
	var counts []int32
	count := func() { counts = append(counts, asked.Load()) }
	count() // 1
	resolve("@Critic@example.com")
	now = now.Add(299 * time.Second)
	resolve("acct:critic@example.com")
	count() // 1
	now = now.Add(time.Second)
	resolve("@critic@example.com")
	count() // 2
	resolve("@clerk@example.com")
	now = now.Add(9 * time.Second)
	resolve("@clerk@example.com")
	count() // 3
	now = now.Add(time.Second)
	resolve("@clerk@example.com")
	count() // 4
	if want := []int32{1, 1, 2, 3, 4}; !cmp.Equal(counts, want) {
		t.Errorf("asked %v times, want %v", counts, want)
	}
}

// C33: on a private network the WebFinger of a domain is asked where allow_hosts
// says, over plain HTTP when it says so.
func TestResolveOnAPrivateNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := serve(t, w.mux)
	w.names["bots.example.com"] = [][]string{{"127.0.0.1"}}
	w.answer("/.well-known/webfinger", "application/jrd+json", `{"subject":"acct:critic@bots.localhost","links":[{"rel":"https://mentionable.dev/ns/rel/agent-card","type":"application/json","href":"http://`+plain+`/card"}]}`)
	w.answer("/card", "application/json", cardOf("@critic@bots.localhost", "http://"+plain+"/a2a"))
	d, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: []string{"http://" + plain}}) // the system's resolver, real connections
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.resolver(t, a2a.ResolverConfig{Dialer: d, Domains: []string{"bots.localhost"}}).Resolve(t.Context(), address(t, "@critic@bots.localhost"))
	if err != nil || got.Endpoint.String() != "http://"+plain+"/a2a" {
		t.Errorf("%v, %v", got.Endpoint, err)
	}
}
