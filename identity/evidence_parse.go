package identity

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/agentbus/agentbus"
)

const (
	signedAttestation = "signed-attestation"
	evidenceType      = "mentionable-identity-evidence+jwt"
	maxEvidence       = 64 << 10 // bytes of all the evidence of a message
	maxEvidenceItem   = 32 << 10
	maxEvidenceItems  = 4
)

// An evidenceItem is evidence as it is sent: what its issuer says in the plain,
// and the proof.
type evidenceItem struct {
	ID         string   `json:"id"`
	Subject    string   `json:"subject"`
	Issuer     string   `json:"issuer"`
	Method     string   `json:"method"`
	Assurance  string   `json:"assurance"`
	Audience   audience `json:"audience"`
	Issued     instant  `json:"issued_at"`
	NotBefore  instant  `json:"not_before,omitzero"`
	Expires    instant  `json:"expires_at"`
	OnBehalfOf []string `json:"on_behalf_of,omitempty"`
	Claims     any      `json:"claims,omitempty"`
	Proof      struct {
		Type  string `json:"type"`
		Alg   string `json:"alg,omitempty"`
		KeyID string `json:"kid,omitempty"`
		Value string `json:"value,omitempty"`
	} `json:"proof"`
}

// The claims of evidence that its issuer signs (C21).
type evidenceClaims struct {
	period

	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"` // the root (C26)
	Audience  audience `json:"aud"`
	ID        string   `json:"jti,omitempty"`
	MessageID string   `json:"mid"`
	Method    string   `json:"method"`
	Assurance string   `json:"assurance"`
	Actor     *actor   `json:"act,omitempty"` // who acts now, and before
	Claims    any      `json:"claims,omitempty"`
}

// parseEvidence reads the evidence of a message within its limits (C20).
func parseEvidence(raw []byte) ([]evidenceItem, error) {
	if len(raw) > maxEvidence {
		return nil, noEvidence(EvidenceLimitExceeded, "the evidence is over 64 KiB")
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, noEvidence(EvidenceMalformed, "the evidence is no list")
	}
	if len(list) > maxEvidenceItems {
		return nil, noEvidence(EvidenceLimitExceeded, "there are more than 4 pieces of evidence")
	}
	items := make([]evidenceItem, len(list))
	for i, one := range list {
		if len(one) > maxEvidenceItem {
			return nil, noEvidence(EvidenceLimitExceeded, "a piece of evidence is over 32 KiB")
		}
		if twins(one) || json.Unmarshal(one, &items[i]) != nil {
			return nil, noEvidence(EvidenceMalformed, "a piece of evidence is not what it should be")
		}
	}
	return items, nil
}

// twins reports whether an object has a member twice, or is none: two readers
// could take it for two.
func twins(raw []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return true
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return true
		}
		folded := strings.ToLower(strings.ToUpper(name)) // as encoding/json takes names for one: s has an upper case that is a long s too
		if seen[folded] || len(value) > 0 && value[0] == '{' && folded == "proof" && twins(value) {
			return true
		}
		seen[folded] = true
	}
	return false
}

func evidenceClaimsOf(payload []byte) (c evidenceClaims, err error) {
	if twins(payload) || json.Unmarshal(payload, &c) != nil {
		return c, noEvidence(EvidenceMalformed, "the claims of the token are not what they should be")
	}
	return c, nil
}

// fits reports why the claims are not for this request, or not for now.
func (c *evidenceClaims) fits(to agentbus.EvidenceFor, now time.Time) error {
	switch {
	case c.Audience == "" || !slices.ContainsFunc(to.Audiences, func(a string) bool { return canonicalAudience(a) == canonicalAudience(string(c.Audience)) }):
		return noEvidence(EvidenceDomainMismatch, "the evidence is for another audience")
	case c.MessageID == "" || c.MessageID != to.MessageID:
		return noEvidence(EvidenceChallengeMismatch, "the evidence is of another message")
	}
	return c.holds(now)
}

// proof names the evidence among all that may come again: by the id that its
// issuer signed, or by what it signed, since anybody can write another id into
// the plain.
func (c *evidenceClaims) proof(payload []byte) agentbus.Digest {
	kind, id := "evidence", c.ID
	if id == "" {
		kind, id = "evidence without jti", string(payload)
	}
	return proofDigest(kind, c.Issuer, id, canonicalAudience(string(c.Audience)))
}

// names reports where an item says of its proof in the plain what its header does
// not say: EdDSA, and a key.
func (i *evidenceItem) names(kid string) error {
	switch {
	case i.Proof.Alg != "" && i.Proof.Alg != string(jose.EdDSA):
		return noEvidence(EvidenceUnsupportedCrypto, "the proof is not said to be signed with EdDSA")
	case i.Proof.KeyID != "" && i.Proof.KeyID != kid:
		return noEvidence(EvidenceOtherController, "the proof is said to be signed with another key than it names")
	}
	return nil
}

// equals reports where an item says in the plain what its issuer has not signed.
func (i *evidenceItem) equals(c evidenceClaims) error {
	subject, onBehalfOf, err := standsFor(c.Subject, c.Actor)
	if err != nil {
		return err
	}
	same := i.Issuer == c.Issuer && i.Subject == subject && i.Method == c.Method && i.Assurance == c.Assurance &&
		canonicalAudience(string(i.Audience)) == canonicalAudience(string(c.Audience)) &&
		int64(i.Issued) == c.Issued && int64(i.NotBefore) == c.NotBefore && int64(i.Expires) == c.Expires &&
		slices.Equal(i.OnBehalfOf, onBehalfOf) && (i.ID == "" || c.ID == "" || i.ID == c.ID) &&
		(i.Claims == nil || reflect.DeepEqual(i.Claims, c.Claims))
	if !same || subject == "" || i.ID == "" && c.ID == "" {
		return noEvidence(EvidenceMalformed, "the evidence says in the plain what its issuer has not signed")
	}
	return nil
}

// An audience is one text, or a list of one; a longer list is refused (C15, X14).
type audience string

// UnmarshalJSON reads both forms.
func (a *audience) UnmarshalJSON(raw []byte) error {
	var list []string
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		if len(list) != 1 {
			return noEvidence(EvidenceMalformed, "an audience is one")
		}
		*a = audience(list[0])
		return nil
	}
	return json.Unmarshal(raw, (*string)(a))
}

// An instant is a time in seconds since 1970. It is written as RFC 3339, and read
// in seconds too.
type instant int64

// UnmarshalJSON reads both forms.
func (i *instant) UnmarshalJSON(raw []byte) error {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		*i = instant(n)
		return nil
	}
	var t time.Time
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	*i = instant(t.Unix())
	return nil
}

// MarshalJSON writes RFC 3339 in UTC.
func (i instant) MarshalJSON() ([]byte, error) { return json.Marshal(time.Unix(int64(i), 0).UTC()) }
