package server_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// C34 to C36: an agent of any kind with an address is called by it, and another
// bus finds it by it, over sockets.
func TestAddresses(t *testing.T) {
	t.Parallel()
	s := open(t, "agents: {critic: {kind: builtin, builtin: echo, address: '@Critic@bots.localhost'}, plain: {kind: builtin, builtin: echo}}")
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(bus.Close)
	call := func(path, model string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, bus.URL+path, strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, model)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		return sent(t, bus.Client(), r)
	}
	for _, tt := range []struct {
		path, model string
		want        int
	}{
		{"/v1/chat/completions", "@critic@bots.localhost", http.StatusOK},
		{"/v1/chat/completions", "acct:CRITIC@bots.localhost", http.StatusOK},
		{"/agents/@critic@bots.localhost/chat/completions", "x", http.StatusOK},
		{"/v1/chat/completions", "@plain@bots.localhost", http.StatusNotFound},
		{"/v1/chat/completions", "@critic@elsewhere.example", http.StatusNotFound},
	} {
		if status, body := call(tt.path, tt.model); status != tt.want {
			t.Errorf("%s of %s: %d %s, want %d", tt.path, tt.model, status, body, tt.want)
		}
	}

	_, port, err := net.SplitHostPort(bus.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: []string{"http://bots.localhost:" + port}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a2a.NewResolver(a2a.ResolverConfig{Dialer: d, Domains: []string{"bots.localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"critic": "http://bots.localhost:" + port + "/a2a/critic", "plain": ""} {
		at, err := agentbus.ParseAddress(name + "@bots.localhost")
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Resolve(t.Context(), at)
		if want == "" {
			if agentbus.CodeOf(err) != agentbus.CodeAgentNotFound {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got.Endpoint.String() != want || got.Card.Version != "0.0.0" || len(got.Card.A2A.Capabilities.Extensions) != 2 { // A31
			t.Errorf("%s: %+v, %v, want %s", name, got, err, want)
		}
	}
}
