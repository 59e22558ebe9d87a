package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/conformance"
	"github.com/agentbus/agentbus/internal/require"
)

// conformanceBus serves a bus that knows the agent at addr as probe.
func conformanceBus(t *testing.T, addr string) *busProcess {
	t.Helper()
	return serving(t, configure(t, fmt.Sprintf(`agents: {probe: {kind: openai, url: "http://%s/v1", price: {input: 1, output: 2}}}
keys:
  - {id: alice, secret_env: ALICE}
  - {id: bob, secret_env: BOB}
  - {id: relay, secret_env: RELAY, inter_agent: true}
`, addr)), conformanceEnv, "--quiet")
}

var conformanceEnv = map[string]string{"ALICE": aliceKey, "BOB": "secret-of-bob", "RELAY": "secret-of-relay", "AGENTBUS_TOKEN": aliceKey}

// conform runs the verb against a bus.
func conform(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, diag strings.Builder
	code = run(t.Context(), append([]string{"conformance"}, args...), strings.NewReader(""), &out, &diag, lookup(conformanceEnv))
	for _, secret := range conformanceEnv {
		if strings.Contains(out.String()+diag.String(), secret) {
			t.Errorf("a secret was printed (P19):\n%s\n%s", out.String(), diag.String())
		}
	}
	return code, out.String(), diag.String()
}

// Our own bus keeps every rule, and nothing is left unasked.
func TestConformanceOfOurBus(t *testing.T) {
	t.Parallel()
	addr := require.Address(t)
	b := conformanceBus(t, addr)
	code, stdout, stderr := conform(t, b.url, "--agent", "probe", "--agent-listen", addr, "--second-key-env", "BOB", "--relay-key-env", "RELAY", "--json")
	var r conformance.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(code, stdout, stderr)
	}
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			t.Errorf("%s (%s): sent %s\n got %s\nwant %s", c.ID, c.Title, f.Sent, f.Got, f.Want)
		}
	}
	if code != 0 || r.Failed > 0 || r.Skipped > 0 || r.Passed != len(conformance.Checks()) || r.Requests > r.Most {
		t.Errorf("exit %d: %d passed, %d failed, %d skipped, %d requests: %s", code, r.Passed, r.Failed, r.Skipped, r.Requests, stderr)
	}
	if !strings.Contains(stderr, "http://"+addr+"/v1") || !strings.Contains(stderr, "named probe") {
		t.Errorf("what to configure was not told: %s", stderr)
	}
}

// Each fault in front of our bus is found by the checks of its rule, and told
// with what was sent and what came back.
func TestConformanceFindsEachFault(t *testing.T) {
	t.Parallel()
	addr := require.Address(t)
	b := conformanceBus(t, addr)
	for _, f := range []struct {
		check string
		in    func(*http.Request)
		out   func(*http.Response)
		lacks string // of an answer
	}{
		{check: "P2-twice-run", in: func(r *http.Request) { first(r, "X-Tangle-Runid") }},
		{check: "P3-words", in: func(r *http.Request) { r.Header.Del("X-Tangle-Forwarded-Depth") }},
		{check: "P8-ids", in: func(r *http.Request) { r.Header.Del("X-Tangle-Speaker") }},
		{check: "P10-limit", in: func(r *http.Request) { r.Header.Set("X-Tangle-Forwarded-Depth", "1") }},
		{check: "P10-below", in: func(r *http.Request) { r.Header.Set("X-Tangle-Forwarded-Depth", "1") }},
		{check: "P11-body", out: func(r *http.Response) { status(r, 429, 413) }},
		{check: "P12-retry", lacks: "X-Should-Retry"},
		{check: "P12-retry", out: func(r *http.Response) { r.Header.Set("Retry-After", "1") }},
		{check: "HTTP-request-id", lacks: "X-Request-Id"},
		{check: "HTTP-echo", lacks: "X-Tangle-Runid"},
		{check: "P7-turn-minted", lacks: "X-Tangle-Turnid"},
		{check: "HTTP-usage", lacks: "X-Agentbus-Cost-Usd"},
		{check: "HTTP-retry-after", lacks: "Retry-After-Ms"},
		{check: "G4-none", lacks: "Www-Authenticate"},
		{check: "G4-unknown", in: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+aliceKey) }},
		{check: "P20-unknown", in: func(r *http.Request) { r.Header.Del("X-Tangle-Forwarded-Authorization") }},
		{check: "P20-payer", in: func(r *http.Request) { r.Header.Del("X-Tangle-Forwarded-Authorization") }},
		{check: "G20-once", in: func(r *http.Request) { r.Header.Del("X-Tangle-Turnid") }},
		{check: "G20-payer", in: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+aliceKey) }},
		{check: "G20-parent", in: func(r *http.Request) { r.Header.Del("X-Tangle-Parent-Turnid") }},
		{check: "G20-path", in: func(r *http.Request) { r.Header.Del("X-Agentbus-Path") }},
		{check: "G20-mismatch", out: func(r *http.Response) { status(r, 422, 200) }},
		{check: "G22-middle", in: func(r *http.Request) { r.Header.Del("X-Tangle-Turnid") }},
		{check: "G23-told", lacks: "X-Agentbus-Replay"},
		{check: "G23-identical", out: func(r *http.Response) { r.Header.Set("Content-Type", "text/x"+r.Header.Get("X-Agentbus-Replay")) }},
		{check: "G9-flush", out: buffer},
		{check: "G23-passes", out: func(r *http.Response) { status(r, 503, 502) }},
		{check: "P23-refused", out: func(r *http.Response) { status(r, 502, 307) }},
	} {
		to, err := url.Parse(b.url)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		proxy := &httputil.ReverseProxy{
			Transport: transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				if f.in != nil {
					f.in(r.Out)
				}
			},
			ModifyResponse: func(r *http.Response) error {
				r.Header.Del(f.lacks)
				if f.out != nil {
					f.out(r)
				}
				return nil
			},
		}
		front := httptest.NewServer(proxy)
		code, stdout, stderr := conform(t, front.URL, "--agent", "probe", "--agent-listen", addr, "--second-key-env", "BOB", "--relay-key-env", "RELAY", "--only", f.check, "--timeout", "2s")
		front.Close()
		if code != int(exitFailed) || !strings.Contains(stdout, "FAIL "+f.check) || !strings.Contains(stdout, "  sent: ") || !strings.Contains(stdout, "  want: ") {
			t.Errorf("%s is not found: exit %d\n%s%s", f.check, code, stdout, stderr)
		}
	}
}

// first keeps the first of several values, as naive readers do.
func first(r *http.Request, name string) {
	if values := r.Header[name]; len(values) > 1 {
		r.Header[name] = values[:1]
	}
}

// buffer reads an answer whole before it passes it on.
func buffer(r *http.Response) {
	body, _ := io.ReadAll(r.Body) // what came before it was cut
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// status answers with another status.
func status(r *http.Response, from, to int) {
	if r.StatusCode == from {
		r.StatusCode = to
	}
}

// What the verb cannot do is told with what to do; and what it does as text.
func TestConformanceVerb(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(site.Close)
	for _, tt := range []struct {
		args string
		exit exitCode
		want string
	}{
		{"http://127.0.0.1:1 --key-env NONE", exitUsage, "there is no key in NONE"},
		{"ftp://127.0.0.1:1", exitUsage, "must be an http or https URL"},
		{"http://127.0.0.1:1 --depth-limit 0", exitUsage, "--depth-limit"},
		{"http://bus.example.com", exitUsage, "in the clear"},
		{"http://127.0.0.1:1 --agent probe --agent-listen 256.0.0.1:0", exitFailed, "cannot listen on"},
		{"http://127.0.0.1:1", exitAgent, "nothing that speaks HTTP answers at http://127.0.0.1:1\n  why: "},
		{site.URL, exitUsage, "shows nothing of the bus protocol"},
		{"http://127.0.0.1:1 --agent probe", exitAgent, "did not arrive at the agent"},
		{"http://127.0.0.1:1 --only P99", exitUsage, "no check is of P99"},
	} {
		code, _, stderr := conform(t, strings.Fields(tt.args)...)
		if code != int(tt.exit) || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") > 5 {
			t.Errorf("%s: exit %d: %s", tt.args, code, stderr)
		}
	}
	b := conformanceBus(t, require.Address(t))
	code, stdout, stderr := conform(t, b.url, "--only", "P3,G9-json")
	if code != 0 || !strings.Contains(stdout, "P3-signs") || !strings.Contains(stdout, "3 checks skipped: it needs an agent") ||
		!strings.Contains(stdout, "6 passed, 0 failed, 3 skipped") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	// Where every check was skipped, nothing is known: that is no success.
	code, stdout, stderr = conform(t, b.url, "--only", "P5-unread")
	if code != int(exitUsage) || !strings.Contains(stdout, "0 passed, 0 failed, 1 skipped") || !strings.Contains(stderr, "nothing was checked: 1 check skipped") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
