package execagent

import (
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// A reader turns a program's output into chunks.
type reader struct {
	*turn

	agent *Agent
	left  int64 // bytes it may still write

	// Of JSON lines:
	told    struct{ text, reasoning pieces }
	result  string
	model   string
	session string // that the program told
	usage   *agentbus.Usage
}

func (a *Agent) newReader(t *turn) *reader {
	return &reader{turn: t, agent: a, left: a.config.MaxOutput}
}

// bytesPerToken is the usual rule of thumb for English text.
const bytesPerToken = 4

// last is the end of a good answer to text. What it took is estimated when the
// program did not say.
func (r *reader) last(text string) agentbus.Chunk {
	c := agentbus.Chunk{Finish: "stop", Model: r.model, Usage: r.usage}
	if !r.told.text.spoke {
		c.Text = r.result
	}
	if c.Usage == nil {
		written := r.agent.config.MaxOutput - r.left
		c.Usage = &agentbus.Usage{InputTokens: int64(len(text) / bytesPerToken), OutputTokens: written / bytesPerToken, Estimated: true}
	}
	return c
}

// limited limits what is read of a program's output.
func (r *reader) limited(out io.Reader, p []byte) (int, error) {
	n, err := out.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, r.agent.tooLong()
	}
	return n, err
}

// read reads the output to its end, or to what makes it useless.
func (r *reader) read(out io.Reader) error {
	if r.agent.config.Output == OutputJSONL {
		return r.lines(out)
	}
	return r.plain(out)
}

// plain passes the output on as it comes. What is no UTF-8 becomes U+FFFD: an
// answer is text.
func (r *reader) plain(out io.Reader) error {
	buf := make([]byte, 32<<10)
	held := 0 // bytes at the front of buf that begin a character
	for {
		n, err := r.limited(out, buf[held:])
		n += held
		whole := n
		if err == nil {
			whole = wholeRunes(buf[:n])
		}
		if whole > 0 {
			if err := r.emit(agentbus.Chunk{Text: strings.ToValidUTF8(string(buf[:whole]), "\uFFFD")}); err != nil {
				return err
			}
		}
		held = copy(buf, buf[whole:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wholeRunes returns how many bytes of p come before a character that p ends in
// the middle of.
func wholeRunes(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if b := p[len(p)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}
