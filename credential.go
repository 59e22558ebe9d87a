package agentbus

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const redacted = "[redacted]"

// A Credential is a secret that pays or proves: a whole Authorization value,
// such as "Bearer sk-…". It prints as [redacted] under every format verb, in
// JSON, in text encodings and in slog (P19); [Credential.Reveal] is the one way
// out. The zero Credential is none.
//
// It holds the secret in a closure, behind a pointer, so that even a printer
// that ignores methods and follows pointers, and the comparison of two
// Credentials with ==, show nothing of it.
type Credential struct{ secret *func() string }

// NewCredential returns s as a Credential, or none when s is empty.
func NewCredential(s string) Credential {
	if s == "" {
		return Credential{}
	}
	reveal := func() string { return s }
	return Credential{&reveal}
}

// IsZero reports whether there is no credential.
func (c Credential) IsZero() bool { return c.secret == nil }

// Reveal returns the secret. Call it only where a request is written, a
// credential verified, sealed, or handed to a program by configuration (P19).
func (c Credential) Reveal() string { return c.plain() }

// plain is Reveal for this file.
func (c Credential) plain() string {
	if c.secret == nil {
		return ""
	}
	return (*c.secret)()
}

// Token returns the credential without its "Bearer" scheme, and whether it had
// one. The scheme is matched in any case (RFC 9110).
func (c Credential) Token() (Credential, bool) {
	scheme, token, ok := strings.Cut(c.plain(), " ")
	if token = strings.TrimLeft(token, " "); !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return Credential{}, false
	}
	return NewCredential(token), true
}

// Redact returns s with every occurrence of the credential, or of its token, as
// [redacted]: for what another party said (P19).
func (c Credential) Redact(s string) string {
	if c.IsZero() {
		return s
	}
	s = strings.ReplaceAll(s, c.plain(), redacted)
	if token, ok := c.Token(); ok {
		s = strings.ReplaceAll(s, token.plain(), redacted)
	}
	return s
}

// Fingerprint identifies the credential without telling it: the first 32 hex
// digits of its HMAC-SHA-256 under the install key (P19).
func (c Credential) Fingerprint(installKey []byte) string {
	m := hmac.New(sha256.New, installKey)
	m.Write([]byte(c.plain()))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// String returns "[redacted]", or "" when there is no credential.
func (c Credential) String() string {
	if c.IsZero() {
		return ""
	}
	return redacted
}

// GoString is String for %#v.
func (c Credential) GoString() string { return `agentbus.NewCredential("` + c.String() + `")` }

// Format writes what String does under every verb, and what GoString does for
// %#v: without it %x would write the digits of "[redacted]" and %d an address.
func (c Credential) Format(f fmt.State, verb rune) {
	s := c.String()
	if verb == 'v' && f.Flag('#') {
		s = c.GoString()
	}
	_, _ = io.WriteString(f, s) // a fmt.State does not fail
}

// MarshalText returns what String does, for JSON and other encodings.
func (c Credential) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// LogValue returns what String does, for slog.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }
