package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// A RebindMode is how evidence goes on to the next agent (C25). It never goes on
// as it came: it is for another audience.
type RebindMode string

// The modes.
const (
	RebindReissue RebindMode = "reissue" // a token service makes new evidence of it (RFC 8693)
	RebindWrap    RebindMode = "wrap"    // this bus says in its own name what it was shown
	RebindDrop    RebindMode = "drop"    // it ends here
)

// RebinderConfig configures [NewRebinder].
type RebinderConfig struct {
	Signer *Signer // nil: nothing is wrapped
	// STS exchanges tokens (RFC 8693); "": nothing is reissued. https, or http to
	// this machine.
	STS string
	// STSToken is the actor token: what proves who this bus is to the service.
	STSToken  agentbus.Credential
	Transport http.RoundTripper // to the service; nil: one of its own, without a proxy
	Now       func() time.Time
}

// A Rebinder makes evidence for the next agent of evidence that was shown here
// (C25). Scope, expiry and budget only shrink. It is safe for concurrent use.
type Rebinder struct {
	cfg    RebinderConfig
	client *http.Client
}

// NewRebinder returns a rebinder, which asks nobody yet. It fails for an STS that is
// neither https nor on this machine.
func NewRebinder(c RebinderConfig) (*Rebinder, error) {
	if c.STS != "" {
		if err := checkURL(c.STS); err != nil {
			return nil, errors.Join(errors.New("identity: the token service"), err)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Rebinder{c, newClient(c.Transport, fetchTimeout)}, nil
}

// Mode returns how evidence goes on: reissued where there is a token service,
// else wrapped where there is a key, else not at all.
func (r *Rebinder) Mode() string { return string(r.mode()) }

func (r *Rebinder) mode() RebindMode {
	switch {
	case r.cfg.STS != "":
		return RebindReissue
	case r.cfg.Signer != nil:
		return RebindWrap
	}
	return RebindDrop
}

// A rebind says for whom evidence is made anew.
type rebind struct {
	agentbus.Evidence // as it was verified here

	audience, mid string
	caller        string // the principal that sends it on
}

// Rebind returns an item of evidence for the next agent, as JSON, and how it was
// made; nil when it ends here, as it does in every mode once it has expired. caller
// is the principal that calls the agent.
func (r *Rebinder) Rebind(ctx context.Context, e agentbus.Evidence, to agentbus.EvidenceFor, caller string) (item []byte, mode string, err error) {
	b := rebind{Evidence: e, mid: to.MessageID, caller: caller}
	if len(to.Audiences) > 0 {
		b.audience = to.Audiences[0]
	}
	how := r.mode()
	switch {
	case !e.Expires.IsZero() && r.cfg.Now().After(e.Expires.Add(evidenceSkew)), how == RebindWrap && len(e.OnBehalfOf) >= maxActors:
		how = RebindDrop // nobody would take it, and refuse the call for it
	case how == RebindReissue:
		item, err = r.reissue(ctx, b)
	case how == RebindWrap:
		item, err = r.wrap(b)
	}
	return item, string(how), err
}

// wrap says in this bus's own name what it was shown: it counts for the user
// only where the bus is trusted to delegate (C25).
func (r *Rebinder) wrap(b rebind) ([]byte, error) {
	now := r.cfg.Now()
	expires := now.Add(evidenceWindow / 2)
	if !b.Expires.IsZero() && b.Expires.Before(expires) {
		expires = b.Expires
	}
	if expires.Before(now) { // it counts still, for clocks that are slow
		now = expires
	}
	root, before := b.Root(), append([]string{b.Subject}, b.OnBehalfOf...)
	own := r.cfg.Signer.issuer + "/" + b.caller // who sends it on, as its issuer calls it
	act := &actor{Subject: own}
	at := act
	for _, name := range before[:len(before)-1] {
		at.Actor = &actor{Subject: name}
		at = at.Actor
	}
	claims := map[string]string{"evidence_sha256": hex.EncodeToString(b.Digest[:])}
	c := evidenceClaims{
		period: period{Issued: now.Unix(), Expires: expires.Unix()}, Issuer: r.cfg.Signer.issuer, Subject: root, Audience: audience(b.audience),
		ID: newProofID(), MessageID: b.mid, Method: WrapMethod, Assurance: "delegated", Actor: act, Claims: claims,
	}
	value, err := r.cfg.Signer.sign(evidenceType, c)
	if err != nil {
		return nil, err
	}
	item := evidenceItem{
		ID: c.ID, Subject: own, Issuer: c.Issuer, Method: c.Method, Assurance: c.Assurance, Audience: c.Audience,
		Issued: instant(c.Issued), Expires: instant(c.Expires), OnBehalfOf: slices.Clone(before), Claims: claims,
	}
	item.Proof.Type, item.Proof.Alg, item.Proof.KeyID, item.Proof.Value = signedAttestation, "EdDSA", r.cfg.Signer.kid, value
	return json.Marshal(item)
}

// newProofID returns an id for evidence, without which nobody takes any (C22): a token
// service need not give one.
func newProofID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return hex.EncodeToString(id[:])
}

// WrapMethod is the method of evidence that a bus wraps (C25).
const WrapMethod = "urn:agentbus:wrapped-evidence"

// reissue asks the token service for evidence for the next agent (RFC 8693): the
// user stays the subject, who sends it on acts, and the resource is the next
// agent.
func (r *Rebinder) reissue(ctx context.Context, b rebind) ([]byte, error) {
	const grant, tokenType = "urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:token-type:jwt" //nolint:gosec // names of RFC 8693
	form := url.Values{
		"grant_type": {grant}, "subject_token_type": {tokenType}, "requested_token_type": {tokenType},
		"resource": {b.audience}, "audience": {b.audience}, "message_id": {b.mid},
	}
	original := b.Original.Reveal() //nolint:forbidigo // shown to the token service, which makes another one of it (C25)
	form.Set("subject_token", original)
	if !r.cfg.STSToken.IsZero() {
		form.Set("actor_token", r.cfg.STSToken.Reveal()) //nolint:forbidigo // what proves this bus to its token service (P19)
		form.Set("actor_token_type", tokenType)
	}
	text := form.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.cfg.STS, io.NopCloser(strings.NewReader(text))) // which nobody sends twice
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(text)) // many token services read no body in chunks
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := doJSON(r.client, req, maxToken*2, &answer); err != nil {
		return nil, notReissued("the token service gave no evidence for the next agent", err)
	}
	return b.reissued(answer.Token, rootOf(original, b.Root()), r.cfg.Now())
}

// notReissued is what a caller reads whose evidence cannot go on. What was shown here
// is used up (C22).
func notReissued(message string, cause error) error {
	return &agentbus.Error{
		Code: agentbus.CodeIdentityUnavailable, Message: message, Err: cause,
		Explain: &agentbus.Explain{Rule: "C25", Next: "send the turn again after the given time, with new evidence or none"},
	}
}

// rootOf returns for whom a token says that it all happens, or told where it is no
// token. Its issuer may not be trusted to speak of those behind its subject here;
// the token service judges that itself.
func rootOf(token, told string) string {
	payload, _ := tokenPayload(token)
	if c, err := evidenceClaimsOf(payload); err == nil && c.Subject != "" {
		return c.Subject
	}
	return told
}

// reissued returns what a token service answered as an item: its claims in the
// plain, and the token. It must be what was asked for, and for no longer.
func (b *rebind) reissued(token, root string, now time.Time) ([]byte, error) {
	payload, _ := tokenPayload(token)
	c, err := evidenceClaimsOf(payload)
	if err == nil {
		_, err = parseToken(token, evidenceType, c.Issuer)
	}
	if err == nil {
		err = c.holds(now)
	}
	if err != nil {
		return nil, notReissued("the answer of the token service is no evidence", err)
	}
	subject, onBehalfOf, err := standsFor(c.Subject, c.Actor)
	switch {
	case err != nil, canonicalAudience(string(c.Audience)) != canonicalAudience(b.audience), c.MessageID != b.mid, c.Subject != root,
		!b.Expires.IsZero() && c.Expires > b.Expires.Unix():
		return nil, notReissued("the token service answered with evidence for something else", err)
	}
	item := evidenceItem{
		ID: cmp.Or(c.ID, newProofID()), Subject: subject, Issuer: c.Issuer, Method: c.Method, Assurance: c.Assurance, Audience: c.Audience,
		Issued: instant(c.Issued), NotBefore: instant(c.NotBefore), Expires: instant(c.Expires), OnBehalfOf: onBehalfOf,
	}
	item.Proof.Type, item.Proof.Alg, item.Proof.Value = signedAttestation, "EdDSA", token
	return json.Marshal(item)
}
