package eventlog

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// A Secret is what must not be stored, and the name that stands in its place.
type Secret struct {
	ID    string // such as agents.critic; never part of the secret
	Value agentbus.Credential
}

// minSecret is the length from which a secret is looked for by its value: a
// shorter one stands in ordinary words.
const minSecret = 6

// A Redactor takes secrets out of what is to be stored: those it was given, by
// their value, and tokens of known shapes (E28). It is safe for concurrent use.
type Redactor struct {
	ids     []string // by heads
	secrets []Secret
	heads   []string // what a secret begins with: whole secrets, and the heads of shapes
	fixed   int      // so many of heads are whole secrets
}

// NewRedactor returns a redactor of secrets. Those shorter than six bytes, and
// those that are no text, are left out.
func NewRedactor(secrets ...Secret) *Redactor {
	r := &Redactor{}
	for _, s := range secrets {
		value := s.Value
		if token, ok := value.Token(); ok {
			value = token
		}
		if text := value.Reveal(); len(text) >= minSecret && utf8.ValidString(text) { //nolint:forbidigo // to find it, and take it out (E28)
			r.secrets = append(r.secrets, Secret{s.ID, value})
		}
	}
	slices.SortStableFunc(r.secrets, func(a, b Secret) int {
		return len(b.Value.Reveal()) - len(a.Value.Reveal()) //nolint:forbidigo // the longest is looked for first
	})
	for _, s := range r.secrets {
		r.ids, r.heads = append(r.ids, s.ID), append(r.heads, s.Value.Reveal()) //nolint:forbidigo // to find it (E28)
	}
	r.fixed = len(r.heads)
	for i := range shapes {
		r.ids, r.heads = append(r.ids, shapes[i].id), append(r.heads, shapes[i].head)
	}
	return r
}

// With returns a redactor of more secrets.
func (r *Redactor) With(secrets ...Secret) *Redactor {
	return NewRedactor(append(slices.Clone(r.secrets), secrets...)...)
}

// Text returns s with [REDACTED:<id>] in place of each secret.
func (r *Redactor) Text(s string) string {
	found := r.matches(s)
	if found == nil {
		return s
	}
	var b strings.Builder
	last := 0
	for _, m := range found {
		b.WriteString(s[last:m.from])
		b.WriteString("[REDACTED:" + r.ids[m.which] + "]")
		last = m.to
	}
	b.WriteString(s[last:])
	return b.String()
}

// JSON returns a value of JSON without secrets in its strings and keys. Where
// there are none it is the same bytes. What is no JSON becomes a redacted
// string.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		out, _ := json.Marshal(r.Text(string(raw))) // a string
		return out
	}
	clean, changed := r.value(v)
	if !changed {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(clean) // it came from JSON
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// value returns v without secrets, and whether there were any.
func (r *Redactor) value(v any) (clean any, changed bool) {
	switch v := v.(type) {
	case string:
		s := r.Text(v)
		return s, s != v
	case []any:
		for i := range v {
			item, c := r.value(v[i])
			v[i], changed = item, changed || c
		}
		return v, changed
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			name := r.Text(key)
			m, c := r.value(member)
			out[name], changed = m, changed || c || name != key
		}
		return out, changed
	}
	return v, false
}
