// Package storetest holds the promises of a store as tests: what the name of a
// test says is what callers may rely on. The stores of this module pass them, and
// so must one of your own; see [Run].
package storetest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// A Store is everything a store does. Who uses one declares the few methods it
// wants for itself; the methods are documented on package sqlite's Store.
type Store interface {
	Journal
	Runs
	Interrupts
	Ledger
	Keys
	Reads
	Books
	Upkeep
	EventLog
	Actions
	Figures
	RemoteTasks
	LiveStreams
	Proofs
	Tasks
	Recordings
	InstallKey() []byte
	Check(ctx context.Context) error
	Close() error
}

// Journal is what a driver writes its turns to (R14).
type Journal interface {
	Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error)
	Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error
	Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error]
}

// Runs hands out the leases of executions (R17).
type Runs interface {
	Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error)
	Renew(ctx context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error)
	Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error
	Interrupt(ctx context.Context, id agentbus.InterruptID) (i agentbus.Interrupt, found bool, err error)
}

// Interrupts are what runs wait for (R22).
type Interrupts interface {
	Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error)
	Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error)
	ExpireInterrupts(ctx context.Context, at time.Time, limit int) (n int, err error)
}

// EventLog is what happens outside of turns, and who follows it (E9).
type EventLog interface {
	AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error)
	Appended(ctx context.Context, id agentbus.ExecutionID) (agentbus.Position, error)
	Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func())
	ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (stored agentbus.RunKey, claimed bool, err error)
	FreeRunKey(ctx context.Context, k agentbus.RunKey) error
	PayersRuns(ctx context.Context, q agentbus.RunQuery) ([]agentbus.Execution, error)
}

// Ledger is what a gateway reserves, settles and records calls in (G20).
type Ledger interface {
	Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error)
	Append(ctx context.Context, id int64, attempt int, frames []byte) error
	Settle(ctx context.Context, s agentbus.Settlement) error
	Void(ctx context.Context, v agentbus.Voiding) error
	Replayed(ctx context.Context, id int64) error
	Record(ctx context.Context, key agentbus.Digest, c agentbus.CallRecord) error
	Lookup(ctx context.Context, key, digest agentbus.Digest) (got agentbus.Reserved, found bool, err error)
}

// Books are what calls came to (G26, G27, G28).
type Books interface {
	Entries(ctx context.Context, payer agentbus.Payer, after int64, limit int) ([]agentbus.Entry, error)
	CallEntries(ctx context.Context, payer agentbus.Payer, call int64) ([]agentbus.Entry, error)
	Balances(ctx context.Context, payer agentbus.Payer) ([]agentbus.Balance, error)
	BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error)
	VerifyLedger(ctx context.Context) (agentbus.LedgerVerdict, error)
}

// Upkeep is what a process does beside its calls (G24, G25).
type Upkeep interface {
	Sweep(ctx context.Context, before time.Time, limit int) (n int, err error)
	ForgetEvents(ctx context.Context, before time.Time, limit int) (n int, err error)
	ReleaseDead(ctx context.Context, alive func(owner string) bool) (n int, err error)
	Unfinished(ctx context.Context) ([]agentbus.CallRecord, error)
	StopRun(ctx context.Context, run agentbus.RunID, by, reason string, at time.Time) error
	StopReason(ctx context.Context, run agentbus.RunID) (reason string, err error)
	StoppedRuns(ctx context.Context) ([]agentbus.RunID, error)
	StoppedPaused(ctx context.Context) ([]agentbus.RunID, error)
	Orphans(ctx context.Context, claim agentbus.Claim, limit int, alive func(owner string) bool, skip func(agentbus.ExecutionID) bool) ([]agentbus.Execution, error)
	Sealed(ctx context.Context, id agentbus.ExecutionID) (sealed []byte, found bool, err error)
	Broken() <-chan struct{}
}

// Recordings are what calls were asked (U11).
type Recordings interface {
	Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error)
	ForgetRecordings(ctx context.Context, before time.Time, limit int) (n int, err error)
}

// Actions are what operators did (U5, U14).
type Actions interface {
	RecordAction(ctx context.Context, a agentbus.Action) error
	Actions(ctx context.Context, q agentbus.ActionQuery) ([]agentbus.Action, error)
	Drain(ctx context.Context, d agentbus.Drained, drained bool) error
	DrainedAgents(ctx context.Context) ([]agentbus.Drained, error)
}

// Figures are what the screens are made of (U12, U13).
type Figures interface {
	NewestCalls(ctx context.Context, since time.Time, limit int) ([]agentbus.CallRecord, error)
	Spending(ctx context.Context, q agentbus.SpendingQuery) ([]agentbus.Spending, error)
	Spent(ctx context.Context, payer agentbus.Payer, since time.Time, most int) (charged agentbus.Micros, entries int64, err error)
	Holds(ctx context.Context, calls []int64) (map[int64]agentbus.Micros, error)
	Replicas(ctx context.Context) ([]string, error)
}

// RemoteTasks are the tasks of A2A agents (A12).
type RemoteTasks interface {
	RemoteTask(ctx context.Context, agent, id string) (t agentbus.RemoteTask, found bool, err error)
	RemoteContext(ctx context.Context, agent string, payer agentbus.Payer, id string) (t agentbus.RemoteTask, found bool, err error)
	OthersRemoteTasks(ctx context.Context, agent string, payer agentbus.Payer) (bool, error)
	SeeRemoteTask(ctx context.Context, t agentbus.RemoteTask) error
	ForgetRemoteTasks(ctx context.Context, before time.Time, limit int) (n int, err error)
}

// LiveStreams are told between processes (G22).
type LiveStreams interface {
	FollowStream(ctx context.Context, call int64, attempt int, owner string) error
	FollowedStreams(ctx context.Context, owner string) ([]agentbus.StreamPiece, error)
	WatchFollowers() (rung <-chan struct{}, release func())
	TellStream(ctx context.Context, key agentbus.Digest, p agentbus.StreamPiece) error
	ToldStream(ctx context.Context, call int64, attempt, from int) ([]agentbus.StreamPiece, error)
	ForgetStream(ctx context.Context, call int64, attempt int) error
}

// Keys keeps the API keys (G4).
type Keys interface {
	CreateKey(ctx context.Context, k agentbus.APIKey) error
	Keys(ctx context.Context) ([]agentbus.APIKey, error)
	RevokeKey(ctx context.Context, handleOrPrincipalID string) (n int, err error)
	KeyByHash(ctx context.Context, hash agentbus.Digest) (key agentbus.APIKey, found bool, err error)
}

// Reads is what pages and commands show.
type Reads interface {
	RunSummaries(ctx context.Context, f agentbus.RunFilter, limit int, before agentbus.RunID) ([]agentbus.RunSummary, error)
	RunSummary(ctx context.Context, run agentbus.RunID) (sum agentbus.RunSummary, found bool, err error)
	RunRecord(ctx context.Context, run agentbus.RunID) (agentbus.RunRecord, error)
	Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error)
	ParentCalls(ctx context.Context, payer agentbus.Payer, run agentbus.RunID, turn agentbus.TurnID) ([]agentbus.CallRecord, error)
	Executions(ctx context.Context, run agentbus.RunID) ([]agentbus.Execution, error)
	Execution(ctx context.Context, id agentbus.ExecutionID) (agentbus.Execution, bool, error)
	Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error]
}

// Run checks every promise against the stores that open opens, each in a
// subtest of its own with a store of its own. open opens the store that lives
// in dir and makes it when there is none: the same dir after Close is the same
// store again. Run closes what it opened.
func Run(t *testing.T, open func(t *testing.T, dir string) Store) {
	t.Helper()
	run(t, open, true)
}

// RunInMemory is Run for stores that are gone once they are closed. They are not
// opened again: what is to be there after that must be there anyway.
func RunInMemory(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	run(t, func(t *testing.T, _ string) Store { t.Helper(); return open(t) }, false)
}

func run(t *testing.T, open func(t *testing.T, dir string) Store, lasts bool) {
	t.Helper()
	for _, promises := range []map[string]func(*place){ledger, streams, refusals, journal, runs, keys, reads, budgets, books, upkeep, orphans, interrupts, remoteTasks, proofs, tasks, eventLog, figures, recordings, random} {
		for _, name := range slices.Sorted(maps.Keys(promises)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := &place{t: t, dir: t.TempDir(), open: open, lasts: lasts}
				p.Store = open(t, p.dir)
				t.Cleanup(func() {
					if err := p.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				promises[name](p)
			})
		}
	}
}

// A place is one promise's store, and how to open it again.
type place struct {
	Store
	t    *testing.T
	dir  string
	open func(t *testing.T, dir string) Store

	lasts bool // what is stored is there when it is opened again
}

// reopen closes the store and opens it again; one in memory goes on.
func (p *place) reopen() {
	t := p.t
	t.Helper()
	if !p.lasts {
		return
	}
	if err := p.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	p.Store = p.open(t, p.dir)
}

// beside opens the store once more, as another process does; one in memory is
// the same.
func (p *place) beside() (other Store, closes func()) {
	p.t.Helper()
	if !p.lasts {
		return p.Store, func() {}
	}
	other = p.open(p.t, p.dir)
	return other, func() { ok(p.t, "close", other.Close()) }
}
