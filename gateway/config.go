package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// An Identifier authenticates an Authorization value. Identify fails with
// CodeUnauthenticated for a value that stands for nobody. It is safe for
// concurrent use.
type Identifier interface {
	Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error)
}

// A PeerIdentifier is an Identifier that knows callers by the client certificate
// of their connection as well (G4). byCertificate reports that peer, which the
// listener has verified, told who it is: the Authorization value was not looked
// at then, and does not travel on as the origin's credential. A forwarded
// credential is never identified with it (P20).
type PeerIdentifier interface {
	Identifier
	IdentifyPeer(ctx context.Context, authorization agentbus.Credential, peer *x509.Certificate) (p agentbus.Principal, byCertificate bool, err error)
}

// A Ledger remembers calls and what they were charged: once per turn, charged
// once (G20 to G23). It is safe for concurrent use. Its errors are
// CodeStoreUnavailable, or CodeLeaseLost for a write on behalf of an attempt
// that is not the call's last.
type Ledger interface {
	// Reserve asks for the right to execute a call; see [agentbus.Outcome].
	// Only OutcomeExecute lets the caller call the agent, and the reservation
	// is durable when it returns.
	Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error)
	// Append stores the next bytes of a streamed answer.
	Append(ctx context.Context, id int64, attempt int, frames []byte) error
	// Settle ends an attempt with an answer that counts. The answer and its
	// charge are durable when it returns.
	Settle(ctx context.Context, s agentbus.Settlement) error
	// Void ends an attempt that failed: nothing is charged, the key is free.
	Void(ctx context.Context, v agentbus.Voiding) error
	// Replayed counts a duplicate that was answered without executing. It
	// returns when that is queued.
	Replayed(ctx context.Context, id int64) error
	// Lookup says what Reserve would say of a known key, and writes nothing. A
	// key that is unknown or free is not found.
	Lookup(ctx context.Context, key, digest agentbus.Digest) (got agentbus.Reserved, found bool, err error)
	// ParentCalls returns the calls of a payer's run with that turn id, refused
	// ones left out (G7).
	ParentCalls(ctx context.Context, p agentbus.Payer, run agentbus.RunID, turn agentbus.TurnID) ([]agentbus.CallRecord, error)
}

// A Recorder keeps the hops that executed nothing: refusals, and requests that
// are no calls. Record returns when the record is queued; the same key again
// counts as a repeat (P12). It is safe for concurrent use.
type Recorder interface {
	Record(ctx context.Context, key agentbus.Digest, c agentbus.CallRecord) error
}

// CallTokens knows the tokens with which programs call back as the turn that
// they serve (B2). Scope fails with CodeUnauthenticated for one whose turn is
// over; ours is false for anything else. It is safe for concurrent use.
type CallTokens interface {
	Scope(authorization agentbus.Credential) (s agentbus.Scope, ours bool, err error)
}

// Config configures [New].
type Config struct {
	Router     Router     // required
	Identifier Identifier // required; a PeerIdentifier is shown client certificates too
	Ledger     Ledger     // required
	Recorder   Recorder   // required
	CallTokens CallTokens // nil: there are none

	MaxDepth      int           // inbound depth that is refused (P10); 0: agentbus.DefaultMaxDepth, negative: an error
	MaxBody       int64         // bytes of a request body (G3); 0: 4 MiB
	MaxReply      int64         // bytes of an answer that are kept for duplicates (G25); 0: 16 MiB
	BodyTimeout   time.Duration // to read a request body; 0: 60 s
	CallTimeout   time.Duration // of a whole call; 0: 10 min
	IdleTimeout   time.Duration // between two pieces of an answer; 0: 5 min
	DetachMax     int           // calls that may go on after their caller left (G14); 0: 256, negative: none
	DetachTimeout time.Duration // for how long; 0: 5 min
	InFlight      int           // requests at once, beyond which they are shed (G8); 0: 10,000

	// ListedRefusals is how many refusals of a payer a second have a record of
	// their own, and ten times as many at once; the others are counted. 0: 100.
	ListedRefusals int

	// Budgets bound what calls may come to (G27). BudgetWait is how long a call
	// may wait for calls in flight to release what they hold of them; 0: 5 s,
	// negative: it does not wait.
	Budgets    []BudgetRule
	BudgetWait time.Duration
	// ReleaseDead gives back what calls hold whose process no longer runs. It is
	// called now and then while calls wait; nil: the dead hold for good.
	ReleaseDead func(context.Context)

	// RefuseForwarded answers 403 to a forwarded credential from a caller that
	// may not forward one; otherwise it is ignored and recorded (P20).
	RefuseForwarded bool
	// ExecuteMismatch runs a turn that comes again with another request as a
	// call of its own; otherwise it is refused (G20).
	ExecuteMismatch bool
	Cycles          CycleMode // what becomes of calls that go round in a circle (G7); "": CyclesDigest
	Chain           ChainRules

	// Evidence verifies what messages say of who sends them (C22); nil: it is
	// ignored. Rebinder makes it for the next agent (C25); nil: it ends here.
	Evidence EvidenceVerifier
	Rebinder Rebinder
	// Hops sign and verify the hops of chains (C16), and HopKeeper, which goes with
	// them, stores them; nil: hops are not signed. Issuer is in whose name.
	Hops      Hops
	HopKeeper HopKeeper
	Issuer    string
	// WellKnown are documents that everybody may read, by their path, such as
	// /.well-known/jwks.json; they are JSON.
	WellKnown map[string][]byte

	// Owner names this process in the ledger; required. Alive reports whether
	// the process of another owner still runs, so that its unfinished calls
	// are waited for; nil: none does.
	Owner string
	Alive func(owner string) bool
	// WatchCall returns a channel that is closed when the call of a key ended in
	// another process; release ends the watch. It may ring for nothing, or not at
	// all: the ledger is asked now and then anyway. nil: nobody rings.
	WatchCall func(key agentbus.Digest) (rung <-chan struct{}, release func())
	// Streams pass on what other processes stream, see [Gateway.TellStreams]; nil: a
	// duplicate of such a call is answered once it has ended.
	Streams Streams
	// Rates are the rates of callers over all processes (G8); nil: this one has
	// none beside it.
	Rates Rates

	// Directory tells anybody where the agents are that have an address, at
	// /.well-known/webfinger and /.well-known/agent-card/{local} (C36); nil: both
	// are 404.
	Directory http.Handler

	Version string                      // of the product, for /version
	Ready   func(context.Context) error // nil: always ready
	// Degraded says what is not as the operator wants it although the bus
	// serves, in words for everybody: /readyz shows them. nil: nothing is.
	Degraded func() []string
	Logger   *slog.Logger // nil: nothing is logged

	A2A  A2AConfig
	Face http.Handler // serves A2A for agents of other dialects, with an a2a.Request in its context; nil: nobody does (A3)

	Recording Recording // of requests, for people; zero: they are not kept

	Observers []Observer // told of each request at its end (G33); none costs nothing
	Tracer    Tracer     // nil: the traces of callers are continued, and none is begun (G34)
}

func (c *Config) check() error {
	var faults []error
	if c.Router == nil || c.Identifier == nil || c.Ledger == nil || c.Recorder == nil {
		faults = append(faults, errors.New("gateway: Router, Identifier, Ledger and Recorder are required"))
	}
	if c.Owner == "" {
		faults = append(faults, errors.New("gateway: Owner is required"))
	}
	if c.MaxDepth < 0 {
		faults = append(faults, errors.New("gateway: MaxDepth is negative"))
	}
	for _, a := range c.Chain.AbsentOf {
		if !a.valid() {
			faults = append(faults, fmt.Errorf("gateway: Chain.AbsentOf has %q", a))
		}
	}
	if !c.Chain.Absent.valid() {
		faults = append(faults, fmt.Errorf("gateway: Chain.Absent is %q", c.Chain.Absent))
	}
	if (c.Hops == nil) != (c.HopKeeper == nil) {
		faults = append(faults, errors.New("gateway: Hops and HopKeeper go together"))
	}
	switch c.Cycles {
	case "", CyclesDigest, CyclesRefuse, CyclesWarn, CyclesOff:
	default:
		faults = append(faults, fmt.Errorf("gateway: Cycles is %q", c.Cycles))
	}
	if c.Recording.MaxBody > 0 && c.Recording.Redactor == nil {
		faults = append(faults, errors.New("gateway: Recording.MaxBody needs a Redactor"))
	}
	for i := range c.Budgets {
		faults = append(faults, c.Budgets[i].check())
	}
	return errors.Join(faults...)
}

func (c *Config) setDefaults() {
	c.MaxDepth = or(c.MaxDepth, agentbus.DefaultMaxDepth)
	c.MaxBody = or(c.MaxBody, 4<<20)
	c.MaxReply = or(c.MaxReply, 16<<20)
	c.BodyTimeout = or(c.BodyTimeout, time.Minute)
	c.CallTimeout = or(c.CallTimeout, 10*time.Minute)
	c.IdleTimeout = or(c.IdleTimeout, 5*time.Minute)
	c.DetachMax = or(c.DetachMax, 256)
	c.DetachTimeout = or(c.DetachTimeout, 5*time.Minute)
	c.InFlight = or(c.InFlight, 10_000)
	c.ListedRefusals = or(c.ListedRefusals, 100)
	c.Cycles = or(c.Cycles, CyclesDigest)
	c.A2A.KeepAlive = or(c.A2A.KeepAlive, 15*time.Second)
	c.Chain.setDefaults()
	c.BudgetWait = or(c.BudgetWait, 5*time.Second)
	c.Budgets = narrowFirst(c.Budgets)
	if c.Alive == nil {
		c.Alive = func(string) bool { return false }
	}
	if c.WatchCall == nil {
		c.WatchCall = func(agentbus.Digest) (<-chan struct{}, func()) { return nil, func() {} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func or[T comparable](v, zero T) T {
	var none T
	if v == none {
		return zero
	}
	return v
}
