// Package admin is the admin API of a bus: runs, live calls, agents, keys,
// budgets and the ledger, for those who operate it, and the console, whose pages
// show what the API's read models find. It has a listener of its
// own and denies by default: a route is reachable for the roles that its line
// in the table names, and for nobody else.
package admin

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/identity"
)

// An Identifier authenticates an Authorization value. Identify fails with
// CodeUnauthenticated for a value that stands for nobody. It is safe for
// concurrent use.
type Identifier interface {
	Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error)
}

// Runs reads what happened. It is safe for concurrent use.
type Runs interface {
	// RunSummaries returns runs that f lets pass at a glance, newest first, at most
	// limit of them; before, unless "", is the last one of the page before.
	RunSummaries(ctx context.Context, f agentbus.RunFilter, limit int, before agentbus.RunID) ([]agentbus.RunSummary, error)
	RunSummary(ctx context.Context, run agentbus.RunID) (sum agentbus.RunSummary, found bool, err error)
	Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error)
	Executions(ctx context.Context, run agentbus.RunID) ([]agentbus.Execution, error)
	Execution(ctx context.Context, id agentbus.ExecutionID) (e agentbus.Execution, found bool, err error)
	Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error]
	Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error]
}

// Records read one run whole, and what belongs to one of its calls. It is safe for
// concurrent use.
type Records interface {
	// RunRecord returns a run as of one moment; one that is not known is empty.
	RunRecord(ctx context.Context, run agentbus.RunID) (agentbus.RunRecord, error)
	// CallEntries returns the entries of a call, one for each attempt that ended.
	CallEntries(ctx context.Context, payer agentbus.Payer, call int64) ([]agentbus.Entry, error)
	// ParentCalls returns the calls of a payer's run whose turn id is turn, refused
	// ones left out, at most a few of them.
	ParentCalls(ctx context.Context, payer agentbus.Payer, run agentbus.RunID, turn agentbus.TurnID) ([]agentbus.CallRecord, error)
	// Recording returns what a call was asked, where that is recorded.
	Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error)
}

// A Ledger tells who paid what (G26 to G28). It is safe for concurrent use.
type Ledger interface {
	// Balances returns what each payer's account comes to; of one payer, unless
	// payer is "".
	Balances(ctx context.Context, payer agentbus.Payer) ([]agentbus.Balance, error)
	// Entries returns a payer's entries after seq, in order, at most limit.
	Entries(ctx context.Context, payer agentbus.Payer, after int64, limit int) ([]agentbus.Entry, error)
	// VerifyLedger recomputes every balance and link.
	VerifyLedger(ctx context.Context) (agentbus.LedgerVerdict, error)
	// BudgetStates returns the states of accounts; one without calls has none.
	BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error)
}

// A KeyRing keeps API keys. It is safe for concurrent use.
type KeyRing interface {
	CreateKey(ctx context.Context, k agentbus.APIKey) error
	Keys(ctx context.Context) ([]agentbus.APIKey, error)
	// RevokeKey revokes the key of a handle, or every key of a principal, and
	// returns how many.
	RevokeKey(ctx context.Context, handleOrPrincipal string) (int, error)
}

// A Switchboard knows the calls that have not ended, and ends them. It is safe
// for concurrent use.
type Switchboard interface {
	// Live returns what agents are being asked right now through this process,
	// oldest first.
	Live() []agentbus.CallRecord
	// Unfinished returns the calls that nobody has settled or voided, by id:
	// those that live, and those whose process is gone, whose outcome is unknown
	// (G24).
	Unfinished(ctx context.Context) ([]agentbus.CallRecord, error)
	// Stop cancels every live call of a run, of which it returns the number, and
	// refuses new ones from now on (G14). by is who asked for it.
	Stop(ctx context.Context, run agentbus.RunID, by string) (cancelled int, err error)
	// StoppedRuns returns the runs that were stopped.
	StoppedRuns(ctx context.Context) ([]agentbus.RunID, error)
	// Void frees the key of a call whose outcome is unknown, so that it may be
	// executed again (G24). CodeNotFound: it is not unfinished. CodeRunConflict:
	// the process that executes it still runs.
	Void(ctx context.Context, call int64, by string) error
}

// Interrupts are what runs wait for (R22). It is safe for concurrent use.
type Interrupts interface {
	// Interrupts returns interrupts in the order in which they were raised.
	Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error)
	Interrupt(ctx context.Context, id agentbus.InterruptID) (i agentbus.Interrupt, found bool, err error)
	// Resolve decides an interrupt, once, and lets its run go on.
	// CodeInvalidRequest: r does not answer what was asked. CodeNotFound: there is
	// none of that id. CodeRunConflict: it is decided already.
	Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error)
}

// A Directory knows the agents. It is safe for concurrent use.
type Directory interface {
	Agents() []Agent // by name
	// Probe finds out now whether an agent can be reached, at each of its places.
	Probe(ctx context.Context, name string) ([]Probe, error)
	// Drain takes an agent out, so that it gets no new calls, or in again. by is who
	// asked for it.
	Drain(ctx context.Context, name, by string, drained bool) error
}

// Figures are what the screens are made of. It is safe for concurrent use.
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
}

// Actions keeps what operators did (U5). It is safe for concurrent use.
type Actions interface {
	RecordAction(ctx context.Context, a agentbus.Action) error
	// Actions returns what operators did, newest first.
	Actions(ctx context.Context, q agentbus.ActionQuery) ([]agentbus.Action, error)
}

// Config configures [New].
type Config struct {
	Identifier Identifier  // required
	Runs       Runs        // required
	Records    Records     // required
	Ledger     Ledger      // required
	Keys       KeyRing     // required
	Calls      Switchboard // required
	Agents     Directory   // required
	Interrupts Interrupts  // required
	Figures    Figures     // required
	Actions    Actions     // nil: what operators do stands in the log alone
	Driver     Driver      // nil: runs cannot be resumed, forked or replayed here

	// Token is the secret of a principal that is known here only, TokenPrincipal;
	// none: there is none.
	Token agentbus.Credential
	// Budgets returns the configured budgets with their accounts of the present
	// period; nil: there are none.
	Budgets func() []agentbus.Budget
	// Caps returns the budgets of money of a payer, whoever calls, of the periods
	// that at is in; what is reserved and settled is filled in. nil: there are none.
	Caps func(payer agentbus.Payer, at time.Time) []console.Cap
	// Vitals says how store, gateway and configuration do; the rest is filled in.
	// nil: that is not known.
	Vitals func(context.Context) console.Vitals
	// MaxDepth returns the depth at which calls are refused; nil: it is not shown.
	MaxDepth func() int
	// Cap returns what an execution may cost; 0, and nil: any amount.
	Cap func(agentbus.Execution) agentbus.Micros
	// Hops verifies the signed hops of a run (C16); nil: they are not shown.
	Hops func(context.Context, agentbus.RunID) (identity.HopVerdict, error)
	// Content shows in the console what agents answered, and there and in the API
	// what they were asked as far as that is recorded; otherwise they tell only what
	// became of calls.
	Content bool
	Metrics http.Handler // served at /metrics; nil: there are none
	Profile bool         // serve net/http/pprof below /debug/pprof/

	Status Status
	Logger *slog.Logger // gets a line for each mutation; nil: nothing is logged
}

// TokenPrincipal is who the bearer of [Config].Token is.
const TokenPrincipal = "admin-token"

// Status is what the bus says of itself.
type Status struct {
	Version string   `json:"version"`
	Owner   string   `json:"owner"`            // this process, as leases and calls name it
	Config  string   `json:"config,omitempty"` // the file that was read; "" when there was none
	Stages  []string `json:"stages"`           // of the gateway, in order (G2)
}

// An API is the admin listener as an http.Handler. It is safe for concurrent
// use.
type API struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	mux     *http.ServeMux
	routes  map[string]route // by pattern
	origins *http.CrossOriginProtection

	console  *console.Console
	sessions sessions
	streams  streams
}

// New returns an API, or an error that names what is required of c and missing.
func New(c Config) (*API, error) {
	if c.Identifier == nil || c.Runs == nil || c.Records == nil || c.Ledger == nil || c.Keys == nil || c.Calls == nil || c.Agents == nil || c.Interrupts == nil || c.Figures == nil {
		return nil, errors.New("admin: Identifier, Runs, Records, Ledger, Keys, Calls, Agents, Interrupts and Figures are required")
	}
	a := &API{
		cfg: c, log: c.Logger, started: time.Now(), mux: http.NewServeMux(), routes: map[string]route{},
		origins: http.NewCrossOriginProtection(),
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if a.console, err = console.New(); err != nil {
		return nil, err
	}
	for _, r := range append(a.table(), a.pages()...) {
		a.routes[r.pattern] = r
		a.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { a.answer(w, req, r) })
	}
	return a, nil
}
