package agentbus

import "slices"

// A HarnessRole is which tools an agent may use: its allow-list (E27).
type HarnessRole struct {
	Agent   string
	Allowed []string // <scope>:<tool-id>; empty: none
}

// FilterTools returns those of offered that the role may use. It is the one
// place where that is decided, before anything is dispatched; what cannot be
// decided is denied (E27).
func FilterTools(r HarnessRole, offered []string) (allowed, denied []string) {
	for _, tool := range offered {
		if tool != "" && slices.Contains(r.Allowed, tool) {
			allowed = append(allowed, tool)
		} else {
			denied = append(denied, tool)
		}
	}
	return allowed, denied
}
