package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// A tool is one that a request offers a model, or the choice of one.
type tool map[string]json.RawMessage

// withoutTools returns the body of a request without the tools that may not be
// offered, without a choice of one of them, and without any choice once no tool is
// left, which models refuse. gone is how many tools were taken out. The rest of
// them is written anew, so that what an agent reads is what was looked at; all other
// members are as they came, and so is a body without tools.
func withoutTools(body []byte, permits func(tool) bool) (out []byte, gone int) {
	o := offer{permits: permits}
	rawjson.Members(body, rawjson.Space(body, 0), func(m rawjson.Member) bool {
		o.member(m, body)
		return true
	})
	if !o.touched {
		return body, 0
	}
	if o.some {
		o.members = append(o.members, o.choices...)
	}
	return slices.Concat([]byte{'{'}, bytes.Join(o.members, []byte{','}), []byte{'}'}), o.gone
}

// An offer is what a request offers a model to call, while it is looked through.
type offer struct {
	permits          func(tool) bool
	members, choices [][]byte
	touched, some    bool // it is not as it came; a tool was let through
	gone             int
}

func (o *offer) member(m rawjson.Member, body []byte) {
	is := func(name string) bool { return strings.EqualFold(string(m.Key), name) }
	raw, value := body[m.From:m.Over], body[m.At:m.Over]
	switch {
	case is("tools"), is("functions"):
		o.touched = true
		if kept := o.kept(value); kept != nil {
			o.members = append(o.members, slices.Concat(body[m.From:m.At], kept))
		}
	case is("tool_choice"), is("function_call"):
		if value[0] == '{' && !o.chooses(value) {
			o.touched = true
		} else {
			o.choices = append(o.choices, raw)
		}
	case is("parallel_tool_calls"):
		o.choices = append(o.choices, raw)
	default:
		o.members = append(o.members, raw)
	}
}

// kept returns a list of tools without those that may not be offered; nil: none is
// left, or it is no list.
func (o *offer) kept(list []byte) []byte {
	var offered, kept []tool
	if json.Unmarshal(list, &offered) != nil {
		return nil
	}
	for _, t := range offered {
		if o.permits(t) {
			kept = append(kept, t)
		}
	}
	o.gone += len(offered) - len(kept)
	if kept == nil {
		return nil
	}
	o.some = true
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil
	}
	return raw
}

// chooses reports whether a choice is one of tools that may be offered.
func (o *offer) chooses(raw []byte) bool {
	var choice tool
	if json.Unmarshal(raw, &choice) != nil || !o.permits(choice) {
		return false
	}
	var among []tool
	_ = json.Unmarshal(choice["tools"], &among) // of a choice among several
	return !slices.ContainsFunc(among, func(t tool) bool { return !o.permits(t) })
}

// mayOffer returns the body of a request without the tools that the agent may not
// use (E27).
func (t *Target) mayOffer(body []byte) []byte {
	f := toolFilter{role: agentbus.HarnessRole{Agent: t.Name, Allowed: t.Tools}, scope: agentbus.Speaker(t.Name).Slug() + ":"}
	out, _ := withoutTools(body, f.permits)
	return out
}

// A toolFilter knows what an agent may be offered.
type toolFilter struct {
	role  agentbus.HarnessRole
	scope string // of the tools of requests
}

func (f *toolFilter) permits(t tool) bool {
	_, denied := agentbus.FilterTools(f.role, []string{f.id(t)})
	return len(denied) == 0
}

// id is what a tool is called in lists: a function by its name, one that the model's
// host runs by its type, a server of MCP as mcp:LABEL. "" is of what is none, and of
// what two readers could take for different tools.
func (f *toolFilter) id(t tool) string {
	named := t
	for _, within := range [...]string{"function", "custom"} {
		if raw, has := t[within]; has {
			if named = nil; t["name"] != nil || json.Unmarshal(raw, &named) != nil {
				return ""
			}
		}
	}
	if named == nil || ambiguous(t) || ambiguous(named) {
		return ""
	}
	switch kind, name := stringIn(t, "type"), stringIn(named, "name"); {
	case kind == "mcp" && stringIn(t, "server_label") != "":
		return "mcp:" + stringIn(t, "server_label")
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
func ambiguous(object tool) bool {
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
func stringIn(object tool, key string) (s string) {
	_ = json.Unmarshal(object[key], &s) // what is no string names nothing
	return s
}
