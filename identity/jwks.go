package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

const (
	keysFresh    = time.Hour        // keys younger than this are used without asking
	keysStale    = 24 * time.Hour   // keys older than this are not used, even if the issuer does not answer
	keysInterval = 10 * time.Second // between two attempts to read the keys: an unknown key id cannot cause more
	keysRetry    = time.Second      // the same while there are none
	maxKeySet    = 512 << 10        // bytes of a key set or a discovery document
	maxKeys      = 100              // keys of a set
)

// A keySet is the public keys of an issuer, read when they are needed. Whoever
// finds them missing or old reads them, one at a time; there is no goroutine.
type keySet struct {
	issuer, url string // url is "" when the issuer's discovery document tells it
	client      *http.Client
	log         *slog.Logger

	held       atomic.Pointer[heldKeys]
	refreshing atomic.Bool // somebody refreshes old keys, and nobody else needs to wait
	flight     singleflight.Group
	tried      time.Time // of the last attempt; only read and written in flight
	failed     error     // why it failed, likewise
}

// heldKeys is what one attempt has read.
type heldKeys struct {
	keys []jose.JSONWebKey
	read time.Time
}

var errUnknownKey = errors.New("the issuer has no such key")

// find returns the public key that a signature names. It fails with
// errUnknownKey when the issuer has none such, and with something else when the
// issuer cannot be asked.
func (s *keySet) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) (any, error) {
	held := s.held.Load()
	key, found := held.find(kid, alg)
	switch age := held.age(); {
	case found && age < keysFresh:
		return key, nil
	case found && age < keysStale:
		if s.refreshing.CompareAndSwap(false, true) {
			defer s.refreshing.Store(false)
			if fresh, err := s.refresh(ctx, held); err == nil {
				return orUnknown(fresh.find(kid, alg))
			}
		}
		return key, nil // keys survive an issuer that is down
	}
	fresh, err := s.refresh(ctx, held)
	if err != nil {
		return nil, err
	}
	return orUnknown(fresh.find(kid, alg))
}

func orUnknown(key any, found bool) (any, error) {
	if !found {
		return nil, errUnknownKey
	}
	return key, nil
}

// refresh returns keys that are newer than seen, or those that were read within
// the interval. Callers that come at once share one attempt, which does not end
// with the request of the first of them.
func (s *keySet) refresh(ctx context.Context, seen *heldKeys) (*heldKeys, error) {
	v, err, _ := s.flight.Do("", func() (any, error) {
		held, interval := s.held.Load(), keysInterval
		if held == nil {
			interval = keysRetry
		}
		if held != seen || time.Since(s.tried) < interval {
			return held, s.failed
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*fetchTimeout)
		defer cancel()
		keys, err := s.read(ctx)
		s.tried = time.Now()
		if s.failed = err; err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "the keys of an issuer cannot be read", slog.String("issuer", s.issuer), slog.Any("error", err))
			return held, err
		}
		held = &heldKeys{keys, s.tried}
		s.held.Store(held)
		return held, nil
	})
	held, _ := v.(*heldKeys)
	return held, err
}

// read reads the keys of the issuer, and where they are if that is not known.
func (s *keySet) read(ctx context.Context) ([]jose.JSONWebKey, error) {
	at := s.url
	if at == "" {
		var doc struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		if err := getJSON(ctx, s.client, strings.TrimSuffix(s.issuer, "/")+"/.well-known/openid-configuration", maxKeySet, &doc); err != nil {
			return nil, fmt.Errorf("its discovery document: %w", err)
		}
		if doc.Issuer != s.issuer {
			return nil, errors.New("its discovery document is of another issuer")
		}
		if err := checkURL(doc.JWKSURI); err != nil {
			return nil, fmt.Errorf("jwks_uri of its discovery document: %w", err)
		}
		at = doc.JWKSURI
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := getJSON(ctx, s.client, at, maxKeySet, &doc); err != nil {
		return nil, fmt.Errorf("its key set: %w", err)
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("its key set has more than %d keys", maxKeys)
	}
	return usableKeys(doc.Keys), nil
}

// usableKeys returns those of a set that can verify signatures. Others are
// passed over, as RFC 7517 wants it: secrets above all, and keys that are too
// weak or too slow.
func usableKeys(set []json.RawMessage) []jose.JSONWebKey {
	var usable []jose.JSONWebKey
	for _, raw := range set {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || k.Use != "" && k.Use != "sig" || !k.Valid() {
			continue
		}
		switch pub := k.Key.(type) {
		case *rsa.PublicKey:
			if n := pub.N.BitLen(); n < 2048 || n > 8192 {
				continue
			}
		case *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			continue
		}
		usable = append(usable, k)
	}
	return usable
}

// age returns how old the keys are; older than any bound when there are none.
func (h *heldKeys) age() time.Duration {
	if h == nil {
		return keysStale
	}
	return time.Since(h.read)
}

// find returns the key that a signature by alg names. One that names none is
// verified with the only key that fits it, if there is one.
func (h *heldKeys) find(kid string, alg jose.SignatureAlgorithm) (any, bool) {
	if h == nil {
		return nil, false
	}
	var fitting any
	for _, k := range h.keys {
		if !fits(k, alg) || kid != "" && k.KeyID != kid {
			continue
		}
		if kid != "" {
			return k.Key, true
		}
		if fitting != nil {
			return nil, false
		}
		fitting = k.Key
	}
	return fitting, fitting != nil
}

// fits reports whether a signature by alg can be one of key k.
func fits(k jose.JSONWebKey, alg jose.SignatureAlgorithm) bool {
	if k.Algorithm != "" && k.Algorithm != string(alg) {
		return false
	}
	switch pub := k.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(string(alg), "RS") || strings.HasPrefix(string(alg), "PS")
	case *ecdsa.PublicKey:
		curve := map[string]string{"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[string(alg)]
		return pub.Curve.Params().Name == curve
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	}
	return false
}
