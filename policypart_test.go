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
