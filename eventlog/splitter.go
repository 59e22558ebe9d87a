package eventlog

import "strings"

// A Splitter takes secrets out of a text that comes in pieces. What could become
// a secret with the next piece is held back until that is decided (E28). It is
// for one text, and not safe for concurrent use.
type Splitter struct {
	r         *Redactor
	held      string
	open      bool // held is a token that began, and only its letters
	swallowed bool // inside a token that was too long to hold: its rest is dropped
}

// maxHeld is how much of a text is held back; a token that is longer is taken out
// without its end.
const maxHeld = 8 << 10

// Splitter returns a [Splitter] for one text, as its two methods: who takes it
// needs to know no type of this package.
func (r *Redactor) Splitter() (write func(piece string) string, rest func() string) {
	s := &Splitter{r: r}
	return s.Write, s.Close
}

// Write takes the next piece and returns what is decided, which may be nothing.
func (s *Splitter) Write(piece string) string {
	letters := strings.TrimLeftFunc(piece, func(c rune) bool { return c < 0x80 && tokenByte(byte(c)) }) //nolint:gosec // it is ASCII
	if s.swallowed {
		if letters == "" {
			return ""
		}
		piece, s.swallowed = letters, false
	}
	text, cut := s.held+piece, 0
	if !s.open || letters != "" { // else the token goes on, and need not be read again
		cut, s.open = s.decided(text)
	}
	if len(text)-cut > maxHeld {
		s.held, s.open, s.swallowed = "", false, true
		return s.r.Text(text[:cut]) + "[REDACTED:token]"
	}
	s.held = text[cut:]
	return s.r.Text(text[:cut])
}

// Close returns what was held back. Nothing is written behind it.
func (s *Splitter) Close() string {
	text := s.held
	s.held, s.open = "", false
	return s.r.Text(text)
}

// decided returns up to where text cannot change with what comes: not inside a
// secret, and not where one may have begun. It reports too whether the rest is a
// token that its letters continue.
func (s *Splitter) decided(text string) (cut int, open bool) {
	cut = len(text)
	token := cut
	for i, head := range s.r.heads {
		if i < s.r.fixed {
			cut = min(cut, partial(text, head))
			continue
		}
		token = min(token, openToken(text, head))
		cut = min(cut, partial(text, head))
	}
	cut = min(cut, token)
	for _, m := range s.r.matches(text) {
		if m.from < cut && cut < m.to {
			if cut = m.to; cut == len(text) {
				return m.from, false // a shape may go on
			}
		}
	}
	return cut, cut == token && cut < len(text)
}

// partial returns where text ends with the beginning of head, or its length. All
// of head counts too when text ends with it only if something may follow, which
// openToken says.
func partial(text, head string) int {
	for n := min(len(head)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, head[:n]) {
			return len(text) - n
		}
	}
	return len(text)
}

// openToken returns where text ends with head and letters of a token, or its
// length.
func openToken(text, head string) int {
	run := len(text)
	for run > 0 && tokenByte(text[run-1]) {
		run--
	}
	from := max(run-len(head), 0)
	if at := strings.Index(text[from:], head); at >= 0 {
		return from + at
	}
	return len(text)
}

// tokenByte reports whether c may stand in a token.
func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./+~=", c) >= 0
}
