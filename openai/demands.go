package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// HeaderIgnored is the header of an answer that names what the request offered and
// its backend was not told of, such as "tools", separated by ", ".
const HeaderIgnored = "x-agentbus-ignored"

// wishes are what a request says of its answer that no [agentbus.Call] carries.
type wishes struct {
	Tools        json.RawMessage `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Functions    json.RawMessage `json:"functions"`
	FunctionCall json.RawMessage `json:"function_call"`
	Format       json.RawMessage `json:"response_format"`
	Modalities   json.RawMessage `json:"modalities"`
	Stop         json.RawMessage `json:"stop"`
	Logprobs     json.RawMessage `json:"logprobs"`
	WebSearch    json.RawMessage `json:"web_search_options"`
}

// demanded refuses what the answer must be and no backend can be held to (G2): a
// caller that reads an answer in prose where it required JSON or a tool call fails
// later, and is not told why. Whoever offers a backend may vouch for its JSON.
func (in *wishes) demanded(answersJSON bool) error {
	format := kindOf(in.Format, "text")
	switch {
	case format != "text" && (!answersJSON || !slices.Contains(jsonForms[:], format)):
		return notHeld("response_format", format, "text", "leave it out, ask for the form in a message, and read the text")
	case !slices.Contains(choices[:], kindOf(in.ToolChoice, "auto")):
		return notHeld("tool_choice", kindOf(in.ToolChoice, "auto"), "auto", `send "auto", and take an answer in text`)
	case !slices.Contains(choices[:], kindOf(in.FunctionCall, "auto")):
		return notHeld("function_call", kindOf(in.FunctionCall, "auto"), "auto", `send "auto", and take an answer in text`)
	case bytes.Contains(in.Modalities, []byte(`"audio"`)):
		return notHeld("modalities", "audio", "text", "ask for text")
	}
	return nil
}

// jsonForms are those of response_format that ask for JSON.
var jsonForms = [...]string{"json_object", "json_schema"}

// choices are those of tool_choice after which an answer in text is one.
var choices = [...]string{"auto", "none"}

// kindOf reads a wish: a word, or an object with a type; which of several tools is
// allowed has a mode of its own. One that is absent is otherwise.
func kindOf(raw json.RawMessage, otherwise string) string {
	if !present(raw) {
		return otherwise
	}
	var word string
	var object struct {
		Type    string `json:"type"`
		Allowed struct {
			Mode string `json:"mode"`
		} `json:"allowed_tools"`
	}
	switch {
	case json.Unmarshal(raw, &word) == nil:
	case json.Unmarshal(raw, &object) != nil:
		return "unknown"
	case object.Type == "allowed_tools":
		word = object.Allowed.Mode
	case object.Type == "":
		return "named"
	default:
		word = object.Type
	}
	if word == "" {
		return otherwise
	}
	return word
}

func notHeld(field, observed, supported, next string) error {
	observed = clip(observed)
	return &agentbus.Error{
		Code: agentbus.CodeUnsupportedContent, Message: field + ": this agent cannot be held to " + observed + "; " + next,
		Explain: &agentbus.Explain{Rule: "G2", Observed: observed, Supported: []string{supported}, Next: next},
	}
}

// ignored names what the request offers and the backend is not told: an answer
// without it is one all the same. "" is nothing.
func (in *wishes) ignored() string {
	var names []string
	for _, offer := range [...]struct {
		name  string
		value json.RawMessage
	}{{"tools", in.Tools}, {"functions", in.Functions}, {"stop", in.Stop}, {"logprobs", in.Logprobs}, {"web_search_options", in.WebSearch}} {
		switch string(offer.value) {
		case "", "null", "[]", `""`, "false":
		default:
			names = append(names, offer.name)
		}
	}
	if kindOf(in.Format, "text") != "text" {
		names = append(names, "response_format") // it is vouched for, else it was refused
	}
	return strings.Join(names, ", ")
}
