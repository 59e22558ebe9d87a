package server

import (
	"fmt"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server/config"
)

// buildTrust makes what verifies and signs in the name of this bus, and adds it
// to what the gateway is made of (C16, C20 to C25).
func (s *wiring) buildTrust(c *gateway.Config) error {
	t := s.cfg.Trust
	c.Issuer = t.Issuer // also without a key: evidence is made for it
	var signer *identity.Signer
	if !t.Key.IsZero() {
		var err error
		if signer, err = newSigner(&t); err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		c.WellKnown = map[string][]byte{"/.well-known/jwks.json": signer.JWKS(), "/.well-known/adapter-card": signer.Card()}
	}
	if len(t.Issuers) > 0 {
		issuers := make([]identity.TrustedIssuer, len(t.Issuers))
		for i, issuer := range t.Issuers {
			issuers[i] = identity.TrustedIssuer(issuer)
		}
		v, err := identity.NewEvidence(identity.EvidenceConfig{Issuers: issuers, Client: &http.Client{Transport: looked{s.dialer, s.dialer.Transport()}}, Proofs: s.store, Logger: s.log})
		if err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		r, err := identity.NewRebinder(identity.RebinderConfig{Signer: signer, STS: t.STS.URL, STSToken: t.STS.Token, Transport: s.issuers})
		if err != nil {
			return fmt.Errorf("trust: %w", err)
		}
		c.Evidence, c.Rebinder = v, r
	}
	if !t.SignedHops {
		return nil
	}
	h, err := s.hops(signer)
	if err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	c.Hops, c.HopKeeper = h, s.store
	return nil
}

func newSigner(t *config.Trust) (*identity.Signer, error) {
	former := make([]identity.FormerKey, len(t.FormerKeys))
	for i, key := range t.FormerKeys {
		former[i] = identity.FormerKey(key)
	}
	return identity.NewSigner(identity.SignerConfig{Issuer: t.Issuer, Seed: t.Key, KeyID: t.KeyID, Former: former})
}

func (s *wiring) hops(signer *identity.Signer) (*identity.Hops, error) {
	buses := make([]identity.HopIssuer, len(s.cfg.Trust.Buses))
	for i, b := range s.cfg.Trust.Buses {
		buses[i] = identity.HopIssuer(b)
	}
	return identity.NewHops(identity.HopsConfig{Signer: signer, Trust: buses, Client: &http.Client{Transport: looked{s.dialer, s.dialer.Transport()}}, Proofs: s.store, Logger: s.log})
}

// looked sends requests to URLs that strangers name, when they may be asked (C33).
type looked struct {
	dialer *a2a.Dialer
	next   http.RoundTripper
}

// RoundTrip sends one.
func (l looked) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.dialer.Check(r.URL); err != nil {
		return nil, err
	}
	return l.next.RoundTrip(r)
}

// acl returns who may call an agent, by evidence; nil: nothing was said.
func acl(c *config.ACL) *agentbus.ACL {
	if c == nil {
		return nil
	}
	a := &agentbus.ACL{Public: c.Public, Root: c.Principal == config.ACLRoot}
	for _, e := range c.Allow {
		a.Allow = append(a.Allow, agentbus.ACLEntry(e))
	}
	return a
}
