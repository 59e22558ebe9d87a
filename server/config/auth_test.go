package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
)

// certificate returns a certificate and its key, in PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bus"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// TestAuth: G4, what auth says, with its defaults.
func TestAuth(t *testing.T) {
	t.Parallel()
	c, warnings := parse(t, `
auth:
  jwt:
    - {issuer: "https://ID.example.com:8443/realm", audience: agentbus, inter_agent: [relay]}
    - {name: second, issuer: "http://127.0.0.1:9/", audience: x, jwks_url: "http://localhost/keys?p=1", algorithms: [ES384]}
  introspection: {url: "https://pay.example.com/i", client_id: bus, client_secret_env: SET, prefixes: [x402_]}
`, source(map[string]string{"SET": "canary"}))
	want := config.Auth{
		JWT: []config.JWT{
			{Name: "id.example.com", Issuer: "https://ID.example.com:8443/realm", Audience: "agentbus", SubjectClaim: "sub", AdminValue: "admin", InterAgent: []string{"relay"}, Leeway: 30 * time.Second},
			{Name: "second", Issuer: "http://127.0.0.1:9/", Audience: "x", JWKSURL: "http://localhost/keys?p=1", Algorithms: []string{"ES384"}, SubjectClaim: "sub", AdminValue: "admin", Leeway: 30 * time.Second},
		},
		Introspection: &config.Introspection{
			Name: "introspection", URL: "https://pay.example.com/i", ClientID: "bus", ClientSecretEnv: "SET", Prefixes: []string{"x402_"},
			AdminValue: "admin", TTL: 30 * time.Second, Cache: 10_000, Timeout: 5 * time.Second,
		},
	}
	secret := c.Auth.Introspection.ClientSecret
	c.Auth.Introspection.ClientSecret = agentbus.Credential{}
	if diff := cmp.Diff(want, c.Auth, cmp.Comparer(func(a, b agentbus.Credential) bool { return a.Reveal() == b.Reveal() })); diff != "" || secret.Reveal() != "canary" || len(warnings) > 0 {
		t.Errorf("secret %q, warnings %v (-want +got):\n%s", secret.Reveal(), warnings, diff)
	}
	if diff := cmp.Diff([]config.AuthMethod{"keys", "jwt", "introspection"}, c.Auth.Methods()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{"id.example.com:alice": "id.example.com:", "introspection:": "introspection:", "id.example.com": "", "mtls:a": "", "alice": ""} {
		if got := c.ReservedPrefix(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestAuthFaults: G4, what cannot be safe is refused with what to do.
func TestAuthFaults(t *testing.T) {
	t.Parallel()
	jwt := func(more string) string { return "auth: {jwt: [{issuer: 'https://h', audience: a" + more + "}]}" }
	in := func(more string) string { return "auth: {introspection: {client_id: c, prefixes: [x_], " + more + "}}" }
	for name, c := range map[string]struct{ text, want string }{
		"plain issuer":      {"auth: {jwt: [{issuer: 'http://h', audience: a}]}", "auth.jwt[0].issuer: plain HTTP to another machine can be changed on the way; write it as https://host/path"},
		"plain keys":        {jwt(", jwks_url: 'http://h/k'"), "auth.jwt[0].jwks_url: plain HTTP to another machine can be changed on the way; write it as https://host/path"},
		"password":          {jwt(", jwks_url: 'https://u:canary@h/k'"), "auth.jwt[0].jwks_url: the URL holds a user or a fragment; remove it"},
		"no audience":       {"auth: {jwt: [{issuer: 'https://h', audience: ''}]}", "auth.jwt[0].audience: it is empty, so tokens for others would count here; write what the issuer puts into aud for this bus"},
		"no name":           {"auth: {jwt: [{issuer: 'https://[::1]', audience: a}]}", "auth.jwt[0]: the host of the issuer cannot name its principals; add name: a short name"},
		"algorithm":         {jwt(", algorithms: [HS256]"), `auth.jwt[0].algorithms[0]: "HS256" is not a value it can have; write RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA; did you mean RS256?`},
		"no claim":          {jwt(", subject_claim: ''"), "auth.jwt[0].subject_claim: it is empty, so tokens would name nobody; remove it for the default, sub"},
		"name of the bus":   {jwt(", name: agent"), "auth.jwt[0].name: the bus uses the name itself; choose another name"},
		"one issuer twice":  {"auth: {jwt: [{issuer: 'https://h', audience: a}, {name: n, issuer: 'https://h', audience: b}]}", "auth.jwt[1].issuer: the issuer is that of auth.jwt[0] too; remove one of them"},
		"one name twice":    {"auth: {jwt: [{issuer: 'https://h/a', audience: a}, {issuer: 'https://h/b', audience: a}]}", "auth.jwt[1].name: the name h is that of auth.jwt[0] too, so their principals could not be told apart; give one of them another with name:"},
		"key of an issuer":  {"keys: [{id: 'h:alice', secret_env: SET}]\n" + jwt(""), "keys[0].id: an id that begins with h: is one of auth.jwt[0]; choose another id"},
		"plain endpoint":    {in("url: 'http://h', client_secret_env: SET"), "auth.introspection.url: plain HTTP to another machine can be changed on the way; write it as https://host/path"},
		"no secret":         {in("url: 'https://h'"), "auth.introspection: the client has no secret; name the variable that holds it with client_secret_env, or the file with client_secret_file"},
		"secret is not set": {in("url: 'https://h', client_secret_env: NONE"), "auth.introspection.client_secret_env: the environment variable NONE is not set or holds nothing; put the secret into it"},
		"mtls without CA":   {"auth: {mtls: {}}", "auth.mtls: no client certificate is asked for, so nobody is known by one; name the authorities with tls.client_ca_file"},
		"not configured":    {"auth: {order: [keys, jwt]}", "auth.order[1]: no jwt is configured; add auth.jwt, or remove it here"},
		"twice":             {"auth: {order: [keys, keys]}", "auth.order[1]: keys stands here twice; remove one of them"},
		"no file":           {"tls: {cert_file: none, key_file: key}", "tls.cert_file: the file cannot be read: file does not exist; make it a file that this user may read"},
		"no certificate":    {"tls: {cert_file: key, key_file: cert}", "tls: the two files are not a certificate and its private key, in PEM; see to cert_file and key_file; check them with openssl x509 and openssl pkey"},
		"another's key":     {"tls: {cert_file: cert, key_file: other}", "tls: the two files are not a certificate and its private key, in PEM; see to cert_file and key_file; check them with openssl x509 and openssl pkey"},
		"no authority":      {"tls: {cert_file: cert, key_file: key, client_ca_file: key}", "tls.client_ca_file: the file holds no certificate in PEM; write the certificates of the authorities into it"},
		"G6 unknown agent":  {"keys: [{id: a, secret_env: SET, agents: [b]}]", `keys[0].agents[0]: there is no agent "b"; declare it under agents`},
		"G6 nothing":        {"keys: [{id: a, secret_env: SET, agents: }]", "keys[0].agents: it has no value, and every agent is hardly meant; write the names of agents, [] for none, or remove the key for all"},
		"G8 rate":           {"keys: [{id: a, secret_env: SET, rate: {per_second: 1e3}}]", `keys[0].rate.per_second: "1e3" is not a rate; write a decimal such as 0.5 or 20, up to a million`},
	} {
		src := source(map[string]string{"SET": "canary"})
		cert, key := certificate(t)
		_, other := certificate(t)
		src.ReadFile = files(map[string]string{"cert": cert, "key": key, "other": other})
		got := faults(t, c.text, src)
		if len(got) != 1 || !strings.HasSuffix(got[0], ": "+c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "\n"), c.want)
		}
	}
}

// TestTLS: G4, the files of TLS are read once, and the key never prints (P19).
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	src := source(nil)
	src.ReadFile = files(map[string]string{"cert": cert, "key": key})
	c, warnings := parse(t, "listen: 0.0.0.0:443\ntls: {cert_file: cert, key_file: key, client_ca_file: cert}\nauth: {mtls: {inter_agent: [a]}}", src)
	if len(warnings) > 0 || c.TLS.Cert != cert || c.TLS.Key.Reveal() != key || c.TLS.ClientCA != cert || c.Auth.MTLS.Name != "mtls" {
		t.Errorf("%+v, %v", c.TLS, warnings)
	}
	if text := fmt.Sprintf("%+v %#v", *c.TLS, *c.TLS) + config.Explain(c); strings.Contains(text, "PRIVATE") {
		t.Error("the key prints")
	}
	_, warnings = parse(t, "tls: {cert_file: cert, key_file: key, client_ca_file: cert}\nauth: {order: [keys]}", src)
	if len(warnings) != 1 || !strings.Contains(warnings[0].String(), "nobody is known by one") {
		t.Errorf("certificates for nothing: %v", warnings)
	}
}

// TestGrants: G6, what a key may do comes with its principal.
func TestGrants(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, twoAgents+`
keys:
  - {id: all, secret_env: A}
  - {id: none, secret_env: B, agents: []}
  - {id: some, secret_env: C, agents: [a], no_run_ids: true, rate: {per_second: 0.5, burst: 3}}
`, source(map[string]string{"A": "a", "B": "b", "C": "c"}))
	want := []*agentbus.Grants{nil, {Agents: []string{}}, {Agents: []string{"a"}, NoRunIDs: true, PerSecond: 0.5, Burst: 3}}
	for i, k := range c.Keys {
		if diff := cmp.Diff(want[i], k.Principal().Grants); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k.ID, diff)
		}
	}
}
