package agentbus

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Slug returns the form of a speaker's name that stands in turn ids (P14): the
// name in NFKD, every run of characters outside [A-Za-z0-9_-] turned into one
// "-", runs of "-" collapsed, one leading and one trailing "-" stripped,
// lower-cased last. A name of which nothing remains is "anon". Two speakers
// can share a slug; within one conversation that is refused (P15).
func (s Speaker) Slug() string {
	var b strings.Builder
	dash := false
	for _, c := range []byte(norm.NFKD.String(string(s))) { // bytes of one rune fall into one run
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
		default:
			dash = true
			continue
		}
		if dash && b.Len() > 0 {
			b.WriteByte('-')
		}
		dash = false
		b.WriteByte(c)
	}
	if b.Len() == 0 {
		return "anon"
	}
	return b.String()
}

// Wire returns the speaker as it is written into a header (P18): the name
// itself when it is visible ASCII and spaces without comma and double quote,
// otherwise its slug. What it returns is never longer than 512 bytes, which is
// what [ParseLineage] accepts: some characters grow when they are normalized.
func (s Speaker) Wire() string {
	if plainName(string(s)) {
		return string(s)
	}
	slug := s.Slug()
	return strings.TrimSuffix(slug[:min(len(slug), maxID)], "-")
}

// plainName reports whether s can be a header value as it is.
func plainName(s string) bool {
	if strings.TrimSpace(s) != s || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == ',' || c == '"' {
			return false
		}
	}
	return true
}
