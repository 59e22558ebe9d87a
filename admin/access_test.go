package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// paths fills in the variables of a pattern.
var paths = strings.NewReplacer("{run}", "run_a", "{id}", "7", "{name}", "critic", "{handle}", "ab_none")

// Deny by default: every route of the table, and what is in no table, for every
// kind of caller.
func TestWhoMayWhat(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.api.Forget("GET /admin/v1/forgotten")
	callers := []struct {
		name, key string
		code      agentbus.Code // "": let in
	}{
		{"nobody", "", agentbus.CodeUnauthenticated},
		{"wrong key", "secret-of-nobody", agentbus.CodeUnauthenticated},
		{"user", userKey, agentbus.CodeForbidden},
		{"inter-agent user", interKey, agentbus.CodeForbidden},
		{"admin", adminKey, ""},
		{"token", tokenKey, ""},
	}
	check := func(pattern string, admins agentbus.Code) {
		method, path, _ := strings.Cut(paths.Replace(pattern), " ")
		if path == "/debug/pprof/profile" || path == "/debug/pprof/trace" {
			path += "?seconds=1"
		}
		for _, c := range callers {
			want := c.code
			if want == "" {
				if want = admins; admins == "" && strings.HasPrefix(path, "/debug/pprof/") && c.name == "token" {
					continue // it takes a second
				}
			}
			got := b.request(method, path, c.key, "")
			refused := got.code() == agentbus.CodeUnauthenticated || got.code() == agentbus.CodeForbidden
			if want != "" && got.code() != want || want == "" && refused {
				t.Errorf("%s as %s: %d %s, want %q", pattern, c.name, got.status, got.body, want)
			}
			if got.status == http.StatusUnauthorized && got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s as %s: no WWW-Authenticate", pattern, c.name)
			}
			if strings.Contains(got.body, "secret-of") || got.header.Get("X-Request-Id") == "" || got.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s as %s: %v %s", pattern, c.name, got.header, got.body)
			}
		}
	}
	for _, pattern := range b.api.Patterns() {
		check(pattern, "")
	}
	check("GET /admin/v1/forgotten", agentbus.CodeForbidden) // nobody is named, so nobody is let in
	for _, pattern := range []string{"GET /admin/v1", "GET /admin/v1/nothing", "POST /admin/v1/runs/run_a/nothing"} {
		check(pattern, agentbus.CodeNotFound)
	}
	for pattern, allowed := range map[string]string{
		"PUT /admin/v1/keys": "GET, HEAD, POST", "OPTIONS /admin/v1/keys": "GET, HEAD, POST", "GET /admin/v1/runs/run_a/stop": "POST",
		"POST /admin/v1/runs": "GET, HEAD", "TRACE /metrics": "GET, HEAD",
	} {
		check(pattern, agentbus.CodeInvalidRequest)
		method, path, _ := strings.Cut(pattern, " ")
		if got := b.request(method, path, adminKey, ""); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != allowed || !strings.Contains(got.body, `"status":405`) {
			t.Errorf("%s: %d, Allow %q, %s", pattern, got.status, got.header.Get("Allow"), got.body)
		}
	}
}

func TestNothingIsServedThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *admin.Config) { c.Metrics, c.Profile, c.Token = nil, false, agentbus.Credential{} })
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		if got := b.get(path); got.code() != agentbus.CodeNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := b.request("GET", "/admin/v1/status", tokenKey, ""); got.status != http.StatusUnauthorized {
		t.Errorf("a token where there is none: %d %s", got.status, got.body)
	}
	if _, err := admin.New(admin.Config{}); err == nil {
		t.Error("an API was made of nothing")
	}
}

// A page of another origin, or whose name was made to point here, does nothing,
// whatever it sends.
func TestPagesOfOthers(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	host := strings.TrimPrefix(b.url, "http://")
	_, port, _ := strings.Cut(host, ":")
	for _, c := range []struct {
		name, method string
		header       []string
		refused      bool
	}{
		{"a program", "POST", nil, false},
		{"its own page", "POST", []string{"Sec-Fetch-Site", "same-origin", "Origin", b.url}, false},
		{"another site", "POST", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"another port", "POST", []string{"Sec-Fetch-Site", "same-site"}, true},
		{"another origin, of an old browser", "POST", []string{"Origin", "http://evil.example"}, true},
		{"no origin that can be named", "POST", []string{"Origin", "null"}, true},
		{"another site deletes", "DELETE", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"localhost", "GET", []string{"Host", "localhost:" + port}, false},
		{"loopback of version 6", "GET", []string{"Host", "[::1]:" + port}, false},
		{"a name that was bound anew", "GET", []string{"Host", "evil.example:" + port}, true},
		{"and without a port", "POST", []string{"Host", "evil.example"}, true},
		{"a name that looks like it", "GET", []string{"Host", "127.0.0.1.evil.example"}, true},
		{"two credentials", "GET", []string{"Authorization", "Bearer x"}, false},
	} {
		path := map[string]string{"POST": "/admin/v1/ledger/verify", "DELETE": "/admin/v1/keys/ab_none", "GET": "/admin/v1/status"}[c.method]
		got := b.request(c.method, path, adminKey, "", c.header...)
		if (got.code() == agentbus.CodeForbidden) != c.refused {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		if c.name == "two credentials" && got.code() != agentbus.CodeDuplicateHeader {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
	}
}

// A browser sends cookies and passwords by itself: neither is a credential.
func TestOnlyABearerIsACredential(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	for _, header := range [][]string{
		{"Cookie", "authorization=" + adminKey},
		{"Authorization", "Basic b3BzOnNlY3JldC1vZi1vcHM="},
		{"Authorization", adminKey},
		{agentbus.HeaderForwardedAuthorization, "Bearer " + adminKey},
	} {
		if got := b.request("GET", "/admin/v1/status", "", "", header...); got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", header, got.status, got.body)
		}
	}
	if got := b.request("GET", "/admin/v1/status?access_token="+adminKey, "", ""); got.status != http.StatusUnauthorized {
		t.Errorf("in the query: %d", got.status)
	}
}
