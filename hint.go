package agentbus

// A Hint is what one process of a bus found out about the world outside, for the
// others to be wary: what it saw may be its own network.
type Hint struct {
	Kind HintKind
	Name string // of what
}

// A HintKind says what a hint is about.
type HintKind string

// The hints.
const (
	HintBreaker HintKind = "breaker" // the breaker of a participant opened: CONVERSATION/SLUG (R12)
	HintURL     HintKind = "url"     // a URL of an agent is left out: AGENT and the URL, with a space between (G13)
)
