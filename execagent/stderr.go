package execagent

import (
	"errors"
	"strings"
	"sync"
	"unicode"
)

const (
	maxStderr = 16 << 10 // of what a program wrote on its standard error, the last bytes, which are kept
	maxQuoted = 512      // of these, the last ones, which its caller and the record are told
)

// A tail is a writer that keeps the last bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) > maxStderr {
		p, t.cut = p[len(p)-maxStderr:], true
	}
	if over := len(t.kept) + len(p) - maxStderr; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// String returns what is kept, as text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.ToValidUTF8(string(t.kept), "\uFFFD")
	if t.cut {
		s = "…" + s
	}
	return s
}

// said is what a program wrote on its standard error as the cause of an error:
// for the log.
func said(stderr string) error {
	if strings.TrimSpace(stderr) == "" {
		return nil
	}
	return errors.New("its standard error ends with: " + stderr)
}

// lastWords is the end of it, for the caller and the record: on one line,
// without what a relay could take for a mention.
func lastWords(stderr string) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, stderr)
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "@", "(at)")
	if s == "" {
		return ""
	}
	if len(s) > maxQuoted {
		s = "…" + strings.ToValidUTF8(s[len(s)-maxQuoted:], "")
	}
	return "; it said: " + s
}
