package agentbus

import (
	"net/http"
	"time"
)

// A CallState says how far a call has come in the ledger.
type CallState string

// The states of a call. Settled never changes; a voided call is free to be
// executed again under the same key (G20).
//
//	(new) ─Reserve─▶ executing ─Settle─▶ settled
//	                     └──────Void───▶ voided ─Reserve─▶ executing
const (
	CallExecuting CallState = "executing"
	CallSettled   CallState = "settled"
	CallVoided    CallState = "voided"
	CallRefused   CallState = "refused" // policy said no; nothing was executed
	CallPassed    CallState = "passed"  // passed on, but not a call: any method but POST
)

// A CallRecord is one hop as the ledger knows it: who called whom, on whose
// bill, with what outcome.
type CallRecord struct {
	ID int64 `json:"id"` // set by the store
	TurnKey
	RequestID string    `json:"request_id"`
	Caller    string    `json:"caller"`
	Speaker   Speaker   `json:"speaker,omitempty"`
	Depth     int       `json:"depth"` // as it arrived
	Digest    Digest    `json:"-"`
	State     CallState `json:"state"`
	Attempts  int       `json:"attempts"` // executions, those that failed included
	Replays   int       `json:"replays"`  // duplicates answered without executing: from memory, or attached
	Repeats   int       `json:"repeats"`  // of a refusal, how often it was repeated (P12)
	Stream    bool      `json:"stream"`
	Status    int       `json:"status,omitempty"` // HTTP status of the answer
	Code      Code      `json:"code,omitempty"`   // why it was refused or voided
	Message   string    `json:"message,omitempty"`
	Usage     Usage     `json:"usage"`
	Cost      Micros    `json:"cost_micros"`               // charged: 0 until settled, and for refusals
	Unbilled  Micros    `json:"unbilled_micros,omitempty"` // what failed attempts used, which nobody pays (G20)
	Notes     []string  `json:"notes,omitempty"`           // what else happened, such as "forwarded_authorization_ignored"
	Owner     string    `json:"owner,omitempty"`           // the process that executes it
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended,omitzero"`

	Chain *AgentChain `json:"chain,omitempty"` // its place in the chain of agents; nil: it is part of none
}

// StatusCallerLeft is the Status of a call that was ended because its caller left, to
// whom nothing was said (G14).
const StatusCallerLeft = 499

// CallerLeft reports whether the call was ended because its caller left: no fault of
// its agent's.
func (c *CallRecord) CallerLeft() bool {
	return c.State == CallVoided && c.Status == StatusCallerLeft
}

// A Reservation asks the ledger for the right to execute a call.
type Reservation struct {
	Call CallRecord // State, Attempts and ID are the ledger's to set
	Key  Digest     // see TurnKey.Hash
	// MintTurn asks for a turn id: <run>.t<n>.<MintTurn>, n the next free index
	// under (payer, run, parent) (P7); see [RunID.MintTurn]. Call.TurnKey.ID is ""
	// then.
	MintTurn string
	// TakeOver names a process known to be dead, whose unfinished call may be
	// executed again (G24).
	TakeOver string
	Hold     Hold // taken from its budgets with the reservation, or not at all (G27)
	// Recording is kept with the attempt if the call executes, in place of that of
	// the attempt before; nil: nothing is.
	Recording *Recording
}

// An Outcome is what a Reservation came to.
type Outcome int

// The outcomes of a reservation. Only OutcomeExecute lets the caller call the
// agent.
const (
	OutcomeExecute  Outcome = iota + 1 // reserved, durably: execute it, then Settle or Void
	OutcomeSettled                     // it was executed before: here is its reply
	OutcomeInFlight                    // Call.Owner is executing it
	OutcomeMismatch                    // the key is taken by another request (CodeTurnMismatch)
	OutcomeExpired                     // it was executed before, and its reply is no longer kept (CodeReplyExpired)
	OutcomeShort                       // a budget does not have what the call holds: Short tells which, and nothing was reserved
)

// Reserved is the ledger's answer to a Reservation.
type Reserved struct {
	Outcome Outcome
	Call    CallRecord
	Reply   *StoredReply // of OutcomeSettled
	Short   *Shortage    // of OutcomeShort
}

// A StoredReply is an answer as it was first given, to the byte (G23).
type StoredReply struct {
	Status int
	Header http.Header
	Body   []byte // of a stream: all its frames
}

// A Settlement ends an attempt with an answer that counts.
type Settlement struct {
	ID      int64 // of the CallRecord
	Attempt int   // the Attempts of the record that Reserve returned: a later attempt fences this one
	Reply   StoredReply
	// Appended says that Reply.Body was stored by Append already and Reply.Body
	// holds only what is missing at its end.
	Appended bool
	// Drop says that the body is too large to keep: duplicates get
	// CodeReplyExpired.
	Drop     bool
	Usage    Usage
	Cost     Micros   // charged; at most what was held, where something was (G27)
	Unbilled Micros   // what the call cost above its hold, which nobody pays
	Hold     Hold     // of the reservation: released, and Cost spent in its place
	Notes    []string // added to those of the reservation
	// Tasks are those that the answer tells of (A12): they are seen with the
	// settlement, or nothing is settled.
	Tasks []RemoteTask
	// Sent and Answer become Out and Answer of the attempt's Recording; nil: there
	// is none.
	Sent   http.Header
	Answer *RecordedBody
	Ended  time.Time
}

// A Voiding ends an attempt that failed or was cut: amount 0, the key is free
// again (G20).
type Voiding struct {
	ID       int64 // of the CallRecord
	Attempt  int   // see Settlement
	Status   int   // what the caller was told
	Code     Code
	Message  string
	Usage    Usage
	Unbilled Micros        // what the attempt would have cost
	Hold     Hold          // of the reservation: released
	Sent     http.Header   // see Settlement
	Answer   *RecordedBody // likewise
	Ended    time.Time
}

// A StreamPiece is a part of the answer that a process streams, as it tells it
// to others who have duplicates of the call (G22).
type StreamPiece struct {
	Call    int64
	Attempt int
	Place   int         // in the order of the pieces, from 0
	Status  int         // of the answer; in the piece at place 0 only
	Header  http.Header // likewise
	Data    []byte
}
