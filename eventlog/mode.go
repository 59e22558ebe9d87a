package eventlog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// A Mode says which events a follower is given (E14).
type Mode string

// The modes.
const (
	ModeUpdates  Mode = "updates"  // what happened, without every word
	ModeValues   Mode = "values"   // the state of the run after each change
	ModeMessages Mode = "messages" // what was said
	ModeDebug    Mode = "debug"    // everything
)

// Supported are the modes, as they are offered.
var supported = []string{string(ModeUpdates), string(ModeValues), string(ModeMessages), string(ModeDebug)}

// Modes is what a follower asked for: one mode, or several, whose events come
// together.
type Modes []Mode

// ParseModes reads a comma list of modes; "" is updates. Values goes with no
// other: its snapshots and the events of another would share their ids. Its error
// is CodeInvalidRequest, with those that are supported (E12).
func ParseModes(s string) (Modes, error) {
	if s == "" {
		return Modes{ModeUpdates}, nil
	}
	var m Modes
	for name := range strings.SplitSeq(s, ",") {
		if !slices.Contains(supported, name) {
			return nil, &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: fmt.Sprintf("there is no stream mode %.40q", name),
				Explain: &agentbus.Explain{Rule: "E12", Supported: slices.Clone(supported), Next: "ask for one of those, or several with commas between them"},
			}
		}
		if !slices.Contains(m, Mode(name)) {
			m = append(m, Mode(name))
		}
	}
	if m.Values() && len(m) > 1 {
		return nil, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "the stream mode values goes with no other",
			Explain: &agentbus.Explain{Rule: "E12", Supported: slices.Clone(supported), Next: "ask for values alone, and for the others on a stream of their own"},
		}
	}
	return m, nil
}

// Values reports whether the state of the run is asked for.
func (m Modes) Values() bool { return slices.Contains(m, ModeValues) }

// Passes reports whether an event of this type is given.
func (m Modes) Passes(eventType string) bool {
	return slices.ContainsFunc(m, func(mode Mode) bool { return mode.passes(eventType) })
}

func (m Mode) passes(t string) bool {
	switch m {
	case ModeDebug:
		return true
	case ModeUpdates:
		switch t {
		case agentbus.EventNodeStarted, agentbus.EventLogAppended, agentbus.EventOutputChunk, agentbus.EventAgentReasoningDelta:
			return false
		}
		return !strings.HasPrefix(t, "lease.")
	case ModeMessages:
		return t == agentbus.EventOutputChunk || t == agentbus.EventAgentReasoningDelta || strings.HasPrefix(t, "conversation.") || agentbus.Terminal(t)
	case ModeValues:
		return agentbus.Terminal(t)
	}
	return false
}
