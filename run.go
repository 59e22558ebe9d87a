package agentbus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// An ExecutionID names one driver loop: the run itself when the run was minted
// for it, else [ExecutionOf] the turn it serves (R7). Journal, lease and event
// sequence belong to the execution; the run on the wire stays the top-level
// one.
type ExecutionID string

// ExecutionOf returns the id of the execution that serves the turn of l with
// the named conversation, on behalf of p. It is the same over retries and
// crashes (R7).
func ExecutionOf(p Payer, l Lineage, conversation string) ExecutionID {
	sum := sha256.Sum256([]byte(string(p) + "\x00" + string(l.Run) + "\x00" + l.Path + "\x00" + string(l.Turn) + "\x00" + conversation))
	return ExecutionID("run_" + hex.EncodeToString(sum[:16]))
}

// A RunState says how far an execution has come.
type RunState string

// The states of an execution. A paused one can be resumed; done is final.
const (
	RunRunning RunState = "running"
	RunPaused  RunState = "paused"
	RunDone    RunState = "done"
)

// An Execution is one driver loop as the store knows it.
type Execution struct {
	ID           ExecutionID     `json:"id"`
	Run          RunID           `json:"run"`
	Conversation string          `json:"conversation"`
	Definition   Digest          `json:"-"`    // of the conversation; resuming with another is refused (R15)
	Seed         string          `json:"seed"` // what the conversation was started with (R15)
	Payer        Payer           `json:"payer,omitempty"`
	Path         string          `json:"path,omitempty"`   // of the turn it serves
	Parent       TurnID          `json:"parent,omitempty"` // the turn it serves; "" at top level
	Depth        int             `json:"depth"`            // of the turn it serves; 0 at top level
	First        int             `json:"first"`            // index of its first turn: above 0 for a second conversation inside one turn (P17)
	Spec         json.RawMessage `json:"spec,omitempty"`   // how to build the conversation again; opaque to the store
	Sealed       []byte          `json:"-"`                // the credentials it needs, sealed (R18): given to the store, never read with the rest
	State        RunState        `json:"state"`
	Halt         *Halt           `json:"halt,omitempty"`
	Lease        Lease           `json:"lease"`
	Began        time.Time       `json:"began"`
	Ended        time.Time       `json:"ended,omitzero"`
	Turns        int             `json:"turns"`       // turns done; computed by the store
	Cost         Micros          `json:"cost_micros"` // sum over its turns; computed by the store
}

// A HaltKind says why a conversation stopped.
type HaltKind string

// Why a conversation stopped.
const (
	HaltMaxTurns         HaltKind = "max_turns"
	HaltDone             HaltKind = "done" // the plan has nobody left to speak
	HaltPredicate        HaltKind = "predicate"
	HaltDeadline         HaltKind = "deadline"
	HaltRecursionLimit   HaltKind = "recursion_limit" // it may begin no more turns (E35)
	HaltBudget           HaltKind = "budget"
	HaltAbort            HaltKind = "abort"
	HaltParticipantError HaltKind = "participant_error"
	HaltWaitingAuth      HaltKind = "waiting_auth" // for the credential of its payer (R18)
	HaltWaiting          HaltKind = "waiting"      // for the resolution of an interrupt (R22)
)

// Final reports whether a conversation that stopped like this is over. Otherwise
// it is paused, and resuming it goes on from the turn that failed (R16).
func (k HaltKind) Final() bool {
	switch k {
	case HaltBudget, HaltAbort, HaltParticipantError, HaltWaitingAuth, HaltWaiting:
		return false
	case HaltMaxTurns, HaltDone, HaltPredicate, HaltDeadline, HaltRecursionLimit:
		return true
	}
	return true
}

// A Halt is why and where a conversation stopped.
type Halt struct {
	Kind        HaltKind `json:"kind"`
	Turns       int      `json:"turns"`
	Reason      string   `json:"reason,omitempty"`
	Participant string   `json:"participant,omitempty"` // whose error it was, or whose turn a limit did not let begin
	Error       *Error   `json:"error,omitempty"`
	Spent       Micros   `json:"spent_micros,omitempty"` // of a budget halt
	Limit       Micros   `json:"limit_micros,omitempty"`
	SpentTokens int64    `json:"spent_tokens,omitempty"` // of a halt at a budget of tokens
	LimitTokens int64    `json:"limit_tokens,omitempty"`
	Failed      bool     `json:"failed,omitempty"` // it ends the run although its kind would pause it: the conversation says so
	Wait        *Wait    `json:"wait,omitempty"`   // of a waiting run: for what
}

// A Wait is what a run waits for (R22).
type Wait struct {
	Interrupts []InterruptID `json:"interrupts"` // resolving one lets the run go on
	// Asked are the turns that raised them just now: given to the store with the
	// halt, in one transaction, never read with it.
	Asked []Turn `json:"-"`
	// Raised are interrupts of no turn, such as those of a workflow's nodes: given
	// to the store in the same way.
	Raised []Interrupt `json:"-"`
}

// Final reports whether the run is over; else it is paused, and can be resumed.
func (h Halt) Final() bool { return h.Failed || h.Kind.Final() }

// String describes the halt in one line, such as "max_turns (4)".
func (h Halt) String() string {
	s := string(h.Kind)
	switch h.Kind {
	case HaltMaxTurns:
		return s + " (" + strconv.Itoa(h.Turns) + ")"
	case HaltBudget:
		if h.LimitTokens > 0 {
			return s + " (" + strconv.FormatInt(h.SpentTokens, 10) + " of " + strconv.FormatInt(h.LimitTokens, 10) + " tokens)"
		}
		return s + " ($" + h.Spent.USD() + " of $" + h.Limit.USD() + ")"
	case HaltParticipantError:
		if h.Error != nil {
			return s + "[" + h.Participant + "]: " + h.Error.Message
		}
	case HaltWaiting:
		s += "[" + h.Participant + "]"
	case HaltDone, HaltPredicate, HaltDeadline, HaltRecursionLimit, HaltAbort, HaltWaitingAuth:
	}
	if h.Reason != "" {
		s += ": " + h.Reason
	}
	return s
}

// A Lease says which driver may write to an execution. Every write carries its
// epoch, so that a driver that slept past its lease is refused with
// CodeLeaseLost (R17).
type Lease struct {
	Execution ExecutionID `json:"execution"`
	Owner     string      `json:"owner,omitempty"` // the process that holds it; "" when nobody does: a running execution then waits for a driver
	Epoch     uint64      `json:"epoch"`
	Expires   time.Time   `json:"expires,omitzero"` // by the store's clock, which nobody can set
}

// A Claim asks for the lease of an execution.
type Claim struct {
	// Owner is who claims it. "" leaves it to whoever claims it next: how a run
	// is begun for a worker, or handed back (R19).
	Owner string
	// TTL is how long the lease holds unless it is renewed, by the store's clock.
	TTL time.Duration
	// TakeOver is the epoch of a lease that may be taken although it has not
	// expired, because its owner is known to be dead; 0: none.
	TakeOver uint64
}

// A RunSummary is a run at a glance, from the journal and the ledger together.
type RunSummary struct {
	Run          RunID     `json:"run"`
	State        RunState  `json:"state,omitempty"` // of its top-level execution; "" when no driver of this store ran it
	Conversation string    `json:"conversation,omitempty"`
	Halt         *Halt     `json:"halt,omitempty"`
	Payer        Payer     `json:"payer,omitempty"`
	Turns        int       `json:"turns"`       // done, over all its executions
	Calls        int       `json:"calls"`       // in the ledger, refusals left out
	Replays      int       `json:"replays"`     // duplicates that were answered without executing
	Refusals     int       `json:"refusals"`    // repeats included
	MaxDepth     int       `json:"max_depth"`   // at which the deepest of its calls arrived
	Cost         Micros    `json:"cost_micros"` // charged by the ledger
	Began        time.Time `json:"began"`
	Last         time.Time `json:"last"` // when something happened last

	Agent    string    `json:"agent,omitempty"`      // that its first call was for
	First    CallState `json:"first,omitempty"`      // what became of that call; "" when there is none
	Left     bool      `json:"left,omitempty"`       // its caller left, which ended it
	Live     int       `json:"live_calls"`           // executing, or left by a process that is gone
	Asks     int       `json:"asks,omitempty"`       // interrupts that nobody has decided
	Failed   int       `json:"failed_calls"`         // voided
	Retries  int       `json:"retries"`              // attempts of settled calls that failed, which nobody paid
	Usage    Usage     `json:"usage"`                // of its calls
	Held     Micros    `json:"held_micros"`          // by its calls in flight
	Saved    Micros    `json:"saved_micros"`         // what its replays would have cost
	Unbilled Micros    `json:"unbilled_micros"`      // what failed attempts used
	Stopper  string    `json:"stopped_by,omitempty"` // who stopped it (G14); "": nobody
	Stopped  time.Time `json:"stopped_at,omitzero"`  // zero: it was not
}

// A RunFilter says which runs are listed; its zero value is all of them. What is
// not "" must match.
type RunFilter struct {
	Run          string  // its id, or the end of it, as the console shows it
	Payer        Payer   // of one of its calls, or of a driver of it
	Agent        string  // of one of its calls
	Speaker      Speaker // of one of its calls
	Conversation string  // that one of its drivers performs

	Standing Standing
	Least    map[RunFigure]int64 // what its figures must come to at least
	By       RunFigure           // the order: the most first, and of equal ones the newest; "": the newest first
}

// Figures reports whether f asks for what stores have to add up first: for some
// runs, or another order than the newest first.
func (f *RunFilter) Figures() bool {
	return f.Standing != "" || len(f.Least) > 0 || f.By != "" || f.Run != "" || f.Payer != "" || f.Agent != "" || f.Speaker != "" || f.Conversation != ""
}

// Names returns who must have taken part: payer, agent, speaker and
// conversation, each "" when it is not asked for.
func (f *RunFilter) Names() map[string]string {
	return map[string]string{"payer": string(f.Payer), "agent": f.Agent, "speaker": string(f.Speaker), "conversation": f.Conversation}
}

// A RunRecord is all that a store holds of a run but what was said in it, as of
// one moment.
type RunRecord struct {
	Executions []Execution  // top-level ones first, then by when they began
	Calls      []CallRecord // by id
	Turns      []Turn       // by execution and index, without their replies
	Interrupts []Interrupt  // as they were raised, at most 1000
}

// A RunKey is the key under which a run was asked for: asking again is answered
// with the same run (E6).
type RunKey struct {
	Payer   Payer
	Key     string
	Digest  Digest // of what was asked for
	Run     ExecutionID
	Expires time.Time
}

// A RunQuery says which top-level runs are listed.
type RunQuery struct {
	Payer    Payer
	Workflow string      // the name of a conversation or workflow; "": any
	Before   ExecutionID // the last one of the page before; "": from the newest
	Limit    int         // at most so many
}
