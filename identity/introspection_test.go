package identity_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// An endpoint answers questions about tokens.
type endpoint struct {
	t      *testing.T
	url    string
	mu     sync.Mutex
	answer func(w http.ResponseWriter, token string)
	asked  []string
}

// newEndpoint starts an endpoint that answers so.
func newEndpoint(t *testing.T, answer func(w http.ResponseWriter, token string)) *endpoint {
	t.Helper()
	e := &endpoint{t: t, answer: answer}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	e.url = srv.URL
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id != "bus" || secret != "s%2Fcret" || r.Method != http.MethodPost || r.FormValue("token_type_hint") != "access_token" {
		e.t.Errorf("asked by %q with %q: %s %v", id, secret, r.Method, r.Form)
	}
	e.mu.Lock()
	e.asked = append(e.asked, r.FormValue("token"))
	answer := e.answer
	e.mu.Unlock()
	answer(w, r.FormValue("token"))
}

// RoundTrip reaches the endpoint in memory.
func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Result(), nil
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

// asks returns an identifier that asks the endpoint.
func (e *endpoint) asks(change func(*identity.IntrospectionConfig)) *identity.Introspection {
	e.t.Helper()
	c := identity.IntrospectionConfig{
		Realm: identity.Realm{Name: "x402", InterAgent: []string{"relay"}}, URL: e.url, ClientID: "bus",
		ClientSecret: agentbus.NewCredential("s/cret"), Prefixes: []string{"x402_", "ag_"},
	}
	if change != nil {
		change(&c)
	}
	i, err := identity.NewIntrospection(c)
	if err != nil {
		e.t.Fatal(err)
	}
	return i
}

func bearer(token string) agentbus.Credential { return agentbus.NewCredential("Bearer " + token) }

func says(answer any) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) { _ = json.NewEncoder(w).Encode(answer) }
}

// TestIntrospection: G4, the payer is whom the endpoint names, and nobody else
// is when it does not answer as it should.
func TestIntrospection(t *testing.T) {
	t.Parallel()
	type answer = map[string]any
	thief := newEndpoint(t, says(answer{"active": true, "sub": "thief"}))
	status := func(n int) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, _ string) {
			w.WriteHeader(n)
			_, _ = io.WriteString(w, `{"active":true,"sub":"alice"}`)
		}
	}
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	claim := func(c *identity.IntrospectionConfig) {
		c.Claims, c.Audience = identity.Claims{Subject: "payer", Role: "role", Admin: "operator"}, "agentbus"
	}
	for name, c := range map[string]struct {
		answer   func(http.ResponseWriter, string)
		change   func(*identity.IntrospectionConfig)
		who, why string
	}{
		"sub":            {says(answer{"active": true, "sub": "alice", "username": "al"}), nil, "x402:alice user false", ""},
		"username":       {says(answer{"active": true, "username": "al"}), nil, "x402:al user false", ""},
		"any prefix":     {says(answer{"active": true, "sub": "alice"}), func(c *identity.IntrospectionConfig) { c.Prefixes = nil }, "x402:alice user false", ""},
		"inter-agent":    {says(answer{"active": true, "sub": "relay"}), nil, "x402:relay user true", ""}, // P20
		"configured":     {says(answer{"active": true, "sub": "a", "payer": "b", "aud": []string{"agentbus"}, "role": "operator"}), claim, "x402:b admin false", ""},
		"no claim":       {says(answer{"active": true, "sub": "a", "aud": "agentbus"}), claim, "", "bad_subject"},
		"other aud":      {says(answer{"active": true, "payer": "a", "aud": "x"}), claim, "", "wrong_audience"},
		"not yet ended":  {says(answer{"active": true, "sub": "a", "exp": in(time.Hour), "nbf": in(-time.Hour)}), nil, "x402:a user false", ""},
		"inactive":       {says(answer{"active": false, "sub": "a"}), nil, "", "inactive"},
		"ended":          {says(answer{"active": true, "sub": "a", "exp": in(-time.Second)}), nil, "", "expired"},
		"not begun":      {says(answer{"active": true, "sub": "a", "nbf": in(time.Hour)}), nil, "", "not_yet_valid"},
		"nobody":         {says(answer{"active": true}), nil, "", "bad_subject"},
		"bad name":       {says(answer{"active": true, "sub": "a\nb"}), nil, "", "bad_subject"},
		"active as text": {says(answer{"active": "true", "sub": "a"}), nil, "", "identity_unavailable"},
		"no word":        {says(answer{"sub": "a"}), nil, "", "identity_unavailable"},
		"null":           {says(nil), nil, "", "identity_unavailable"},
		"garbage":        {func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, "<html>") }, nil, "", "identity_unavailable"},
		"huge":           {says(answer{"active": true, "sub": "a", "more": strings.Repeat("a", 1<<20)}), nil, "", "identity_unavailable"},
		"we are unknown": {status(http.StatusUnauthorized), nil, "", "identity_unavailable"},
		"broken":         {status(http.StatusInternalServerError), nil, "", "identity_unavailable"},
		"created":        {status(http.StatusCreated), nil, "", "identity_unavailable"},
		"redirect": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", thief.url)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, nil, "", "identity_unavailable"}, // P23
	} {
		e := newEndpoint(t, c.answer)
		p, err := e.asks(c.change).Identify(t.Context(), bearer("x402_canary"))
		who := fmt.Sprint(p.ID, " ", p.Role, " ", p.InterAgent)
		if err != nil {
			who = ""
		}
		if who != c.who || reasonOf(err) != c.why {
			t.Errorf("%s: %q, %v; want %q, %q", name, who, err, c.who, c.why)
		}
		if err != nil && strings.Contains(err.Error(), "canary") { // P19
			t.Errorf("%s: the error tells the token: %v", name, err)
		}
		if diff := cmp.Diff([]string{"x402_canary"}, e.asked); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", name, diff)
		}
	}
	if n := thief.count(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// TestIntrospectionIsNotAsked: G4, about credentials of another kind.
func TestIntrospectionIsNotAsked(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, says(nil))
	i := e.asks(nil)
	for _, c := range []agentbus.Credential{{}, bearer("sk-1"), bearer("X402_1"), bearer(" "), agentbus.NewCredential("Basic x402_1"), agentbus.NewCredential("x402_1")} {
		if _, err := i.Identify(t.Context(), c); !isNotMine(err) {
			t.Errorf("%q: %v", c.Reveal(), err)
		}
	}
	if n := e.count(); n != 0 {
		t.Errorf("the endpoint was asked %d times", n)
	}
}

// TestIntrospectionIsDown: G4, an endpoint that is gone, or too slow, is 503 and
// retryable, never 401; what it said before counts on.
func TestIntrospectionIsDown(t *testing.T) {
	t.Parallel()
	enough := make(chan struct{})
	e := newEndpoint(t, func(w http.ResponseWriter, token string) {
		if token == "x402_slow" {
			<-enough
		}
		says(map[string]any{"active": true, "sub": token})(w, token)
	})
	t.Cleanup(func() { close(enough) })
	var log bytes.Buffer
	i := e.asks(func(c *identity.IntrospectionConfig) {
		c.Timeout, c.Logger = 50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	if _, err := i.Identify(t.Context(), bearer("x402_slow")); reasonOf(err) != "identity_unavailable" || !agentbus.CodeOf(err).Retryable() || agentbus.CodeOf(err).Status() != http.StatusServiceUnavailable {
		t.Errorf("slow: %v", err)
	}
	gone := e.asks(func(c *identity.IntrospectionConfig) { c.URL = "http://127.0.0.1:1/" })
	if _, err := gone.Identify(t.Context(), bearer("x402_canary")); reasonOf(err) != "identity_unavailable" || strings.Contains(err.Error(), "canary") {
		t.Errorf("gone: %v", err)
	}
	if s := log.String(); !strings.Contains(s, "introspection") || strings.Contains(s, "x402_slow") || strings.Contains(s, "cret") {
		t.Errorf("the log says %s", s)
	}
}

// TestIntrospectionIsRemembered: G4, an answer counts until the token ends or
// its time is over, whichever is first; a refusal for five seconds.
func TestIntrospectionIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{t: t, url: "https://issuer.example/introspect"}
		down := false
		e.answer = func(w http.ResponseWriter, token string) {
			switch {
			case down:
				w.WriteHeader(http.StatusBadGateway)
			case token == "x402_short":
				says(map[string]any{"active": true, "sub": "a", "exp": time.Now().Add(10 * time.Second).Unix()})(w, token)
			default:
				says(map[string]any{"active": token != "x402_bad", "sub": "a"})(w, token)
			}
		}
		i := e.asks(func(c *identity.IntrospectionConfig) { c.Transport, c.TTL, c.Cache = e, time.Minute, 4 })
		check := func(when, token, reason string, asked int) {
			t.Helper()
			if _, err := i.Identify(t.Context(), bearer(token)); reasonOf(err) != reason || e.count() != asked {
				t.Errorf("%s: %v after %d questions, want %q after %d", when, err, e.count(), reason, asked)
			}
		}
		check("first", "x402_good", "", 1)
		check("again", "x402_good", "", 1)
		check("short", "x402_short", "", 2)
		check("bad", "x402_bad", "inactive", 3)
		check("bad again", "x402_bad", "inactive", 3)
		<-time.After(6 * time.Second)
		check("bad, later", "x402_bad", "inactive", 4)
		check("short, before its end", "x402_short", "", 4)
		down = true
		<-time.After(5 * time.Second)
		check("short, at its end", "x402_short", "identity_unavailable", 5) // never accepted past it
		check("good, while the endpoint is down", "x402_good", "", 5)
		<-time.After(time.Minute)
		check("good, past its time", "x402_good", "identity_unavailable", 6)
		down = false
		check("good, when it is back", "x402_good", "", 7)
		for n := range 20 {
			check("refusals do not push it out", "x402_bad", "inactive", 8)
			_, _ = i.Identify(t.Context(), bearer(fmt.Sprint("other", n)))
		}
		check("good still", "x402_good", "", 8)
		for n := range 4 { // as many as are remembered
			check("others", fmt.Sprint("x402_", n), "", 9+n)
		}
		check("good, pushed out", "x402_good", "", 13)
	})
}

// TestOneQuestion: G4, many with one token cause one question; too many
// questions at once are refused, and can be asked again.
func TestOneQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{t: t, url: "https://issuer.example/introspect"}
		e.answer = func(w http.ResponseWriter, token string) {
			<-time.After(time.Second)
			says(map[string]any{"active": true, "sub": "a"})(w, token)
		}
		i := e.asks(func(c *identity.IntrospectionConfig) { c.Transport = e })
		ask := func(n int, token func(int) string) map[string]int {
			var mu sync.Mutex
			var all sync.WaitGroup
			got := map[string]int{}
			for k := range n {
				all.Go(func() {
					_, err := i.Identify(t.Context(), bearer(token(k)))
					mu.Lock()
					defer mu.Unlock()
					got[reasonOf(err)]++
				})
			}
			all.Wait()
			return got
		}
		if diff := cmp.Diff(map[string]int{"": 200}, ask(200, func(int) string { return "ag_one" })); diff != "" || e.count() != 1 {
			t.Errorf("one token: asked %d times (-want +got):\n%s", e.count(), diff)
		}
		if diff := cmp.Diff(map[string]int{"": 64, "overloaded": 36}, ask(100, func(n int) string { return fmt.Sprint("ag_", n) })); diff != "" {
			t.Errorf("many tokens (-want +got):\n%s", diff)
		}
	})
}

// TestNewIntrospection: what cannot be safe is refused at the start.
func TestNewIntrospection(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*identity.IntrospectionConfig){
		"plain HTTP":   func(c *identity.IntrospectionConfig) { c.URL = "http://id.example.com/" },
		"no secret":    func(c *identity.IntrospectionConfig) { c.ClientSecret = agentbus.Credential{} },
		"no client":    func(c *identity.IntrospectionConfig) { c.ClientID = "" },
		"empty prefix": func(c *identity.IntrospectionConfig) { c.Prefixes = []string{""} },
		"no name":      func(c *identity.IntrospectionConfig) { c.Realm.Name = "" },
		"no cache":     func(c *identity.IntrospectionConfig) { c.Cache = -1 },
	} {
		c := identity.IntrospectionConfig{
			Realm: identity.Realm{Name: "x"}, URL: "https://id.example.com/", ClientID: "bus", ClientSecret: bearer("s"), Prefixes: []string{"x_"},
		}
		change(&c)
		if _, err := identity.NewIntrospection(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
