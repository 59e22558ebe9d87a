package agentbus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// C27, X24: people are shown a URL of the agent that issued the part, and no other.
func TestX24ShownURL(t *testing.T) {
	t.Parallel()
	for text, shown := range map[string]bool{
		"https://pay.example/order?a=1":       true,
		"https://PAY.example:443/":            true,
		"javascript:alert(1)":                 false,
		"http://pay.example/":                 false,
		"https://evil.example/":               false,
		"https://pay.example.evil.example/":   false,
		"https://pay.example:8443/":           false,
		"https://user@pay.example/":           false,
		"https://pay.example@evil.example/":   false,
		"https://p\u0430y.example/":           false, // a Cyrillic letter
		"https://xn--py-7lc.example/":         false, // the same in ASCII
		"https://pay.example\\@evil.example/": false,
		"//pay.example/":                      false,
		"https:pay.example":                   false,
		"\u0020https://pay.example/":          false,
		"https://pay.example/\u202e":          false,
		"data:text/html,x":                    false,
		"":                                    false,
	} {
		if got := agentbus.ShownURL(text, "pay.example"); (got != "") != shown || shown && got != text {
			t.Errorf("%q: %q", text, got)
		}
		part, err := json.Marshal(map[string]string{"kind": "consent_required", "url": text, "state": "the-state"})
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []string{string(part), "[" + string(part) + "]"} {
			raw, err := json.Marshal(agentbus.Ask{Kind: agentbus.AskPolicy, Policy: json.RawMessage(policy), Issuer: "pay.example"})
			if err != nil || strings.Contains(string(raw), `"url"`) != shown || strings.Contains(string(raw), "the-state") {
				t.Errorf("%q is shown as %s, %v", text, raw, err)
			}
		}
	}
	if got := agentbus.ShownURL("https://pay.example/", ""); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}

// C27: what is read of a part, whatever its shape; X25: what is not known is no
// success.
func TestReadPolicyPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		kind    agentbus.PolicyKind
		status  int
		refuses bool
	}{
		`{"kind":"consent_required"}`:                          {agentbus.PolicyConsentRequired, 422, false},
		`[{"kind":"payment_required"},{"kind":"forbidden"}]`:   {agentbus.PolicyPaymentRequired, 402, false},
		`{"kind":"unauthorized","auth_challenges":"x"}`:        {agentbus.PolicyUnauthorized, 401, false},
		`{"kind":"forbidden","data":[],"url":7}`:               {agentbus.PolicyForbidden, 403, true},
		`{"kind":"unavailable_for_legal_reasons"}`:             {agentbus.PolicyUnavailableForLegal, 451, true},
		`{"kind":"too_many_requests","retry_after_seconds":5}`: {agentbus.PolicyTooManyRequests, 429, true},
		`{"kind":"service_unavailable"}`:                       {agentbus.PolicyServiceUnavailable, 503, true},
		`{"kind":"payment_ok"}`:                                {"payment_ok", 403, false},
		`{"kind":{}}`:                                          {"", 403, false},
		`7`:                                                    {"", 403, false},
		`[]`:                                                   {"", 403, false},
		``:                                                     {"", 403, false},
	} {
		p := agentbus.ReadPolicyPart(json.RawMessage(text))
		if p.Kind != want.kind || p.Kind.Status() != want.status || p.Kind.Refuses() != want.refuses {
			t.Errorf("%s: %q, %d, refuses %v", text, p.Kind, p.Kind.Status(), p.Kind.Refuses())
		}
	}
	if p := agentbus.ReadPolicyPart(json.RawMessage(`{"retry_after_seconds":-5}`)); p.RetryAfter != 0 {
		t.Errorf("again after %d", p.RetryAfter)
	}
}
