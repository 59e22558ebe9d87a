package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/server"
)

// operated serves the admin listener of a bus until the test ends.
func operated(t *testing.T, s *server.Server) (url string) {
	t.Helper()
	l, err := s.ListenAdmin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.ServeAdmin(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("ServeAdmin: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// asAdmin sends a request with the secret of a key and decodes the answer.
func asAdmin(t *testing.T, secret, method, url string) (status int, answer map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(body, &answer) != nil {
		t.Fatalf("%s %s: %d %s %v", method, url, resp.StatusCode, body, err)
	}
	return resp.StatusCode, answer
}

// serveOn serves the public surface of a bus until the test ends.
func serveOn(t *testing.T, s *server.Server) (url string) {
	t.Helper()
	public := httptest.NewServer(s.Handler())
	t.Cleanup(public.Close)
	return public.URL
}

// postTo calls an agent as a user, and returns the status of the answer.
func postTo(t *testing.T, url, agent string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"`+agent+`","messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer user-secret")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

const withAdmin = "admin: {listen: '127.0.0.1:0'}\nkeys: [{id: ops, secret: secret-of-ops, role: admin}]\n"

// What the API tells of a bus is what the bus did.
func TestAdminOfABus(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	s := open(t, withAdmin+fmt.Sprintf("agents: {a: {kind: openai, url: %q, price: {call: 0.01}}, e: {kind: builtin, builtin: echo, aliases: [x]}}\n", a.URL+"/v1"))
	url := operated(t, s) + "/admin/v1"
	if status, _ := asAdmin(t, "user-secret", http.MethodGet, url+"/runs"); status != http.StatusForbidden {
		t.Errorf("a user gets %d", status)
	}
	_, status := asAdmin(t, "secret-of-ops", http.MethodGet, url+"/status")
	if stages := fmt.Sprint(status["stages"]); status["version"] != "test" || status["owner"] != s.Owner() || !strings.HasPrefix(stages, "[recover record ") || !strings.HasSuffix(stages, " proxy]") {
		t.Errorf("status: %v", status)
	}
	_, agents := asAdmin(t, "secret-of-ops", http.MethodGet, url+"/agents/a")
	if places, _ := agents["urls"].([]any); len(places) != 1 || !strings.Contains(fmt.Sprint(places[0]), a.URL+"/v1") || !strings.Contains(fmt.Sprint(agents["price"]), "call_usd:0.010000") {
		t.Errorf("agent: %v", agents)
	}
	_, local := asAdmin(t, "secret-of-ops", http.MethodGet, url+"/agents/e")
	if fmt.Sprint(local["aliases"], local["urls"], local["price"]) != "[x] [] <nil>" {
		t.Errorf("agent: %v", local)
	}
}

// G13: a URL that was left out shows, and how often it failed.
func TestAdminShowsAnEjectedURL(t *testing.T) {
	t.Parallel()
	good, gone := newAgent(t, "good"), httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s := open(t, withAdmin+fmt.Sprintf("agents: {a: {kind: openai, urls: [%q, %q], eject: {failures: 1, for: 1h, at_most: 1h}}}\n", gone.URL+"/v1", good.URL+"/v1"))
	public := serveOn(t, s)
	for range 2 { // each URL is chosen once
		postTo(t, public, "a")
	}
	_, agent := asAdmin(t, "secret-of-ops", http.MethodGet, operated(t, s)+"/admin/v1/agents/a")
	var health []any
	places, _ := agent["urls"].([]any)
	for _, place := range places {
		u, _ := place.(map[string]any)
		health = append(health, u["health"], u["failures"])
	}
	if diff := cmp.Diff([]any{"ejected", 1.0, "good", 0.0}, health); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

// G24: the key of a call whose process is gone is freed by an operator; that of
// one whose process lives is not.
func TestVoidOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := open(t, withAdmin+"agents: {e: {kind: builtin, builtin: echo}}\n")
	url := operated(t, s) + "/admin/v1/calls/"
	ids := map[string]float64{}
	for i, owner := range []string{s.Owner(), "another-boot/1/1"} {
		run := agentbus.RunID("run_" + string(rune('a'+i)))
		key := agentbus.TurnKey{Payer: "user-123", Agent: "e", Run: run, ID: run.Turn(0, "e")}
		if _, err := s.Store().Reserve(t.Context(), agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{TurnKey: key, Owner: owner, Began: time.Now()}}); err != nil {
			t.Fatal(err)
		}
	}
	_, list := asAdmin(t, "secret-of-ops", http.MethodGet, url+"unfinished")
	calls, _ := list["data"].([]any)
	for _, c := range calls {
		call, _ := c.(map[string]any)
		owner, _ := call["owner"].(string)
		ids[owner], _ = call["id"].(float64)
	}
	for _, tt := range []struct {
		id     float64
		status int
	}{{ids[s.Owner()], http.StatusConflict}, {ids["another-boot/1/1"], http.StatusOK}, {ids["another-boot/1/1"], http.StatusNotFound}, {999, http.StatusNotFound}} {
		if status, answer := asAdmin(t, "secret-of-ops", http.MethodPost, fmt.Sprintf("%s%.0f/void", url, tt.id)); status != tt.status {
			t.Errorf("call %.0f: %d %v, want %d", tt.id, status, answer, tt.status)
		}
	}
	records, err := s.Store().Calls(t.Context(), "run_b")
	if err != nil || len(records) != 1 || records[0].State != agentbus.CallVoided || records[0].Code != agentbus.CodeOutcomeUnknown || !strings.Contains(records[0].Message, "ops freed its key") {
		t.Errorf("%+v, %v", records, err)
	}
}

// G33: the figures stand on the admin listener, for admins.
func TestMetricsAreForAdmins(t *testing.T) {
	t.Parallel()
	url := operated(t, open(t, withAdmin)) + "/metrics"
	for secret, want := range map[string]int{"secret-of-ops": http.StatusOK, "user-secret": http.StatusForbidden, "": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want || strings.Contains(string(body), "\nagentbus_in_flight_requests 0\n") != (want == http.StatusOK) {
			t.Errorf("%q: %d %s %v", secret, resp.StatusCode, body, err)
		}
	}
}

// G27: budgets that name whose they are show with what is left of them.
func TestAdminShowsBudgets(t *testing.T) {
	t.Parallel()
	s := open(t, withAdmin+"budgets: [{payer: user-123, period: total, usd: 2}, {period: day, usd: 1}]\n")
	_, budgets := asAdmin(t, "secret-of-ops", http.MethodGet, operated(t, s)+"/admin/v1/budgets")
	if got := fmt.Sprint(budgets["data"]); strings.Count(got, "account:") != 1 || !strings.Contains(got, "account:payer/user-123/total") || !strings.Contains(got, "left_usd:2.000000") {
		t.Errorf("budgets: %s", got)
	}
}

func TestNoAdminListener(t *testing.T) {
	t.Parallel()
	s := open(t, "admin: {listen: ''}\n")
	if l, err := s.ListenAdmin(t.Context()); l != nil || err != nil {
		t.Errorf("%v, %v", l, err)
	}
}

// U1: nothing of the admin surface answers on the public listener, not to an admin
// either; what the public surface has of its own under such a path is not it.
func TestAdminIsNotPublic(t *testing.T) {
	t.Parallel()
	s := open(t, withAdmin)
	api, ok := s.AdminHandler().(*admin.API)
	if !ok {
		t.Fatal("the admin surface is no API")
	}
	fill := strings.NewReplacer("{run}", "run_a", "{id}", "7", "{name}", "a", "{handle}", "ab_x", "{payer}", "alice", "{$}", "")
	routes := api.Routes()
	if len(routes) < 30 {
		t.Fatalf("only %d routes", len(routes))
	}
	for _, pattern := range routes {
		method, path, _ := strings.Cut(fill.Replace(pattern), " ")
		for _, secret := range []string{"", "secret-of-ops", "user-secret"} {
			r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
			if secret != "" {
				r.Header.Set("Authorization", "Bearer "+secret)
			}
			got := httptest.NewRecorder()
			s.Handler().ServeHTTP(got, r)
			if path == "/openapi.json" { // each surface has one of its own
				if strings.Contains(got.Body.String(), "agentbus admin API") {
					t.Errorf("the public listener describes the admin surface")
				}
				continue
			}
			if got.Code < 400 || strings.Contains(got.Body.String(), "/admin/v1") || strings.Contains(got.Body.String(), "/console") || got.Header().Get("Location") != "" {
				t.Errorf("%s as %q on the public listener: %d %.200s", pattern, secret, got.Code, got.Body)
			}
		}
	}
}
