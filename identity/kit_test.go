package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The keys of every test, made once: RSA keys take their time.
var keysOnce = sync.OnceValue(func() map[string]crypto.Signer {
	r, _ := rsa.GenerateKey(rand.Reader, 2048)
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	e, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{"rsa": r, "weak": weak, "ec": e, "other": other, "ed": ed}
})

// An issuer is a server that publishes keys, as an OpenID provider does.
type issuer struct {
	t   *testing.T
	srv *httptest.Server // nil: it is reached in memory

	mu        sync.Mutex
	published []string         // ids of keys
	answer    http.HandlerFunc // in place of the key set; nil: the key set
	discovery map[string]any   // in place of the discovery document
	fetches   int              // of the key set
	url       string
}

// newIssuer starts an issuer that publishes the keys of those ids.
func newIssuer(t *testing.T, published ...string) *issuer {
	t.Helper()
	i := &issuer{t: t, published: published}
	i.srv = httptest.NewServer(i)
	i.url = i.srv.URL
	t.Cleanup(i.srv.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	answer, published, discovery := i.answer, i.published, i.discovery
	if r.URL.Path == "/keys" {
		i.fetches++
	}
	i.mu.Unlock()
	switch {
	case r.URL.Path == "/.well-known/openid-configuration":
		if discovery == nil {
			discovery = map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"}
		}
		_ = json.NewEncoder(w).Encode(discovery)
	case r.URL.Path != "/keys":
		http.NotFound(w, r)
	case answer != nil:
		answer(w, r)
	default:
		set := jose.JSONWebKeySet{}
		for _, id := range published {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: keysOnce()[id].Public(), KeyID: id, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	}
}

// RoundTrip reaches the issuer in memory.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func (i *issuer) publish(answer http.HandlerFunc, ids ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.published, i.answer = ids, answer
}

func (i *issuer) asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// claims are those of a good token, with changes; nil takes one away.
func (i *issuer) claims(changes map[string]any) map[string]any {
	c := map[string]any{"iss": i.url, "aud": "agentbus", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// sign returns "Bearer " and a token with the claims.
func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) agentbus.Credential {
	t.Helper()
	options := &jose.SignerOptions{}
	if kid != "" {
		options.WithHeader("kid", kid)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, s, claims)
}

// signed returns the token of claims under s.
func signed(t *testing.T, s jose.Signer, claims map[string]any) agentbus.Credential {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	object, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return agentbus.NewCredential("Bearer " + token)
}

// token is a good token of the issuer, signed with the EC key, with changes.
func (i *issuer) token(changes map[string]any) agentbus.Credential {
	return sign(i.t, jose.ES256, keysOnce()["ec"], "ec", i.claims(changes))
}

// verifier returns a JWT that trusts the issuer.
func (i *issuer) verifier(change func(*identity.JWTConfig)) *identity.JWT {
	i.t.Helper()
	c := identity.JWTConfig{Realm: identity.Realm{Name: "id"}, Issuer: i.url, Audience: "agentbus", JWKSURL: i.url + "/keys"}
	if i.srv == nil {
		c.Transport = i
	}
	if change != nil {
		change(&c)
	}
	j, err := identity.NewJWT(c)
	if err != nil {
		i.t.Fatal(err)
	}
	return j
}

// reasonOf returns the class of what is wrong with a credential: "" when
// nothing is, "not mine", or the code of an error that judges nothing.
func reasonOf(err error) string {
	e := agentbus.AsError(err)
	switch {
	case err == nil:
		return ""
	case e.Code != agentbus.CodeUnauthenticated:
		return string(e.Code)
	case isNotMine(err):
		return "not mine"
	case e.Explain == nil:
		return "unexplained"
	}
	s, _ := e.Explain.Observed.(string)
	return s
}
