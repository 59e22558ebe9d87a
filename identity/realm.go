package identity

import (
	"errors"
	"regexp"
	"slices"

	"github.com/agentbus/agentbus"
)

// A Realm is where principals come from that the bus does not name itself: an
// issuer of tokens, an introspection endpoint, the subjects of certificates.
//
// The id of such a principal is Name, a colon, and what the issuer calls it.
// Since a name has no colon, principals of two realms never have one id.
type Realm struct {
	Name       string   // required; 1 to 63 letters, digits and . _ -
	InterAgent []string // subjects that may forward another's credential (P20)
	Admins     []string // subjects that may operate the bus as well
}

var (
	realmRE     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	principalRE = regexp.MustCompile(`^[!#-+\x2d-~]{1,128}$`) // as a record, a header and a log line can hold it
)

func (r Realm) check() error {
	if !realmRE.MatchString(r.Name) {
		return errors.New("the name of a realm is 1 to 63 letters, digits and . _ -")
	}
	return nil
}

// principal returns who subject is. admin makes it one that may operate the
// bus, whatever Admins says.
func (r Realm) principal(subject string, admin bool) (agentbus.Principal, error) {
	p := agentbus.Principal{ID: r.Name + ":" + subject, Role: agentbus.PrincipalUser, InterAgent: slices.Contains(r.InterAgent, subject)}
	if subject == "" || !principalRE.MatchString(p.ID) {
		return agentbus.Principal{}, bad("bad_subject", "the credential names nobody that a record could hold",
			"let its issuer name you in visible ASCII without comma and double quote, in at most 128 characters with the name of the realm")
	}
	if admin || slices.Contains(r.Admins, subject) {
		p.Role = agentbus.PrincipalAdmin
	}
	return p, nil
}

// A Claims says which claims of a token tell who its bearer is.
type Claims struct {
	Subject string // claim that names the principal; "": sub, or what the identifier says
	Role    string // claim that may make an admin, a text or a list of texts; "": none does
	Admin   string // its value that does; "": admin
}

// admin reports whether claims make their bearer an admin.
func (c Claims) admin(claims map[string]any) bool {
	want := c.Admin
	if want == "" {
		want = string(agentbus.PrincipalAdmin)
	}
	switch v := claims[c.Role].(type) {
	case string:
		return c.Role != "" && v == want
	case []any:
		return c.Role != "" && slices.Contains(v, any(want))
	}
	return false
}

// text returns the first of the named claims that is a text.
func text(claims map[string]any, names ...string) string {
	for _, name := range names {
		if s, ok := claims[name].(string); ok && s != "" {
			return s
		}
	}
	return ""
}
