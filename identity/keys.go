package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Keys finds API keys that were created while the bus runs. KeyByHash does not
// find revoked ones. It is safe for concurrent use.
type Keys interface {
	KeyByHash(ctx context.Context, hash agentbus.Digest) (key agentbus.APIKey, found bool, err error)
}

// A StaticKey is an API key from the configuration.
type StaticKey struct {
	Principal agentbus.Principal
	Secret    agentbus.Credential // without a scheme
}

// Config configures [New].
type Config struct {
	Static []StaticKey // keys of the configuration; may be empty
	Keys   Keys        // keys of the store; nil: none
}

// APIKeys authenticates bearers of API keys. It is safe for concurrent use.
type APIKeys struct {
	static map[agentbus.Digest]agentbus.Principal // SHA-256 of the secret → principal
	keys   Keys
}

// New returns an authenticator of the given keys. It fails when a static key
// has no principal or no secret, or when two have the same secret.
func New(c Config) (*APIKeys, error) {
	a := &APIKeys{static: make(map[agentbus.Digest]agentbus.Principal, len(c.Static)), keys: c.Keys}
	for _, k := range c.Static {
		if k.Principal.ID == "" || k.Secret.IsZero() {
			return nil, errors.New("an API key needs a principal id and a secret")
		}
		h := Hash(k.Secret)
		if other, taken := a.static[h]; taken {
			return nil, fmt.Errorf("the API keys of %q and %q have the same secret: give each its own", other.ID, k.Principal.ID)
		}
		a.static[h] = k.Principal
	}
	return a, nil
}

// Hash returns the SHA-256 of a secret, the only form in which keys are stored.
func Hash(secret agentbus.Credential) agentbus.Digest {
	return sha256.Sum256([]byte(secret.Reveal())) //nolint:forbidigo // a credential is verified by its hash (P19)
}

// Identify returns the principal of an Authorization value. It fails with
// CodeUnauthenticated when the value is not "Bearer " and a known key, and with
// the store's error when the store cannot be asked. A key that is not known but
// looks like one of [NewKey] is bad; anything else may be of another kind.
//
// Only hashes are compared, so the time a comparison takes tells nothing of a
// secret; the last comparison is of constant time all the same.
func (a *APIKeys) Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	secret, ok := authorization.Token()
	if !ok {
		return agentbus.Principal{}, notMine("no API key was sent")
	}
	h := Hash(secret)
	if p, ok := a.static[h]; ok {
		return p, nil
	}
	if a.keys != nil {
		p, found, err := a.stored(ctx, h)
		if err != nil || found {
			return p, err
		}
	}
	if ours(secret) {
		return agentbus.Principal{}, bad("unknown_key", "the API key is not known, or it was revoked", howToAuthenticate)
	}
	return agentbus.Principal{}, notMine("the API key is not known, or it was revoked")
}

// stored returns the principal of a key of the store that is in force. The
// store is asked every time, so that a revocation counts at once, by whichever
// process it was made.
func (a *APIKeys) stored(ctx context.Context, h agentbus.Digest) (p agentbus.Principal, found bool, err error) {
	k, found, err := a.keys.KeyByHash(ctx, h)
	if err != nil {
		return p, false, fmt.Errorf("look up an API key: %w", err)
	}
	if !found || subtle.ConstantTimeCompare(k.Hash[:], h[:]) != 1 {
		return p, false, nil
	}
	return k.Principal, true, nil
}

// keyPrefix begins every secret of [NewKey], and keyLength is how long it is.
const (
	keyPrefix = "ab_"
	keyLength = len(keyPrefix) + 43 // 32 bytes in base64
)

// ours reports whether secret has the form of those of [NewKey].
func ours(secret agentbus.Credential) bool {
	s := secret.Reveal() //nolint:forbidigo // a credential is verified, by its form (P19)
	return len(s) == keyLength && strings.HasPrefix(s, keyPrefix)
}

// handleLength is how much of a secret its handle shows: the prefix and 6
// characters, 36 of its 256 bits.
const handleLength = len(keyPrefix) + 6

// NewKey makes an API key for p. The secret is shown to its owner once and
// stored nowhere (G4).
func NewKey(p agentbus.Principal, now time.Time) (secret agentbus.Credential, key agentbus.APIKey) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	s := keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	secret = agentbus.NewCredential(s)
	return secret, agentbus.APIKey{Handle: s[:handleLength], Hash: Hash(secret), Principal: p, Created: now.UTC()}
}
