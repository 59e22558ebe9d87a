package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

// TestPayer: P20 to P22 and G5, who is billed, what travels on as the origin's
// credential, and what the agent gets as Authorization.
func TestPayer(t *testing.T) {
	t.Parallel()
	plain, own, passing := newAgent(t, "plain", nil), newAgent(t, "own", nil), newAgent(t, "passing", nil)
	own.Authorization = agentbus.NewCredential("Bearer " + agentKey)
	passing.Passthrough = true
	b := newBus(t, nil, plain, own, passing)
	forBob := "x-tangle-forwarded-authorization: Bearer " + bobKey
	for name, c := range map[string]struct {
		to                   *agent
		headers              []string
		payer, caller        string
		forwarded, authorize string
		note                 string
	}{
		"origin":           {plain, lines(asAlice), "alice", "alice", "Bearer " + aliceKey, "", ""},
		"origin, lower":    {plain, lines("authorization: bearer " + aliceKey), "alice", "alice", "bearer " + aliceKey, "", ""},
		"relay for alice":  {plain, lines(asRelay, forAlice), "alice", "relay", "Bearer " + aliceKey, "", ""},
		"relay for itself": {plain, lines(asRelay), "relay", "relay", "Bearer " + relayKey, "", ""},
		"user for another": {plain, lines(asAlice, forBob), "alice", "alice", "Bearer " + aliceKey, "", "forwarded_authorization_ignored"},
		"user for a stranger": {
			plain, lines(asAlice, "x-tangle-forwarded-authorization: Bearer x"), "alice", "alice", "Bearer " + aliceKey, "", "forwarded_authorization_ignored",
		},
		"agent of its own": {own, lines(asAlice), "alice", "alice", "Bearer " + aliceKey, "Bearer " + agentKey, ""},
		"passed through":   {passing, lines(asRelay, forBob), "bob", "relay", "Bearer " + bobKey, "Bearer " + relayKey, ""},
	} {
		id := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		got := b.send(http.MethodPost, chatRoute, ask(c.to.Name), append(turn(id, id+".t0.x"), c.headers...)...)
		if got.status != http.StatusOK {
			t.Errorf("%s: %v", name, got)
			continue
		}
		h := c.to.next(t)
		if f, a := h.header.Get("x-tangle-forwarded-authorization"), h.header.Get("Authorization"); f != c.forwarded || a != c.authorize {
			t.Errorf("%s: the agent heard %q on behalf of %q", name, a, f)
		}
		r := b.one(id, agentbus.CallSettled)
		if string(r.Payer) != c.payer || r.Caller != c.caller || !slices.Equal(r.Notes, slices.DeleteFunc([]string{c.note}, func(s string) bool { return s == "" })) {
			t.Errorf("%s: recorded as %+v", name, r)
		}
	}
}

// TestPlaintext: P24, a credential leaves over TLS or loopback only, unless the
// operator allows it on that agent; otherwise the call is refused and no
// connection is tried.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	agents := map[string]*agent{}
	for name, u := range map[string]string{
		"plain": "http://agent.example/v1", "address": "http://192.0.2.1/v1", "odd": "http://127.1/v1", "local-lookalike": "http://localhost.example/v1",
		"allowed": "http://agent.example/v1", "tls": "https://agent.example/v1", "loopback": "http://127.0.0.9/v1", "loopback6": "http://[::1]/v1", "localhost": "http://LOCALHOST/v1",
	} {
		a := &agent{Target: target(t, name, u)}
		a.AllowPlaintext = name == "allowed"
		a.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, net.ErrClosed
		}}
		agents[name] = a
	}
	b := newBus(t, nil, agents["plain"], agents["address"], agents["odd"], agents["local-lookalike"], agents["allowed"], agents["tls"], agents["loopback"], agents["loopback6"], agents["localhost"])
	for _, name := range []string{"plain", "address", "odd", "local-lookalike"} {
		refused(t, name, b.call(name, turn(name, name+".t0.x")...), http.StatusForbidden, agentbus.CodeForbidden)
		if r := b.one(name, agentbus.CallRefused); r.Payer != "alice" || r.Agent != name || r.Attempts != 0 {
			t.Errorf("%s: recorded as %+v", name, r)
		}
		refused(t, name, b.send(http.MethodGet, "/agents/"+name+"/x", "", append(turn(name+"-get", "t"), asAlice)...), http.StatusForbidden, agentbus.CodeForbidden)
		b.one(name+"-get", agentbus.CallRefused)
	}
	if n := dials.Load(); n != 0 {
		t.Errorf("%d connections were tried", n)
	}
	for _, name := range []string{"allowed", "tls", "loopback", "loopback6", "localhost"} {
		before := dials.Load()
		refused(t, name, b.call(name), http.StatusBadGateway, agentbus.CodeAgentUnavailable)
		if dials.Load() == before {
			t.Errorf("%s: no connection was tried", name)
		}
	}
}

// TestRedirects: P23, a redirect is never followed, for it would carry the
// forwarded credential to another host.
func TestRedirects(t *testing.T) {
	t.Parallel()
	thief := newAgent(t, "thief", nil)
	var status atomic.Int64
	moved := newAgent(t, "moved", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", thief.URL.String()+"/chat/completions")
		w.WriteHeader(int(status.Load()))
	})
	moved.Price = price
	b := newBus(t, nil, moved, thief)
	for _, s := range []int{300, 301, 302, 303, 307, 308, 399} {
		status.Store(int64(s))
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			got := b.send(method, "/agents/moved/chat/completions", ask("moved"), asAlice)
			refused(t, http.StatusText(s), got, http.StatusBadGateway, agentbus.CodeAgentRedirected)
			if got.header.Get("Location") != "" {
				t.Errorf("%d: Location %s", s, got.header.Get("Location"))
			}
		}
	}
	status.Store(http.StatusNotModified) // no answer to a question: nobody pays for it
	refused(t, "304", b.call("moved", turn("r", "t")...), http.StatusBadGateway, agentbus.CodeAgentRedirected)
	if r := b.one("r", agentbus.CallVoided); r.Cost != 0 {
		t.Errorf("304: recorded as %+v", r)
	}
	if n := thief.executions(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// TestNoCredentialAnywhere: P19 and I8, no credential in the log, in the store,
// in an error or in an answer, whatever happens to a call.
func TestNoCredentialAnywhere(t *testing.T) {
	t.Parallel()
	good := newAgent(t, "good", nil)
	good.Authorization = agentbus.NewCredential("Bearer " + agentKey)
	telling := newAgent(t, "telling", func(w http.ResponseWriter, r *http.Request) { // it says in an error what it was sent
		streamWith(helloEvent+`data: {"error":{"message":"bad keys `+r.Header.Get("Authorization")+` and `+strings.TrimPrefix(r.Header.Get("x-tangle-forwarded-authorization"), "Bearer ")+`"}}`+"\n\n")(w, r)
	})
	telling.Authorization = good.Authorization
	later := newAgent(t, "later", func(w http.ResponseWriter, r *http.Request) { // and in the form of a bus
		answerWith(http.StatusServiceUnavailable, `{"error":{"code":"overloaded","message":"busy with `+r.Header.Get("x-tangle-forwarded-authorization")+`"}}`)(w, r)
	})
	garbage := newRawAgent(t, "garbage", func(c net.Conn, r *http.Request) {
		_, _ = c.Write([]byte("garbage " + r.Header.Get("x-tangle-forwarded-authorization") + "\r\n\r\n"))
	})
	moved := newAgent(t, "moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+canary+"@host/", http.StatusFound)
	})
	broken := newAgent(t, "broken", nil)
	broken.Transport, broken.Authorization = panicking{}, good.Authorization
	b := newBus(t, nil, good, telling, later, garbage, moved, broken)
	var said []string
	for _, name := range []string{"good", "telling", "later", "garbage", "moved", "broken", "nobody", strings.TrimPrefix(asAlice, "Authorization: Bearer ")} {
		for _, headers := range [][]string{
			lines(asAlice), lines(asRelay, forAlice), lines(asAlice, forAlice), lines(asAlice + "x"), lines(asRelay, forAlice+"x"), lines(asAlice, depth+"9"),
			lines(asAlice, depth+"x"), lines(asAlice, depth+"Bearer "+aliceKey), lines(asAlice, "x_tangle_forwarded_authorization: "+canary), lines(asAlice, "Proxy-Authorization: "+canary, "Cookie: "+canary),
		} {
			got := b.send(http.MethodPost, chatRoute, ask(name), append(headers, run+"r")...)
			if name == "later" {
				continue // what it says passes as it is, and tells the caller nothing new
			}
			said = append(said, got.String(), strings.Join(slices.Concat(mapValues(got.header)...), "\n"))
		}
	}
	b.calls("r") // behind every write
	files, err := filepath.Glob(b.path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		checkCanary(t, filepath.Base(f), string(content))
	}
	checkCanary(t, "the log", b.log.text())
	checkCanary(t, "the answers", strings.Join(said, "\n"))
	if good.executions() == 0 || !strings.Contains(b.log.text(), `"msg":"panic"`) {
		t.Error("nothing happened that could have told a credential")
	}
}

func mapValues(h http.Header) (values [][]string) {
	for _, v := range h {
		values = append(values, v)
	}
	return values
}

// checkCanary looks for the canary in what was kept or said, plain and encoded.
func checkCanary(t *testing.T, where, text string) {
	t.Helper()
	for _, form := range []string{canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte(canary))[:12], url.QueryEscape("Bearer " + canary)} {
		if at := strings.Index(text, form); at >= 0 {
			t.Errorf("%s tells a credential: …%q…", where, text[max(0, at-80):min(len(text), at+80)])
		}
	}
}

// panicking is a transport with a bug.
type panicking struct{}

func (panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	panic("a bug in the transport, with " + r.Header.Get("x-tangle-forwarded-authorization") + " and " + r.Header.Get("Authorization"))
}

// TestPanic: G2, a panic costs one call: 500 internal, no stack on the wire, a
// record and a line in the log, and the bus serves on.
func TestPanic(t *testing.T) {
	t.Parallel()
	a, good := newAgent(t, "broken", nil), newAgent(t, "good", nil)
	a.Transport = panicking{}
	b := newBus(t, nil, a, good)
	for range 2 {
		got := b.call("broken", turn("r", "r.t0.x")...)
		refused(t, "transport", got, http.StatusInternalServerError, agentbus.CodeInternal)
		if strings.Contains(got.body, "a bug") || strings.Contains(got.body, ".go") {
			t.Errorf("the answer tells %s", got.body)
		}
	}
	if r := b.one("r", agentbus.CallVoided); r.Attempts != 2 || r.Code != agentbus.CodeInternal || r.Cost != 0 {
		t.Errorf("recorded as %+v", r)
	}
	if log := b.log.text(); strings.Count(log, "a bug in the transport") != 2 || strings.Count(log, `"msg":"call"`) != 2 || !strings.Contains(log, `"code":"internal"`) {
		t.Errorf("the log says %s", log)
	}
	if got := b.call("good"); got.status != http.StatusOK {
		t.Errorf("behind a panic: %v", got)
	}

	router := newBus(t, func(c *gateway.Config) { c.Router = panickingRouter{} })
	refused(t, "router", router.call("good", turn("r", "r.t0.x")...), http.StatusInternalServerError, agentbus.CodeInternal)
	if r := router.one("r", agentbus.CallRefused); r.Payer != "alice" || r.Agent != "good" || r.Code != agentbus.CodeInternal || r.Status != http.StatusInternalServerError {
		t.Errorf("recorded as %+v", r)
	}
}

type panickingRouter struct{ gateway.Router }

// TestInProcess: P9 and P22, a driver of this process has counted its hop, needs
// no credential, and tells who pays; an agent that pays for itself is sent no
// credential of the origin.
func TestInProcess(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for _, agentOwned := range []bool{false, true} {
		id := map[bool]string{false: "driver", true: "owned"}[agentOwned]
		l, err := agentbus.Lineage{Run: agentbus.RunID(id), Auth: agentbus.NewCredential("Bearer " + aliceKey)}.Next("t", "critic")
		if err != nil {
			t.Fatal(err)
		}
		ctx := gateway.WithInProcess(t.Context(), gateway.InProcess{Caller: agentbus.Principal{ID: "driver"}, Payer: "alice", AgentOwned: agentOwned})
		got := b.inProcess(ctx, ask("critic"), l)
		if got.status != http.StatusOK {
			t.Fatal(got)
		}
		want := []string{"1", id, "t", "", "Bearer " + aliceKey}
		notes := []string(nil)
		if agentOwned {
			want[4], notes = "", []string{"agent_owned"}
		}
		h := a.next(t).header
		heard := []string{
			h.Get("x-tangle-forwarded-depth"), h.Get("x-tangle-runid"), h.Get("x-tangle-turnid"),
			h.Get("Authorization"), h.Get("x-tangle-forwarded-authorization"),
		}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("agent owned %t: (-want +heard)\n%s", agentOwned, diff)
		}
		if r := b.one(id, agentbus.CallSettled); r.Payer != "alice" || r.Caller != "driver" || r.Depth != 1 || !slices.Equal(r.Notes, notes) {
			t.Errorf("agent owned %t: recorded as %+v", agentOwned, r)
		}
	}
	if _, marked := gateway.InProcessOf(t.Context()); marked {
		t.Error("a context without a mark has one")
	}
}

// TestStoreIsAsked: G4, keys created while the bus runs are known at once; a
// store that cannot be asked is no 401.
func TestStoreIsAsked(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	b := busOver(t, store, path, nil, newAgent(t, "critic", nil))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, "closed store", b.send(http.MethodPost, chatRoute, ask("critic"), "Authorization: Bearer unknown"), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
}
