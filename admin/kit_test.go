package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 19800) //nolint:reassign // what is answered is in UTC wherever the bus is
	goleak.VerifyTestMain(m)
}

const (
	userKey  = "secret-of-user"
	interKey = "secret-of-inter"
	adminKey = "secret-of-ops"
	tokenKey = "secret-of-token"
)

var began = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// A bus is the admin listener over a real store. The calls that are live, and
// the agents, are made up.
type bus struct {
	t     testing.TB
	url   string
	path  string // of the store
	api   *admin.API
	store *sqlite.Store
	log   *bytes.Buffer // written by one request at a time
	calls *calls
}

// calls are a switchboard without a gateway behind it.
type calls struct {
	*sqlite.Store
	mu   sync.Mutex
	live []agentbus.CallRecord
}

// goes makes call the only one that is live.
func (c *calls) goes(call agentbus.CallRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = []agentbus.CallRecord{call}
}

func (c *calls) Live() []agentbus.CallRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]agentbus.CallRecord(nil), c.live...)
}

func (c *calls) Stop(ctx context.Context, run agentbus.RunID, by string) (int, error) {
	n := 0
	for _, call := range c.Live() {
		if call.Run == run {
			n++
		}
	}
	return n, c.StopRun(ctx, run, by, "", began)
}

func (c *calls) Void(ctx context.Context, id int64, by string) error {
	if id == 7 {
		return &agentbus.Error{Code: agentbus.CodeNotFound, Message: "call 7 has ended, says " + by}
	}
	return c.Store.Void(ctx, agentbus.Voiding{ID: id, Attempt: 1, Code: agentbus.CodeOutcomeUnknown, Ended: began})
}

// A directory is agents that are made up.
type directory struct {
	agents  []admin.Agent
	mu      sync.Mutex // guards drained
	drained map[string]string
}

func (d *directory) Agents() []admin.Agent {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := slices.Clone(d.agents)
	for i := range found {
		if by, out := d.drained[found[i].Name]; out {
			found[i].Drained = &agentbus.Drained{Agent: found[i].Name, By: by, At: began}
		}
	}
	return found
}

func (d *directory) Drain(_ context.Context, name, by string, out bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.drained, name); out {
		d.drained[name] = by
	}
	return nil
}

func (d *directory) Probe(_ context.Context, name string) ([]admin.Probe, error) {
	if name == "critic" {
		return nil, nil
	}
	return []admin.Probe{{Where: "http://127.0.0.1:9/v1", Took: 1.5, Text: "connection refused"}}, nil
}

var agents = []admin.Agent{
	{Name: "critic", Kind: "builtin", Breakers: []admin.Breaker{{Conversation: "review", State: "open"}}},
	{
		Name: "researcher", Kind: "openai", Model: "gpt-x", Trust: admin.Trust{Sent: []string{"its own key"}, Verbatim: true}, Aliases: []string{"r"}, Price: &agentbus.Price{Input: 150_000, Call: 1},
		URLs: []admin.URL{{URL: "http://127.0.0.1:9/v1", Health: admin.HealthEjected, InFlight: 1, Failures: 5, Ejected: began}},
	},
}

var budgets = []agentbus.Budget{
	{Account: "payer/alice/day/2026-11-21", Limit: 5_000_000, Strict: true},
	{Account: "payer/bob/day/2026-11-21", Limit: 1, Calls: 3, MaxAge: time.Hour},
}

// open serves the admin listener until the test ends; change may change its
// configuration.
func open(tb testing.TB, change func(*admin.Config)) *bus {
	tb.Helper()
	path := sqlitetest.Prepare(tb, filepath.Join(tb.TempDir(), "bus.db"))
	store, err := sqlite.Open(tb.Context(), sqlite.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	key := func(id string, role agentbus.PrincipalRole, secret string) identity.StaticKey {
		return identity.StaticKey{Principal: agentbus.Principal{ID: id, Role: role, InterAgent: id == "inter"}, Secret: agentbus.NewCredential(secret)}
	}
	keys, err := identity.New(identity.Config{Keys: store, Static: []identity.StaticKey{
		key("user", agentbus.PrincipalUser, userKey), key("inter", agentbus.PrincipalUser, interKey), key("ops", agentbus.PrincipalAdmin, adminKey),
	}})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bus{t: tb, path: path, store: store, log: &bytes.Buffer{}, calls: &calls{Store: store}}
	c := admin.Config{
		Identifier: keys, Runs: store, Records: store, Ledger: store, Keys: store, Calls: b.calls, Agents: &directory{agents: agents, drained: map[string]string{}}, Interrupts: store, Figures: store, Actions: store, Driver: driver{}, Token: agentbus.NewCredential(tokenKey),
		Budgets: func() []agentbus.Budget { return budgets },
		Caps: func(payer agentbus.Payer, at time.Time) []admin.Cap {
			return []admin.Cap{{Account: "payer/" + string(payer) + "/day/2026-11-21", Period: "day", Strict: true, Limit: 5_000_000, Ends: at.Add(2 * time.Hour)}}
		},
		Vitals: func(context.Context) console.Vitals {
			return console.Vitals{
				Store: console.StoreState{P50: 0.5, P99: 2, Queue: 3}, InFlight: 4, Detached: 1, Queue: 2,
				Config: console.ConfigState{Read: began, Faults: []console.Fault{{Line: 12, Key: "agents.critic.url", Problem: "is no URL", Fix: "name one"}}},
			}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
		Profile: true,
		Status:  admin.Status{Version: "1.2.3", Owner: "host/1/2", Config: "agentbus.yaml", Stages: []string{"recover", "proxy"}},
		Logger:  slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&c)
	}
	if b.api, err = admin.New(c); err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewServer(b.api)
	b.url = srv.URL
	tb.Cleanup(func() {
		srv.Close()
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// httpClient keeps no connection and follows no redirect.
var httpClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request sends a request under a key; "" is none.
func (b *bus) request(method, path, key, body string, more ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" && !slices.Contains(more, "Content-Type") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(more); i += 2 {
		if r.Header.Add(more[i], more[i+1]); more[i] == "Host" {
			r.Host = more[i+1]
		}
	}
	resp, err := httpClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get("Content-Type") == "text/event-stream" { // it has no end
		return answer{resp.StatusCode, resp.Header, ""}
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(got)}
}

// get reads a resource as an admin.
func (b *bus) get(path string) answer { return b.request(http.MethodGet, path, adminKey, "") }

// into decodes the answer of an admin to a request that must succeed.
func into[T any](tb testing.TB, a answer) (v T) {
	tb.Helper()
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status/100 != 2 {
		tb.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

// code returns the code of a problem.
func (a answer) code() agentbus.Code {
	var p struct{ Code agentbus.Code }
	_ = json.Unmarshal([]byte(a.body), &p) // no code is a code too
	return p.Code
}
