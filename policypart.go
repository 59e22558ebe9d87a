package agentbus

import (
	"encoding/json"
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

// Waits reports whether somebody can answer a part of this kind, so that the
// run waits for it (R21, E57). The others are failures.
func (k PolicyKind) Waits() bool {
	switch k {
	case PolicyConsentRequired, PolicyPaymentRequired, PolicyUnauthorized:
		return true
	case PolicyForbidden, PolicyUnavailableForLegal, PolicyTooManyRequests, PolicyServiceUnavailable:
		return false
	}
	return false
}

// A PolicyPart is what an agent answers instead of doing what it was asked,
// because a policy of its own says so: pay, consent, sign in (C27). It belongs
// to the agent that issued it: who passes it on wraps it and never edits it, so
// Raw is what travels (C19), and the other fields are read from it.
type PolicyPart struct {
	Raw json.RawMessage // the object as it came

	Kind    PolicyKind
	Code    string
	Title   string
	Message string
	URL     string // to be shown only where C27 allows it
	Action  string // label of the URL
	State   string // a secret of the issuer: what a resolution must name; never shown, logged or put in an event
	// RetryAfter is in seconds, of too_many_requests and service_unavailable.
	RetryAfter int
}

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
