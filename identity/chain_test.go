package identity_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

func commonNames(names ...string) *x509.Certificate {
	c := &x509.Certificate{}
	for _, n := range names {
		c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{Type: []int{2, 5, 4, 3}, Value: n})
	}
	return c
}

// TestChain: G4, each is asked in its order; what nobody knows is 401, and so is
// what somebody knows as bad, without asking the next.
func TestChain(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	e := newEndpoint(t, says(map[string]any{"active": true, "sub": "payer"}))
	keys, err := identity.New(identity.Config{Static: []identity.StaticKey{{Principal: alice, Secret: agentbus.NewCredential("sk-alice")}}})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := identity.NewCertificates(identity.CertificatesConfig{Realm: identity.Realm{Name: "mtls", InterAgent: []string{"sandbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	chain := func(order ...identity.Identifier) *identity.Chain {
		c, err := identity.NewChain(identity.ChainConfig{Order: order})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	last, first := chain(keys, i.verifier(nil), e.asks(nil), certs), chain(certs, keys)
	revoked, _ := identity.NewKey(alice, time.Now())
	sandbox := commonNames("sandbox")
	for name, c := range map[string]struct {
		*identity.Chain
		credential    agentbus.Credential
		peer          *x509.Certificate
		who, why      string
		byCertificate bool
	}{
		"key":                       {last, bearer("sk-alice"), sandbox, "alice", "", false},
		"token":                     {last, i.token(nil), nil, "id:alice", "", false},
		"opaque":                    {last, bearer("ag_1"), nil, "x402:payer", "", false},
		"certificate":               {last, agentbus.Credential{}, sandbox, "mtls:sandbox", "", true},
		"certificate and a dummy":   {last, bearer("dummy"), sandbox, "mtls:sandbox", "", true},
		"certificate, bad token":    {last, i.token(map[string]any{"exp": 1}), sandbox, "", "expired", false},
		"certificate, revoked key":  {last, agentbus.NewCredential("Bearer " + revoked.Reveal()), sandbox, "", "unknown_key", false},
		"certificate comes first":   {first, bearer("sk-alice"), sandbox, "mtls:sandbox", "", true},
		"certificate without name":  {first, bearer("sk-alice"), commonNames(), "alice", "", false},
		"certificate of two":        {first, bearer("sk-alice"), commonNames("a", "b"), "", "ambiguous_subject", false},
		"certificate with a bad CN": {first, bearer("sk-alice"), commonNames("a\nb"), "", "bad_subject", false},
		"nobody":                    {last, bearer("dummy"), nil, "", "not mine", false},
		"nothing":                   {last, agentbus.Credential{}, nil, "", "not mine", false},
	} {
		p, byCertificate, err := c.IdentifyPeer(t.Context(), c.credential, c.peer)
		if p.ID != c.who || reasonOf(err) != c.why || byCertificate != c.byCertificate {
			t.Errorf("%s: %v, by certificate %t, %v; want %q, %t, %q", name, p, byCertificate, err, c.who, c.byCertificate, c.why)
		}
		if p.InterAgent != (c.who == "mtls:sandbox") {
			t.Errorf("%s: inter-agent %t", name, p.InterAgent)
		}
	}
	if p, err := last.Identify(t.Context(), agentbus.Credential{}); err == nil { // P20: none can be forwarded
		t.Errorf("nothing stands for %v", p)
	}
	if _, err := identity.NewChain(identity.ChainConfig{}); err == nil {
		t.Error("a chain of nobody")
	}
}

// TestCertificateFields: G4, the subject is where the operator says.
func TestCertificateFields(t *testing.T) {
	t.Parallel()
	spiffe, err := url.Parse("spiffe://example.org/sandbox")
	if err != nil {
		t.Fatal(err)
	}
	peer := commonNames("cn")
	peer.DNSNames, peer.URIs = []string{"a.example"}, []*url.URL{spiffe}
	for field, want := range map[identity.CertificateField]string{
		"": "m:cn", identity.CommonName: "m:cn", identity.DNSName: "m:a.example", identity.URIName: "m:spiffe://example.org/sandbox",
	} {
		c, err := identity.NewCertificates(identity.CertificatesConfig{Realm: identity.Realm{Name: "m"}, Field: field})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := c.Principal(peer); err != nil || p.ID != want {
			t.Errorf("%q: %v, %v", field, p, err)
		}
	}
	if _, err := identity.NewCertificates(identity.CertificatesConfig{Realm: identity.Realm{Name: "m"}, Field: "serial"}); err == nil {
		t.Error("serial: accepted")
	}
}
