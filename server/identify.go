package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server/config"
)

// buildIdentity makes a chain of those who know callers, in the order of the
// configuration (G4).
func (s *wiring) buildIdentity() (err error) {
	var order []identity.Identifier
	for _, m := range s.cfg.Auth.Methods() {
		var more []identity.Identifier
		switch m {
		case config.AuthKeys:
			more, err = s.keyIdentifier()
		case config.AuthJWT:
			more, err = s.jwtIdentifiers()
		case config.AuthIntrospection:
			more, err = s.introspectionIdentifier()
		case config.AuthMTLS:
			more, err = s.certificateIdentifier()
		}
		if err != nil {
			return fmt.Errorf("auth: %s: %w", m, err)
		}
		order = append(order, more...)
	}
	s.identity, err = identity.NewChain(identity.ChainConfig{Order: order})
	return err
}

// keyIdentifier knows the API keys of the configuration and the store.
func (s *wiring) keyIdentifier() ([]identity.Identifier, error) {
	static := append([]identity.StaticKey(nil), s.cfg.Keys...)
	for _, k := range s.cfg.Config.Keys {
		if k.Secret.IsZero() { // it is not there, and need not be where nobody is served
			continue
		}
		static = append(static, identity.StaticKey{Principal: k.Principal(), Secret: k.Secret})
	}
	keys, err := identity.New(identity.Config{Static: static, Keys: s.store})
	return []identity.Identifier{keys}, err
}

func (s *wiring) jwtIdentifiers() (issuers []identity.Identifier, err error) {
	var faults []error
	for _, c := range s.cfg.Auth.JWT {
		j, err := identity.NewJWT(identity.JWTConfig{
			Realm:  identity.Realm{Name: c.Name, InterAgent: c.InterAgent, Admins: c.Admins},
			Claims: identity.Claims{Subject: c.SubjectClaim, Role: c.RoleClaim, Admin: c.AdminValue},
			Issuer: c.Issuer, Audience: c.Audience, JWKSURL: c.JWKSURL, Algorithms: c.Algorithms, Leeway: c.Leeway,
			Transport: s.issuers, Logger: s.log,
		})
		issuers, faults = append(issuers, j), append(faults, err)
	}
	return issuers, errors.Join(faults...)
}

func (s *wiring) introspectionIdentifier() ([]identity.Identifier, error) {
	c := s.cfg.Auth.Introspection
	i, err := identity.NewIntrospection(identity.IntrospectionConfig{
		Realm:  identity.Realm{Name: c.Name, InterAgent: c.InterAgent, Admins: c.Admins},
		Claims: identity.Claims{Subject: c.SubjectClaim, Role: c.RoleClaim, Admin: c.AdminValue},
		URL:    c.URL, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Prefixes: c.Prefixes, Audience: c.Audience,
		TTL: c.TTL, Cache: c.Cache, Timeout: c.Timeout, Transport: s.issuers, Logger: s.log,
	})
	return []identity.Identifier{i}, err
}

func (s *wiring) certificateIdentifier() ([]identity.Identifier, error) {
	c := s.cfg.Auth.MTLS
	certs, err := identity.NewCertificates(identity.CertificatesConfig{
		Realm: identity.Realm{Name: c.Name, InterAgent: c.InterAgent, Admins: c.Admins},
		Field: identity.CertificateField(c.Subject),
	})
	return []identity.Identifier{certs}, err
}

// Identify returns the principal of an Authorization value; see
// [identity.Chain.Identify].
func (s *Server) Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	return s.now().identity.Identify(ctx, authorization)
}

// encrypted returns l with TLS, as the configuration says, else l; with an error
// too.
//
// HTTP/1.1 is all that is offered: the strict reading of requests (G36) stands
// between the connection and net/http, which speaks HTTP/2 on a bare TLS
// connection only.
func (s *Server) encrypted(l net.Listener) (net.Listener, error) {
	t := s.cfg.TLS
	if t == nil {
		return l, nil
	}
	pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key.Reveal())) //nolint:forbidigo // its own private key, for the listener (P19)
	if err != nil {
		return l, errors.New("tls: the certificate and its key do not fit") // the cause could repeat the key
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if t.ClientCA != "" {
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !c.ClientCAs.AppendCertsFromPEM([]byte(t.ClientCA)) {
			return l, errors.New("tls: there is no certificate of an authority")
		}
	}
	return tls.NewListener(l, c), nil
}
