package execagent

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"unicode"
)

const (
	maxStderr = 16 << 10 // of what a program wrote on its standard error, the last bytes, which are kept
	maxSecret = 8 << 10  // and so many before them, so that a credential among them is found whole
	maxQuoted = 200      // of these, the last ones, which its caller and the record are told: the record takes 300 in all
)

// A tail is a writer that keeps the last bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	const most = maxStderr + maxSecret
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) > most {
		p, t.cut = p[len(p)-most:], true
	}
	if over := len(t.kept) + len(p) - most; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// forget forgets what was written so far.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.cut = t.kept[:0], false
}

// text returns what is kept, as text, without what hide hides.
func (t *tail) text(hide func(string) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept
	if t.cut { // in the middle of a word, which may be a credential
		front := kept[:min(maxSecret, len(kept))]
		if i := bytes.IndexAny(front, " \t\r\n"); i >= 0 {
			front = front[:i]
		}
		kept = kept[len(front):]
	}
	s, cut := hide(strings.ToValidUTF8(string(kept), "\uFFFD")), t.cut
	if len(s) > maxStderr {
		s, cut = strings.ToValidUTF8(s[len(s)-maxStderr:], ""), true
	}
	if cut {
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
