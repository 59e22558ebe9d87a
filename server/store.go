package server

import (
	"context"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/builtin"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
)

// A Store is all that a bus keeps: what each room asks for, and what people
// read. Every store of the store folder is one.
type Store interface {
	conversation.Journal
	conversation.Runs
	gateway.Ledger
	gateway.Recorder
	gateway.RemoteTasks
	gateway.Streams
	identity.Keys
	Reader
	KeyRing
	Stops
	Waiting
	Interrupts
	Books
	Figures
	Actions
	Keeper
	identity.Proofs
	gateway.HopKeeper
	a2a.Tasks
	a2a.Sessions
	builtin.States

	EventLog
	InstallKey() []byte          // 32 random bytes made with the store (P19)
	Check(context.Context) error // whether it can be written
	Close() error                // commits what is queued and waits for its goroutines
}

// A Reader reads what happened.
type Reader interface {
	// RunSummaries returns runs that f lets pass at a glance, newest first, at most
	// limit of them; before, unless "", is the last one of the page before.
	RunSummaries(ctx context.Context, f agentbus.RunFilter, limit int, before agentbus.RunID) ([]agentbus.RunSummary, error)
	// RunSummary returns one of them.
	RunSummary(ctx context.Context, run agentbus.RunID) (sum agentbus.RunSummary, found bool, err error)
	RunRecord(ctx context.Context, run agentbus.RunID) (agentbus.RunRecord, error)
	Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error)
	Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error)
	Executions(ctx context.Context, run agentbus.RunID) ([]agentbus.Execution, error)
	Execution(ctx context.Context, id agentbus.ExecutionID) (e agentbus.Execution, found bool, err error)
	Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error]
	Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error]
}

// Stops are the runs that an operator stopped (G14).
type Stops interface {
	// StopRun notes that a run was stopped: by whom, why, and when.
	StopRun(ctx context.Context, run agentbus.RunID, by, reason string, at time.Time) error
	// StopReason returns why; "" when nobody said, or it was not stopped.
	StopReason(ctx context.Context, run agentbus.RunID) (reason string, err error)
	StoppedRuns(ctx context.Context) ([]agentbus.RunID, error)
	// StoppedPaused returns those of them that are paused, and not over.
	StoppedPaused(ctx context.Context) ([]agentbus.RunID, error)
}

// Waiting are the runs that wait for a driver, and what one needs (R18, R19).
type Waiting interface {
	// Orphans claims running top-level runs that nobody drives, at most limit, and
	// none that skip names; a claim without an Owner only looks. alive and skip
	// must not use the store.
	Orphans(ctx context.Context, claim agentbus.Claim, limit int, alive func(owner string) bool, skip func(agentbus.ExecutionID) bool) ([]agentbus.Execution, error)
	// Sealed returns the credential that an execution was opened with last.
	Sealed(ctx context.Context, id agentbus.ExecutionID) (sealed []byte, found bool, err error)
}

// Interrupts are what runs wait for (R22).
type Interrupts interface {
	// Interrupts returns interrupts in the order in which they were raised.
	Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error)
	// Resolve decides an interrupt, once, and lets its run go on with whoever
	// claims it next. CodeNotFound: there is none. CodeRunConflict: it is decided
	// already, or its time was up.
	Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error)
	// ExpireInterrupts decides those whose time is up, at most limit of them, and
	// returns how many.
	ExpireInterrupts(ctx context.Context, at time.Time, limit int) (n int, err error)
}

// Books tell what calls came to (G26, G27, G28).
type Books interface {
	// Entries returns a payer's entries after seq, in order, at most limit.
	Entries(ctx context.Context, payer agentbus.Payer, after int64, limit int) ([]agentbus.Entry, error)
	CallEntries(ctx context.Context, payer agentbus.Payer, call int64) ([]agentbus.Entry, error)
	// Balances returns the balance of a payer, or of every one when it is "".
	Balances(ctx context.Context, payer agentbus.Payer) ([]agentbus.Balance, error)
	BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error)
	VerifyLedger(ctx context.Context) (agentbus.LedgerVerdict, error)
}

// Figures are what operators see of calls and of what they come to (U12, U13).
type Figures interface {
	// NewestCalls returns calls and refusals of all runs, the newest first, at most
	// limit, up to the first that began before since.
	NewestCalls(ctx context.Context, since time.Time, limit int) ([]agentbus.CallRecord, error)
	// Spending adds up a payer's entries by agent, run or day.
	Spending(ctx context.Context, q agentbus.SpendingQuery) ([]agentbus.Spending, error)
	// Spent returns what a payer was charged since a time, and by how many of its
	// newest most entries.
	Spent(ctx context.Context, payer agentbus.Payer, since time.Time, most int) (charged agentbus.Micros, entries int64, err error)
	// Holds returns what unfinished calls hold of their budgets, by call.
	Holds(ctx context.Context, calls []int64) (map[int64]agentbus.Micros, error)
	// Replicas returns the processes that say that they use the store and live;
	// none where they know of each other by their machine.
	Replicas(ctx context.Context) ([]string, error)
}

// Actions are what operators did (U5, U14).
type Actions interface {
	RecordAction(ctx context.Context, a agentbus.Action) error
	// Actions returns what operators did, newest first.
	Actions(ctx context.Context, q agentbus.ActionQuery) ([]agentbus.Action, error)
	// Drain notes that an agent gets no new calls, or, unless drained, that it gets
	// them again.
	Drain(ctx context.Context, d agentbus.Drained, drained bool) error
	DrainedAgents(ctx context.Context) ([]agentbus.Drained, error)
}

// A Keeper is what a store needs while a bus serves, and what it says of
// itself.
type Keeper interface {
	// Sweep removes stored answers of calls that ended before a time, at most
	// limit at once; 0: there is nothing left to sweep (G25).
	Sweep(ctx context.Context, before time.Time, limit int) (n int, err error)
	// ForgetEvents removes the events of runs that were over before a time, of at
	// most limit executions at once; 0: there are none left.
	ForgetEvents(ctx context.Context, before time.Time, limit int) (n int, err error)
	// ForgetRecordings removes recordings of attempts that began before a time, at
	// most limit at once; 0: there are none left (U11).
	ForgetRecordings(ctx context.Context, before time.Time, limit int) (n int, err error)
	// ReleaseDead gives back what calls of dead processes hold (G24, G27).
	ReleaseDead(ctx context.Context, alive func(owner string) bool) (n int, err error)
	// ForgetRemoteTasks removes tasks of A2A agents that were not seen since
	// before, at most limit at once; 0: there are none left (A12).
	ForgetRemoteTasks(ctx context.Context, before time.Time, limit int) (n int, err error)
	Unfinished(ctx context.Context) ([]agentbus.CallRecord, error)
	Broken() <-chan struct{} // closed once nothing is written any more (I2)
	// Failing says in words why the last transaction was not committed; "": it was.
	Failing() string
}

// A KeyRing keeps API keys.
type KeyRing interface {
	CreateKey(ctx context.Context, k agentbus.APIKey) error
	Keys(ctx context.Context) ([]agentbus.APIKey, error)
	// RevokeKey revokes the key of a handle, or every key of a principal, and
	// returns how many.
	RevokeKey(ctx context.Context, handleOrPrincipal string) (int, error)
}

// An EventLog takes events outside of turns, and tells those who follow (E9).
type EventLog interface {
	AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error)
	Appended(ctx context.Context, id agentbus.ExecutionID) (agentbus.Position, error)
	Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func())
	ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (stored agentbus.RunKey, claimed bool, err error)
	FreeRunKey(ctx context.Context, k agentbus.RunKey) error
	PayersRuns(ctx context.Context, q agentbus.RunQuery) ([]agentbus.Execution, error)
}
