package agentbus

import "encoding/json"

// A ChildOutcome is what became of one of several agents that were asked at once.
type ChildOutcome string

// The outcomes of a [Child] (C18).
const (
	ChildOK        ChildOutcome = "ok"
	ChildPolicy    ChildOutcome = "policy" // a policy keeps it from an answer: it waits, or refused
	ChildError     ChildOutcome = "error"
	ChildCancelled ChildOutcome = "cancelled" // nobody needed its answer any more
)

// A Child is one of several agents that were asked at once, and what became of it
// (C18). They are told in the order in which they were asked, whoever was faster.
type Child struct {
	Child   Speaker         `json:"child"`
	Outcome ChildOutcome    `json:"outcome"`
	Text    string          `json:"text,omitempty"`   // what it answered
	Policy  json.RawMessage `json:"policy,omitempty"` // the policy part, as its issuer wrote it (C19)
	Code    Code            `json:"code,omitempty"`   // of an error, or of a refusal
}
