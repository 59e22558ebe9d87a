package agentbus

import (
	"encoding/json"
	"time"
)

// An AskKind says what a backend wants to be told (R22).
type AskKind string

// The kinds of an Ask.
const (
	AskApproval      AskKind = "approval"       // may this go on: yes or no
	AskClarification AskKind = "clarification"  // an answer in words
	AskPolicy        AskKind = "policy"         // a policy part to be resolved: payment, consent
	AskLowConfidence AskKind = "low_confidence" // is a decision of low confidence to stand
	AskAuth          AskKind = "auth_required"  // a credential
)

// An Ask is what a backend must be told before it can answer a call. It is
// carried by the [Error] that ends the answer, of CodeInputRequired or
// CodePaymentRequired; a driver parks its run on it as an [Interrupt] and calls
// the backend again, in the same turn, with the [Resolution] in the Call.
type Ask struct {
	Kind    AskKind         `json:"kind"`
	Title   string          `json:"title,omitempty"` // one line for people
	Prompt  string          `json:"prompt,omitempty"`
	Choices []string        `json:"choices,omitempty"` // of an approval; empty: accept, reject
	Policy  json.RawMessage `json:"policy,omitempty"`  // the policy part, as it came
	Timeout time.Duration   `json:"timeout,omitempty"` // until it counts as denied; 0: the default of who parks it
	// Resume is what the backend needs to go on, such as the task of a remote
	// agent: opaque, given back in Resolution.Resume, never shown.
	Resume json.RawMessage `json:"resume,omitempty"`
	// Interrupt is the id of the interrupt that somebody below has parked on
	// this already, "" when nobody has: who parks on it too shows that one.
	Interrupt InterruptID `json:"interrupt,omitempty"`
}

// An InterruptID names one interrupt among all.
type InterruptID string

// A Decision is what came of an Ask.
type Decision string

// The decisions on an Ask (C30).
const (
	DecisionGranted Decision = "granted"
	DecisionDenied  Decision = "denied"
	DecisionExpired Decision = "expired" // nobody decided in time: it counts as denied
)

// A Resolution answers an Ask, exactly once (R22).
type Resolution struct {
	Decision Decision        `json:"decision"`
	Text     string          `json:"text,omitempty"`              // of a clarification; of an approval, the choice or a reason
	Policy   json.RawMessage `json:"policy_resolution,omitempty"` // of a policy part: its resolution (C30), as it was given
	By       string          `json:"by,omitempty"`                // the principal who decided
	At       time.Time       `json:"at,omitzero"`
	Resume   json.RawMessage `json:"resume,omitempty"` // of the Ask
}

// An Interrupt is an Ask that a run is parked on: durable, shown at the root of
// its run whatever the depth it was raised at, resolved exactly once, and
// denied when nobody resolves it in time (R22).
type Interrupt struct {
	ID         InterruptID `json:"id"`
	Run        RunID       `json:"run"`
	Execution  ExecutionID `json:"execution"` // whose participant asks
	Root       ExecutionID `json:"root"`      // the top-level execution that is parked, and goes on when it is resolved
	Turn       TurnID      `json:"turn"`
	Payer      Payer       `json:"payer,omitempty"`
	Path       []Speaker   `json:"path"` // who asked, through whom: from the root's participant to who asks
	Ask        Ask         `json:"ask"`
	Raised     time.Time   `json:"raised"`
	Expires    time.Time   `json:"expires"`
	Resolution *Resolution `json:"resolution,omitempty"` // nil: it waits
}
