package execagent

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// Fields say what in a program's JSON lines is what (B1). Each is a path in
// gjson's syntax, such as "message.text"; "" is nowhere. Lines that are no JSON
// object are passed over.
type Fields struct {
	// Type is where a line says what it is; one that is none of Types is passed
	// over. "": all are read. So is a line that has a value at Nested: it is a
	// sub-agent's.
	Type   string
	Types  []string
	Nested string

	Text      string // more of the answer; between two lines of it comes Between
	Between   string
	Reasoning string // more of the agent's reasoning
	// Pieces of what a later line says whole as Text or Reasoning, as they come; that
	// line is then not told again.
	TextPiece, ReasoningPiece string

	Result string // the whole answer, which counts when there was no Text
	// Error is true, a text or an object, or a list with such in it, in a line that
	// says that the turn failed; the first text at ErrorText is why.
	Error     string
	ErrorText string
	Model     string
	// Session is where any line, of whatever Type, tells the id of the session that
	// the turn is served in; see [Session]. The last one counts.
	Session string

	// A tool that the agent used. It is told as reasoning: the agent has run the
	// tool itself, and its caller must not.
	ToolName, ToolInput string

	InputTokens  []string // their sum, the cached ones included
	CachedTokens string
	OutputTokens string
	Cost         string // in US dollars; see Config.ReportCost
}

// maxLine is the longest JSON line.
const maxLine = 8 << 20

// lines reads JSON lines.
func (r *reader) lines(out io.Reader) error {
	s := bufio.NewScanner(readerFunc(func(p []byte) (int, error) { return r.limited(out, p) }))
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if err := r.line(s.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return r.agent.tooLong()
	}
	return s.Err()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// line takes one line.
func (r *reader) line(line []byte) error {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' || !json.Valid(line) {
		return nil
	}
	f, v := &r.agent.config.Fields, gjson.ParseBytes(line)
	r.session = cmp.Or(text(v, f.Session), r.session)
	if f.Type != "" && !slices.Contains(f.Types, v.Get(f.Type).String()) || found(v, f.Nested).Type != gjson.Null {
		return nil
	}
	if failed(found(v, f.Error)) {
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "the program said that it failed" + lastWords(r.hide(firstText(v, f.ErrorText))),
			Explain: &agentbus.Explain{Rule: "B1"},
		}
	}
	r.used(v)
	if s := text(v, f.Result); s != "" {
		r.result = s
	}
	if s := text(v, f.Model); s != "" {
		r.model = s
	}
	c := agentbus.Chunk{
		Text:      r.told.text.next(text(v, f.TextPiece), text(v, f.Text), f.Between),
		Reasoning: r.told.reasoning.next(text(v, f.ReasoningPiece), text(v, f.Reasoning), "") + tools(v, f),
	}
	if c.Text == "" && c.Reasoning == "" {
		return nil
	}
	return r.emit(c)
}

// pieces are what was told of a text that comes in lines, and in pieces of them.
type pieces struct {
	spoke bool // there was some
	open  bool // pieces of a line were told that is still to come
}

// next returns what a line adds: a piece of a text, or a whole one, unless its
// pieces were told.
func (p *pieces) next(piece, whole, between string) string {
	said := piece
	if whole != "" && !p.open {
		said += whole
	}
	if said != "" && p.spoke && !p.open {
		said = between + said
	}
	p.open = whole == "" && (p.open || piece != "")
	p.spoke = p.spoke || said != ""
	return said
}

// found returns what stands at a path; nothing for no path.
func found(v gjson.Result, path string) gjson.Result {
	if path == "" {
		return gjson.Result{}
	}
	return v.Get(path)
}

// failed reports whether a value says that a turn failed.
func failed(at gjson.Result) bool {
	if at.IsArray() {
		return slices.ContainsFunc(at.Array(), failed)
	}
	return at.Type == gjson.True || at.Type == gjson.String && at.Str != "" || at.IsObject()
}

// firstText returns the text at a path: the first one, where it is a list.
func firstText(v gjson.Result, path string) string {
	for _, at := range found(v, path).Array() { // which is a list of one, where it is none
		if at.Type == gjson.String && at.Str != "" {
			return strings.ToValidUTF8(at.Str, "\uFFFD")
		}
	}
	return ""
}

// text returns the text at a path: that of each, where it is a list.
func text(v gjson.Result, path string) string {
	at := found(v, path)
	if at.Type == gjson.String {
		return strings.ToValidUTF8(at.Str, "\uFFFD")
	}
	var b strings.Builder
	if at.IsArray() {
		for _, item := range at.Array() {
			if item.Type == gjson.String {
				b.WriteString(item.Str)
			}
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// tools tells which tools a line says were used, and on what.
func tools(v gjson.Result, f *Fields) string {
	names, inputs := found(v, f.ToolName).Array(), found(v, f.ToolInput).Array()
	var b strings.Builder
	for i, name := range names {
		if name.Type != gjson.String || name.Str == "" {
			continue
		}
		b.WriteString("[tool " + name.Str)
		if i < len(inputs) {
			b.WriteString(" " + inputs[i].Raw)
		}
		b.WriteString("]\n")
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// used takes the usage that a line tells. The last that is told holds.
func (r *reader) used(v gjson.Result) {
	f, u, told := &r.agent.config.Fields, agentbus.Usage{}, false
	for _, path := range f.InputTokens {
		told = count(&u.InputTokens, v, path) || told
	}
	told = count(&u.OutputTokens, v, f.OutputTokens) || told
	_ = count(&u.CachedTokens, v, f.CachedTokens)
	if cost := dollars(v, f.Cost); cost != nil && r.agent.config.ReportCost {
		u.Cost, told = *cost, true
	}
	if told {
		r.usage = &u
	}
}

// maxTokens is the most tokens that a program can say it used.
const maxTokens = 1 << 31

// count adds the number at a path to n, and reports whether there is one.
func count(n *int64, v gjson.Result, path string) bool {
	at := found(v, path)
	if at.Type != gjson.Number || at.Num < 0 || at.Num > maxTokens {
		return false
	}
	*n += int64(at.Num)
	return true
}

// dollars reads an amount at a path; nil for none.
func dollars(v gjson.Result, path string) *agentbus.Micros {
	at := found(v, path)
	if at.Type != gjson.Number {
		return nil
	}
	amount, err := agentbus.ParseUSD(strconv.FormatFloat(at.Num, 'f', -1, 64))
	if err != nil {
		return nil
	}
	return &amount
}
