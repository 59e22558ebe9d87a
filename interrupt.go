package agentbus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
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
	Policy  json.RawMessage `json:"policy,omitempty"`  // the policy part, as it came: an object, or an array of them
	// Issuer is the host of the agent that issued Policy, where it is known.
	Issuer string `json:"issuer,omitempty"`
	// X402 is what stood beside Policy in the words of x402, by its keys, as it
	// came (C32).
	X402    map[string]json.RawMessage `json:"x402,omitempty"`
	Timeout time.Duration              `json:"timeout,omitempty"` // until it counts as denied; 0: the default of who parks it
	// Resume is what the backend needs to go on, such as the task of a remote
	// agent: opaque, given back in Resolution.Resume, never shown.
	Resume json.RawMessage `json:"-"`
	// Interrupts are those that somebody below has parked on for this already,
	// none when nobody has: who parks on it too raises no other.
	Interrupts []InterruptID `json:"interrupts,omitempty"`
	// Low is what a decision of low confidence comes to (E34).
	Low *LowConfidence `json:"low_confidence,omitempty"`
	// Remote is the interrupt that another bus is parked on for this. It is
	// resolved there; resolving ours calls that bus again.
	Remote InterruptID `json:"remote,omitempty"`
}

// LowConfidence is a decision that an agent is too little sure of, and the data of
// the interrupt that asks whether it is to stand (E30, E34).
type LowConfidence struct {
	AgentID   string          `json:"agentId"`
	Threshold float64         `json:"threshold"`
	Observed  float64         `json:"observed"` // below Threshold
	Decision  json.RawMessage `json:"decision,omitempty"`
}

// DefaultThreshold is the confidence below which a decision is asked about, unless
// somebody says otherwise (E30).
const DefaultThreshold = 0.7

// MarshalJSON writes what may be shown of a: not Resume, not the state of a
// policy part, which whoever knows it could answer with, and no URL of one but
// as [ShownURL] says. A store keeps Resume and the part apart from the rest.
func (a Ask) MarshalJSON() ([]byte, error) {
	type shown Ask
	a.Policy = shownPart(a.Policy, a.Issuer)
	return json.Marshal(shown(a))
}

// shownPart returns a policy part of an issuer, or several, as it may be shown;
// nil for what is no JSON.
func shownPart(raw json.RawMessage, issuer string) json.RawMessage {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	parts, several := v.([]any)
	if !several {
		parts = []any{v}
	}
	for _, one := range parts {
		if part, ok := one.(map[string]any); ok {
			if text, _ := part["url"].(string); ShownURL(text, issuer) == "" {
				delete(part, "url")
			}
		}
	}
	out, _ := json.Marshal(hideState(v)) // it came from JSON
	return out
}

// hideState takes out every member that is called state.
func hideState(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if v[key] = hideState(member); key == "state" {
				v[key] = redacted
			}
		}
	case []any:
		for i := range v {
			v[i] = hideState(v[i])
		}
	}
	return v
}

// An InterruptID names one interrupt among all.
type InterruptID string

// InterruptOf returns the id of what a turn asks in its n-th attempt. It is the
// same over crashes and replays.
func InterruptOf(e ExecutionID, turn TurnID, n int) InterruptID {
	sum := sha256.Sum256([]byte(string(e) + "\x00" + string(turn) + "\x00" + strconv.Itoa(n)))
	return InterruptID("int_" + hex.EncodeToString(sum[:16]))
}

// A Decision is what came of an Ask.
type Decision string

// The decisions on an Ask (C30).
const (
	DecisionGranted   Decision = "granted"
	DecisionDenied    Decision = "denied"
	DecisionExpired   Decision = "expired"   // nobody decided in time: it counts as denied
	DecisionWithdrawn Decision = "withdrawn" // nobody needs it any more: its fan-out was met without it, or its run was stopped
)

// A Resolution answers an Ask, exactly once (R22). As JSON it has neither Policy
// nor Resume, which are for the backend alone.
type Resolution struct {
	Decision Decision        `json:"decision"`
	Text     string          `json:"text,omitempty"` // of a clarification; of an approval, the choice or a reason
	Policy   json.RawMessage `json:"-"`              // of a policy part: its resolution (C30)
	By       string          `json:"by,omitempty"`   // the principal who decided
	At       time.Time       `json:"at,omitzero"`
	Resume   json.RawMessage `json:"-"` // of the Ask
}

// PolicyState returns the state of the policy part that r answers; "" when it
// names none.
func (r Resolution) PolicyState() string {
	var part struct {
		State string `json:"in_reply_to_state"`
	}
	_ = json.Unmarshal(r.Policy, &part) // no object names none
	return part.State
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
	Expires    time.Time   `json:"expires"`              // when it counts as denied
	Resolution *Resolution `json:"resolution,omitempty"` // nil: it waits
}

// Open reports whether i waits for its resolution.
func (i *Interrupt) Open() bool { return i.Resolution == nil }

// Answer returns the resolution of i as the backend that asked is given it: with
// what that one needs to go on, and, when it asked by a policy part, with the
// resolution of that part (C30), which names the state of the part and says the
// decision, whatever was given for it. It returns nil while i waits.
func (i *Interrupt) Answer() *Resolution {
	if i.Open() {
		return nil
	}
	r := *i.Resolution
	r.Resume = i.Ask.Resume
	if len(i.Ask.Policy) > 0 {
		r.Policy = answerPart(i.Ask.PolicyState(), &r)
	}
	return &r
}

// answerPart returns the resolution of a policy part.
func answerPart(state string, r *Resolution) json.RawMessage {
	part := map[string]json.RawMessage{}
	if json.Unmarshal(r.Policy, &part) != nil || part == nil {
		part = map[string]json.RawMessage{}
	}
	set := func(key string, v any) { part[key], _ = json.Marshal(v) } // strings and a time
	set("in_reply_to_state", state)
	set("outcome", r.Decision)
	set("resolved_at", r.At.UTC())
	out, _ := json.Marshal(part)
	return out
}

// PolicyState returns the state of the policy part of a, by which its issuer
// knows it again; "" when it has none. It is a secret of the issuer's.
func (a Ask) PolicyState() string {
	type part struct {
		State string `json:"state"`
	}
	var one part
	if json.Unmarshal(a.Policy, &one) == nil {
		return one.State
	}
	var several []part
	if json.Unmarshal(a.Policy, &several) == nil {
		for _, p := range several {
			if p.State != "" {
				return p.State
			}
		}
	}
	return ""
}

// An InterruptQuery says which interrupts are read.
type InterruptQuery struct {
	Payer Payer // ""; of any
	Run   RunID // "": of any
	All   bool  // those that were resolved too, else those that wait
	// Decided lists those that were resolved alone, the last ones first.
	Decided bool
	After   InterruptID // the last one of the page before; "": from the first
	Limit   int         // at most so many
}
