package agentbus

import (
	"fmt"
	"regexp"
	"strings"
)

// An Address names a party across organisations, people and agents alike:
// @local@domain (C34). The zero Address is none. Addresses are compared with
// [Address.Equal], or by [Address.Key], not with ==: the case of the local part
// is kept and does not count.
type Address struct{ local, domain string }

const (
	maxDomain = 253 // bytes of a name in DNS, without the final dot
	maxLocal  = 64
)

var (
	localRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	labelRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// ParseAddress reads @a@d, a@d or acct:a@d (C34). The domain is a name in DNS of
// two labels or more, in ASCII: one with other letters is written in its xn--
// form. It is lower-cased, as DNS does not tell the cases apart; a final dot, a
// number for its last label and anything else in front or behind is refused,
// with CodeInvalidRequest.
func ParseAddress(s string) (Address, error) {
	if len(s) > len("acct:")+maxLocal+1+maxDomain {
		return Address{}, invalidAddress(fmt.Sprintf("it has %d bytes", len(s)))
	}
	bare, _ := strings.CutPrefix(s, "acct:")
	if bare == s {
		bare, _ = strings.CutPrefix(s, "@")
	}
	local, domain, found := strings.Cut(bare, "@")
	domain = asciiLower(domain)
	switch {
	case !found:
		return Address{}, invalidAddress("it names no agent, or no domain")
	case !localRE.MatchString(local):
		return Address{}, invalidAddress("what stands before the domain is not 1 to 64 letters, digits, dots, _ and -")
	}
	if why := checkDomain(domain); why != "" {
		return Address{}, invalidAddress(why)
	}
	return Address{local, domain}, nil
}

// checkDomain says why domain, in lower case, cannot be that of an address; "":
// it can.
func checkDomain(domain string) string {
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if !labelRE.MatchString(label) {
			return "its domain is not a name in DNS, written in ASCII and without a final dot"
		}
	}
	switch last := labels[len(labels)-1]; {
	case len(labels) < 2:
		return "its domain has one label, so it is known on one network only"
	case len(domain) > maxDomain:
		return fmt.Sprintf("its domain has more than %d bytes", maxDomain)
	case last[0] >= '0' && last[0] <= '9': // 10.0.0.1, or 0x7f.1: no top-level domain begins so
		return "its domain ends as the number of a machine does"
	}
	return ""
}

func invalidAddress(why string) error {
	return &Error{
		Code: CodeInvalidRequest, Message: "this is not the address of an agent: " + why,
		Explain: &Explain{Rule: "C34", Next: "write the agent's name, an at sign and its domain"},
	}
}

// Local returns the part before the domain, in the case it was written in.
func (a Address) Local() string { return a.local }

// Domain returns the domain, in lower case.
func (a Address) Domain() string { return a.domain }

// String returns the canonical form, @local@domain; "" for none.
func (a Address) String() string {
	if a.IsZero() {
		return ""
	}
	return "@" + a.local + "@" + a.domain
}

// Acct returns the address as a URI, acct:local@domain (RFC 7565); "" for none.
func (a Address) Acct() string {
	if a.IsZero() {
		return ""
	}
	return "acct:" + a.local + "@" + a.domain
}

// Key returns what equal addresses have in common, to stand as a key in maps.
func (a Address) Key() string { return asciiLower(a.String()) }

// Equal reports whether a and b are one address: the case of the local part does
// not count (C34).
func (a Address) Equal(b Address) bool { return a.Key() == b.Key() }

// IsZero reports whether a is none.
func (a Address) IsZero() bool { return a == Address{} }

// MarshalText returns the canonical form.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseAddress reads; an empty text is none.
func (a *Address) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*a = Address{}
		return nil
	}
	*a, err = ParseAddress(string(text))
	return err
}

// asciiLower returns s with the letters of ASCII in lower case, and others as
// they are: strings.ToLower makes a k of the Kelvin sign.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
