package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
)

// broker starts an agent that asks the agent mall of a bus, inside of the turn that
// it serves, and gives on what it answers.
func broker(t *testing.T) (url string, of *atomic.Pointer[server.Server]) {
	t.Helper()
	of = &atomic.Pointer[server.Server]{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		l, err := agentbus.ParseLineage(r.Header)
		if err == nil {
			l, err = l.Next(l.Run.Turn(7, "mall"), "mall")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		inner := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"mall","messages":[{"role":"user","content":"a hat"}]}`))
		l.SetHeaders(inner.Header)
		inner.Header.Set("Authorization", "Bearer secret-1")
		got := httptest.NewRecorder()
		of.Load().Handler().ServeHTTP(got, inner)
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	}))
	t.Cleanup(srv.Close)
	return srv.URL, of
}

// U15: who asks is told from the root to the leaf, across a call that an agent made
// over HTTP and the conversations nested below it, on either store.
func TestWhoAsksIsToldFromTheRoot(t *testing.T) {
	t.Parallel()
	ops := identity.StaticKey{Secret: agentbus.NewCredential("secret-of-ops"), Principal: agentbus.Principal{ID: "ops", Role: agentbus.PrincipalAdmin}}
	for name, store := range map[string]func(testing.TB) string{
		"SQLite": func(tb testing.TB) string {
			tb.Helper()
			return "sqlite:" + sqlitetest.Prepare(tb, filepath.Join(tb.TempDir(), "bus.db"))
		},
		"PostgreSQL": stores.Database,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, of := broker(t)
			s := buildOn(t, store(t), fmt.Sprintf(`
admin: {listen: '127.0.0.1:0'}
limits: {max_depth: 20}
agents:
  broker: {kind: openai, url: %q, price: {call: 0.01}}
  pay: {kind: builtin, builtin: pay, price: {call: 1}}
  echo: {kind: builtin, builtin: echo}
  shop: {kind: conversation, conversation: shop}
  mall: {kind: conversation, conversation: mall}
conversations:
  shop: {participants: [{agent: pay}, {agent: echo}], max_turns: 2}
  mall: {participants: [{agent: shop}, {agent: echo}], max_turns: 2}
`, url+"/v1"), userKey("secret-1"), ops)
			t.Cleanup(func() { closed(t, s) })
			of.Store(s)
			for run, agents := range map[agentbus.RunID]string{"run_deep": "broker mall shop pay", "run_flat": "shop pay"} {
				agent, _, _ := strings.Cut(agents, " ")
				if status, body := askAs(t, s, "secret-1", agent, run); status != http.StatusPaymentRequired {
					t.Fatalf("%s: %d %s", agent, status, body)
				}
			}
			admin := operated(t, s)
			for run, want := range map[string]string{"run_deep": "[broker mall shop pay]", "run_flat": "[shop pay]"} {
				_, got := asAdmin(t, "secret-of-ops", http.MethodGet, admin+"/admin/v1/interrupts?run="+run)
				open, _ := got["data"].([]any)
				if len(open) != 1 {
					t.Fatalf("%s: %v", run, got)
				}
				asked, _ := open[0].(map[string]any)
				if way := fmt.Sprint(asked["way"]); way != want {
					t.Errorf("%s: %s asks, want %s", run, way, want)
				}
			}
		})
	}
}
