package execagent

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

const (
	hidden      = "[redacted]"
	leastSecret = 8 // characters of a credential that is looked for: a shorter one stands in too many words
)

// A veil hides the credentials that a program was given in what it answers, also
// where one is split between two pieces of it (P19, B2).
type veil struct {
	secrets []string // longest first

	text, reasoning string // what is held back: the beginning of a secret, maybe
}

// veil returns one over the credentials among the variables of a turn.
func (a *Agent) veil(env map[string]string) *veil {
	v := &veil{}
	for _, name := range [...]string{EnvToken, a.config.ForwardAuthorizationEnv} {
		whole := env[name]
		_, token, _ := strings.Cut(whole, " ") // behind its scheme
		for _, s := range [...]string{whole, strings.TrimSpace(token)} {
			if len(s) >= leastSecret {
				v.secrets = append(v.secrets, s)
			}
		}
	}
	slices.SortFunc(v.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return v
}

// over returns emit for what may hold credentials.
func (v *veil) over(emit func(agentbus.Chunk) error) func(agentbus.Chunk) error {
	return func(c agentbus.Chunk) error {
		last := c.Finish != ""
		c.Text, c.Reasoning = v.pass(&v.text, c.Text, last), v.pass(&v.reasoning, c.Reasoning, last)
		c.Model = v.hide(c.Model)
		if c.Text == "" && c.Reasoning == "" && !last {
			return nil
		}
		return emit(c)
	}
}

func (v *veil) hide(s string) string {
	for _, secret := range v.secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// pass returns what may be said now of what was held back and of what comes
// behind it.
func (v *veil) pass(held *string, s string, last bool) string {
	s = v.hide(*held + s)
	*held = ""
	if last {
		return s
	}
	n := 0
	for _, secret := range v.secrets {
		for i := min(len(secret)-1, len(s)); i > n; i-- {
			if strings.HasPrefix(secret, s[len(s)-i:]) {
				n = i
			}
		}
	}
	*held = s[len(s)-n:]
	return s[:len(s)-n]
}
