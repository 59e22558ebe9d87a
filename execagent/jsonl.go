package execagent

import (
	"bufio"
	"bytes"
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
	Result    string // the whole answer, which counts when there was no Text
	Error     string // true in a line that says that the turn failed; ErrorText is why
	ErrorText string
	Model     string

	// A tool that the agent used. It is told as reasoning: the agent has run the
	// tool itself, and its caller must not.
	ToolName, ToolInput string

	InputTokens  []string // their sum, the cached ones included
	CachedTokens string
	OutputTokens string
	Cost         string // in US dollars; see Config.ReportCost
}

// ClaudeStreamJSON returns the fields of what claude --print --verbose
// --output-format stream-json writes.
func ClaudeStreamJSON() Fields {
	return Fields{ //nolint:gosec // paths, no credentials
		Type: "type", Types: []string{"assistant", "result"}, Nested: "parent_tool_use_id",
		Text: `message.content.#(type=="text")#.text`, Between: "\n\n", Reasoning: `message.content.#(type=="thinking")#.thinking`,
		Result: "result", Error: "is_error", ErrorText: "result", Model: "message.model",
		ToolName: `message.content.#(type=="tool_use")#.name`, ToolInput: `message.content.#(type=="tool_use")#.input`,
		InputTokens:  []string{"usage.input_tokens", "usage.cache_creation_input_tokens", "usage.cache_read_input_tokens"},
		CachedTokens: "usage.cache_read_input_tokens", OutputTokens: "usage.output_tokens", Cost: "total_cost_usd",
	}
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
	if f.Type != "" && !slices.Contains(f.Types, v.Get(f.Type).String()) || found(v, f.Nested).Type != gjson.Null {
		return nil
	}
	if found(v, f.Error).Type == gjson.True {
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "the program said that it failed" + lastWords(text(v, f.ErrorText)),
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
	c := agentbus.Chunk{Text: text(v, f.Text), Reasoning: text(v, f.Reasoning) + tools(v, f)}
	if c.Text != "" {
		if r.spoke {
			c.Text = f.Between + c.Text
		}
		r.spoke = true
	}
	if c.Text == "" && c.Reasoning == "" {
		return nil
	}
	return r.emit(c)
}

// found returns what stands at a path; nothing for no path.
func found(v gjson.Result, path string) gjson.Result {
	if path == "" {
		return gjson.Result{}
	}
	return v.Get(path)
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
