package execagent

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// prompt joins the messages of a call: one alone is the prompt as it is. What
// the agent said before stands under its name, as what others say does already.
func prompt(c *agentbus.Call) string {
	parts := make([]string, 0, len(c.Messages))
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Content == "" {
			continue
		}
		text := m.Content
		if m.Role == agentbus.RoleAssistant {
			text = "[" + cmp.Or(string(c.Lineage.Speaker), string(m.Role)) + "] " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n\n")
}

// maxArgument is the longest argument that Linux takes, less its end.
const maxArgument = 128<<10 - 1

// arguments returns the command line of a turn, and what its standard input
// holds. The prompt stands behind "--", or on the input: it cannot become a
// flag (B5).
func (a *Agent) arguments(text string) (args []string, stdin string, err error) {
	if a.config.Input != InputArg {
		return a.config.Command, text, nil
	}
	switch {
	case strings.ContainsRune(text, 0):
		return nil, "", unfit("the prompt holds a NUL, which no argument of a program can", nil, nil)
	case len(text) > maxArgument:
		return nil, "", unfit("the prompt has "+strconv.Itoa(len(text))+" bytes, and an argument of a program can have "+strconv.Itoa(maxArgument), len(text), maxArgument)
	}
	return append(append([]string(nil), a.config.Command...), "--", text), "", nil
}

func unfit(message string, observed, limit any) error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: message,
		Explain: &agentbus.Explain{Rule: "B5", Observed: observed, Limit: limit, Next: "send another prompt, or ask the operator for input: stdin on this agent"},
	}
}
