package openwop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// A Store keeps runs and their events. Every store of the store folder is one.
type Store interface {
	Runs
	Interrupts
	eventlog.Source
}

// Runs are executions and their leases (R17).
type Runs interface {
	Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error)
	Renew(ctx context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error)
	Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error
	AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error)
	Execution(ctx context.Context, id agentbus.ExecutionID) (agentbus.Execution, bool, error)
	PayersRuns(ctx context.Context, q agentbus.RunQuery) ([]agentbus.Execution, error)
	ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (stored agentbus.RunKey, claimed bool, err error)
	FreeRunKey(ctx context.Context, k agentbus.RunKey) error
}

// Interrupts are what runs wait for (R22).
type Interrupts interface {
	Interrupt(ctx context.Context, id agentbus.InterruptID) (i agentbus.Interrupt, found bool, err error)
	Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error)
	StopRun(ctx context.Context, run agentbus.RunID, by, reason string, at time.Time) error
	StopReason(ctx context.Context, run agentbus.RunID) (reason string, err error)
}

// A Starter begins the conversations of a configuration, which are workflows too
// (E55).
type Starter interface {
	// Workflow returns the conversation of a name as a workflow; nil: there is
	// none.
	Workflow(name string) *Workflow
	// Start begins one, or a branch of one, and returns when its run can be read. A
	// run that there is already is left as it is. It fails with CodeInvalidRequest
	// for what may not be overridden.
	Start(ctx context.Context, s Start) error
	// Cancel ends the runs of a bus run for good, and returns when those that wait
	// have ended: who drives the others learns it.
	Cancel(ctx context.Context, run agentbus.RunID, by, reason string) error
	// Overtake ends a run that was cancelled and that another process drives, in the
	// place of that one, which can write nothing to it any more.
	Overtake(ctx context.Context, run agentbus.RunID) error
	// Resolve decides an interrupt and lets its run go on, on the credential of who
	// decided. It fails as Resolve of a store, and with CodeInvalidRequest for what
	// is no answer.
	Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution, auth agentbus.Credential) error
	// Resume lets a run go on that waits for the credential of its payer: on auth. It
	// fails with CodeRunConflict when somebody else has let it.
	Resume(ctx context.Context, run agentbus.RunID, auth agentbus.Credential) error
	// Replay drives one that has ended again over its record, and returns where it
	// differs; nil: nowhere (R23).
	Replay(ctx context.Context, id agentbus.ExecutionID) (*Divergence, error)
}

// A Start is a conversation to be begun.
type Start struct {
	Run       agentbus.RunID
	Workflow  string
	Seed      string
	Auth      agentbus.Credential // of its payer
	Trace     Trace               // its turns are called in
	OnHalt    string              // fail or pause (E58)
	Reasoning string              // summary, full, off, or "" (E25)
	Threshold *float64            // below which a confidence is low; nil: 0.7 (E30)
	Timeout   time.Duration       // 0: none
	Started   agentbus.RunStarted // how it was asked for: its first event tells
	Overrides Overrides           // in place of what is configured (E7)
	Budget    *agentbus.Micros    // what its turns may cost at most, whatever is configured; nil: as that says

	// From is the run that it is a branch of, of whose turns the first Turns are
	// kept; "": of none.
	From  agentbus.RunID
	Turns int
}

// A Trace is the W3C trace context that a run was asked for with; the zero value is
// none.
type Trace struct{ Parent, State string }

// traceOf reads the trace context of a request; one that is malformed is none (P1).
func traceOf(h http.Header) Trace {
	l, _ := agentbus.ParseLineage(http.Header{"Traceparent": h.Values("Traceparent"), "Tracestate": h.Values("Tracestate")})
	return Trace{l.TraceParent, l.TraceState}
}

// Overrides are what a run of a conversation has in place of what is configured
// (E7, E35). The zero value is nothing.
type Overrides struct {
	RecursionLimit int   `json:"recursion_limit,omitempty"` // nodes that it may begin; 0: any number
	TokenBudget    int64 `json:"token_budget,omitempty"`    // tokens that it may take; 0: any number
	// Of the participants that are models.
	Model       string            `json:"model,omitempty"`       // "": their own
	Temperature *float64          `json:"temperature,omitempty"` // nil: as they like
	MaxTokens   int               `json:"max_tokens,omitempty"`  // of one answer; 0: as they like
	Prompts     map[string]string `json:"prompts,omitempty"`     // by node
}

// A Divergence is where a replay is not what its source was (E53).
type Divergence struct {
	At   agentbus.Position `json:"at"`
	Kind string            `json:"kind"` // output, missing, extra, type-mismatch
}

// Config configures a [Host].
type Config struct {
	Store   Store  // required
	Version string // of the product
	Owner   string // of leases: this process; required
	// Identify returns who sent a request. It fails with CodeUnauthenticated.
	Identify func(*http.Request) (agentbus.Principal, error) // required
	// Redact returns what takes secrets out of what is stored (E28); nil: tokens
	// of known shapes only.
	Redact func() *eventlog.Redactor
	// TokenKey signs the tokens of interrupts; nil: there are none.
	TokenKey []byte
	// Conformance offers the fixtures and seams of the conformance profile (E70).
	Conformance bool
	// NoEscalation lets decisions of low confidence stand (E33).
	NoEscalation bool
	Tools        []string // that agents without a list may use (E27); none
	// Lease is how long a driver keeps a run without renewing it; 0: 30 s.
	Lease time.Duration
	// InterruptTimeout is how long one waits before it counts as denied; 0: 24 h.
	InterruptTimeout time.Duration
	MaxBody          int64   // of a request, in bytes; 0: 1 MiB
	Conversations    Starter // nil: there are none
	// Calling returns the calls that are being made in the run of an execution, and
	// what that may cost, 0 for any amount; nil: none are told.
	Calling func(agentbus.Execution) ([]agentbus.CallRecord, agentbus.Micros)
	Logger  *slog.Logger // nil: nothing is logged
	// Followers is how many may follow at once; 0: 4096.
	Followers int

	workflows map[string]*Workflow
}

// workflow returns a workflow of the host's own; nil: there is none.
func (c *Config) workflow(id string) *Workflow { return c.workflows[id] }

// A Host serves the routes of the wire, and drives runs of workflows. It is safe
// for concurrent use. Close it.
type Host struct {
	cfg    Config
	routes *http.ServeMux
	log    *slog.Logger

	ctx   context.Context //nolint:containedctx // of its drivers, which outlive requests
	stop  context.CancelCauseFunc
	going sync.WaitGroup

	beginning singleflight.Group // of runs that are asked for, by id

	mu        sync.Mutex // guards driven and followers
	driven    map[agentbus.ExecutionID]context.CancelCauseFunc
	followers int
}

// New returns a host. It fails when one of its workflows cannot be driven.
func New(c Config) (*Host, error) {
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
	if c.InterruptTimeout <= 0 {
		c.InterruptTimeout = 24 * time.Hour
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 1 << 20
	}
	if c.Followers <= 0 {
		c.Followers = 4096
	}
	if c.Redact == nil {
		plain := eventlog.NewRedactor()
		c.Redact = func() *eventlog.Redactor { return plain }
	}
	if c.Conformance {
		c.workflows = fixtures()
	}
	for _, w := range c.workflows {
		if err := w.check(); err != nil {
			return nil, err
		}
	}
	h := &Host{cfg: c, log: c.Logger, driven: map[agentbus.ExecutionID]context.CancelCauseFunc{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.routes = h.mux()
	return h, nil
}

// Close leaves the runs that are driven where they are, and waits for their
// drivers. Other processes go on with them, or this one when it is started again.
func (h *Host) Close() {
	h.stop(errLeave)
	h.going.Wait()
}

// begin opens a run and drives it in the background. One that there is already is
// driven on.
func (h *Host) begin(ctx context.Context, id agentbus.ExecutionID, s spec, payer agentbus.Payer) error {
	w := h.cfg.workflow(s.Workflow)
	if w == nil {
		return notFound("workflow_not_found", "there is no workflow %q", s.Workflow)
	}
	return h.open(ctx, id, s, payer, w.definition())
}

// open opens a run for whoever drives it: this process, or a worker after a crash.
func (h *Host) open(ctx context.Context, id agentbus.ExecutionID, s spec, payer agentbus.Payer, definition agentbus.Digest) error {
	b, err := oneLine(s)
	if err != nil {
		return err
	}
	e := agentbus.Execution{
		ID: id, Run: agentbus.RunID(id), Conversation: s.Workflow, Definition: definition, Payer: payer, Spec: b, Began: time.Now().UTC(),
	}
	_, err = h.cfg.Store.Open(ctx, e, agentbus.Claim{})
	if err == nil || agentbus.CodeOf(err) == agentbus.CodeRunConflict {
		h.kick(id)
		return nil
	}
	return err
}

// kick drives a run in the background, unless this process does.
func (h *Host) kick(id agentbus.ExecutionID) {
	if h.ctx.Err() != nil {
		return
	}
	h.going.Go(func() {
		if err := h.Drive(h.ctx, id); err != nil && h.ctx.Err() == nil && agentbus.CodeOf(err) != agentbus.CodeRunConflict {
			h.log.LogAttrs(h.ctx, slog.LevelWarn, "run of a workflow left", slog.String("run", string(id)), slog.Any("error", err))
		}
	})
}

// Drive drives a run of a workflow until it ends or parks, or ctx ends. It returns
// at once when this process drives it already. CodeRunConflict: another one does.
func (h *Host) Drive(ctx context.Context, id agentbus.ExecutionID) error {
	for {
		driven, cancel := context.WithCancelCause(ctx)
		h.mu.Lock()
		_, twice := h.driven[id]
		if !twice {
			h.driven[id] = cancel
		}
		h.mu.Unlock()
		if twice {
			cancel(nil)
			return nil
		}
		err := h.drive(ctx, driven, id)
		h.forget(id)
		cancel(nil)
		e, found, unread := h.cfg.Store.Execution(context.WithoutCancel(ctx), id)
		if c, ok := errors.AsType[*cancellation](context.Cause(driven)); ok && found && e.State != agentbus.RunDone {
			return h.cancelOwn(context.WithoutCancel(ctx), &e, c.reason, c.by) // it parked as it was cancelled, or another process has it
		}
		if err == nil {
			err = unread
		}
		if err != nil || !found || e.State != agentbus.RunRunning || e.Lease.Owner != "" {
			return err // it is over, or waits; else its interrupt was resolved as it parked
		}
	}
}

// forget forgets who drives a run here.
func (h *Host) forget(id agentbus.ExecutionID) {
	h.mu.Lock()
	delete(h.driven, id)
	h.mu.Unlock()
}

// ErrAlone says that a run is nothing for this host: its workflow is not one of
// its own.
var ErrAlone = errors.New("left alone")

// drive claims the run and drives it under its lease, until it is over or driven ends.
// A run that is cancelled before it has begun begins, and ends as cancelled (E4).
func (h *Host) drive(ctx, driven context.Context, id agentbus.ExecutionID) error {
	e, found, err := h.cfg.Store.Execution(ctx, id)
	if err != nil || !found {
		return err
	}
	s, ok := readSpec(&e)
	if !ok {
		return fmt.Errorf("run %s is no run of a workflow", id)
	}
	w := h.cfg.workflow(s.Workflow)
	if !s.retells() && (w == nil || w.definition() != e.Definition) {
		return fmt.Errorf("%w: run %s was begun with another definition of workflow %q", ErrAlone, id, s.Workflow)
	}
	if e, err = h.cfg.Store.Open(ctx, e, agentbus.Claim{Owner: h.cfg.Owner, TTL: h.cfg.Lease}); err != nil || e.State == agentbus.RunDone {
		return err
	}
	driven, cancel := context.WithCancelCause(driven)
	defer h.renewing(driven, cancel, e.Lease)()
	d := &driver{Host: h, ctx: driven, reads: ctx, exec: e, spec: s, opts: s.options(), wf: w, redact: h.cfg.Redact(), fold: NewFold(id, s.Workflow)}
	if s.retells() {
		return d.retell() //nolint:contextcheck // a driver has its own
	}
	if err := d.load(); err != nil { //nolint:contextcheck // a driver has its own
		return err
	}
	if at := d.fold.snap.StartedAt; at != nil || s.Fork == nil || !s.Fork.Replay {
		began := time.Now()
		if at != nil {
			began = *at
		}
		limit := time.AfterFunc(time.Until(began.Add(time.Duration(d.opts.timeoutMS())*time.Millisecond)), func() { cancel(errTimeout) })
		defer limit.Stop()
	}
	return d.run() //nolint:contextcheck // a driver has its own
}

// load folds the events there are, and copies those of a fork.
func (d *driver) load() error {
	for e, err := range d.cfg.Store.Events(d.reads, d.exec.ID, -1) {
		if err != nil {
			return err
		}
		d.fold.Add(e)
	}
	if d.spec.Fork == nil {
		return nil
	}
	return d.copied()
}

// renewing keeps the lease until it is told to stop, and cancels what is done
// under it when it is lost, or when the run was stopped.
func (h *Host) renewing(ctx context.Context, cancel context.CancelCauseFunc, l agentbus.Lease) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(min(h.cfg.Lease/3, renewMost))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_, err := h.cfg.Store.Renew(ctx, l, h.cfg.Lease)
			if code := agentbus.CodeOf(err); code == agentbus.CodeRunStopped {
				reason, _ := h.cfg.Store.StopReason(ctx, agentbus.RunID(l.Execution)) // a workflow is its bus run
				cancel(&cancellation{reason: cmp.Or(reason, "stopped")})
			} else if code == agentbus.CodeLeaseLost {
				cancel(err)
			}
		}
	}()
	return func() {
		cancel(nil)
		<-done
	}
}

// renewMost is how late a driver learns that its run was stopped elsewhere.
const renewMost = 2 * time.Second

// fold reads the state of a run.
func (h *Host) fold(ctx context.Context, e *agentbus.Execution) (*Fold, error) {
	f := foldOf(e)
	for event, err := range h.cfg.Store.Events(ctx, e.ID, -1) {
		if err != nil {
			return nil, err
		}
		f.Add(event)
	}
	return f, nil
}

// await follows a run to its end.
func (h *Host) await(ctx context.Context, id agentbus.ExecutionID) (*Fold, error) {
	f := NewFold(id, "")
	for e, err := range h.follow(ctx, id) {
		if err != nil {
			return nil, err
		}
		f.Add(e)
	}
	if !f.snap.Status.Terminal() {
		return nil, errors.Join(context.Cause(ctx), errLeave)
	}
	return f, nil
}

func (h *Host) follow(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Event, error] {
	return eventlog.Follow(ctx, eventlog.Config{Source: h.cfg.Store, Execution: id, After: -1})
}
