package identity

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"fmt"

	"github.com/agentbus/agentbus"
)

// A CertificateField is where a certificate names its subject.
type CertificateField string

// The fields of a certificate that can name a principal.
const (
	CommonName CertificateField = "common_name" // CN of the subject
	DNSName    CertificateField = "dns"         // subjectAltName of type dNSName
	URIName    CertificateField = "uri"         // subjectAltName of type URI, such as a SPIFFE id
)

// CertificatesConfig configures [NewCertificates].
type CertificatesConfig struct {
	Realm Realm            // required
	Field CertificateField // "": CommonName
}

// Certificates authenticates callers by the client certificate of their
// connection (G4). It judges nothing: the listener verifies a certificate
// before it comes here. It is safe for concurrent use.
type Certificates struct{ cfg CertificatesConfig }

// NewCertificates returns an identifier of client certificates. It fails for a Field
// that certificates do not have, and for a faulty Realm.
func NewCertificates(c CertificatesConfig) (*Certificates, error) {
	switch c.Field {
	case "":
		c.Field = CommonName
	case CommonName, DNSName, URIName:
	default:
		return nil, fmt.Errorf("a certificate has no %q", c.Field)
	}
	return &Certificates{c}, c.Realm.check()
}

// Identify fails with [ErrNotMine]: no Authorization value is a certificate,
// so nobody can forward one (P20).
func (c *Certificates) Identify(context.Context, agentbus.Credential) (agentbus.Principal, error) {
	return agentbus.Principal{}, notMine("the connection has no client certificate")
}

// Principal returns whom a verified certificate names. One without the field is
// [ErrNotMine]; one that names two subjects there is refused.
func (c *Certificates) Principal(peer *x509.Certificate) (agentbus.Principal, error) {
	names := c.names(peer)
	switch len(names) {
	case 0:
		return agentbus.Principal{}, notMine("the client certificate has no " + string(c.cfg.Field))
	case 1:
		return c.cfg.Realm.principal(names[0], false)
	}
	return agentbus.Principal{}, bad("ambiguous_subject", "the client certificate has more than one "+string(c.cfg.Field), "use a certificate of one subject")
}

func (c *Certificates) names(peer *x509.Certificate) (names []string) {
	switch c.cfg.Field {
	case DNSName:
		return peer.DNSNames
	case URIName:
		for _, u := range peer.URIs {
			names = append(names, u.String())
		}
	case CommonName:
		for _, n := range peer.Subject.Names {
			if s, ok := n.Value.(string); ok && n.Type.Equal(commonName) {
				names = append(names, s)
			}
		}
	}
	return names
}

var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}
