package conversation

import (
	"context"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
)

// A Journal remembers the turns of executions (R14). All methods are safe for
// concurrent use. What it has acknowledged survives a crash.
type Journal interface {
	// Begin records that turns, at least one, all of one execution and epoch, are
	// about to be performed, and events, in one transaction. It returns each
	// turn. If it fails, nothing is stored: perform nothing. Outcomes: a turn is
	// new: it is stored, pending, and returned. It is known and not done, with
	// the same digest: it is pending again under its new epoch, and returned with
	// its stored Attempts and Began, and, if it was waiting, with its Error until
	// it is finished; perform it. It is done: it is returned as stored; do not
	// perform it. Its index or id is known with another digest: CodeTurnMismatch.
	// The lease has moved on: CodeLeaseLost.
	Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error)
	// Finish stores what became of done, the intent of next unless it is nil,
	// and events, in one transaction. done must be pending under its epoch, else
	// CodeLeaseLost. A turn that is done never changes. The interrupts in
	// done.Withdraw are withdrawn.
	Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error
	// Turns yields the turns of an execution by index.
	Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error]
}

// Runs remembers executions and who may drive them (R15, R17). All methods are
// safe for concurrent use.
type Runs interface {
	// Open creates e, or finds it, and claims its lease, in one transaction. It
	// returns the stored execution. One that is done is returned without a
	// claim. A lease that another owner holds, that has not expired and is not
	// the one to be taken over, is CodeRunConflict, with the stored execution.
	// Each claim raises the epoch. A new execution inside a turn begins at the
	// index after the last one of that turn's other executions (P17).
	Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error)
	// Renew extends a lease by ttl from now, or fails with CodeLeaseLost, or with
	// CodeRunStopped when somebody stopped the run for good.
	Renew(ctx context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error)
	// Halt stores why an execution stopped, appends events and gives the lease
	// back, or fails with CodeLeaseLost. The turns of h.Wait.Asked are finished in the
	// same transaction, as by Finish, and their interrupts raised; if that would
	// be more than may wait, it is CodeOverloaded and nothing is stored. When one
	// of h.Wait.Interrupts has been resolved meanwhile, the execution stays running,
	// for whoever claims it next.
	Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error
	// AppendEvents stores events between a turn's intent and its result: what it
	// says meanwhile. It returns how many there are then, or fails with
	// CodeLeaseLost.
	AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error)
	// Interrupt returns an interrupt, and whether there is one of that id.
	Interrupt(ctx context.Context, id agentbus.InterruptID) (i agentbus.Interrupt, found bool, err error)
}
