package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// mayOffer returns the body of a request without the tools that the agent may not
// use (E27). The rest of them is written anew, so that what an agent reads is what
// was looked at; all other members are as they came.
func (t *Target) mayOffer(body []byte) []byte {
	f := toolFilter{role: agentbus.HarnessRole{Agent: t.Name, Allowed: t.Tools}, scope: agentbus.Speaker(t.Name).Slug() + ":"}
	var members, choices [][]byte
	touched := false
	rawjson.Members(body, rawjson.Space(body, 0), func(m rawjson.Member) bool {
		is := func(name string) bool { return strings.EqualFold(string(m.Key), name) }
		raw, value := body[m.From:m.Over], body[m.At:m.Over]
		switch {
		case is("tools"), is("functions"):
			touched = true
			if kept := f.kept(value); kept != nil {
				members = append(members, slices.Concat(body[m.From:m.At], kept))
			}
		case is("tool_choice"), is("function_call"):
			if value[0] == '{' && !f.allows(value) {
				touched = true
			} else {
				choices = append(choices, raw)
			}
		case is("parallel_tool_calls"):
			choices = append(choices, raw)
		default:
			members = append(members, raw)
		}
		return true
	})
	if !touched {
		return body
	}
	if f.some { // models refuse a choice among no tools
		members = append(members, choices...)
	}
	return slices.Concat([]byte{'{'}, bytes.Join(members, []byte{','}), []byte{'}'})
}

// A toolFilter takes out of a request what the agent may not be offered.
type toolFilter struct {
	role  agentbus.HarnessRole
	scope string // of the tools of requests
	some  bool   // one was let through
}

// kept returns a list of tools without those that are forbidden; nil: none is left,
// or it is no list.
func (f *toolFilter) kept(list []byte) []byte {
	var offered, kept []map[string]json.RawMessage
	if json.Unmarshal(list, &offered) != nil {
		return nil
	}
	for _, tool := range offered {
		if f.permits(tool) {
			kept = append(kept, tool)
		}
	}
	if kept == nil {
		return nil
	}
	f.some = true
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil
	}
	return raw
}

// allows reports whether a tool may be offered.
func (f *toolFilter) allows(raw []byte) bool {
	var tool map[string]json.RawMessage
	return json.Unmarshal(raw, &tool) == nil && f.permits(tool)
}

func (f *toolFilter) permits(tool map[string]json.RawMessage) bool {
	_, denied := agentbus.FilterTools(f.role, []string{f.id(tool)})
	return len(denied) == 0
}

// id is what a tool is called in lists: a function by its name, one that the model's
// host runs by its type, a server of MCP as mcp:LABEL. "" is of what is none, and of
// what two readers could take for different tools.
func (f *toolFilter) id(tool map[string]json.RawMessage) string {
	named := tool
	for _, within := range [...]string{"function", "custom"} {
		if raw, has := tool[within]; has {
			if named = nil; tool["name"] != nil || json.Unmarshal(raw, &named) != nil {
				return ""
			}
		}
	}
	if named == nil || ambiguous(tool) || ambiguous(named) {
		return ""
	}
	switch kind, name := stringIn(tool, "type"), stringIn(named, "name"); {
	case kind == "mcp" && stringIn(tool, "server_label") != "":
		return "mcp:" + stringIn(tool, "server_label")
	case kind == "mcp", name == "" && (kind == "" || kind == "function"):
		return ""
	case name == "":
		return f.scope + kind
	default:
		return f.scope + name
	}
}

// ambiguous reports whether some readers find a member of a tool that others do not:
// its key is one of those that tell them apart but for case.
func ambiguous(object map[string]json.RawMessage) bool {
	for key := range object {
		for _, known := range [...]string{"type", "name", "function", "custom", "server_label"} {
			if key != known && strings.EqualFold(key, known) {
				return true
			}
		}
	}
	return false
}

// stringIn returns a member that is a string; "" is none.
func stringIn(object map[string]json.RawMessage, key string) (s string) {
	_ = json.Unmarshal(object[key], &s) // what is no string names nothing
	return s
}
