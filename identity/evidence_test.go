package identity_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// proofs are kept in memory; a broken one keeps none.
type proofs struct {
	mu     sync.Mutex
	used   map[agentbus.Digest]bool
	broken bool
}

func (p *proofs) UseProof(_ context.Context, d agentbus.Digest, _ time.Time) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return false, errors.New("disk full")
	}
	if p.used == nil {
		p.used = map[agentbus.Digest]bool{}
	}
	first := !p.used[d]
	p.used[d] = true
	return first, nil
}

// A slack is an issuer with a card on a real server.
type slack struct {
	url     string
	key     ed25519.PrivateKey
	mu      sync.Mutex
	fetches int
	issuer  string // that the card names
	kid     string
	alone   bool // it may not speak of those for whom others act (C23)
}

func newSlack(t *testing.T) *slack {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &slack{key: key}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetches++
		if r.URL.Path != "/.well-known/adapter-card" {
			http.NotFound(w, r)
			return
		}
		jwk := jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid, Algorithm: "EdDSA", Use: "sig"}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.issuer, "keys": []any{jwk}})
	}))
	t.Cleanup(srv.Close)
	s.url, s.issuer, s.kid = srv.URL, srv.URL, srv.URL+"#k1"
	return s
}

// signer signs in its name, with its key.
func (s *slack) signer(t *testing.T) *identity.Signer {
	t.Helper()
	signer, err := identity.NewSigner(identity.SignerConfig{Issuer: s.url, Seed: agentbus.NewCredential(string(s.key.Seed())), KeyID: "k1"})
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func (s *slack) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

type object = map[string]any

// attest returns a compact JWS.
func attest(t *testing.T, key ed25519.PrivateKey, header, claims object) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// at is when the evidence of these tests is made.
var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// An attestation is evidence before it is signed; a test changes some of it.
type attestation struct {
	header, claims, plain object
	key                   ed25519.PrivateKey
	proof                 object                     // in place of what stands there
	token                 func(signed string) string // nil: as it was signed
}

func (s *slack) attests() *attestation {
	return &attestation{
		key:    s.key,
		header: object{"alg": "EdDSA", "typ": "mentionable-identity-evidence+jwt", "kid": s.url + "#k1"},
		claims: object{
			"iss": s.url, "sub": "slack:T1/U1", "aud": "@critic@bots.example.com", "jti": "j1", "mid": "m1", "method": "urn:slack:signed", "assurance": "platform",
			"iat": at.Unix(), "exp": at.Add(5 * time.Minute).Unix(),
		},
		plain: object{
			"id": "j1", "subject": "slack:T1/U1", "issuer": s.url, "method": "urn:slack:signed", "assurance": "platform", "audience": "@critic@bots.example.com",
			"issued_at": at, "expires_at": at.Add(5 * time.Minute), "source": object{"transport": "a2a"},
		},
	}
}

func (a *attestation) item(t *testing.T) object {
	t.Helper()
	signed := attest(t, a.key, a.header, a.claims)
	if a.token != nil {
		signed = a.token(signed)
	}
	proof := object{"type": "signed-attestation", "alg": "EdDSA", "kid": a.header["kid"], "value": signed}
	maps.Copy(proof, a.proof)
	a.plain["proof"] = proof
	return a.plain
}

// both sets a claim and what stands for it in the plain.
func (a *attestation) both(claim string, v any, plain string, p any) {
	a.claims[claim], a.plain[plain] = v, p
}

func (s *slack) verifier(t *testing.T, p identity.Proofs, log io.Writer, now time.Time) *identity.EvidenceVerifier {
	t.Helper()
	v, err := identity.NewEvidence(identity.EvidenceConfig{
		Issuers: []identity.TrustedIssuer{{
			Issuer: s.url, Methods: []string{"urn:slack:signed", identity.WrapMethod}, Assurance: []string{"platform", "delegated"},
			SubjectPrefixes: []string{"slack:T1/", "bus:", s.url + "/"}, MayDelegate: !s.alone,
		}},
		Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Proofs: p, Logger: logTo(log), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var forCritic = agentbus.EvidenceFor{Audiences: []string{"@critic@bots.example.com", "https://bus.example.com/a2a/critic"}, MessageID: "m1"}

// C21 to C26, X14 to X20: what counts, and why the rest does not. The caller
// reads unauthenticated, and the log says why. Nothing is fetched for what is
// refused before.
func TestEvidence(t *testing.T) {
	t.Parallel()
	minute := func(n int) time.Time { return at.Add(time.Duration(n) * time.Minute) }
	other := newSlack(t)
	for name, c := range map[string]struct {
		change func(a *attestation)
		now    time.Time // zero: at
		code   identity.EvidenceCode
		fetch  bool
		alone  bool              // the issuer may not delegate
		want   agentbus.Evidence // beside Issuer, Method, Assurance and Digest
	}{
		"counts":                         {fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X14 for another agent":          {change: func(a *attestation) { a.both("aud", "@b@bots.example.com", "audience", "@b@bots.example.com") }, code: identity.EvidenceDomainMismatch},
		"X14 list of two":                {change: func(a *attestation) { a.claims["aud"] = []string{"@critic@bots.example.com", "@b@x.com"} }, code: identity.EvidenceMalformed},
		"X14 list of one":                {change: func(a *attestation) { a.claims["aud"] = []string{"@critic@bots.example.com"} }, fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X14 case, dot, acct":            {change: func(a *attestation) { a.claims["aud"] = "acct:Critic@Bots.Example.COM." }, fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X15 another issuer's name":      {change: func(a *attestation) { a.both("iss", other.url, "issuer", other.url) }, code: identity.EvidenceUntrusted},
		"X15 another's signature":        {change: func(a *attestation) { a.key = other.key }, code: identity.EvidenceInvalidSignature, fetch: true},
		"X15 subject of another":         {change: func(a *attestation) { a.both("sub", "slack:T2/U1", "subject", "slack:T2/U1") }, code: identity.EvidenceUntrusted},
		"C23 another method":             {change: func(a *attestation) { a.both("method", "urn:x", "method", "urn:x") }, code: identity.EvidenceUnsupportedMethod},
		"C23 another assurance":          {change: func(a *attestation) { a.both("assurance", "domain", "assurance", "domain") }, code: identity.EvidenceUnsupportedMethod},
		"X16 forged":                     {change: func(a *attestation) { a.plain["on_behalf_of"] = []string{"slack:T1/U2"} }, code: identity.EvidenceMalformed, fetch: true},
		"X16 reordered":                  {change: acts("on_behalf_of", "user", "slack:T1/A"), code: identity.EvidenceMalformed, fetch: true},
		"X16 extended":                   {change: acts("on_behalf_of", "slack:T1/A", "user", "root"), code: identity.EvidenceMalformed, fetch: true},
		"C23 may not delegate":           {alone: true, change: acts("on_behalf_of", "slack:T1/A", "user"), fetch: true, want: agentbus.Evidence{Subject: "slack:T1/B"}},
		"C26 nearest first, last root":   {change: acts("on_behalf_of", "slack:T1/A", "user"), fetch: true, want: agentbus.Evidence{Subject: "slack:T1/B", OnBehalfOf: []string{"slack:T1/A", "user"}}},
		"X18 alg none":                   {change: func(a *attestation) { a.header["alg"] = "none" }, code: identity.EvidenceUnsupportedCrypto},
		"X18 HS256":                      {change: func(a *attestation) { a.header["alg"] = "HS256" }, code: identity.EvidenceUnsupportedCrypto},
		"X18 wrong typ":                  {change: func(a *attestation) { a.header["typ"] = "JWT" }, code: identity.EvidenceUnsupported},
		"X18 foreign kid":                {change: func(a *attestation) { a.header["kid"] = other.url + "#k1" }, code: identity.EvidenceOtherController},
		"X18 unknown kid":                {change: func(a *attestation) { a.header["kid"] = fmt.Sprint(a.claims["iss"]) + "#k2" }, code: identity.EvidenceInvalidSignature, fetch: true},
		"X18 jku":                        {change: func(a *attestation) { a.header["jku"] = other.url }, code: identity.EvidenceUnsupportedCrypto},
		"X18 jwk":                        {change: func(a *attestation) { a.header["jwk"] = object{} }, code: identity.EvidenceUnsupportedCrypto},
		"X19 no exp":                     {change: func(a *attestation) { delete(a.claims, "exp") }, code: identity.EvidenceMalformed},
		"X19 10 years":                   {change: func(a *attestation) { a.both("exp", at.AddDate(10, 0, 0).Unix(), "expires_at", at.AddDate(10, 0, 0)) }, code: identity.EvidenceLimitExceeded},
		"X19 600 s":                      {change: func(a *attestation) { a.both("exp", minute(10).Unix(), "expires_at", minute(10)) }, fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X19 601 s":                      {change: func(a *attestation) { a.both("exp", minute(10).Unix()+1, "expires_at", minute(10)) }, code: identity.EvidenceLimitExceeded},
		"X19 iat in 61 s":                {now: at.Add(-61 * time.Second), code: identity.EvidenceNotYetValid},
		"X19 iat in 60 s":                {now: at.Add(-60 * time.Second), fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X19 61 s too late":              {now: minute(6).Add(time.Second), code: identity.EvidenceExpired},
		"X19 60 s too late":              {now: minute(6), fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X19 nbf behind exp":             {change: func(a *attestation) { a.both("nbf", minute(6).Unix(), "not_before", minute(6)) }, code: identity.EvidenceMalformed},
		"X19 nbf in 61 s":                {change: func(a *attestation) { a.both("nbf", at.Unix()+61, "not_before", at.Add(61*time.Second)) }, code: identity.EvidenceNotYetValid},
		"X20 of another message":         {change: func(a *attestation) { a.claims["mid"] = "m2" }, code: identity.EvidenceChallengeMismatch},
		"X20 of no message":              {change: func(a *attestation) { delete(a.claims, "mid") }, code: identity.EvidenceChallengeMismatch},
		"plain says more than is signed": {change: func(a *attestation) { a.plain["subject"] = "slack:T1/U2" }, code: identity.EvidenceMalformed, fetch: true},
		"C21 claims that nobody signed":  {change: func(a *attestation) { a.plain["claims"] = object{"role": "admin"} }, code: identity.EvidenceMalformed, fetch: true},
		"C21 claims as they are signed":  {change: func(a *attestation) { a.both("claims", object{"role": "user"}, "claims", object{"role": "user"}) }, fetch: true, want: agentbus.Evidence{Subject: "slack:T1/U1"}},
		"X18 alg none in the plain":      {change: func(a *attestation) { a.proof = object{"alg": "none"} }, code: identity.EvidenceUnsupportedCrypto},
		"X18 foreign kid in the plain":   {change: func(a *attestation) { a.proof = object{"kid": other.url + "#k1"} }, code: identity.EvidenceOtherController},
		"C21 an end of line":             {change: func(a *attestation) { a.token = func(s string) string { return s + "\n" } }, code: identity.EvidenceMalformed},
		"C21 another last bit":           {change: func(a *attestation) { a.token = otherBit }, code: identity.EvidenceMalformed},
		"without an id":                  {change: func(a *attestation) { delete(a.plain, "id"); delete(a.claims, "jti") }, code: identity.EvidenceMalformed, fetch: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSlack(t)
			s.alone = c.alone
			a := s.attests()
			if c.change != nil {
				c.change(a)
			}
			if c.now.IsZero() {
				c.now = at
			}
			var log strings.Builder
			raw, err := json.Marshal([]any{a.item(t)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.verifier(t, &proofs{}, &log, c.now).Verify(t.Context(), raw, forCritic)
			if (s.asked() > 0) != c.fetch {
				t.Errorf("the card was read %d times", s.asked())
			}
			if c.code != "" {
				if agentbus.CodeOf(err) != agentbus.CodeUnauthenticated || !strings.Contains(log.String(), "code="+string(c.code)) {
					t.Errorf("%v, logged %s; want %s", err, log.String(), c.code)
				}
				if m := agentbus.AsError(err).Message; strings.ContainsAny(m, "@") || strings.Contains(m, "slack") { // X32
					t.Errorf("the caller reads %s", m)
				}
				return
			}
			c.want.Issuer, c.want.Method, c.want.Assurance = s.url, "urn:slack:signed", "platform"
			if err != nil || len(got) != 1 || got[0].Digest == (agentbus.Digest{}) {
				t.Fatalf("%+v, %v, logged %s", got, err, log.String())
			}
			c.want.Digest, c.want.Original, c.want.Expires = got[0].Digest, got[0].Original, got[0].Expires
			if diff := cmp.Diff(c.want, got[0], cmpopts.IgnoreTypes(agentbus.Credential{})); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
}

// otherBit returns a token in another text, of which a decoder makes the same
// signature: its last character has bits that mean nothing.
func otherBit(s string) string { return s[:len(s)-1] + string(s[len(s)-1]+1) }

// acts makes B act for A, which acts for the user, and says something of it in
// the plain.
func acts(member string, names ...string) func(a *attestation) {
	return func(a *attestation) {
		a.claims["sub"], a.claims["act"] = "user", object{"sub": "slack:T1/B", "act": object{"sub": "slack:T1/A"}}
		a.plain["subject"], a.plain[member] = "slack:T1/B", names
	}
}

// C22, X11: evidence counts once, and not at all when nobody can remember it.
// C20: it has limits. X17: what is no signed attestation is passed over. C22: the
// card is read again for a new key.
func TestEvidenceOnceAndWithinLimits(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	one, err := json.Marshal([]any{s.attests().item(t)})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	used := &proofs{}
	v := s.verifier(t, used, &log, at)
	if _, err := v.Verify(t.Context(), one, forCritic); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), one, forCritic); err == nil || !strings.Contains(log.String(), "code=replayed") {
		t.Errorf("again: %v, %s", err, log.String())
	}
	unnamed := s.attests()
	delete(unnamed.claims, "jti")
	for i, want := range []bool{true, false} { // the id in the plain is anybody's
		unnamed.plain["id"] = strconv.Itoa(i)
		raw, err := json.Marshal([]any{unnamed.item(t)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), raw, forCritic); (err == nil) != want {
			t.Errorf("evidence without a jti, for the %d. time: %v", i+1, err)
		}
	}
	used.used, used.broken = nil, true
	if _, err := v.Verify(t.Context(), one, forCritic); err == nil || !strings.Contains(log.String(), "code=replay_store_failed") {
		t.Errorf("without a store: %v, %s", err, log.String())
	}
	for raw, code := range map[string]string{
		`[` + strings.Repeat(`{"proof":{"type":"transport"}},`, 4) + `{}]`: "limit_exceeded",
		`[{"id":"` + strings.Repeat("x", 33<<10) + `"}]`:                   "limit_exceeded",
		`"` + strings.Repeat("x", 65<<10) + `"`:                            "limit_exceeded",
		`{}`:                                                               "malformed",
		`[1]`:                                                              "malformed",
		`[{"issuer":"a","Issuer":"b"}]`:                                    "malformed",
		`[{"subject":"a","\u017fubject":"b"}]`:                             "malformed", // a long s, which readers take for one
		`[{"proof":{"type":"transport","type":"signed-attestation"}}]`:                  "malformed",
		`[{"issuer":"` + s.url + `","proof":{"type":"signed-attestation","value":""}}]`: "unsupported_issuer_method",
	} {
		log.Reset()
		if _, err := v.Verify(t.Context(), []byte(raw), forCritic); err == nil || !strings.Contains(log.String(), "code="+code) {
			t.Errorf("%.60s: %v, %s", raw, err, log.String())
		}
	}
	if got, err := v.Verify(t.Context(), []byte(`[{"subject":"admin","proof":{"type":"transport","verified_by":"me"}},{"proof":{"type":"bearer-token"}}]`), forCritic); err != nil || got != nil {
		t.Errorf("X17: %v, %v", got, err)
	}
}

// C24: exact tuples, the nearest or the root; nobody by default.
func TestC24ACL(t *testing.T) {
	t.Parallel()
	e := agentbus.Evidence{Issuer: "i", Method: "m", Subject: "agent", OnBehalfOf: []string{"near", "root"}}
	for name, c := range map[string]struct {
		acl  agentbus.ACL
		want bool
	}{
		"empty is nobody": {},
		"public":          {acl: agentbus.ACL{Public: true}, want: true},
		"nearest":         {acl: agentbus.ACL{Allow: entries("i", "m", "agent")}, want: true},
		"root is asked":   {acl: agentbus.ACL{Root: true, Allow: entries("i", "m", "agent")}},
		"root":            {acl: agentbus.ACL{Root: true, Allow: entries("i", "m", "root")}, want: true},
		"neither":         {acl: agentbus.ACL{Root: true, Allow: entries("i", "m", "near")}},
		"another method":  {acl: agentbus.ACL{Allow: entries("i", "x", "agent")}},
		"no wildcards":    {acl: agentbus.ACL{Allow: entries("i", "m", "*")}},
	} {
		if got := c.acl.Allows([]agentbus.Evidence{e}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	acl := agentbus.ACL{Allow: entries("", "", "")}
	if acl.Allows(nil) || acl.Allows([]agentbus.Evidence{{}}) {
		t.Error("nobody is somebody")
	}
}

// C25: evidence goes on reissued, wrapped or not at all, and never as it came.
func TestC25Rebinding(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	signer := s.signer(t)
	now := func() time.Time { return at }
	shown := agentbus.Evidence{Issuer: "i", Method: "m", Assurance: "platform", Subject: "bus:agent", OnBehalfOf: []string{"user"}, Digest: agentbus.Digest{7}}
	shown.Original, shown.Expires = agentbus.NewCredential("original"), at.Add(time.Minute)

	wraps, err := identity.NewRebinder(identity.RebinderConfig{Signer: signer, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	item, mode, err := wraps.Rebind(t.Context(), shown, forCritic, "me")
	if err != nil || mode != string(identity.RebindWrap) {
		t.Fatal(mode, err)
	}
	if strings.Contains(string(item), "original") || !strings.Contains(string(item), `"evidence_sha256":"07000`) {
		t.Errorf("wrapped as %s", item)
	}
	var log strings.Builder
	got, err := s.verifier(t, &proofs{}, &log, at).Verify(t.Context(), []byte("["+string(item)+"]"), forCritic)
	if err != nil || len(got) != 1 || got[0].Subject != s.url+"/me" || got[0].Assurance != "delegated" || !cmp.Equal(got[0].OnBehalfOf, []string{"bus:agent", "user"}) {
		t.Errorf("the next agent reads %+v, %v, %s", got, err, log.String())
	}
	if got, err := s.verifier(t, &proofs{}, &log, at.Add(3*time.Minute)).Verify(t.Context(), []byte("["+string(item)+"]"), forCritic); err == nil {
		t.Errorf("it counts longer than the original: %+v", got)
	}

	drops, err := identity.NewRebinder(identity.RebinderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if item, mode, err := drops.Rebind(t.Context(), shown, forCritic, "me"); err != nil || mode != string(identity.RebindDrop) || item != nil {
		t.Errorf("%s, %s, %v", item, mode, err)
	}

	asked := make(chan map[string][]string, 1)
	expires := at.Add(time.Minute)
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked <- r.PostForm
		token := attest(t, s.key, object{"alg": "EdDSA", "typ": "mentionable-identity-evidence+jwt", "kid": s.url + "#k1"}, object{
			"iss": s.url, "sub": "user", "act": object{"sub": "bus:me"}, "aud": r.PostForm.Get("resource"), "jti": "j9", "mid": "m1",
			"method": "urn:slack:signed", "assurance": "platform", "iat": at.Unix(), "exp": expires.Unix(),
		})
		_ = json.NewEncoder(w).Encode(object{"access_token": token})
	}))
	defer sts.Close()
	reissues, err := identity.NewRebinder(identity.RebinderConfig{Signer: signer, STS: sts.URL, STSToken: agentbus.NewCredential("me"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	item, mode, err = reissues.Rebind(t.Context(), shown, forCritic, "me")
	if err != nil || mode != string(identity.RebindReissue) {
		t.Fatal(mode, err)
	}
	form := <-asked
	if form["subject_token"][0] != "original" || form["actor_token"][0] != "me" || form["resource"][0] != "@critic@bots.example.com" {
		t.Errorf("the service was asked %v", form)
	}
	if got, err := s.verifier(t, &proofs{}, &log, at).Verify(t.Context(), []byte("["+string(item)+"]"), forCritic); err != nil || got[0].Subject != "bus:me" || got[0].Root() != "user" {
		t.Errorf("%+v, %v, %s", got, err, log.String())
	}
	expires = at.Add(2 * time.Minute) // longer than what it was made of
	if item, _, err := reissues.Rebind(t.Context(), shown, forCritic, "me"); agentbus.CodeOf(err) != agentbus.CodeIdentityUnavailable || item != nil {
		t.Errorf("%s, %v", item, err)
	}
}

// C25: what is made of evidence counts no longer than it does, and what the next
// agent would refuse is not sent: it would refuse the call.
func TestC25WhatCannotGoOn(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	wraps, err := identity.NewRebinder(identity.RebinderConfig{Signer: s.signer(t), Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		expires time.Duration // from now
		behind  int           // subjects, one behind the other
		want    bool
	}{
		"counts still, for a slow clock": {expires: -time.Minute, want: true},
		"expired":                        {expires: -61 * time.Second},
		"as many as are read":            {expires: time.Minute, behind: 7, want: true},
		"too many":                       {expires: time.Minute, behind: 8},
	} {
		e := agentbus.Evidence{Issuer: "i", Subject: "bus:agent", OnBehalfOf: make([]string, c.behind), Expires: at.Add(c.expires)}
		for i := range e.OnBehalfOf {
			e.OnBehalfOf[i] = "bus:" + strconv.Itoa(i)
		}
		item, mode, err := wraps.Rebind(t.Context(), e, forCritic, "me")
		if err != nil || (item != nil) != c.want || (mode == string(identity.RebindWrap)) != c.want {
			t.Errorf("%s: %s, %s, %v", name, item, mode, err)
		}
		if !c.want {
			continue
		}
		var log strings.Builder
		if got, err := s.verifier(t, &proofs{}, &log, at).Verify(t.Context(), []byte("["+string(item)+"]"), forCritic); err != nil || len(got) != 1 || got[0].Expires.After(e.Expires) {
			t.Errorf("%s: the next agent reads %+v, %s", name, got, log.String())
		}
	}
}

// C25: a token service reads a body that says how long it is, and may speak of those
// behind a subject where their issuer may not do so here; what it answers is evidence.
func TestC25WhatATokenServiceAnswers(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	for name, c := range map[string]struct {
		change func(a *attestation)
		want   bool
	}{
		"evidence":         {change: func(*attestation) {}, want: true},
		"of another root":  {change: func(a *attestation) { a.claims["sub"] = "bus:agent" }},
		"without an end":   {change: func(a *attestation) { delete(a.claims, "exp") }},
		"without a time":   {change: func(a *attestation) { delete(a.claims, "iat") }},
		"for later":        {change: func(a *attestation) { a.claims["nbf"] = at.Add(2 * time.Minute).Unix() }},
		"without an id":    {change: func(a *attestation) { delete(a.claims, "jti") }, want: true},
		"of another type":  {change: func(a *attestation) { a.header["typ"] = "JWT" }},
		"that none signed": {change: func(a *attestation) { a.header["alg"] = "none" }},
	} {
		original, answer := s.attests(), s.attests()
		original.claims["sub"], original.claims["act"] = "user", object{"sub": "bus:agent"}
		answer.claims["sub"], answer.claims["act"] = "user", object{"sub": "bus:me", "act": object{"sub": "bus:agent"}}
		c.change(answer)
		sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength <= 0 {
				w.WriteHeader(http.StatusLengthRequired)
				return
			}
			_ = json.NewEncoder(w).Encode(object{"access_token": attest(t, answer.key, answer.header, answer.claims)})
		}))
		defer sts.Close()
		reissues, err := identity.NewRebinder(identity.RebinderConfig{STS: sts.URL, Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		e := agentbus.Evidence{Issuer: s.url, Subject: "bus:agent", Expires: at.Add(5 * time.Minute)} // its issuer may not delegate
		e.Original = agentbus.NewCredential(attest(t, original.key, original.header, original.claims))
		item, _, err := reissues.Rebind(t.Context(), e, forCritic, "me")
		if (item != nil) != c.want || (err == nil) != c.want {
			t.Errorf("%s: %s, %v", name, item, err)
		}
		if c.want { // whoever reads it next takes it
			var log strings.Builder
			if got, err := s.verifier(t, &proofs{}, &log, at).Verify(t.Context(), []byte("["+string(item)+"]"), forCritic); err != nil || len(got) != 1 {
				t.Errorf("%s: the next agent reads %+v, %s", name, got, log.String())
			}
		}
		if err != nil && !strings.Contains(agentbus.AsError(err).Explain.Next, "new evidence") {
			t.Errorf("%s: the caller is told to %s", name, agentbus.AsError(err).Explain.Next)
		}
	}
}

// FuzzEvidence: no evidence makes the verifier panic, and none counts that
// nobody signed.
func FuzzEvidence(f *testing.F) {
	f.Add([]byte(`[{"issuer":"https://a.example","proof":{"type":"signed-attestation","value":"e30.e30.e30"}}]`))
	f.Add([]byte(`[{"proof":{"type":"transport"}}]`))
	v, err := identity.NewEvidence(identity.EvidenceConfig{
		Issuers: []identity.TrustedIssuer{{Issuer: "https://a.example", Methods: []string{""}, Assurance: []string{""}, SubjectPrefixes: []string{"a:"}}},
		Client:  &http.Client{Transport: nowhere{}}, Proofs: &proofs{},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, _ := v.Verify(t.Context(), raw, forCritic); len(got) > 0 {
			t.Fatalf("%s proves %+v", raw, got)
		}
	})
}

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("nowhere") }

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func entries(issuer, method, subject string) []agentbus.ACLEntry {
	return []agentbus.ACLEntry{{Issuer: issuer, Method: method, Subject: subject}}
}
