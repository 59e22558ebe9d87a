package gateway

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// defaultDelegates are the tools by which the usual frameworks have models call
// other agents.
var defaultDelegates = []string{"transfer_to_*", "handoff_to_*", "delegate_*", "ask_agent*", "ask_question_to_*", "call_agent*"}

// delegates reports whether a tool of that name has another agent called: it is
// one of those that the operator lists, or is named after an agent of this bus.
func (g *Gateway) delegates(tool string) bool {
	for _, pattern := range g.cfg.Chain.Delegates {
		if start, any := strings.CutSuffix(pattern, "*"); tool == pattern || any && strings.HasPrefix(tool, start) {
			return true
		}
	}
	_, ours := g.cfg.Router.Route(tool)
	return ours
}

// withoutDelegation takes the tools that have other agents called out of what a
// model is offered, and what forces the use of one (C8). A body that offers none
// comes back as it is.
func (g *Gateway) withoutDelegation(x *exchange, body []byte) []byte {
	o := offer{body: body, delegates: g.delegates}
	rawjson.Members(body, rawjson.Space(body, 0), func(m rawjson.Member) bool {
		if o.lists(m) {
			o.look(m)
		}
		return true
	})
	if len(o.gone) == 0 {
		return body
	}
	if note := "delegation_hidden:" + strconv.Itoa(len(o.gone)); !x.noted(note) { // a try before has noted it
		x.note(note)
	}
	return o.rewrite()
}

// An offer is what a body offers a model to call.
type offer struct {
	body      []byte
	delegates func(tool string) bool
	gone      []string // names of the tools that are taken out
	left      int      // tools that stay
}

// lists reports whether a member lists tools, under their name or that of older
// chat completions.
func (o *offer) lists(m rawjson.Member) bool {
	return o.body[m.At] == '[' && (bytes.EqualFold(m.Key, []byte("tools")) || bytes.EqualFold(m.Key, []byte("functions")))
}

// look reads a list of tools.
func (o *offer) look(m rawjson.Member) {
	for _, tool := range gjson.ParseBytes(o.body[m.At:m.Over]).Array() {
		if name := toolName(tool); o.delegates(name) {
			o.gone = append(o.gone, name)
		} else {
			o.left++
		}
	}
}

// toolName is what a tool is called by: in chat completions its function has
// the name, in responses the tool itself, or the server that it stands for.
func toolName(tool gjson.Result) string {
	for _, at := range [...]string{"function.name", "name", "server_label"} {
		if name := tool.Get(at); name.Type == gjson.String {
			return name.Str
		}
	}
	return ""
}

// rewrite returns the body without them. A list that would be empty is left out
// with all that says how its tools are chosen: models refuse it.
func (o *offer) rewrite() []byte {
	out := []byte{'{'}
	rawjson.Members(o.body, rawjson.Space(o.body, 0), func(m rawjson.Member) bool {
		value := o.body[m.At:m.Over]
		switch {
		case o.lists(m):
			value = o.rest(value)
		case o.chooses(m.Key, value):
			value = nil
		}
		if value == nil {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, o.body[m.From:m.At]...), value...)
		return true
	})
	return append(out, '}')
}

// rest returns a list of tools without those that are taken out; nil: none is
// left.
func (o *offer) rest(list []byte) []byte {
	out := []byte{'['}
	for _, tool := range gjson.ParseBytes(list).Array() {
		if o.delegates(toolName(tool)) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, tool.Raw...)
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, ']')
}

// chooses reports whether a member says how tools are chosen in a way that does
// not hold any more: none is left, or it names one that is gone.
func (o *offer) chooses(key, value []byte) bool {
	switch strings.ToLower(string(key)) {
	case "parallel_tool_calls":
		return o.left == 0
	case "tool_choice", "function_call":
		if o.left == 0 {
			return true
		}
		for _, name := range o.gone {
			if value[0] == '{' && bytes.Contains(value, []byte(quote(name))) {
				return true
			}
		}
	}
	return false
}
