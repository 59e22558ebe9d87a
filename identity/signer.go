package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/agentbus/agentbus"
)

// SignerConfig configures [NewSigner].
type SignerConfig struct {
	// Issuer is who signs: the URL of this bus, "https://bus.example.com". Others
	// read its keys there (C22). Required.
	Issuer string
	// Seed is the private key: the 32 bytes of an Ed25519 seed (RFC 8032).
	// Required.
	Seed agentbus.Credential
	// KeyID tells the key apart from those before it; "": "key-1".
	KeyID string
	// Former are the keys it signed with before, which are published beside it: what
	// they signed counts for its time, and is proved on (C16).
	Former []FormerKey
}

// A FormerKey is the public half of a key that somebody signed with before.
type FormerKey struct {
	KeyID string
	X     string // the 32 bytes of the public key, as a JWK has them in x
}

// A Signer signs in the name of this bus: evidence that it vouches for, and the
// hops of chains. It is safe for concurrent use.
type Signer struct {
	issuer string
	kid    string
	key    ed25519.PrivateKey
	public []jose.JSONWebKey // its own first, then the former
}

// NewSigner returns a signer. It fails for an Issuer that is no URL others can read
// keys at, a Seed that has not 32 bytes, and a former key that is none.
func NewSigner(c SignerConfig) (*Signer, error) {
	if err := checkURL(c.Issuer); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	seed := []byte(c.Seed.Reveal()) //nolint:forbidigo // the key that signatures are made with (P19)
	if len(seed) != ed25519.SeedSize {
		return nil, errors.New("the key has not 32 bytes")
	}
	if c.KeyID == "" {
		c.KeyID = "key-1"
	}
	s := &Signer{issuer: c.Issuer, kid: c.Issuer + "#" + c.KeyID, key: ed25519.NewKeyFromSeed(seed)}
	s.public = append(s.public, published(s.key.Public(), s.kid))
	for _, former := range c.Former {
		x, err := base64.RawURLEncoding.DecodeString(former.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("the former key %q is no public key", former.KeyID)
		}
		s.public = append(s.public, published(ed25519.PublicKey(x), c.Issuer+"#"+former.KeyID))
	}
	return s, nil
}

func published(key any, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: kid, Algorithm: string(jose.EdDSA), Use: "sig"}
}

// Issuer returns in whose name it signs.
func (s *Signer) Issuer() string { return s.issuer }

// sign returns claims as a compact JWS of a type.
func (s *Signer) sign(typ string, claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: s.key, KeyID: s.kid}}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// JWKS returns the public keys as /.well-known/jwks.json serves them.
func (s *Signer) JWKS() []byte {
	b, _ := json.Marshal(jose.JSONWebKeySet{Keys: s.public}) // a public key always marshals
	return b
}

// Card returns the public keys as /.well-known/adapter-card serves them, with
// whose they are (C22).
func (s *Signer) Card() []byte {
	b, _ := json.Marshal(struct {
		Issuer string            `json:"issuer"`
		Keys   []jose.JSONWebKey `json:"keys"`
	}{s.issuer, s.public}) // as above
	return b
}
