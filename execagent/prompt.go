package execagent

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// prompt joins messages: one alone is the prompt as it is. What the agent said
// before stands under its name, as what others say does already.
func prompt(messages []agentbus.Message, agent agentbus.Speaker) string {
	parts := make([]string, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		if m.Content == "" {
			continue
		}
		text := m.Content
		if m.Role == agentbus.RoleAssistant {
			text = "[" + cmp.Or(string(agent), string(m.Role)) + "] " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n\n")
}

// since returns the messages behind the last one of the agent itself; all, where
// there is nothing behind one.
func since(messages []agentbus.Message) []agentbus.Message {
	for i, m := range slices.Backward(messages) {
		if m.Role == agentbus.RoleAssistant && i+1 < len(messages) {
			return messages[i+1:]
		}
	}
	return messages
}

// maxArgument is the longest argument that Linux takes, less its end.
const maxArgument = 128<<10 - 1

// arguments returns the command line of a turn, with more behind the command, and
// what its standard input holds. The prompt stands behind "--", or on the input: it cannot become a
// flag (B5).
func (a *Agent) arguments(more []string, text string) (args []string, stdin string, err error) {
	args = slices.Concat(a.config.Command, more)
	if a.config.Input != InputArg {
		return args, text, nil
	}
	switch {
	case strings.ContainsRune(text, 0):
		return nil, "", unfit("the prompt holds a NUL, which no argument of a program can", nil, nil)
	case len(text) > maxArgument:
		return nil, "", unfit("the prompt has "+strconv.Itoa(len(text))+" bytes, and an argument of a program can have "+strconv.Itoa(maxArgument), len(text), maxArgument)
	}
	return append(args, "--", text), "", nil
}

func unfit(message string, observed, limit any) error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: message,
		Explain: &agentbus.Explain{Rule: "B5", Observed: observed, Limit: limit, Next: "send another prompt, or ask the operator for input: stdin on this agent"},
	}
}
