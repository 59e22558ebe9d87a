package gateway

import (
	"encoding/json"
	"strconv"
	"strings"
)

// defaultDelegates are the tools by which the usual frameworks have models call
// other agents.
var defaultDelegates = []string{"transfer_to_*", "handoff_to_*", "delegate_*", "ask_agent*", "ask_question_to_*", "call_agent*"}

// delegates reports whether a tool of that name has another agent called: it is
// one of those that the operator lists, or is named after an agent of this bus.
func (g *Gateway) delegates(tool string) bool {
	for _, pattern := range g.cfg.Chain.Delegates {
		if start, open := strings.CutSuffix(pattern, "*"); tool == pattern || open && strings.HasPrefix(tool, start) {
			return true
		}
	}
	_, ours := g.cfg.Router.Route(tool)
	return ours
}

// withoutDelegation takes the tools that have other agents called out of what a
// model is offered (C8). A body that offers none comes back as it is.
func (g *Gateway) withoutDelegation(x *exchange, body []byte) []byte {
	out, gone := withoutTools(body, func(t tool) bool { return !g.delegates(t.name()) })
	if gone == 0 {
		return body
	}
	if note := "delegation_hidden:" + strconv.Itoa(gone); !x.noted(note) { // a try before has noted it
		x.note(note)
	}
	return out
}

// name is what a tool is called by: in chat completions its function has the name,
// in responses the tool itself, or the server that it stands for.
func (t tool) name() string {
	var function tool
	_ = json.Unmarshal(t["function"], &function) // what is no object names nothing
	for _, name := range [...]string{stringIn(function, "name"), stringIn(t, "name"), stringIn(t, "server_label")} {
		if name != "" {
			return name
		}
	}
	return ""
}
