package agentbus

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// A PolicyKind says what a [PolicyPart] asks for or tells (C27). A kind that is
// not listed is kept, and never a success.
type PolicyKind string

// The kinds of a policy part.
const (
	PolicyConsentRequired     PolicyKind = "consent_required"
	PolicyPaymentRequired     PolicyKind = "payment_required"
	PolicyUnauthorized        PolicyKind = "unauthorized"
	PolicyForbidden           PolicyKind = "forbidden"
	PolicyUnavailableForLegal PolicyKind = "unavailable_for_legal_reasons"
	PolicyTooManyRequests     PolicyKind = "too_many_requests"
	PolicyServiceUnavailable  PolicyKind = "service_unavailable"
)

// Refuses reports whether a part of this kind says no for good or for now, so that
// nobody can answer it. Of the others somebody can, or might: a run waits (R21).
func (k PolicyKind) Refuses() bool {
	switch k {
	case PolicyForbidden, PolicyUnavailableForLegal, PolicyTooManyRequests, PolicyServiceUnavailable:
		return true
	case PolicyConsentRequired, PolicyPaymentRequired, PolicyUnauthorized:
	}
	return false
}

// Code returns the code of an answer by a part of this kind (C27): of a kind that
// is not known, that of a refusal, since it is never a success.
func (k PolicyKind) Code() Code {
	switch k {
	case PolicyConsentRequired:
		return CodeInputRequired
	case PolicyPaymentRequired:
		return CodePaymentRequired
	case PolicyUnauthorized:
		return CodeUnauthenticated
	case PolicyForbidden, PolicyUnavailableForLegal:
		return CodeForbidden
	case PolicyTooManyRequests:
		return CodeRateLimited
	case PolicyServiceUnavailable:
		return CodeOverloaded
	}
	return CodeForbidden
}

// Status returns the HTTP status of an answer by a part of this kind (C27): that
// of its code, but for the one that no code has.
func (k PolicyKind) Status() int {
	if k == PolicyUnavailableForLegal {
		return http.StatusUnavailableForLegalReasons
	}
	return k.Code().Status()
}

// A PolicyPart is what an agent answers instead of doing what it was asked,
// because a policy of its own says so: pay, consent, sign in (C27). It belongs
// to the agent that issued it: who passes it on wraps it and never edits it, so
// what travels is the JSON that came (C19), and this is what is read of it.
type PolicyPart struct {
	Kind       PolicyKind                 `json:"kind"`
	Title      string                     `json:"title"`
	Message    string                     `json:"message"`
	URL        string                     `json:"url"`   // to be shown only where C27 allows it
	State      string                     `json:"state"` // a secret of the issuer: what a resolution must name; never shown, logged or put in an event
	Data       map[string]json.RawMessage `json:"data"`
	Challenges []AuthChallenge            `json:"auth_challenges"` // of unauthorized: how to sign in
	// RetryAfter is in seconds, of too_many_requests and service_unavailable.
	RetryAfter int64 `json:"retry_after_seconds"`
}

// An AuthChallenge is one way to sign in; its other members are the scheme's own.
type AuthChallenge struct {
	Scheme string `json:"scheme"`
}

// ReadPolicyPart reads a policy part, or the first of a list of them. Of what has
// another shape it reads as much as it can: a part without a kind that is known is
// a refusal.
func ReadPolicyPart(raw json.RawMessage) (p PolicyPart) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // no object has no members
	for name, into := range map[string]any{
		"kind": &p.Kind, "title": &p.Title, "message": &p.Message, "url": &p.URL, "state": &p.State, "data": &p.Data,
		"auth_challenges": &p.Challenges, "retry_after_seconds": &p.RetryAfter,
	} {
		_ = json.Unmarshal(members[name], into) // a member of another shape says nothing
	}
	p.RetryAfter = max(0, min(p.RetryAfter, maxRetryAfter))
	return p
}

// maxRetryAfter is the longest that an agent may have somebody wait, in seconds.
const maxRetryAfter = 7 * 24 * 3600

// ShownURL returns the URL of a policy part when people may be shown it: https,
// on the host of the agent that issued the part, without a user; "" otherwise
// (C27). A host that only looks like it is another one: it is compared in ASCII.
// Whoever shows a part to people asks here.
func ShownURL(text, issuer string) string {
	for _, r := range text {
		if r <= ' ' || r >= 0x7f || r == '\\' {
			return ""
		}
	}
	u, err := url.Parse(text)
	if err != nil || issuer == "" || u.Scheme != "https" || u.Opaque != "" || u.User != nil {
		return ""
	}
	if port := u.Port(); port != "" && port != "443" || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), strings.TrimSuffix(issuer, ".")) {
		return ""
	}
	return text
}
