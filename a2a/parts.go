package a2a

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// metaMentionable is the member of metadata that is Mentionable's (C4, C28). What
// is ours stands under [MetadataKey].
const metaMentionable = "mentionable"

// textOf returns the parts of a message or an artifact as the dialects of text
// carry them (A38): text as it is, data as JSON, links as links, files that are
// text as their text; and the tool calls among the data (C2). What is not text
// stands on lines of its own, and pieces of text are put together as they are:
// agents stream them as parts. A file that is no text is CodeUnsupportedContent
// and named.
func textOf(parts sdk.ContentParts) (string, []agentbus.ToolCall, error) {
	var text strings.Builder
	var tools []agentbus.ToolCall
	inline := true // what was written last is text
	add := func(s string, isText bool) {
		if text.Len() > 0 && (!inline || !isText) {
			text.WriteByte('\n')
		}
		text.WriteString(s)
		inline = isText
	}
	for _, p := range parts {
		if p == nil {
			continue
		}
		switch c := p.Content.(type) {
		case sdk.Text:
			add(string(c), true)
		case sdk.URL:
			add(link(p.Filename, string(c)), false)
		case sdk.Raw:
			if !strings.HasPrefix(p.MediaType, "text/") || !utf8.Valid(c) {
				return "", nil, unsupported(p, len(c))
			}
			add(string(c), false)
		case sdk.Data:
			if tool, ok := toolOf(c.Value); ok {
				tools = append(tools, tool)
				continue
			}
			raw, err := oneLine(c.Value)
			if err != nil {
				return "", nil, err
			}
			add(string(raw), false)
		}
	}
	return text.String(), tools, nil
}

func link(name, url string) string {
	if name == "" {
		return url
	}
	return "[" + name + "](" + url + ")"
}

// unsupported names a file that cannot be carried.
func unsupported(p *sdk.Part, size int) error {
	kind := plain(cmp.Or(p.MediaType, "application/octet-stream"))
	name := plain(cmp.Or(p.Filename, "a file"))
	return &agentbus.Error{
		Code: agentbus.CodeUnsupportedContent, Message: name + " (" + kind + ", " + strconv.Itoa(size) + " bytes) cannot be carried: only text, data and links can",
		Explain: &agentbus.Explain{Rule: "A38", Observed: kind, Supported: []string{"text", "data", "url"}, Next: "give a link to the file, or its text"},
	}
}

// A toolCall is a tool call as a data part (C2).
type toolCall struct {
	Type      string `json:"type"` // tool_call
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

const typeToolCall = "tool_call"

func toolOf(v any) (agentbus.ToolCall, bool) {
	raw, err := json.Marshal(v)
	var t toolCall
	if err != nil || json.Unmarshal(raw, &t) != nil || t.Type != typeToolCall || t.Name == "" {
		return agentbus.ToolCall{}, false
	}
	return agentbus.ToolCall{ID: t.ID, Name: t.Name, Arguments: t.Arguments}, true
}

// toolPart returns a tool call as a part.
func toolPart(t *agentbus.ToolCall) *sdk.Part {
	p := sdk.NewDataPart(map[string]any{"type": typeToolCall, "id": t.ID, "name": t.Name, "arguments": t.Arguments}) // JSON-shaped (A27)
	p.MediaType = "application/json"
	return p
}

// oneLine returns v as JSON, with <, > and & as they are.
func oneLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, errors.Join(errors.New("write JSON"), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
