package admin_test

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/internal/sse"
)

// form posts a form, or gets a page when there is none, with a cookie.
func (b *bus) form(path, cookie string, fields url.Values, more ...string) answer {
	b.t.Helper()
	method, body := http.MethodGet, ""
	if fields != nil {
		method, body = http.MethodPost, fields.Encode()
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	b.must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	resp, err := httpClient.Do(r)
	b.must(err)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	b.must(err)
	return answer{resp.StatusCode, resp.Header, string(got)}
}

// signIn signs in with a key and returns the cookie.
func (b *bus) signIn(key string) string {
	b.t.Helper()
	got := b.form("/console/signin", "", url.Values{"key": {key}})
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/console/runs" {
		b.t.Fatalf("sign in: %d %s", got.status, got.body)
	}
	cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	return cookie
}

// csrf is the token of the forms of a page.
func (a answer) csrf() string {
	m := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(a.body)
	if m == nil {
		return ""
	}
	return m[1]
}

// U1, U5: an admin signs in and out; a session is a cookie that scripts do not read and
// other sites do not send, good for pages alone, and over with the key.
func TestSignIn(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	if got := b.form("/console/runs?payer=a", "", nil); got.status != http.StatusSeeOther || got.header.Get("Location") != "/console/signin?next=%2Fconsole%2Fruns%3Fpayer%3Da" {
		t.Errorf("without a session: %d %v", got.status, got.header)
	}
	for key, status := range map[string]int{"": 401, "secret-of-nobody": 401, userKey: 403, interKey: 403} {
		if got := b.form("/console/signin", "", url.Values{"key": {key}}); got.status != status || got.header.Get("Set-Cookie") != "" || strings.Contains(got.body, "secret-of") {
			t.Errorf("%q: %d %v %s", key, got.status, got.header, got.body)
		}
	}
	for next, want := range map[string]string{"/console/runs?payer=a": "/console/runs?payer=a", "https://evil.example/console/": "/console/runs", "//evil.example/console/": "/console/runs", "/console/../x": "/console/runs", "/metrics": "/console/runs", `/\evil.example`: "/console/runs"} {
		if got := b.form("/console/signin", "", url.Values{"key": {tokenKey}, "next": {next}}); got.header.Get("Location") != want {
			t.Errorf("on to %q: %s", next, got.header.Get("Location"))
		}
	}
	got := b.form("/console/signin", "", url.Values{"key": {adminKey}}, "X-Forwarded-Proto", "https")
	for _, want := range []string{"; Path=/console", "; HttpOnly", "; SameSite=Strict", "; Secure", "; Max-Age=28800"} {
		if cookie := got.header.Get("Set-Cookie"); !strings.Contains(cookie, want) {
			t.Errorf("the cookie is %s", cookie)
		}
	}
	if got := b.form("/console/signin", "", url.Values{"key": {adminKey}}, "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden {
		t.Errorf("signed in by another site: %d", got.status)
	}
	cookie := b.signIn(adminKey)
	page := b.form("/console/runs", cookie, nil)
	if page.status != http.StatusOK || !strings.Contains(page.body, "ops") {
		t.Errorf("signed in: %d %s", page.status, page.body)
	}
	if got := b.form("/admin/v1/status", cookie, nil); got.status != http.StatusUnauthorized {
		t.Errorf("the API takes a cookie: %d", got.status)
	}
	if got := b.form("/console/signout", cookie, url.Values{}); got.status != http.StatusForbidden {
		t.Errorf("signed out without the token: %d", got.status)
	}
	if got := b.form("/console/signout", cookie, url.Values{"csrf": {page.csrf()}}); got.status != http.StatusSeeOther {
		t.Errorf("sign out: %d %s", got.status, got.body)
	}
	if got := b.form("/console/runs", cookie, nil); got.status != http.StatusSeeOther {
		t.Errorf("signed out: %d", got.status)
	}
	secret, key := identity.NewKey(agentbus.Principal{ID: "zoe", Role: agentbus.PrincipalAdmin}, time.Now())
	b.must(b.store.CreateKey(t.Context(), key))
	cookie = b.signIn(secret.Reveal())
	_, err := b.store.RevokeKey(t.Context(), "zoe")
	b.must(err)
	if got := b.form("/console/runs", cookie, nil); got.status != http.StatusSeeOther {
		t.Errorf("the key is revoked, the session goes on: %d", got.status)
	}
	for path, screen := range map[string]string{"/console/inbox/int_1": "%2Fconsole%2Finbox", "/console/signout": "%2Fconsole%2Fruns"} { // told in words of the page, with the way back
		got := b.form(path, cookie, url.Values{"csrf": {page.csrf()}})
		if got.status != http.StatusUnauthorized || !strings.Contains(got.body, "You are signed out") || !strings.Contains(got.body, `href="/console/signin?next=`+screen+`"`) {
			t.Errorf("POST %s: %d %s", path, got.status, got.body)
		}
	}
}

// Sessions are bounded: the oldest one ends.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	first := b.signIn(tokenKey)
	for range admin.MaxSessions {
		b.signIn(tokenKey)
	}
	if got := b.form("/console/runs", first, nil); got.status != http.StatusSeeOther {
		t.Errorf("the first session goes on: %d", got.status)
	}
}

// Every page is for admins; whoever is none learns nothing, and is asked to sign in
// or told.
func TestPagesAreForAdmins(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	for _, pattern := range b.api.Pages() {
		method, path, _ := strings.Cut(paths.Replace(pattern), " ")
		if path == "/{$}" || path == "/console/{$}" || strings.HasPrefix(path, "/console/signin") || strings.HasPrefix(path, "/console/assets/") {
			continue
		}
		if path == "/console/" {
			path += "nothing"
		}
		for key, status := range map[string]int{"": http.StatusSeeOther, userKey: http.StatusForbidden, "secret-of-nobody": http.StatusSeeOther} {
			if key != userKey && method != http.MethodGet {
				status = http.StatusUnauthorized
			}
			got := b.request(method, path, key, "")
			if got.status != status || strings.Contains(got.body, "run_b") {
				t.Errorf("%s as %q: %d %s", pattern, key, got.status, got.body)
			}
		}
	}
}

// U1: pages take nothing from elsewhere and run nothing that stands in them; assets
// never change under their names.
func TestPolicyOfPages(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *admin.Config) { c.Content = true })
	b.fill()
	cookie := b.signIn(adminKey)
	inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=|javascript:|https?://[^w]`)
	for _, path := range []string{"/console/signin", "/console/runs", "/console/runs/run_a?at=c1", "/console/runs/none", "/console/runs?limit=x"} {
		got := b.form(path, cookie, nil)
		policy := got.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'self'; ") || strings.Contains(policy, "unsafe") || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, got.header)
		}
		if found := inline.FindString(got.body); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		assets := regexp.MustCompile(`"(/console/assets/[^"]+)"`).FindAllStringSubmatch(got.body, -1)
		if len(assets) < 3 {
			t.Errorf("%s names assets %v", path, assets)
		}
		for _, a := range assets {
			if got := b.form(a[1], "", nil); got.status != http.StatusOK || !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %d %v", a[1], got.status, got.header)
			}
		}
	}
	if got := b.form("/console/assets/console.css", cookie, nil); got.status != http.StatusNotFound {
		t.Errorf("an asset without its hash: %d", got.status)
	}
}

// U10: the runs are those of the API, with its numbers; filters and order stand in the
// URL; who finds nothing is told what to type.
func TestRunsPage(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *admin.Config) { c.MaxDepth = func() int { return 4 } })
	cookie := b.signIn(adminKey)
	if got := b.form("/console/runs", cookie, nil); !strings.Contains(got.body, "No runs yet") || !strings.Contains(got.body, "agentbus run") {
		t.Errorf("an empty store: %s", got.body)
	}
	b.fill()
	rows := func(path string) (runs []string) {
		for _, m := range regexp.MustCompile(`data-key="(run_[a-z])"`).FindAllStringSubmatch(b.form(path, cookie, nil).body, -1) {
			runs = append(runs, m[1])
		}
		return runs
	}
	for query, want := range map[string][]string{
		"": {"run_c", "run_b", "run_a"}, "?payer=bob": {"run_b"}, "?payer=alice": {"run_c", "run_a"}, "?agent=critic&standing=running": {"run_c"},
		"?speaker=critic": {"run_c", "run_b", "run_a"}, "?conversation=review": {"run_a"}, "?standing=failed": {"run_b"}, "?standing=paused": {"run_a"},
		"?sort=cost": {"run_a", "run_c", "run_b"}, "?sort=cost&limit=1": {"run_a"}, "?min_depth=100": nil, "?since=2000-01-01": {"run_c", "run_b", "run_a"}, "?min_cost=1000000": nil,
		"?min_duration=8760h": nil, "?active_since=2100-01-01T00:00:00Z": nil, "?payer=none": nil, "?run=run_b": {"run_b"}, "?run=%E2%80%A6n_a": {"run_a"}, "?run=n_a&payer=bob": nil, "?limit=1": {"run_c"}, "?standing=done": nil,
	} {
		if got := rows("/console/runs" + query); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
		var l struct{ Data []struct{ Run string } }
		if err := json.Unmarshal([]byte(b.get("/admin/v1/runs"+query).body), &l); err != nil || len(l.Data) != len(want) {
			t.Errorf("%q of the API: %+v, %v", query, l, err)
		}
	}
	for _, query := range []string{"min_depth=-1", "min_cost=-0.01", "min_duration=-1s", "sort=nothing", "limit=0"} { // what means nothing is not ignored
		if got := b.get("/admin/v1/runs?" + query); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	body := b.form("/console/runs", cookie, nil).body
	for _, want := range []string{`<a class="payer" href="/console/payers/alice" title="alice">`, `<span class="sr">What can be done</span>`, "$3.00<span", "$2.00<span class=\"cents\">0000</span></span> reserved", "/ 4</span>", "Stop this run", "running", "failed", "paused"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(b.form("/console/runs?limit=2", cookie, nil).body)
	if next == nil || !slices.Equal(rows(strings.ReplaceAll(next[1], "&amp;", "&")), []string{"run_a"}) {
		t.Errorf("the next page: %v", next)
	}
}

// U11: a run shows who paid, what was refused and why, what was retried and not
// charged; a row is chosen by its turn; what an agent said is text, and only there
// when that was asked for.
func TestRunPage(t *testing.T) {
	t.Parallel()
	content := false
	b := open(t, func(c *admin.Config) { c.Cap = func(agentbus.Execution) agentbus.Micros { return 5_000_000 } })
	shown := open(t, func(c *admin.Config) { c.Content = true })
	for _, x := range []*bus{b, shown} {
		x.fill()
		cookie := x.signIn(adminKey)
		body := x.form("/console/runs/run_a?turn=t0.critic", cookie, nil).body
		for _, want := range []string{
			"alice paid $3.000000, for every hop", "critic was refused at depth 0: bridge_depth_exceeded, too deep", "<code>bridge_depth_exceeded</code> too deep", `aria-selected="true"`,
			"x-tangle-forwarded-depth", "alice", "sandbox called on the bill of alice", "agentbus trace run_a", "agentbus resume run_a", "charge", "<polyline",
			`<a href="/console/payers/alice">alice paid`, `<a href="/console/agents/critic">critic</a>`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		turn := x.form("/console/runs/run_a?at=run_a-0", cookie, nil).body
		if !strings.Contains(turn, "--from 0") || strings.Contains(turn, "say &#34;cost_micros") != content || strings.Contains(turn, ">yes</pre>") != content {
			t.Errorf("a turn of the journal, with content %v: %s", content, turn)
		}
		content = true
		for path, status := range map[string]int{"?page=2": 400, "?x=1": 400, "?with=run_b": 200, "?with=run_a": 200, "?turn=none": 200} {
			if got := x.form("/console/runs/run_a"+path, cookie, nil); got.status != status {
				t.Errorf("%s: %d", path, got.status)
			}
		}
	}
	if body := b.form("/console/runs/run_a", b.signIn(adminKey), nil).body; !strings.Contains(body, "$2.000000 of $5.000000 left") {
		t.Error("the budget is not shown")
	}
	if got := b.form("/console/runs/run_none", b.signIn(adminKey), nil); got.status != http.StatusNotFound || !strings.Contains(got.body, "run_not_found") {
		t.Errorf("no run: %d %s", got.status, got.body)
	}
}

// U1: what others wrote is text.
func TestHostileText(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>` + "\u202egnp.exe"
	key := agentbus.TurnKey{Payer: "p", Agent: evil, Run: "run_'<u>", ID: "t<s>"}
	b.must(b.store.Record(t.Context(), agentbus.Digest{1}, agentbus.CallRecord{
		TurnKey: key, State: agentbus.CallRefused, Speaker: evil, Caller: evil, Code: agentbus.CodeAgentNotFound, Message: evil, Notes: []string{evil}, Began: began, Ended: began,
	}))
	_, err := b.store.Calls(t.Context(), key.Run) // behind everything recorded
	b.must(err)
	cookie := b.signIn(adminKey)
	for _, path := range []string{"/console/runs", "/console/runs/" + url.PathEscape(string(key.Run)) + "?turn=" + url.QueryEscape(string(key.ID)), "/console/runs?payer=" + url.QueryEscape(evil)} {
		got := b.form(path, cookie, nil)
		if got.status != http.StatusOK || strings.Contains(got.body, "<script>") || strings.Contains(got.body, "<img src=x") || strings.Contains(got.body, "<u>") || strings.Contains(got.body, "<s>") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	body := b.form("/console/runs/"+url.PathEscape(string(key.Run))+"?turn=t%3Cs%3E", cookie, nil).body
	if !strings.Contains(body, `run_&#39;\&#39;&#39;&lt;u&gt;`) {
		t.Errorf("the run is not one word of a shell in %s", body)
	}
}

// P4, U5: a caller may name a run as a path or a flag is spelled: it has its page, and
// the commands there are about it.
func TestOddlyNamedRuns(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	runs := []agentbus.RunID{"..", ",.", "-x"}
	for i, run := range runs {
		b.must(b.store.Record(t.Context(), agentbus.Digest{byte(i + 1)}, agentbus.CallRecord{
			TurnKey: agentbus.TurnKey{Payer: "p", Agent: "a", Run: run, ID: "t"}, State: agentbus.CallRefused, Code: agentbus.CodeAgentNotFound, Began: began, Ended: began,
		}))
	}
	_, err := b.store.Calls(t.Context(), runs[0]) // behind everything recorded
	b.must(err)
	cookie := b.signIn(adminKey)
	list := b.form("/console/runs", cookie, nil).body
	for _, run := range runs {
		at := "/console/runs/" + httpx.Segment(string(run))
		got := b.form(at+"?turn=t", cookie, nil)
		word := html.EscapeString(map[agentbus.RunID]string{"..": "..", ",.": "',.'", "-x": "-- '-x'"}[run])
		if got.status != http.StatusOK || !strings.Contains(got.body, "agentbus trace "+word) || !strings.Contains(got.body, "agentbus trace verify "+word) || !strings.Contains(list, `"`+at) {
			t.Errorf("%s: %d %s", at, got.status, got.body)
		}
	}
}

// U5: stopping needs the session's token, is done once, and is kept with who did it.
func TestStopPage(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	cookie := b.signIn(adminKey)
	token := b.form("/console/runs/run_c", cookie, nil).csrf()
	const path = "/console/runs/run_c/stop"
	for _, wrong := range []url.Values{{}, {"csrf": {""}}, {"csrf": {"x"}}} {
		if got := b.form(path, cookie, wrong); got.status != http.StatusForbidden {
			t.Errorf("%v: %d", wrong, got.status)
		}
	}
	if got := b.form(path, cookie, url.Values{"csrf": {token}}, "Sec-Fetch-Site", "same-site"); got.status != http.StatusForbidden {
		t.Errorf("from another port: %d", got.status)
	}
	if got := b.form(path, cookie, url.Values{"csrf": {token}}); got.status != http.StatusSeeOther || got.header.Get("Location") != "/console/runs/run_c" {
		t.Errorf("stop: %d %s", got.status, got.body)
	}
	sum, _, err := b.store.RunSummary(t.Context(), "run_c")
	if b.must(err); sum.Stopper != "ops" {
		t.Errorf("stopped by %q", sum.Stopper)
	}
	if page := b.form("/console/runs/run_c", cookie, nil).body; !strings.Contains(page, "by ops") || strings.Contains(page, "Stop this run") {
		t.Errorf("the page after it: %s", page)
	}
	if log := b.log.String(); !strings.Contains(log, `"action":"POST /console/runs/{run}/stop","object":"run_c","by":"ops","code":""`) {
		t.Errorf("the log has %s", log)
	}
}

// U4: a live page is told of changes, after a break too, and when nothing comes any
// more.
func TestLivePages(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	follow := func(path, last string) (next func() sse.Event, end func()) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, http.NoBody)
		b.must(err)
		r.Header.Set("Authorization", "Bearer "+adminKey)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Last-Event-ID", last)
		resp, err := httpClient.Do(r) //nolint:bodyclose // by end
		b.must(err)
		events := sse.NewReader(resp.Body, 0)
		return func() sse.Event {
			e, err := events.Next()
			if err != nil {
				return sse.Event{Type: err.Error()}
			}
			return e
		}, func() { _ = resp.Body.Close() }
	}
	turn := 40
	for _, path := range []string{"/console/live", "/console/runs/run_c/live"} {
		next, end := follow(path, "x")
		first := next()
		if first.Type != "changed" || first.ID == "" {
			t.Errorf("%s, of a page that missed something: %+v", path, first)
		}
		end()
		next, end = follow(path, first.ID) // it has seen everything: what comes first is new
		turn++
		b.settle(b.reserve("alice", "run_c", turn, agentbus.Hold{}), 1, agentbus.Hold{})
		if got := next(); got.Type != "changed" || got.ID == first.ID {
			t.Errorf("%s, of a page that came back: %+v", path, got)
		}
		end()
	}
	if got := b.request("GET", "/console/runs/none/live", adminKey, ""); got.status != http.StatusNotFound {
		t.Errorf("no run: %d", got.status)
	}
	next, end := follow("/console/runs/run_b/live", "")
	defer end()
	for _, want := range []string{"changed", "over"} {
		if got := next(); got.Type != want {
			t.Errorf("a run that is over: %+v, want %s", got, want)
		}
	}
	now := int(time.Since(began) / time.Second)
	b.settle(b.reserve("bob", "run_d", now, agentbus.Hold{}), 1, agentbus.Hold{})
	next, leave := follow("/console/runs/run_d/live", "")
	defer leave()
	next()
	b.settle(b.reserve("bob", "run_d", now+1, agentbus.Hold{}), 1, agentbus.Hold{})
	if got := next(); got.Type != "changed" { // a run of calls is not over between two of them
		t.Errorf("the next call of a run: %+v", got)
	}
	next, ended := follow("/console/live", "x")
	defer ended()
	next()
	b.api.Drain()
	if got := next(); got.Type != io.EOF.Error() {
		t.Errorf("drained: %+v", got)
	}
	b.api.Drain() // again does nothing
}
