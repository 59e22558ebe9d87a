package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// An authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, _ = a.issue("authority", nil)
	return a
}

// issue makes a certificate for a subject, vouched for by a, and its chain in
// PEM.
func (a *authority) issue(subject string, change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: subject}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: a.cert == nil,
	}
	if change != nil {
		change(c)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// client returns a TLS configuration that trusts a and shows a certificate of
// by for subject; nil: none.
func (a *authority) client(by *authority, subject string, change func(*x509.Certificate)) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	c.RootCAs.AddCert(a.cert)
	if by != nil {
		cert, key, _ := by.issue(subject, change)
		shown := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
		// Also one that the server has not asked for: it must see to that itself.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	}
	return c
}

// A secured is a bus over TLS, with every way to tell who calls.
type secured struct {
	*server.Server
	t         *testing.T
	ca        *authority
	addr      string
	agent     *agent
	sign      jose.Signer
	issuer    string
	mu        sync.Mutex
	down      bool // the introspection endpoint does not answer
	log       bytes.Buffer
	endpoints *httptest.Server
}

func (s *secured) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *secured) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, ca: newAuthority(t), agent: newAgent(t, "a")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if s.sign, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.issuer, "jwks_uri": s.issuer + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	})
	mux.HandleFunc("/introspect", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		name, good := strings.CutPrefix(r.FormValue("token"), "x402_canary_")
		_ = json.NewEncoder(w).Encode(map[string]any{"active": good, "sub": name})
	})
	s.endpoints = httptest.NewServer(mux)
	t.Cleanup(s.endpoints.Close)
	s.issuer = s.endpoints.URL
	s.serve(s.configure())
	return s
}

// configure writes the files of a configuration and reads it.
func (s *secured) configure() *config.Config {
	s.t.Helper()
	dir := s.t.TempDir()
	_, key, chain := s.ca.issue("bus", nil)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"tls.crt": chain, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"clients.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.cert.Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`
store: {url: "sqlite:%[1]s/bus.db"}
tls: {cert_file: %[1]s/tls.crt, key_file: %[1]s/tls.key, client_ca_file: %[1]s/clients.crt}
keys: [{id: static, secret_env: KEY}]
auth:
  jwt: [{name: id, issuer: %[2]q, audience: agentbus, inter_agent: [relay]}]
  introspection: {name: x402, url: "%[2]s/introspect", client_id: bus, client_secret_env: KEY, prefixes: [x402_]}
  mtls: {inter_agent: [sandbox]}
agents: {a: {kind: openai, url: %[3]q}}
`, dir, s.issuer, s.agent.URL+"/v1")
	c, _, err := config.Parse("test", []byte(text), config.Source{Env: func(name string) (string, bool) { return "sk-canary", name == "KEY" }})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *secured) serve(c *config.Config) {
	s.t.Helper()
	var err error
	if s.Server, err = server.New(s.t.Context(), server.Config{Config: c, Logger: slog.New(slog.NewJSONHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))}); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			s.t.Errorf("Serve: %v", err)
		}
		closed(s.t, s.Server)
	})
}

// token returns a token of the issuer, signed, for a subject.
func (s *secured) token(subject string, life time.Duration) string {
	s.t.Helper()
	payload, err := json.Marshal(map[string]any{"iss": s.issuer, "aud": "agentbus", "sub": subject, "exp": time.Now().Add(life).Unix()})
	if err != nil {
		s.t.Fatal(err)
	}
	signed, err := s.sign.Sign(payload)
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// call asks the agent, and returns the status and the body.
func (s *secured) call(c *tls.Config, run, authorization, forwarded string) (status int, body string, err error) {
	s.t.Helper()
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodPost, "https://"+s.addr+"/v1/chat/completions", strings.NewReader(`{"model":"a"}`))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set(agentbus.HeaderRunID, run)
	r.Header.Set(agentbus.HeaderTurnID, run+".t0.a")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if forwarded != "" {
		r.Header.Set(agentbus.HeaderForwardedAuthorization, forwarded)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if resp.ProtoMajor != 1 {
		s.t.Errorf("%s: HTTP/%d", run, resp.ProtoMajor)
	}
	return resp.StatusCode, string(b), err
}

// TestWhoCalls: G4, P20 and P21 over sockets: who calls, who pays, and what
// travels on, by certificate, JWT, introspection and key.
func TestWhoCalls(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	none := s.ca.client(nil, "", nil)
	sandbox, user := s.ca.client(s.ca, "sandbox", nil), s.ca.client(s.ca, "user", nil)
	jwt := "Bearer " + s.token("alice", time.Hour)
	for run, c := range map[string]struct {
		tls                      *tls.Config
		authorization, forwarded string
		caller                   string
		payer                    agentbus.Payer
		travels                  string
	}{
		"key":                    {none, "Bearer sk-canary", "", "static", "static", "Bearer sk-canary"},
		"jwt":                    {none, jwt, "", "id:alice", "id:alice", jwt},
		"opaque":                 {none, "Bearer x402_canary_bob", "", "x402:bob", "x402:bob", "Bearer x402_canary_bob"},
		"certificate":            {user, "", "", "mtls:user", "mtls:user", ""},
		"certificate-and-dummy":  {user, "Bearer dummy-canary", "", "mtls:user", "mtls:user", ""}, // nobody has verified it: it does not travel
		"certificate-and-key":    {user, "Bearer sk-canary", "", "static", "static", "Bearer sk-canary"},
		"jwt-over-certificate":   {sandbox, "", jwt, "mtls:sandbox", "id:alice", jwt},
		"opaque-over-jwt":        {none, "Bearer " + s.token("relay", time.Hour), "Bearer x402_canary_bob", "id:relay", "x402:bob", "Bearer x402_canary_bob"},
		"unlisted":               {user, "", jwt, "mtls:user", "mtls:user", ""},
		"unlisted-jwt":           {none, jwt, "Bearer x402_canary_bob", "id:alice", "id:alice", jwt},
		"opaque-for-itself":      {sandbox, "Bearer x402_canary_bob", "", "x402:bob", "x402:bob", "Bearer x402_canary_bob"},
		"over-certificate-a-key": {sandbox, "", "Bearer sk-canary", "mtls:sandbox", "static", "Bearer sk-canary"},
	} {
		before := len(s.agent.headers())
		status, body, err := s.call(c.tls, run, c.authorization, c.forwarded)
		if err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %s, %v", run, status, body, err)
			continue
		}
		h := s.agent.headers()[before]
		if got := h.Get(agentbus.HeaderForwardedAuthorization); got != c.travels || h.Get("Authorization") != "" || h.Get("X-Forwarded-Proto") != "https" {
			t.Errorf("%s: the agent got %q on behalf of %q over %s", run, h.Get("Authorization"), got, h.Get("X-Forwarded-Proto"))
		}
		calls, err := s.Store().Calls(t.Context(), agentbus.RunID(run))
		if err != nil || len(calls) != 1 {
			t.Fatalf("%s: %v, %v", run, calls, err)
		}
		notes := []string(nil)
		if strings.HasPrefix(run, "unlisted") {
			notes = []string{"forwarded_authorization_ignored"}
		}
		if diff := cmp.Diff(notes, calls[0].Notes); diff != "" || calls[0].Payer != c.payer || calls[0].Caller != c.caller {
			t.Errorf("%s: caller %s, payer %s; notes (-want +got):\n%s", run, calls[0].Caller, calls[0].Payer, diff)
		}
	}
	s.silent()
}

// TestWhoDoesNotCall: G4 and P20, what lets nobody in.
func TestWhoDoesNotCall(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	none, sandbox := s.ca.client(nil, "", nil), s.ca.client(s.ca, "sandbox", nil)
	expired := "Bearer " + s.token("alice", -time.Hour)
	for run, c := range map[string]struct {
		tls                      *tls.Config
		authorization, forwarded string
		status                   int
		says                     string
	}{
		"nothing":                      {none, "", "", 401, "no credential"},
		"unknown":                      {none, "Bearer canary", "", 401, "not known"},
		"expired":                      {none, expired, "", 401, `"observed":"expired"`},
		"inactive":                     {none, "Bearer x402_other_canary", "", 401, `"observed":"inactive"`},
		"expired-with-certificate":     {sandbox, expired, "", 401, `"observed":"expired"`},
		"forwarded-expired":            {sandbox, "", expired, 401, `"observed":"expired"`},
		"forwarded-unknown":            {sandbox, "", "Bearer canary", 401, `"rule":"P20"`}, // P20: never the caller's certificate
		"forwarded-no-bearer":          {sandbox, "", "canary", 401, `"rule":"P20"`},
		"certificate-without-a-name":   {s.ca.client(s.ca, "", nil), "", "", 401, "no credential"},
		"certificate-with-a-bad-name":  {s.ca.client(s.ca, "a b", nil), "", "", 401, `"observed":"bad_subject"`},
		"another-authority":            {s.ca.client(newAuthority(t), "sandbox", nil), "", "", 0, ""},
		"a-certificate-of-its-own":     {s.ca.client(&authority{t: t}, "sandbox", nil), "", "", 0, ""},
		"a-certificate-that-has-ended": {s.ca.client(s.ca, "sandbox", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "", "", 0, ""},
		"a-server's-certificate": {s.ca.client(s.ca, "sandbox", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "", "", 0, ""},
	} {
		status, body, err := s.call(c.tls, strings.ReplaceAll(run, "'", ""), c.authorization, c.forwarded)
		if status != c.status || (err != nil) != (c.status == 0) || !strings.Contains(body, c.says) || strings.Contains(body, "canary") {
			t.Errorf("%s: %d %s, %v; want %d and %s", run, status, body, err, c.status, c.says)
		}
	}

	s.setDown(true)
	for run, authorization := range map[string]string{"down": "Bearer x402_canary_new", "down-forwarded": ""} {
		forwarded := ""
		if authorization == "" {
			forwarded = "Bearer x402_canary_new"
		}
		status, body, err := s.call(sandbox, run, authorization, forwarded)
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, `"identity_unavailable"`) || !strings.Contains(body, `"retryable":true`) {
			t.Errorf("%s: %d %s, %v", run, status, body, err)
		}
	}
	s.setDown(false)
	if status, body, err := s.call(none, "back", "Bearer x402_canary_new", ""); err != nil || status != http.StatusOK {
		t.Errorf("back: %d %s, %v", status, body, err)
	}
	if n := len(s.agent.headers()); n != 1 {
		t.Errorf("the agent was called %d times, want once", n)
	}
	s.silent()
}

// silent checks that no credential was logged (P19).
func (s *secured) silent() {
	s.t.Helper()
	var text string
	soon(s.t, "a line of the log, which is written behind the answer,", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		text = s.log.String()
		return strings.Contains(text, `"msg":"call"`)
	})
	for _, secret := range []string{"canary", "eyJ"} { // every token begins so
		if at := strings.Index(text, secret); at >= 0 {
			s.t.Errorf("the log tells a credential: …%s…", text[max(0, at-80):min(len(text), at+80)])
		}
	}
}

// TestStrictOverTLS: G36, a request that can be read in two ways is refused
// behind TLS too, and connections are used again.
func TestStrictOverTLS(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	c, err := tls.Dial("tcp", s.addr, s.ca.client(nil, "", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	for _, raw := range []string{
		"GET /healthz HTTP/1.1\r\nHost: bus\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: bus\r\nAuthorization: Bearer sk-canary\r\nContent-Length: 13\r\n\r\n{\"model\":\"a\"}",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: bus\r\nAuthorization: Bearer sk-canary\r\nContent-Length: 13\r\nContent-Length: 13\r\n\r\n{\"model\":\"a\"}",
	} {
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		want := http.StatusOK
		if strings.Count(raw, "Content-Length") > 1 {
			want = http.StatusBadRequest
		}
		if err != nil || resp.StatusCode != want {
			t.Errorf("%d %s, %v; want %d", resp.StatusCode, body, err, want)
		}
	}

	plain, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	_ = plain.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(plain, "GET /healthz HTTP/1.1\r\nHost: bus\r\n\r\n")
	if answer, _ := io.ReadAll(plain); bytes.Contains(answer, []byte("200")) {
		t.Errorf("plain HTTP was answered: %q", answer)
	}
}
