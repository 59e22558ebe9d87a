package conversation

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// A Redactor takes secrets out of what is to be stored (E28). It is safe for
// concurrent use.
type Redactor interface {
	Text(s string) string
	JSON(raw json.RawMessage) json.RawMessage
	// Splitter returns what takes them out of one text that comes in pieces: what
	// may become a secret with the next piece is held back until that is decided.
	Splitter() (write func(piece string) string, rest func() string)
}

// text returns s as it may be stored.
func (o *Options) text(s string) string {
	if o.Redact == nil {
		return s
	}
	return o.Redact.Text(s)
}

// explain returns x, which can be written, as it may be stored.
func (o *Options) explain(x *agentbus.Explain) *agentbus.Explain {
	if o.Redact == nil || x == nil {
		return x
	}
	raw, _ := json.Marshal(x)
	clean := o.Redact.JSON(raw)
	if bytes.Equal(clean, raw) {
		return x // numbers stay what they were
	}
	var out agentbus.Explain
	_ = json.Unmarshal(clean, &out) // it was one
	return &out
}

// toolCall returns c as it may be stored.
func (o *Options) toolCall(c *agentbus.ToolCall) *agentbus.ToolCall {
	if o.Redact == nil || c == nil {
		return c
	}
	clean := agentbus.ToolCall{ID: o.text(c.ID), Name: o.text(c.Name), Arguments: o.text(c.Arguments)}
	if json.Valid([]byte(c.Arguments)) {
		clean.Arguments = string(o.Redact.JSON(json.RawMessage(c.Arguments)))
	}
	return &clean
}

// receipts returns those of all that can be stored, as they may be: what a backend
// gives need not be JSON.
func (o *Options) receipts(all []json.RawMessage) (kept []json.RawMessage) {
	for _, raw := range all {
		raw = json.RawMessage(storableText(string(raw)))
		if !json.Valid(raw) {
			continue
		}
		if o.Redact != nil {
			raw = o.Redact.JSON(raw)
		}
		kept = append(kept, raw)
	}
	return kept
}

// pieces is a text as it comes: without secrets, and cut between runes, so that
// its pieces put together are what is stored.
type pieces struct {
	write func(string) string // nil: nothing is taken out
	rest  func() string
	cut   string // the beginning of a rune
}

func (o *Options) pieces() *pieces {
	p := &pieces{}
	if o.Redact != nil {
		p.write, p.rest = o.Redact.Splitter()
	}
	return p
}

// next returns what is decided with the next piece.
func (p *pieces) next(s string) string {
	if s == "" {
		return ""
	}
	if s, p.cut = p.cut+s, ""; !utf8.ValidString(s) {
		for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
			if end := s[len(s)-n:]; utf8.RuneStart(end[0]) {
				if !utf8.FullRuneInString(end) {
					s, p.cut = s[:len(s)-n], end
				}
				break
			}
		}
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if p.write != nil {
		s = p.write(s)
	}
	return s
}

// end returns what was held back.
func (p *pieces) end() string {
	s := strings.ToValidUTF8(p.cut, "\uFFFD")
	if p.cut = ""; p.write != nil {
		s = p.write(s) + p.rest()
	}
	return s
}
