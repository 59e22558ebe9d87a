package conformance

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// A call is a request as it is written on the wire.
type call struct {
	method, path string
	key          agentbus.Credential // an Authorization value; none: the header is left out
	forwarded    agentbus.Credential // a credential forwarded for somebody else; none: likewise
	lines        []string            // headers, "name: value", as they are
	framing      []string            // in place of the Content-Length
	body         string
	nonce        string // by which our agent knows it
}

// with returns c with more header lines.
func (c *call) with(lines ...string) *call {
	out := *c
	out.lines = append(append([]string(nil), c.lines...), lines...)
	return &out
}

// as returns c with the Authorization of another.
func (c *call) as(key agentbus.Credential) *call {
	out := *c
	out.key = key
	return &out
}

// forwarding returns c with a forwarded credential.
func (c *call) forwarding(credential agentbus.Credential) *call {
	out := *c
	out.forwarded = credential
	return &out
}

// text is the request as it goes on the wire to host, below the path of the
// endpoint.
func (c *call) text(host, below string) string {
	var b strings.Builder
	b.WriteString(c.method + " " + below + c.path + " HTTP/1.1\r\nHost: " + host + "\r\n")
	for _, h := range []struct {
		name       string
		credential agentbus.Credential
	}{{"Authorization", c.key}, {agentbus.HeaderForwardedAuthorization, c.forwarded}} {
		if !h.credential.IsZero() {
			b.WriteString(h.name + ": " + h.credential.Reveal() + "\r\n") //nolint:forbidigo // this request is where it goes (P19)
		}
	}
	for _, line := range c.lines {
		b.WriteString(line + "\r\n")
	}
	framing := c.framing
	if framing == nil && c.method == http.MethodPost {
		framing = []string{"Content-Length: " + strconv.Itoa(len(c.body))}
	}
	if c.method == http.MethodPost {
		b.WriteString("Content-Type: application/json\r\n")
	}
	for _, line := range framing {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n" + c.body)
	return b.String()
}

// String says what was sent, for a finding: without the key.
func (c *call) String() string {
	parts := []string{c.method + " " + c.path}
	if c.key.IsZero() {
		parts = append(parts, "no Authorization")
	}
	if !c.forwarded.IsZero() {
		parts = append(parts, agentbus.HeaderForwardedAuthorization+": [redacted]")
	}
	for _, line := range append(append([]string(nil), c.lines...), c.framing...) {
		parts = append(parts, clip(line, 120))
	}
	if c.body != "" {
		parts = append(parts, clip(c.body, 200))
	}
	return strings.Join(parts, " | ")
}

// clip makes s one short line of visible characters.
func clip(s string, most int) string {
	q := strconv.Quote(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if len(q) > most {
		q = strings.ToValidUTF8(q[:most], "") + "…"
	}
	return q
}
