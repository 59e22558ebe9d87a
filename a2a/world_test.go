package a2a_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// A world is the network of a test: every host of it is one TLS server on this
// machine, whose certificate is for example.com and what is below it. Hosts
// have public addresses unless the test says otherwise.
type world struct {
	mux *http.ServeMux // patterns name the host: "GET example.com/x"
	// names say what a lookup of a host answers, one after the other; the last
	// one stays.
	mu      sync.Mutex
	names   map[string][][]string
	lookups []string
	dialed  []string

	server *httptest.Server
}

const somewhere = "93.184.215.14"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{mux: http.NewServeMux(), names: map[string][][]string{}}
	w.server = httptest.NewTLSServer(w.mux)
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	answers, told := w.names[host]
	if !told {
		answers = [][]string{{somewhere}}
	}
	var addrs []netip.Addr
	for _, text := range answers[0] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if len(answers) > 1 {
		w.names[host] = answers[1:]
	}
	return addrs, nil
}

func (w *world) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, to.String())
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.server.Listener.Addr().String())
}

// asked returns what was looked up and dialed so far.
func (w *world) asked() (lookups, dialed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lookups, w.dialed
}

func (w *world) dialer(t *testing.T, allow ...string) *a2a.Dialer {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(w.server.Certificate())
	d, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: allow, Lookup: w.lookup, Connect: w.connect, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) resolver(t *testing.T, c a2a.ResolverConfig) *a2a.Resolver {
	t.Helper()
	if c.Dialer == nil {
		c.Dialer = w.dialer(t)
	}
	if c.Domains == nil {
		c.Domains = []string{"example.com"}
	}
	r, err := a2a.NewResolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer serves a document, whatever is asked behind the path.
func (w *world) answer(pattern, kind, body string) {
	w.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(body))
	})
}

const criticJRD = `{"subject":"acct:critic@example.com","links":[
 {"rel":"self","type":"application/activity+json","href":"https://example.com/ap/critic"},
 {"rel":"https://mentionable.dev/ns/rel/agent-card","type":"application/json","href":"https://example.com/card"}]}`

// cardOf is the card of an address whose agent is called at endpoint.
func cardOf(address, endpoint string) string {
	return fmt.Sprintf(`{"address":%q,"name":"Critic","version":"1.2.3","protocol_version":"0.1","a2a":{"endpoint":%q,"transport":"https+jsonrpc",
 "capabilities":{"streaming":true,"extensions":[]},"skills":[],"input_modes":["text"],"output_modes":["text"],"auth":{"schemes":["bearer"]}},
 "mentionable":{"supported_inbound":["a2a"]}}`, address, endpoint)
}

func address(t *testing.T, s string) agentbus.Address {
	t.Helper()
	a, err := agentbus.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve serves h over plain HTTP, and returns where: a host below localhost, and
// the port.
func serve(t *testing.T, h http.Handler) (at string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "bots.localhost:" + port
}
