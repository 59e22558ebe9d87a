package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write what a plain proxy fails into testdata")

const canary = "sk-CANARY-conformance"

func key(n string) agentbus.Credential { return agentbus.NewCredential("Bearer " + canary + n) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// endpoint serves h until the test ends.
func endpoint(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// plainProxy is a stock reverse proxy in front of the agent of a check.
func plainProxy(t *testing.T, agent net.Listener) *httputil.ReverseProxy {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: agent.Addr().String()}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// asked runs checks and expects them to run. What is reported must not hold a
// key, whatever the endpoint did with it (P19).
func asked(t *testing.T, c conformance.Config) *conformance.Report {
	t.Helper()
	r, err := conformance.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "CANARY") {
		t.Errorf("the report holds a key: %v: %s", err, text)
	}
	if r.Passed+r.Failed+r.Skipped != len(r.Checks) || r.Requests > r.Most {
		t.Errorf("%d passed, %d failed, %d skipped of %d; %d requests of at most %d", r.Passed, r.Failed, r.Skipped, len(r.Checks), r.Requests, r.Most)
	}
	for _, check := range r.Checks {
		if (check.Outcome == conformance.Fail) != (len(check.Findings) > 0) || (check.Outcome == conformance.Skip) != (check.Reason != "") {
			t.Errorf("%+v: a failure has findings, a skip a reason", check)
		}
		for _, f := range check.Findings {
			if f.Sent == "" || f.Got == "" || f.Want == "" {
				t.Errorf("%s: %+v: what was sent, came back and should have is told", check.ID, f)
			}
		}
	}
	return r
}

func outcomes(r *conformance.Report) string {
	var b strings.Builder
	for _, c := range r.Checks {
		b.WriteString(string(c.Outcome) + " " + c.ID + "\n")
	}
	return b.String()
}

// A stock reverse proxy in front of an agent is no bus: what it fails, and what
// it does well, is in testdata.
func TestPlainProxy(t *testing.T) {
	t.Parallel()
	l := listen(t)
	r := asked(t, conformance.Config{
		URL: endpoint(t, plainProxy(t, l)), Key: key("1"), SecondKey: key("2"), RelayKey: key("3"),
		Agent: "probe", Listener: l, Timeout: 5 * time.Second,
	})
	path := filepath.Join("testdata", "plain_proxy.txt")
	if *update {
		if err := os.WriteFile(path, []byte(outcomes(r)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), outcomes(r)); diff != "" {
		t.Errorf("a plain proxy (-want +got); go test -update writes it:\n%s", diff)
	}
}

// Every check has an id of its own that begins with its rule, and its rule
// stands in the specifications.
func TestTable(t *testing.T) {
	t.Parallel()
	rules, seen := rules(t), map[string]bool{}
	checks := conformance.Checks()
	for _, c := range checks {
		if seen[c.ID] || !strings.HasPrefix(c.ID, c.Rule+"-") || c.Title == "" {
			t.Errorf("%+v", c)
		}
		if seen[c.ID] = true; rules != nil && !rules[c.Rule] {
			t.Errorf("%s: there is no rule %s", c.ID, c.Rule)
		}
	}
	told, err := os.ReadFile("../docs/conformance.md")
	if err != nil || !strings.Contains(string(told), strconv.Itoa(len(checks))+" checks") {
		t.Errorf("docs/conformance.md does not tell of %d checks: %v", len(checks), err)
	}
}

// rules reads the numbers of the specifications, where they are at hand.
func rules(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../shared/spec/*.md")
	if err != nil || len(files) == 0 {
		return nil
	}
	all := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\*\*([A-Z]\d+)\b`).FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = true
		}
		for section, rule := range map[string]string{"## 1. Headers": "HEADERS", "## 3. Body of a refusal": "BODY", "## 4. HTTP conventions": "HTTP"} {
			all[rule] = all[rule] || strings.Contains(string(text), section)
		}
	}
	return all
}

// What a check needs and was not given is skipped, with the reason, and passed
// by nobody.
func TestSkips(t *testing.T) {
	t.Parallel()
	nobody := endpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Agentbus-Replay", "miss") // it claims to be one
		http.NotFound(w, r)
	}))
	r := asked(t, conformance.Config{URL: nobody, Key: key("1"), Timeout: 5 * time.Second})
	needs := map[string]conformance.Need{}
	for _, c := range conformance.Checks() {
		needs[c.ID] = c.Needs
	}
	for _, c := range r.Checks {
		if (needs[c.ID] != 0) != (c.Outcome == conformance.Skip) {
			t.Errorf("%s is %s", c.ID, c.Outcome)
		}
		if needs[c.ID]&conformance.NeedRelay != 0 && !strings.Contains(c.Reason, "--relay-key-env") {
			t.Errorf("%s: %s", c.ID, c.Reason)
		}
	}
}

// What is no bus, and what does not know the key, is told at once, with no word of
// the key (P19), instead of by every check.
func TestNoBus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		code agentbus.Code
		want string
	}{
		"a site":         {http.NotFound, agentbus.CodeInvalidRequest, "shows nothing of the bus protocol: a call with a lineage got 404 404 page not found"},
		"a plain server": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }, agentbus.CodeInvalidRequest, `got 200 {"choices":[]}`},
		"it quotes": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(".", 230)+r.Header.Get("Authorization"))
		}, agentbus.CodeInvalidRequest, "shows nothing of the bus protocol"},
		"nobody": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, agentbus.CodeAgentUnavailable, "nothing that speaks HTTP answers"},
		"another key": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Tangle-Runid", "r")
			w.WriteHeader(http.StatusUnauthorized)
		}, agentbus.CodeUnauthenticated, "does not know the key"},
	} {
		_, err := conformance.Run(t.Context(), conformance.Config{URL: endpoint(t, tt.h), Key: key("1"), Timeout: 5 * time.Second})
		if agentbus.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	l := listen(t)
	c := conformance.Config{URL: endpoint(t, plainProxy(t, l)) + "/v1/", Key: key("1"), Agent: "probe", Listener: l, Only: []string{"p23", "G9-flush"}}
	got := outcomes(asked(t, c))
	if diff := cmp.Diff("pass G9-flush\nfail P23-refused\npass P23-not-followed\nfail P23-not-retried\n", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Only, c.Agent, c.Listener = []string{"P99"}, "", nil
	if _, err := conformance.Run(t.Context(), c); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("no such rule: %v", err)
	}
}

// P19: an endpoint that tells the key is found out, and not quoted.
func TestLeakyEndpoint(t *testing.T) {
	t.Parallel()
	at := endpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", r.Header.Get("Authorization"))
		w.Header().Set("X-Tangle-Runid", "r")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat(".", 230)+r.Header.Get("Authorization")+r.Header.Get("X-Tangle-Forwarded-Authorization"))
	}))
	r := asked(t, conformance.Config{URL: at, Key: key("1"), Timeout: 5 * time.Second})
	if last := r.Checks[len(r.Checks)-1]; last.ID != "P19-silent" || last.Outcome != conformance.Fail {
		t.Errorf("%+v", last)
	}
}

// silent says nothing until its caller has left.
func silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // or it does not notice
	<-r.Context().Done()
}

// An endpoint that never answers, or never ends, costs a check its timeout and
// no more.
func TestHostileEndpoints(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"silent": silent,
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for piece := strings.Repeat("x", 64<<10); ; {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		},
		"drips": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, "."); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
			}
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			only := []string{"P2-twice-run", "P3", "P19", "HTTP", "BODY", "G1", "G3", "G36"}
			r := asked(t, conformance.Config{URL: endpoint(t, h), Key: key("1"), Timeout: 50 * time.Millisecond, Only: only})
			for _, c := range r.Checks {
				library := c.Rule == "G36" // may be refused before the endpoint is asked
				if c.Outcome == conformance.Pass && c.ID != "P19-silent" && !library {
					t.Errorf("%s passes", c.ID)
				}
			}
		})
	}
}

// An endpoint that does not know the agent is told from one that breaks rules,
// unless it gets to know it in time.
func TestAgentMustBeReached(t *testing.T) {
	t.Parallel()
	l := listen(t)
	addr := l.Addr().String()
	c := conformance.Config{URL: endpoint(t, http.NotFoundHandler()), Key: key("1"), Agent: "probe", Listener: l}
	_, err := conformance.Run(t.Context(), c)
	if e := agentbus.AsError(err); e == nil || e.Code != agentbus.CodeAgentUnavailable || !strings.Contains(e.Explain.Next, addr) {
		t.Errorf("an endpoint without the agent: %v", err)
	}
	c.URL, c.Listener = "http://"+addr, listen(t) // where nobody listens any more
	if _, err := conformance.Run(t.Context(), c); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
		t.Errorf("no endpoint: %v", err)
	}
	l = listen(t)
	proxy, knows := plainProxy(t, l), atomic.Int64{}
	c.URL = endpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if knows.Add(1) < 3 {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	c.Listener, c.Wait, c.Only = l, time.Minute, []string{"G9-answer"}
	if r := asked(t, c); r.Passed != 1 {
		t.Errorf("%+v", r.Checks)
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*conformance.Config){
		"no URL":          func(c *conformance.Config) { c.URL = "" },
		"another scheme":  func(c *conformance.Config) { c.URL = "ftp://127.0.0.1" },
		"a name alone":    func(c *conformance.Config) { c.URL = "127.0.0.1:8080" },
		"plaintext":       func(c *conformance.Config) { c.URL = "http://bus.example.com" }, // P24
		"no key":          func(c *conformance.Config) { c.Key = agentbus.Credential{} },
		"no listener":     func(c *conformance.Config) { c.Agent = "probe" },
		"no name":         func(c *conformance.Config) { c.Listener = listen(t) },
		"a huge body":     func(c *conformance.Config) { c.MaxBody = 1 << 40 },
		"no depth at all": func(c *conformance.Config) { c.DepthLimit = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := conformance.Config{URL: "http://127.0.0.1:1", Key: key("1")}
			change(&c)
			_, err := conformance.Run(t.Context(), c)
			if agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
				t.Errorf("%v", err)
			}
			if c.Listener != nil {
				if _, err := c.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("the listener is left open: %v", err)
				}
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	at := endpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		silent(w, r)
	}))
	if _, err := conformance.Run(ctx, conformance.Config{URL: at, Key: key("1"), Timeout: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
