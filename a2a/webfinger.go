package a2a

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
)

// The relations and types of WebFinger.
const (
	relCard       = "https://mentionable.dev/ns/rel/agent-card"
	relLegacyCard = "https://mentionable.dev/agent-card" // is read, and never written
	typeJRD       = "application/jrd+json"
	typeJSON      = "application/json"
)

// A jrd is what WebFinger answers (RFC 7033).
type jrd struct {
	Subject string    `json:"subject"`
	Links   []jrdLink `json:"links"`
}

type jrdLink struct {
	Rel  string `json:"rel"`
	Type string `json:"type,omitempty"`
	Href string `json:"href"`
}

// webfinger asks the domain of a where the card of a is.
func (d *Dialer) webfinger(ctx context.Context, a agentbus.Address) (*url.URL, error) {
	at := d.base(a.Domain())
	at.Path, at.RawQuery = "/.well-known/webfinger", "resource="+a.Acct() // nothing of an address needs an escape
	body, err := d.Fetch(ctx, &at, typeJRD+", "+typeJSON)
	if err != nil {
		return nil, err
	}
	var found jrd
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, unreadable(&at, "it is no JSON resource descriptor", err)
	}
	subject, err := agentbus.ParseAddress(found.Subject)
	if err != nil || !strings.HasPrefix(found.Subject, "acct:") || !subject.Equal(a) {
		return nil, mismatch("the WebFinger of " + a.Domain() + " answers about another subject")
	}
	for _, rel := range []string{relCard, relLegacyCard} {
		for _, l := range found.Links {
			if l.Rel != rel || l.Type != typeJSON {
				continue
			}
			if u, err := url.Parse(l.Href); err == nil && u.IsAbs() {
				return u, nil
			}
			return nil, unreadable(&at, "its link to the agent card is no URL", nil)
		}
	}
	return nil, &agentbus.Error{
		Code: agentbus.CodeAgentNotFound, Message: "what " + a.Domain() + " knows by that address is no agent: there is no link to an agent card",
		Explain: &agentbus.Explain{Rule: "C35"},
	}
}

// mismatch refuses what an address leads to: its domain does not vouch for it.
func mismatch(what string) error {
	return &agentbus.Error{
		Code: agentbus.CodeForbidden, Message: what,
		Explain: &agentbus.Explain{Rule: "C35", Next: "tell the operator of that domain"},
	}
}
