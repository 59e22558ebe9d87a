package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// C33, C35, C8, P19: an agent of another organisation is called by its address,
// over sockets, by both dialects: without the caller's credential, and nobody is
// asked for a call that is refused.
func TestAgentsOfOthers(t *testing.T) {
	t.Parallel()
	far := open(t, "agents: {critic: {kind: builtin, builtin: echo, address: '@critic@bots.localhost', price: {call: 0.5}}}")
	var asked, credentials atomic.Int64
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Tangle-Forwarded-Authorization") != "" {
			credentials.Add(1)
		}
		if r.Method == http.MethodPost {
			r.Header.Set("Authorization", "Bearer user-secret") // it lets everybody in
		}
		far.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(there.Close)
	_, port, err := net.SplitHostPort(there.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, "limits: {max_depth: 2}\nresolver: {domains: [bots.localhost], allow_hosts: ['http://bots.localhost:"+port+"']}\nagents: {echo: {kind: builtin, builtin: echo}}\n")
	here := httptest.NewServer(s.Handler())
	t.Cleanup(here.Close)
	call := func(path, model, depth string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, here.URL+path, strings.NewReader(`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		r.Header.Set("X-Tangle-Forwarded-Depth", depth)
		return sent(t, here.Client(), r)
	}
	const completions = "/v1/chat/completions"
	for _, tt := range []struct {
		path, model, depth string
		status             int
		asks               bool
	}{
		{completions, "@critic@bots.localhost", "2", http.StatusBadRequest, false}, // C8: refused before anybody is asked
		{completions, "@critic@other.localhost", "0", http.StatusNotFound, false},
		{completions, "@critic@bots.localhost", "0", http.StatusOK, true},
		{completions, "acct:CRITIC@bots.localhost", "0", http.StatusOK, true},
		{"/agents/@critic@bots.localhost/chat/completions", "x", "0", http.StatusOK, true},
		{completions, "@nobody@bots.localhost", "0", http.StatusNotFound, true},
	} {
		before := asked.Load()
		status, body := call(tt.path, tt.model, tt.depth)
		if tt.status == http.StatusBadRequest && status/100 == 4 {
			status = tt.status
		}
		if status != tt.status || (asked.Load() > before) != tt.asks || status != http.StatusOK && strings.Contains(body, "@") { // X32
			t.Errorf("%s of %s: %d %s, asked %d times", tt.path, tt.model, status, body, asked.Load()-before)
		}
	}
	got, err := a2aClient(t, here, "@critic@bots.localhost", "Bearer user-secret", nil).SendMessage(t.Context(), &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("over A2A"))})
	task, ok := got.(*sdk.Task)
	if err != nil || !ok || task.Status.State != sdk.TaskStateCompleted {
		t.Fatalf("%+v, %v", got, err)
	}
	calls, err := s.Store().Calls(t.Context(), agentbus.RunID(task.ID))
	if err != nil || len(calls) == 0 || calls[len(calls)-1].Agent != "bots.localhost/critic" || calls[len(calls)-1].Cost != 0 {
		t.Errorf("%+v, %v", calls, err) // what a stranger says that it costs is nobody's cost here
	}
	if n := credentials.Load(); n != 0 {
		t.Errorf("%d requests held a credential", n)
	}
}

// C35, X31: an agent that is called by its address is called at the endpoint that
// the card of the address names, whatever card of another agent, or of another
// place, its host has.
func TestCalledAtItsEndpoint(t *testing.T) {
	t.Parallel()
	for name, cardAt := range map[string]string{"no card": "", "the card of another at the root": a2a.CardPath, "a card that leads elsewhere": "/rpc.json" + a2a.CardPath} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := httptest.NewUnstartedServer(nil)
			at := strings.Replace("http://"+there.Listener.Addr().String(), "127.0.0.1", "bots.localhost", 1)
			there.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/.well-known/webfinger":
					_, _ = fmt.Fprintf(w, `{"subject":"acct:critic@bots.localhost","links":[{"rel":"https://mentionable.dev/ns/rel/agent-card","type":"application/json","href":"%s/card"}]}`, at)
				case "/card":
					_, _ = fmt.Fprintf(w, `{"address":"@critic@bots.localhost","protocol_version":"0.1","a2a":{"endpoint":"%s/rpc.json","transport":"https+jsonrpc"}}`, at)
				case cardAt:
					_, _ = fmt.Fprintf(w, `{"supportedInterfaces":[{"url":"%s/other","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, at)
				case "/rpc.json", "/other":
					_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"at %s"}]}}}`, gjson.GetBytes(body, "id").Raw, r.URL.Path)
				default:
					http.NotFound(w, r)
				}
			})
			there.Start()
			t.Cleanup(there.Close)
			s := open(t, "resolver: {domains: [bots.localhost], allow_hosts: ['"+at+"']}")
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"@critic@bots.localhost","messages":[{"role":"user","content":"hello"}]}`))
			r.Header.Set("Authorization", "Bearer user-secret")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "at /rpc.json") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}
