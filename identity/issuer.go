package identity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An EvidenceCode says why evidence, or a signed hop, does not count. It is
// logged; the caller reads unauthenticated and nothing more (C22).
type EvidenceCode string

// Why evidence does not count.
const (
	EvidenceMalformed         EvidenceCode = "malformed"
	EvidenceLimitExceeded     EvidenceCode = "limit_exceeded"
	EvidenceUnsupported       EvidenceCode = "unsupported_profile"
	EvidenceUnsupportedMethod EvidenceCode = "unsupported_issuer_method"
	EvidenceUntrusted         EvidenceCode = "untrusted_issuer"
	EvidenceKeyFetchFailed    EvidenceCode = "key_fetch_failed"
	EvidenceOtherController   EvidenceCode = "issuer_controller_mismatch"
	EvidenceUnsupportedCrypto EvidenceCode = "unsupported_cryptosuite"
	EvidenceInvalidSignature  EvidenceCode = "invalid_signature"
	EvidenceDomainMismatch    EvidenceCode = "domain_mismatch"
	EvidenceChallengeMismatch EvidenceCode = "challenge_mismatch"
	EvidenceNotYetValid       EvidenceCode = "not_yet_valid"
	EvidenceExpired           EvidenceCode = "expired"
	EvidenceReplayStoreFailed EvidenceCode = "replay_store_failed"
	EvidenceReplayed          EvidenceCode = "replayed"
)

// An EvidenceError is why evidence does not count. It holds nothing of it.
type EvidenceError struct {
	Code EvidenceCode
	Why  string
	Err  error
}

// Error returns the code and why.
func (e *EvidenceError) Error() string {
	s := string(e.Code) + ": " + e.Why
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *EvidenceError) Unwrap() error { return e.Err }

func noEvidence(code EvidenceCode, why string) error { return &EvidenceError{Code: code, Why: why} }

const (
	evidenceSkew   = 60 * time.Second  // how much clocks may differ (C22)
	evidenceWindow = 600 * time.Second // the longest that evidence counts
	maxCard        = 256 << 10         // bytes of an issuer's card
	cardFresh      = time.Hour
	cardInterval   = 10 * time.Second // between two readings of one card: bad signatures cannot cause more
)

// An issuer is one that is trusted, and its keys, read when they are needed.
type issuer struct {
	name   string
	client *http.Client
	now    func() time.Time

	reading sync.Mutex // held while the card is read: who needs it waits, and nobody else

	mu     sync.Mutex // guards all below
	keys   []jose.JSONWebKey
	read   time.Time // when keys were read
	tried  time.Time // when the card was last asked for
	failed error     // of that; nil: it was read
}

// cardURL returns where an issuer's keys are: issuers are URLs, addresses or
// hosts.
func cardURL(name string) (string, error) {
	host := name
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		u, err := url.Parse(name)
		if err != nil || u.Host == "" || rest == "" {
			return "", errors.New("the issuer is no URL")
		}
		if err := checkURL(name); err != nil {
			return "", err
		}
		return scheme + "://" + u.Host + "/.well-known/adapter-card", nil
	}
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		host = name[at+1:]
	}
	u := "https://" + host + "/.well-known/adapter-card"
	if host == "" || strings.ContainsAny(host, "/?#:@ ") || checkURL(u) != nil {
		return "", errors.New("the issuer names no host")
	}
	return u, nil
}

// payload returns what a token says that the issuer signed: with a key it is
// known to have, or after its card was read again, once for a key that is not
// known and once for a signature that is not right (C22).
func (i *issuer) payload(ctx context.Context, signed *jose.JSONWebSignature) ([]byte, error) {
	kid := signed.Signatures[0].Header.KeyID
	key, err := i.key(ctx, kid, time.Time{})
	if err != nil {
		return nil, err
	}
	if payload, err := signed.Verify(key.Key); err == nil {
		return payload, nil
	}
	seen := i.readAt()
	again, err := i.key(ctx, kid, seen)
	if err != nil {
		return nil, err
	}
	if payload, err := signed.Verify(again.Key); err == nil {
		return payload, nil
	}
	return nil, noEvidence(EvidenceInvalidSignature, "the signature is not its issuer's")
}

func (i *issuer) readAt() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.read
}

// key returns the key of an id. seen is when keys were read that did not do, or
// zero. The card is asked for once in cardInterval at most, also when it cannot
// be read: whoever sends tokens that lead there keeps neither the issuer nor
// other callers busy.
func (i *issuer) key(ctx context.Context, kid string, seen time.Time) (jose.JSONWebKey, error) {
	if key, due, err := i.known(kid, seen); !due {
		return key, err
	}
	i.reading.Lock()
	defer i.reading.Unlock()
	if key, due, err := i.known(kid, seen); !due { // somebody has read it meanwhile
		return key, err
	}
	keys, err := i.fetch(context.WithoutCancel(ctx)) // for all who wait, whoever of them leaves
	i.mu.Lock()
	i.tried, i.failed = i.now(), err
	if err == nil {
		i.keys, i.read = keys, i.tried
	}
	i.mu.Unlock()
	key, _, err := i.known(kid, time.Time{})
	return key, err
}

// known returns the key of an id as far as it is known, and whether the card is
// to be read for it.
func (i *issuer) known(kid string, seen time.Time) (key jose.JSONWebKey, due bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key, known := find(i.keys, kid)
	old := i.read.IsZero() || i.now().Sub(i.read) > cardFresh
	if old || !known || !seen.IsZero() && i.read.Equal(seen) {
		due = i.tried.IsZero() || i.now().Sub(i.tried) >= cardInterval
	}
	switch {
	case due:
	case i.failed != nil && (old || !known):
		err = i.failed
	case !known:
		err = noEvidence(EvidenceInvalidSignature, "the issuer has no such key")
	}
	return key, due, err
}

func find(keys []jose.JSONWebKey, kid string) (jose.JSONWebKey, bool) {
	for _, k := range keys {
		if k.KeyID == kid {
			return k, true
		}
	}
	return jose.JSONWebKey{}, false
}

// fetch reads the issuer's card.
func (i *issuer) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	at, err := cardURL(i.name)
	if err != nil {
		return nil, &EvidenceError{EvidenceKeyFetchFailed, "the issuer's card cannot be found", err}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var card struct {
		Issuer string            `json:"issuer"`
		Keys   []json.RawMessage `json:"keys"`
	}
	if err := getJSON(ctx, i.client, at, maxCard, &card); err != nil {
		return nil, &EvidenceError{EvidenceKeyFetchFailed, "the issuer's card cannot be read", err}
	}
	if card.Issuer != i.name {
		return nil, noEvidence(EvidenceOtherController, "the card is of another issuer")
	}
	if len(card.Keys) > maxKeys {
		return nil, noEvidence(EvidenceKeyFetchFailed, fmt.Sprintf("the card has more than %d keys", maxKeys))
	}
	var keys []jose.JSONWebKey
	for _, k := range usableKeys(card.Keys) {
		if _, ok := k.Key.(ed25519.PublicKey); ok {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// parseToken reads a compact JWS as far as it can be read without its key: only
// EdDSA, of one type, by a key of one issuer that the token does not bring along
// (C21).
func parseToken(token, typ, issuer string) (*jose.JSONWebSignature, error) {
	parts, ok := tokenParts(token)
	var header map[string]any
	if !ok || twins(parts[0]) || json.Unmarshal(parts[0], &header) != nil {
		return nil, noEvidence(EvidenceMalformed, "the token is no compact JWS")
	}
	for name := range header {
		if name != "alg" && name != "typ" && name != "kid" {
			return nil, noEvidence(EvidenceUnsupportedCrypto, "the token has a header beside alg, typ and kid")
		}
	}
	kid, _ := header["kid"].(string)
	switch {
	case header["alg"] != string(jose.EdDSA):
		return nil, noEvidence(EvidenceUnsupportedCrypto, "the token is not signed with EdDSA")
	case header["typ"] != typ:
		return nil, noEvidence(EvidenceUnsupported, "the token is of another type")
	case !strings.HasPrefix(kid, issuer+"#"):
		return nil, noEvidence(EvidenceOtherController, "the token names a key that is not its issuer's")
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, noEvidence(EvidenceMalformed, "the token is no compact JWS")
	}
	return signed, nil
}

// A period is when a token counts, in seconds since 1970.
type period struct {
	Issued    int64 `json:"iat"`
	NotBefore int64 `json:"nbf,omitempty"`
	Expires   int64 `json:"exp"`
}

// farFuture is beyond any time that a token may name.
const farFuture = 1 << 40

// holds reports why a token does not count at a time, or nil.
func (p period) holds(now time.Time) error {
	window, skew := int64(evidenceWindow/time.Second), int64(evidenceSkew/time.Second)
	switch at := now.Unix(); {
	case p.Expires <= 0 || p.Issued <= 0 || p.Expires > farFuture || p.Issued > farFuture || p.NotBefore > p.Expires || p.NotBefore < 0 || p.Issued > p.Expires:
		return noEvidence(EvidenceMalformed, "the times of the token are missing, or make no sense")
	case p.Expires-p.Issued > window:
		return noEvidence(EvidenceLimitExceeded, "the token counts for longer than 600 seconds")
	case at > p.Expires+skew:
		return noEvidence(EvidenceExpired, "the token has expired")
	case at < p.Issued-skew || at < p.NotBefore-skew:
		return noEvidence(EvidenceNotYetValid, "the token is not valid yet")
	}
	return nil
}

// An actor is who acts, and for whom it does: the act claim of RFC 8693.
type actor struct {
	Subject string `json:"sub"`
	Actor   *actor `json:"act,omitempty"`
}

// maxActors is the most that may stand one behind the other.
const maxActors = 8

// standsFor returns who acts now, and for whom, the nearest first and the root
// last (C26).
func standsFor(root string, act *actor) (subject string, onBehalfOf []string, err error) {
	if act == nil {
		return root, nil, nil
	}
	n := 0
	for a := act; a != nil; a = a.Actor {
		if n++; n > maxActors || a.Subject == "" {
			return "", nil, noEvidence(EvidenceMalformed, "the actors of the token are too many, or have no names")
		}
		if n > 1 {
			onBehalfOf = append(onBehalfOf, a.Subject)
		}
	}
	return act.Subject, append(onBehalfOf, root), nil
}

// tokenParts returns the parts of a compact JWS: header, payload and signature.
// It takes the one text that a signature has, so that the digest of a token names
// it: decoders pass over ends of lines, and over the last bits.
func tokenParts(token string) (parts [3][]byte, ok bool) {
	texts := strings.Split(token, ".")
	if len(texts) != len(parts) || len(token) > maxEvidenceItem || strings.ContainsAny(token, "\r\n") {
		return parts, false
	}
	for i, text := range texts {
		var err error
		if parts[i], err = base64.RawURLEncoding.Strict().DecodeString(text); err != nil {
			return parts, false
		}
	}
	return parts, true
}

// tokenPayload returns what a compact JWS says, which nobody has verified.
func tokenPayload(token string) ([]byte, bool) {
	parts, ok := tokenParts(token)
	return parts[1], ok
}

// card answers every request with the same card, from memory.
type card []byte

// RoundTrip returns the card.
func (c card) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c)), Request: r}, nil
}
