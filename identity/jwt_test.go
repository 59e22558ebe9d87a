package identity_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

func isNotMine(err error) bool { return errors.Is(err, identity.ErrNotMine) }

// TestJWT: G4, whom a token stands for, and why it stands for nobody.
func TestJWT(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "rsa", "ec", "ed", "weak")
	j := i.verifier(func(c *identity.JWTConfig) {
		c.Realm.InterAgent, c.Realm.Admins, c.Claims.Role = []string{"relay"}, []string{"root"}, "roles"
	})
	keys, ec := keysOnce(), keysOnce()["ec"]
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	user := func(id string) agentbus.Principal {
		return agentbus.Principal{ID: "id:" + id, Role: agentbus.PrincipalUser}
	}
	relay, root, boss := user("relay"), user("root"), user("boss")
	relay.InterAgent, root.Role, boss.Role = true, agentbus.PrincipalAdmin, agentbus.PrincipalAdmin
	publicPEM := func(kid string) []byte {
		der, err := x509.MarshalPKIXPublicKey(keys[kid].Public())
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	changed := func(key string, v any) agentbus.Credential { return i.token(map[string]any{key: v}) }
	for name, c := range map[string]struct {
		credential agentbus.Credential
		want       agentbus.Principal
		reason     string
	}{
		"ES256":              {i.token(nil), user("alice"), ""},
		"RS256":              {sign(t, jose.RS256, keys["rsa"], "rsa", i.claims(nil)), user("alice"), ""},
		"EdDSA":              {sign(t, jose.EdDSA, keys["ed"], "ed", i.claims(nil)), user("alice"), ""},
		"no kid":             {sign(t, jose.ES256, ec, "", i.claims(nil)), user("alice"), ""},
		"two audiences":      {changed("aud", []string{"x", "agentbus"}), user("alice"), ""},
		"relay":              {changed("sub", "relay"), relay, ""}, // P20: a listed inter-agent caller
		"admin":              {changed("sub", "root"), root, ""},
		"admin by role":      {i.token(map[string]any{"sub": "boss", "roles": []string{"x", "admin"}}), boss, ""},
		"role as text":       {i.token(map[string]any{"sub": "boss", "roles": "admin"}), boss, ""},
		"another role":       {i.token(map[string]any{"sub": "boss", "roles": []any{"administrator", 4}}), user("boss"), ""},
		"clock behind":       {changed("exp", ago(10*time.Second)), user("alice"), ""},
		"clock ahead":        {changed("nbf", ago(-10*time.Second)), user("alice"), ""},
		"expired":            {changed("exp", ago(time.Minute)), agentbus.Principal{}, "expired"},
		"never expires":      {changed("exp", nil), agentbus.Principal{}, "no_expiry"},
		"odd expiry":         {changed("exp", "tomorrow"), agentbus.Principal{}, "malformed"},
		"nbf":                {changed("nbf", ago(-time.Minute)), agentbus.Principal{}, "not_yet_valid"},
		"issued ahead":       {changed("iat", ago(-time.Hour)), agentbus.Principal{}, "not_yet_valid"},
		"wrong audience":     {changed("aud", "other"), agentbus.Principal{}, "wrong_audience"},
		"two others":         {changed("aud", []string{"x", "y"}), agentbus.Principal{}, "wrong_audience"},
		"no audience":        {changed("aud", nil), agentbus.Principal{}, "wrong_audience"},
		"no subject":         {changed("sub", nil), agentbus.Principal{}, "bad_subject"},
		"subject of number":  {changed("sub", 4), agentbus.Principal{}, "malformed"},
		"subject in ünicode": {changed("sub", "ülf"), agentbus.Principal{}, "bad_subject"},
		"subject with space": {changed("sub", "a b"), agentbus.Principal{}, "bad_subject"},
		"subject with CRLF":  {changed("sub", "a\r\nb"), agentbus.Principal{}, "bad_subject"},
		"subject with comma": {changed("sub", "a,b"), agentbus.Principal{}, "bad_subject"},
		"long subject":       {changed("sub", strings.Repeat("a", 200)), agentbus.Principal{}, "bad_subject"},
		"another issuer":     {changed("iss", "https://other"), agentbus.Principal{}, "not mine"},
		"issuer and a slash": {changed("iss", i.url+"/"), agentbus.Principal{}, "not mine"},
		"no issuer":          {changed("iss", nil), agentbus.Principal{}, "not mine"},
		"stranger's key":     {sign(t, jose.ES256, keys["other"], "ec", i.claims(nil)), agentbus.Principal{}, "bad_signature"},
		"unknown kid":        {sign(t, jose.ES256, ec, "new", i.claims(nil)), agentbus.Principal{}, "unknown_key"},
		"kid of another alg": {sign(t, jose.ES256, ec, "rsa", i.claims(nil)), agentbus.Principal{}, "unknown_key"},
		"weak key":           {sign(t, jose.RS256, keys["weak"], "weak", i.claims(nil)), agentbus.Principal{}, "unknown_key"},
		"alg not allowed":    {sign(t, jose.RS512, keys["rsa"], "rsa", i.claims(nil)), agentbus.Principal{}, "algorithm"},
		"HS256, public key":  {sign(t, jose.HS256, publicPEM("rsa"), "rsa", i.claims(nil)), agentbus.Principal{}, "algorithm"},
		"alg none":           {forged(t, `{"alg":"none"}`, i.claims(nil), ""), agentbus.Principal{}, "algorithm"},
		"alg None":           {forged(t, `{"alg":"None","kid":"ec"}`, i.claims(nil), "AA"), agentbus.Principal{}, "algorithm"},
		"no signature":       {forged(t, `{"alg":"ES256","kid":"ec"}`, i.claims(nil), ""), agentbus.Principal{}, "bad_signature"},
		"own key inside":     {embedded(t, i.claims(nil)), agentbus.Principal{}, "bad_signature"},
		"critical":           {forged(t, `{"alg":"ES256","kid":"ec","crit":["exp"]}`, i.claims(nil), "AA"), agentbus.Principal{}, "malformed"},
		"head is garbage":    {forged(t, `garbage`, i.claims(nil), "AA"), agentbus.Principal{}, "malformed"},
		"opaque":             {agentbus.NewCredential("Bearer ag_opaque"), agentbus.Principal{}, "not mine"},
		"dots":               {agentbus.NewCredential("Bearer .."), agentbus.Principal{}, "not mine"},
		"another scheme":     {agentbus.NewCredential("Basic " + i.token(nil).Reveal()[7:]), agentbus.Principal{}, "not mine"},
		"none":               {agentbus.Credential{}, agentbus.Principal{}, "not mine"},
		"huge":               {changed("more", strings.Repeat("a", 20<<10)), agentbus.Principal{}, "not mine"},
	} {
		got, err := j.Identify(t.Context(), c.credential)
		if diff := cmp.Diff(c.want, got); diff != "" || reasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %q (-want +got):\n%s", name, err, c.reason, diff)
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(c.credential.Reveal(), "Bearer "), ".") { // P19
			if err != nil && len(part) > 4 && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error tells the token: %v", name, err)
			}
		}
	}
	if n := i.asked(); n != 1 {
		t.Errorf("the keys were fetched %d times, want once: unknown keys must not cause more", n)
	}
}

// forged returns a token with that head and signature.
func forged(t *testing.T, head string, claims map[string]any, signature string) agentbus.Credential {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	return agentbus.NewCredential("Bearer " + enc([]byte(head)) + "." + enc(payload) + "." + signature)
}

// embedded returns a token that brings its own key in its head.
func embedded(t *testing.T, claims map[string]any) agentbus.Credential {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: keysOnce()["other"]}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, s, claims)
}

// TestKeySets: G4, what an issuer may answer, and that none of it lets a
// stranger in.
func TestKeySets(t *testing.T) {
	t.Parallel()
	thief := newIssuer(t, "ec")
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	secret, err := json.Marshal(jose.JSONWebKey{Key: []byte("secret"), KeyID: "ec", Algorithm: "HS256"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"down":      {say(http.StatusServiceUnavailable, ""), "identity_unavailable"},
		"garbage":   {say(http.StatusOK, "garbage"), "identity_unavailable"},
		"a list":    {say(http.StatusOK, "[]"), "identity_unavailable"},
		"huge":      {say(http.StatusOK, `{"keys":[`+strings.Repeat(" ", 1<<20)+`]}`), "identity_unavailable"},
		"many keys": {say(http.StatusOK, `{"keys":[`+strings.Repeat("{},", 200)+`{}]}`), "identity_unavailable"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"keys":[`))
		}, "identity_unavailable"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.url+"/keys", http.StatusFound)
		}, "identity_unavailable"}, // P23: not followed
		"empty":       {say(http.StatusOK, `{}`), "unknown_key"},
		"odd keys":    {say(http.StatusOK, `{"keys":[{},4,null,"x",{"kty":"EC","kid":"ec"}]}`), "unknown_key"},
		"a secret":    {say(http.StatusOK, `{"keys":[`+string(secret)+`]}`), "unknown_key"},
		"for secrecy": {say(http.StatusOK, `{"keys":[`+public(t, "ec", "enc")+`]}`), "unknown_key"},
		"fine":        {say(http.StatusOK, `{"keys":[{},`+public(t, "ec", "sig")+`]}`), ""},
	} {
		i := newIssuer(t)
		i.publish(c.answer)
		if _, err := i.verifier(nil).Identify(t.Context(), i.token(nil)); reasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
	}
	if n := thief.asked(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func public(t *testing.T, id, use string) string {
	t.Helper()
	b, err := json.Marshal(jose.JSONWebKey{Key: keysOnce()[id].Public(), KeyID: id, Use: use})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDiscovery: G4, an issuer tells where its keys are, and is believed when
// the document is its own.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		document func(url string) map[string]any
		reason   string
	}{
		"its own":        {func(string) map[string]any { return nil }, ""},
		"another issuer": {func(u string) map[string]any { return map[string]any{"issuer": u + "/", "jwks_uri": u + "/keys"} }, "identity_unavailable"},
		"plain HTTP": {func(u string) map[string]any {
			return map[string]any{"issuer": u, "jwks_uri": "http://example.com/keys"}
		}, "identity_unavailable"},
		"a file":  {func(u string) map[string]any { return map[string]any{"issuer": u, "jwks_uri": "file:///etc/passwd"} }, "identity_unavailable"},
		"no keys": {func(u string) map[string]any { return map[string]any{"issuer": u} }, "identity_unavailable"},
	} {
		i := newIssuer(t, "ec")
		i.discovery = c.document(i.url)
		j := i.verifier(func(c *identity.JWTConfig) { c.JWKSURL = "" })
		if _, err := j.Identify(t.Context(), i.token(nil)); reasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
	}
}

// TestKeysOverTime: G4, keys are fetched when they are needed, and not more
// often than every ten seconds; they outlive an issuer that is down, for a day.
func TestKeysOverTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{t: t, url: "https://issuer.example", published: []string{"ec"}}
		j := i.verifier(nil)
		check := func(when string, c agentbus.Credential, reason string, fetches int) {
			t.Helper()
			if _, err := j.Identify(t.Context(), c); reasonOf(err) != reason || i.asked() != fetches {
				t.Errorf("%s: %v after %d fetches, want %q after %d", when, err, i.asked(), reason, fetches)
			}
		}
		rotated := func() agentbus.Credential { return sign(t, jose.EdDSA, keysOnce()["ed"], "ed", i.claims(nil)) }
		check("the first token", i.token(nil), "", 1)
		for n := range 100 {
			check("a storm", sign(t, jose.ES256, keysOnce()["other"], strconv.Itoa(n), i.claims(nil)), "unknown_key", 1)
		}
		i.publish(nil, "ed") // rotation
		check("at once", rotated(), "unknown_key", 1)
		<-time.After(11 * time.Second)
		check("after the interval", rotated(), "", 2)
		check("the old key", i.token(nil), "unknown_key", 2)

		i.publish(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		<-time.After(2 * time.Hour)
		check("old keys of an issuer that is down", rotated(), "", 3)
		check("and nobody asks again so soon", rotated(), "", 3)
		check("a key that nobody can tell", i.token(nil), "identity_unavailable", 3)
		<-time.After(23 * time.Hour)
		check("keys of yesterday", rotated(), "identity_unavailable", 4)
		i.publish(nil, "ed")
		<-time.After(11 * time.Second)
		check("the issuer is back", rotated(), "", 5)
	})
}

// TestKeysAreFetchedOnce: G4, many that come at once cause one fetch.
func TestKeysAreFetchedOnce(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	j := i.verifier(nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := j.Identify(t.Context(), i.token(nil)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := i.asked(); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
}

// TestNewJWT: what cannot be safe is refused at the start.
func TestNewJWT(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*identity.JWTConfig){
		"plain issuer": func(c *identity.JWTConfig) { c.Issuer = "http://id.example.com" },
		"plain keys":   func(c *identity.JWTConfig) { c.JWKSURL = "http://id.example.com/keys" },
		"no URL":       func(c *identity.JWTConfig) { c.Issuer = "id.example.com" },
		"no audience":  func(c *identity.JWTConfig) { c.Audience = "" },
		"none":         func(c *identity.JWTConfig) { c.Algorithms = []string{"none"} },
		"HMAC":         func(c *identity.JWTConfig) { c.Algorithms = []string{"HS256"} },
		"no algorithm": func(c *identity.JWTConfig) { c.Algorithms = []string{} },
		"no name":      func(c *identity.JWTConfig) { c.Realm.Name = "" },
		"odd name":     func(c *identity.JWTConfig) { c.Realm.Name = "a:b" },
	} {
		c := identity.JWTConfig{Realm: identity.Realm{Name: "id"}, Issuer: "https://id.example.com", Audience: "agentbus"}
		change(&c)
		if _, err := identity.NewJWT(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzJWT: no value makes the verifier panic, and none but the issuer's own is
// accepted.
func FuzzJWT(f *testing.F) {
	i := &issuer{t: nil, url: "https://issuer.example", published: []string{"ec", "rsa"}}
	j, err := identity.NewJWT(identity.JWTConfig{
		Realm: identity.Realm{Name: "id"}, Issuer: i.url, Audience: "agentbus", JWKSURL: i.url + "/keys", Transport: i,
	})
	if err != nil {
		f.Fatal(err)
	}
	enc := base64.RawURLEncoding.EncodeToString
	for _, head := range []string{`{"alg":"none"}`, `{"alg":"ES256","kid":"ec"}`, `{"alg":"RS256","kid":"rsa","crit":["b64"],"b64":false}`, `{`, ""} {
		for _, payload := range []string{`{"iss":"https://issuer.example"}`, `{"iss":"https://issuer.example","iss":"x","exp":1e400,"aud":[[]]}`, "", "null"} {
			f.Add(enc([]byte(head)) + "." + enc([]byte(payload)) + ".AAAA")
		}
	}
	f.Add("")
	f.Add("..")
	f.Add("a.b.c.d.e")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := j.Identify(t.Context(), agentbus.NewCredential("Bearer "+token))
		if err == nil {
			t.Errorf("%q let %v in", token, p)
		}
	})
}
