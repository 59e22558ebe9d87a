package identity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Proofs remember which evidence was used, so that it counts once. UseProof
// notes one until it expires, durably, and reports whether it is the first time.
// It is safe for concurrent use.
type Proofs interface {
	UseProof(ctx context.Context, proof agentbus.Digest, expires time.Time) (first bool, err error)
}

// A TrustedIssuer is one whose evidence counts, and for what (C23).
type TrustedIssuer struct {
	Issuer          string   // a URL, an address or a host; its keys are at that host
	Methods         []string // that it may use
	Assurance       []string // that it may claim
	SubjectPrefixes []string // of the subjects it may speak of; each ends in "/", ":" or "@"
	MayDelegate     bool     // what it says of those that its subjects act for counts (C25)
}

// EvidenceConfig configures [NewEvidence].
type EvidenceConfig struct {
	Issuers []TrustedIssuer
	Client  *http.Client // reads the cards of issuers; required, and safe to send to URLs that strangers name (C33)
	Proofs  Proofs       // required
	Logger  *slog.Logger // nil: nothing is logged
	Now     func() time.Time
}

// An EvidenceVerifier verifies the evidence that calls bring along (C20 to C26).
// It is safe for concurrent use.
type EvidenceVerifier struct {
	cfg     EvidenceConfig
	trusted map[string]TrustedIssuer
	issuers map[string]*issuer
}

// NewEvidence returns a verifier. It reports every fault of the configuration at
// once, and asks no issuer yet.
func NewEvidence(c EvidenceConfig) (*EvidenceVerifier, error) {
	var faults []error
	if c.Client == nil || c.Proofs == nil {
		faults = append(faults, errors.New("identity: evidence needs a client and proofs"))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	v := &EvidenceVerifier{cfg: c, trusted: map[string]TrustedIssuer{}, issuers: map[string]*issuer{}}
	for _, t := range c.Issuers {
		if _, err := cardURL(t.Issuer); err != nil {
			faults = append(faults, err)
		}
		for _, p := range t.SubjectPrefixes {
			if p == "" || !strings.ContainsAny(p[len(p)-1:], "/:@") {
				faults = append(faults, errors.New("identity: a prefix of subjects ends in /, : or @"))
			}
		}
		v.trusted[t.Issuer] = t
		v.issuers[t.Issuer] = &issuer{name: t.Issuer, client: noRedirects(c.Client), now: c.Now}
	}
	return v, errors.Join(faults...)
}

// noRedirects returns a client that follows none: a card is worth something
// because of where it was read.
func noRedirects(c *http.Client) *http.Client {
	if c == nil {
		return nil
	}
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Verify returns what the evidence of a message proves (C22). Items that are no
// signed attestations are passed over: everything else is found out here (C21).
// One that does not count refuses them all, with CodeUnauthenticated; why is
// logged and not told.
func (v *EvidenceVerifier) Verify(ctx context.Context, raw []byte, to agentbus.EvidenceFor) ([]agentbus.Evidence, error) {
	items, err := parseEvidence(raw)
	var all []agentbus.Evidence
	for i := range items {
		if err != nil {
			break
		}
		if items[i].Proof.Type != signedAttestation {
			continue
		}
		var e agentbus.Evidence
		if e, err = v.verify(ctx, &items[i], to); err == nil {
			all = append(all, e)
		}
	}
	if err != nil {
		why, ok := errors.AsType[*EvidenceError](err)
		if !ok {
			why = &EvidenceError{Code: EvidenceMalformed, Err: err}
		}
		v.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "evidence refused", slog.String("code", string(why.Code)), slog.String("why", why.Why), slog.Any("cause", why.Err))
		return nil, refuseEvidence(err)
	}
	return all, nil
}

// refuseEvidence is what a caller reads whose evidence does not count.
func refuseEvidence(cause error) error {
	return &agentbus.Error{
		Code: agentbus.CodeUnauthenticated, Message: "the evidence of identity of this call does not count here", Err: cause,
		Explain: &agentbus.Explain{Rule: "C22", Next: "send evidence that a trusted issuer signed for this agent and this message, or none"},
	}
}

// verify goes through the checks of C22 in their order: nothing is fetched for
// an issuer that is not trusted, and a proof is used up last.
func (v *EvidenceVerifier) verify(ctx context.Context, item *evidenceItem, to agentbus.EvidenceFor) (e agentbus.Evidence, err error) {
	trust, ok := v.trusted[item.Issuer]
	if !ok {
		return e, noEvidence(EvidenceUntrusted, "nobody here trusts the issuer")
	}
	if err := trust.covers(item); err != nil {
		return e, err
	}
	signed, err := parseToken(item.Proof.Value, evidenceType, item.Issuer)
	if err != nil {
		return e, err
	}
	if err := item.names(signed.Signatures[0].Header.KeyID); err != nil {
		return e, err
	}
	claimed, err := evidenceClaimsOf(signed.UnsafePayloadWithoutVerification())
	if err != nil {
		return e, err
	}
	if err := claimed.fits(to, v.cfg.Now()); err != nil {
		return e, err
	}
	payload, err := v.issuers[item.Issuer].payload(ctx, signed)
	if err != nil {
		return e, err
	}
	claims, err := evidenceClaimsOf(payload)
	if err == nil {
		err = item.equals(claims)
	}
	if err == nil {
		err = claims.holds(v.cfg.Now())
	}
	if err == nil {
		err = useProof(ctx, v.cfg.Proofs, claims.proof(payload), claims.Expires)
	}
	if err == nil {
		err = claims.holds(v.cfg.Now())
	}
	if err != nil {
		return e, err
	}
	e = agentbus.Evidence{
		Issuer: item.Issuer, Method: claims.Method, Assurance: claims.Assurance, Digest: sha256.Sum256([]byte(item.Proof.Value)),
		Original: agentbus.NewCredential(item.Proof.Value), Expires: time.Unix(claims.Expires, 0),
	}
	e.Subject, e.OnBehalfOf, err = standsFor(claims.Subject, claims.Actor)
	if !trust.MayDelegate { // it speaks of who acts, and of nobody else
		e.OnBehalfOf = nil
	}
	return e, err
}

// useProof uses a proof up. What cannot be remembered does not count.
func useProof(ctx context.Context, proofs Proofs, proof agentbus.Digest, expires int64) error {
	first, err := proofs.UseProof(ctx, proof, time.Unix(expires, 0).Add(evidenceSkew))
	switch {
	case err != nil:
		return &EvidenceError{EvidenceReplayStoreFailed, "nobody can tell whether it was used before", err}
	case !first:
		return noEvidence(EvidenceReplayed, "it was used before")
	}
	return nil
}

// covers reports why an issuer is not trusted with an item.
func (t *TrustedIssuer) covers(item *evidenceItem) error {
	prefixed := func(subject string) bool {
		return slices.ContainsFunc(t.SubjectPrefixes, func(p string) bool { return strings.HasPrefix(subject, p) })
	}
	switch {
	case !slices.Contains(t.Methods, item.Method), !slices.Contains(t.Assurance, item.Assurance):
		return noEvidence(EvidenceUnsupportedMethod, "the issuer is not trusted with that method or assurance")
	case !prefixed(item.Subject):
		return noEvidence(EvidenceUntrusted, "the issuer is not trusted with that subject")
	}
	return nil
}

// proofDigest names a proof: who issued it, its id, and for whom.
func proofDigest(kind string, parts ...string) agentbus.Digest {
	b := []byte(kind)
	for _, s := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return sha256.Sum256(b)
}

// canonicalAudience returns an audience as two of them are compared: an address
// is written as @a@d in lower case, and a URL as it is.
func canonicalAudience(s string) string {
	if strings.Contains(s, "://") {
		return s
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(s, "acct:"), "@")
	if strings.Count(bare, "@") != 1 {
		return s
	}
	return "@" + strings.ToLower(strings.TrimSuffix(bare, "."))
}
