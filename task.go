package agentbus

import "time"

// How long the face of A2A remembers (A19): a message, so that it is answered
// once; a task that is over, after its last change.
const (
	TaskMessageAge = 24 * time.Hour
	TaskAge        = 7 * 24 * time.Hour
)

// A Task is a task of the face of A2A: one call of an agent for a caller that
// speaks A2A, from its first message to its end (E60). Agent and Principal never
// change; whoever else asks for it finds nothing.
type Task struct {
	ID        string
	Agent     string // its configured name
	Principal string // whose it is
	Payer     Payer
	Context   string // the A2A context it belongs to
	State     string // of the task, as A2A names it
	Version   int64  // 1 when it is created, one more with every change
	Owner     string // the process that executes it; "": nobody does
	Created   time.Time
	Updated   time.Time
	Shown     []byte // the task as A2A shows it
	Work      []byte // what it takes to execute it, or to go on with it; nil: it is over
	Sealed    []byte // the credential that its agent is told, sealed; nil: there is none, or it is not kept
	// Waits are the interrupts that runs below are parked on for it: it goes on when
	// one of them is decided (R22); none: only its caller lets it go on.
	Waits []InterruptID
}

// A TaskMessage is a message that a task was made of, or went on with (A19).
type TaskMessage struct {
	ID     string
	Digest Digest // of what was asked
	// Forget takes the message back in place of adding it: the task failed in a
	// way that may pass, and the same message executes again.
	Forget bool
}

// A TaskQuery says which tasks of a principal to list, last changed first.
type TaskQuery struct {
	Agent, Principal string
	Context, State   string    // "": any
	Since            time.Time // changed at or after; zero: any
	// Before continues behind a task of the page before: its Updated and ID.
	Before   time.Time
	BeforeID string
	Limit    int // at most so many
}
