package a2a_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A bus is a face before agents, with the least of a gateway before it: callers
// are who they say.
type bus struct {
	*httptest.Server
	face  *a2a.Face
	store *sqlite.Store
	calls atomic.Int32 // of the agent
}

// place opens the store of a test.
func place(t *testing.T, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Prepare(t, filepath.Join(dir, "bus.db"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newBus(t *testing.T, c a2a.FaceConfig, b agentbus.Backend, compat bool) *bus {
	t.Helper()
	u := &bus{store: place(t, t.TempDir())}
	counted := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		u.calls.Add(1)
		return b.Call(ctx, c)
	})
	c.Tasks, c.Owner = u.store, "p1"
	c.Agent = func(name string) (a2a.Served, bool) {
		return a2a.Served{Backend: counted, Compat: compat}, name == "critic"
	}
	if c.Extensions == nil {
		c.Extensions = []string{a2a.ExtensionPolicy}
	}
	f, err := a2a.NewFace(c)
	if err != nil {
		t.Fatal(err)
	}
	u.face = f
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, err := agentbus.ParseLineage(r.Header)
		if err != nil {
			a2a.WriteError(w, a2a.JSONRPC, nil, err)
			return
		}
		minted := l.Run == ""
		if minted {
			l.Run = agentbus.NewRunID()
			l.Turn = l.Run.Turn(0, "critic")
		}
		who := r.Header.Get("X-User")
		if who == "" {
			who = "ann"
		}
		req := &a2a.Request{Agent: "critic", Caller: agentbus.Principal{ID: who}, Payer: agentbus.Payer(who), Lineage: l.Forward(), Minted: minted, Base: "http://" + r.Host + "/a2a/critic"}
		f.ServeHTTP(w, r.WithContext(a2a.NewContext(r.Context(), req)))
	}))
	t.Cleanup(func() {
		u.Close()
		f.Close()
	})
	return u
}

// speaks is an agent that says what it is told to.
func speaks(pieces ...string) agentbus.Backend {
	return agentbus.BackendFunc(func(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for _, p := range pieces {
				if !yield(agentbus.Chunk{Text: strings.ReplaceAll(p, "%", c.Messages[len(c.Messages)-1].Content)}, nil) {
					return
				}
			}
			yield(agentbus.Chunk{Usage: &agentbus.Usage{InputTokens: 2, OutputTokens: 3, Cost: 40}, Finish: "stop"}, nil)
		}
	})
}

// gated is an agent that says one thing, then waits until it is let go on.
func gated(gate <-chan struct{}) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, _ *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			if !yield(agentbus.Chunk{Text: "one "}, nil) {
				return
			}
			select {
			case <-gate:
				yield(agentbus.Chunk{Text: "two"}, nil)
			case <-ctx.Done():
				yield(agentbus.Chunk{}, context.Cause(ctx))
			}
		}
	})
}

// client returns an SDK client of the bus.
func (u *bus) client(t *testing.T, binding sdk.TransportProtocol) *a2aclient.Client {
	t.Helper()
	resp, err := http.Get(u.URL + "/a2a/critic/.well-known/agent-card.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var card sdk.AgentCard
	if err := json.NewDecoder(resp.Body).Decode(&card); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	h := &http.Client{Transport: transport}
	c, err := a2aclient.NewFromCard(t.Context(), &card, a2aclient.WithDefaultsDisabled(), a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []sdk.TransportProtocol{binding}}),
		a2aclient.WithJSONRPCTransport(h), a2aclient.WithRESTTransport(h))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(text string) *sdk.SendMessageRequest {
	return &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text))}
}

func textOf(t *sdk.Task) string {
	var b strings.Builder
	for _, a := range t.Artifacts {
		for _, p := range a.Parts {
			b.WriteString(p.Text())
		}
	}
	return b.String()
}

func both(t *testing.T, f func(t *testing.T, binding sdk.TransportProtocol)) {
	t.Helper()
	for _, b := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			f(t, b)
		})
	}
}

// post sends a raw request and returns status, content type and body.
func (u *bus) post(t *testing.T, path, body string, header ...string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL+"/a2a/critic"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", "1.0")
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := u.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(raw)
}

func rpc(method, params string) string {
	return `{"jsonrpc":"2.0","id":"q-7","method":"` + method + `","params":` + params + `}`
}

func message(id, text string) string {
	return `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}`
}
