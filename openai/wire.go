package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/agentbus/agentbus"
)

// maxTools is the most tool calls of one answer that are put together.
const maxTools = 1024

// content is the text of a message: on the wire a string, null, or a list of
// parts.
type content string

// UnmarshalJSON reads any of the three forms. A part that is no text is
// CodeUnsupportedContent and named.
func (c *content) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '[' {
		return json.Unmarshal(b, (*string)(c))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return &agentbus.Error{
				Code: agentbus.CodeUnsupportedContent, Message: "a message has a part of type " + clip(p.Type) + ", which this agent cannot take",
				Explain: &agentbus.Explain{Rule: "G2", Observed: clip(p.Type), Supported: []string{"text"}, Next: "send text parts only"},
			}
		}
		text.WriteString(p.Text)
	}
	*c = content(text.String())
	return nil
}

// clip shortens a word of the other side before it is said back.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "@", "(at)"), "?")
}

// arguments are those of a tool call: on the wire a string of JSON, and from
// some servers the JSON itself.
type arguments string

// UnmarshalJSON reads both forms.
func (a *arguments) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && (b[0] == '{' || b[0] == '[') {
		var compact bytes.Buffer
		if err := json.Compact(&compact, b); err != nil {
			return err
		}
		*a = arguments(compact.String())
		return nil
	}
	return json.Unmarshal(b, (*string)(a))
}

type toolCall struct {
	Index    *int   `json:"index,omitempty"` // in a stream: which call this is a piece of
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string    `json:"name,omitempty"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

func wireToolCall(t agentbus.ToolCall, index *int) toolCall {
	w := toolCall{Index: index, ID: t.ID, Type: "function"}
	w.Function.Name, w.Function.Arguments = t.Name, arguments(t.Arguments)
	return w
}

type usage struct {
	PromptTokens        int64         `json:"prompt_tokens"`
	CompletionTokens    int64         `json:"completion_tokens"`
	TotalTokens         int64         `json:"total_tokens"`
	PromptTokensDetails *tokenDetails `json:"prompt_tokens_details,omitempty"`
	Cost                json.Number   `json:"cost,omitempty"` // US dollars
}

type tokenDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

func (u *usage) usage() *agentbus.Usage {
	out := &agentbus.Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens}
	if u.PromptTokensDetails != nil {
		out.CachedTokens = u.PromptTokensDetails.CachedTokens
	}
	out.Cost, _ = dollars(string(u.Cost))
	return out
}

func wireUsage(u agentbus.Usage) *usage {
	out := &usage{PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
	if u.CachedTokens != 0 {
		out.PromptTokensDetails = &tokenDetails{u.CachedTokens}
	}
	if u.Cost != 0 {
		out.Cost = json.Number(u.Cost.USD())
	}
	return out
}

// toldUsage is what an answer tells of its usage: nothing where the backend did
// not tell any, so that who charges for it estimates it, and not zeros (G26).
func toldUsage(u *agentbus.Usage) *usage {
	if u == nil || *u == (agentbus.Usage{}) {
		return nil
	}
	return wireUsage(*u)
}

// marshal encodes v without escaping what HTML would want escaped.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
