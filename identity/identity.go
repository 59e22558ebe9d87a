// Package identity answers who calls and who pays: it turns a credential into
// the principal it stands for (G4). There is an identifier for each kind of
// credential, and a [Chain] that asks them in the order of the configuration.
package identity

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/agentbus/agentbus"
)

// ErrNotMine is in the chain of the error with which an [Identifier] answers a
// value that it cannot judge, such as an API key that is shown to the verifier
// of JWTs. The next one may know it.
var ErrNotMine = errors.New("another kind of credential")

// An Identifier knows the callers of one kind of credential. Identify fails
// with CodeUnauthenticated: with [ErrNotMine] in its chain when the value is of
// another kind, and without it when the value is of this kind and bad, so that
// nobody else is asked. It fails with another code when the answer cannot be
// had now. It is safe for concurrent use.
type Identifier interface {
	Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error)
}

// ChainConfig configures [NewChain].
type ChainConfig struct {
	// Order is asked from the first to the last. At the place of a
	// [*Certificates] the certificate of the connection is looked at.
	Order []Identifier // required
}

// A Chain asks identifiers in their order until one knows the caller, or knows
// that the credential is bad (G4). It is safe for concurrent use.
type Chain struct{ order []Identifier }

// NewChain returns a chain. It fails when there is nobody to ask.
func NewChain(c ChainConfig) (*Chain, error) {
	if len(c.Order) == 0 {
		return nil, errors.New("identity: a chain of no identifiers lets nobody in")
	}
	return &Chain{order: c.Order}, nil
}

// Identify returns the principal of an Authorization value. It fails with
// CodeUnauthenticated when nobody knows the value, or somebody knows it as bad.
// A certificate is never looked at, so it is what forwarded credentials are
// verified with (P20).
func (c *Chain) Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	p, _, err := c.IdentifyPeer(ctx, authorization, nil)
	return p, err
}

// IdentifyPeer is [Chain.Identify] for the caller itself: peer is the client
// certificate of its connection, verified already, or nil. byCertificate
// reports that the certificate told who it is; nobody has verified the
// Authorization value then.
func (c *Chain) IdentifyPeer(ctx context.Context, authorization agentbus.Credential, peer *x509.Certificate) (p agentbus.Principal, byCertificate bool, err error) {
	for _, id := range c.order {
		certs, ofPeer := id.(*Certificates)
		if ofPeer && peer != nil {
			p, err = certs.Principal(peer)
		} else {
			p, err = id.Identify(ctx, authorization)
		}
		if !errors.Is(err, ErrNotMine) {
			return p, err == nil && ofPeer, err
		}
	}
	if authorization.IsZero() {
		return agentbus.Principal{}, false, notMine("no credential was sent")
	}
	return agentbus.Principal{}, false, notMine("the credential is not known here")
}

const howToAuthenticate = "send Authorization: Bearer and a key of the configuration or of agentbus keys create, or a token of an issuer that this bus trusts"

// notMine is the error for a value that another identifier may know.
func notMine(message string) error {
	return &agentbus.Error{
		Code: agentbus.CodeUnauthenticated, Message: message, Err: ErrNotMine,
		Explain: &agentbus.Explain{Rule: "G4", Next: howToAuthenticate},
	}
}

// A reason is the class of what is wrong with a credential. It is told to the
// caller, and holds nothing of the credential.
type reason string

// bad is the error for a credential that was recognized and does not count.
func bad(why reason, message, next string) error {
	return &agentbus.Error{
		Code: agentbus.CodeUnauthenticated, Message: message,
		Explain: &agentbus.Explain{Rule: "G4", Observed: string(why), Next: next},
	}
}

// unavailable is the error for a credential that cannot be judged now: never a
// 401, which would make a client throw a good credential away.
func unavailable(message string, cause error) error {
	return &agentbus.Error{
		Code: agentbus.CodeIdentityUnavailable, Message: message, Err: cause,
		Explain: &agentbus.Explain{Rule: "G4", Next: "send the same turn again after the given time"},
	}
}
