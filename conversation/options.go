package conversation

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// DefaultTTL is how long a lease lasts without being renewed.
const DefaultTTL = 30 * time.Second

// Options are about one run of a conversation. All are optional.
type Options struct {
	// Seed is the first message everybody is sent. On a resume, "" is the stored
	// one, and another one is refused (R15).
	Seed string
	// Run is the id of a top-level run: a known one is resumed. "" mints one.
	Run agentbus.RunID
	// Lineage is that of the call being served, as it arrived. With a Run the
	// conversation is part of that run, and with a Turn it is nested in it (R7).
	// At top level it may hold the origin's credential and trace context.
	Lineage agentbus.Lineage
	// Payer is on whose behalf it runs.
	Payer agentbus.Payer
	// Journal and Runs remember the run, both or neither. Without, a nested run
	// is in those of the run around it, and any other lasts as long as the call.
	Journal Journal
	Runs    Runs
	// Owner holds the lease: a name of this process. "" makes one up.
	Owner string
	// TTL is how long the lease lasts without being renewed; 0 is DefaultTTL.
	TTL time.Duration
	// TakeOver is the epoch of a lease whose owner is known to be dead.
	TakeOver uint64
	// Spec says how to build the conversation again, for who finds its run.
	Spec json.RawMessage
	// Sealed are the credentials the run needs, for who finds it: opaque, and
	// kept until it is over (R18).
	Sealed []byte
	// Halt halts the run again as soon as it is open, for what it waits for; nil
	// goes on. A run that is over ends as it did.
	Halt *agentbus.Halt
	// Force resumes a run that was begun with another definition or seed (R15).
	// It goes on with this definition and the stored seed.
	Force bool
	// MaxDepth is the depth at which the run is refused (P10); 0 is that of the
	// run around it, else agentbus.DefaultMaxDepth.
	MaxDepth int
	// MaxHops is the most hops of the chain of agents that begins with a run which
	// serves no call of a chain (C6, C7); 0 is agentbus.DefaultMaxHops, negative
	// lets it call nobody.
	MaxHops int
	// NoLegacyParent does without the parent context of a caller that tells no
	// root context (K2).
	NoLegacyParent bool
	// AskTimeout is how long an interrupt waits whose backend does not say; 0 is
	// DefaultAskTimeout.
	AskTimeout time.Duration
	// Deadline halts the run; zero never does. What the run waits for expires then
	// at the latest.
	Deadline time.Time
	// Timeout is what Deadline was made of, as the run tells it when that has passed
	// (E35); 0 is the time from its beginning to Deadline.
	Timeout time.Duration
	// Budget is shared with other runs, beside the conversation's own; nil is
	// none. A nested run is always charged to those of the run around it.
	Budget *Budget

	// Reasoning is how much of what a model thought is told: ReasoningSummary,
	// ReasoningFull or ReasoningOff; "" is a summary (E25).
	Reasoning string
	// Threshold is the confidence below which a decision waits to be ratified; nil
	// is agentbus.DefaultThreshold (E30). NoEscalation lets each stand, and tells
	// so (E33).
	Threshold    *float64
	NoEscalation bool
	// Redact takes what is secret out of what agents say, before it is stored or
	// said to anybody else; nil takes out nothing (E28).
	Redact Redactor

	// StopReason tells why a run was stopped, as whoever did it said; nil, or "":
	// nobody says (E4).
	StopReason func(context.Context, agentbus.RunID) (string, error)

	// Events reads what was told of an execution, past a position: a run that halts in the
	// middle of a turn of a driver that died tells the end of its node (E57). nil: it does
	// not.
	Events func(context.Context, agentbus.ExecutionID, agentbus.Position) iter.Seq2[agentbus.Event, error]

	// Started is how the run was asked for, as its first event tells; WorkflowID and
	// Inputs are set by the driver (E5).
	Started agentbus.RunStarted

	// retold is what a drive that is replayed told first.
	retold *retold
	// refused tells, of a drive that is replayed, why a turn called nobody whom it
	// mentioned in the step before the turn of an index; nil otherwise.
	refused func(id agentbus.TurnID, next int, step *Step) error
	// leaves tells, of a drive that is replayed, the turns that it left pending
	// while others beside them ended; nil otherwise.
	leaves func(agentbus.TurnID) bool
}

// enclosing is the turn inside of which a backend is called, as its context
// tells: how a nested run finds the budget and the journal around it.
type enclosing struct {
	turn    agentbus.TurnKey
	asked   agentbus.Digest // of its messages
	account *account
	options *Options
	root    agentbus.ExecutionID // around all
	within  agentbus.ExecutionID // that the turn is of
	path    []agentbus.Speaker   // from there to who speaks in turn
	until   time.Time            // see driver
}

type enclosingKey struct{}

func enclosingOf(ctx context.Context) *enclosing {
	e, _ := ctx.Value(enclosingKey{}).(*enclosing)
	return e
}

// serves reports whether l is a call of the enclosing turn itself.
func (e *enclosing) serves(l *agentbus.Lineage) bool {
	return e != nil && l.Turn != "" && e.turn.Run == l.Run && e.turn.Path == l.Path && e.turn.Parent == l.Parent && e.turn.ID == l.Turn
}

// ends returns when the time of a run with options o is up, or that of the run
// around it, whichever is first; the zero time is never.
func (e *enclosing) ends(o *Options) time.Time {
	if !e.serves(&o.Lineage) || e.until.IsZero() || !o.Deadline.IsZero() && o.Deadline.Before(e.until) {
		return o.Deadline
	}
	return e.until
}

// resolve returns o with its defaults, inside the enclosing turn if any.
func (o *Options) resolve(e *enclosing) (Options, error) {
	r := *o
	var faults []string
	if (o.Journal == nil) != (o.Runs == nil) {
		faults = append(faults, "journal and runs: give both or neither")
	}
	if o.Run != "" && o.Lineage.Run != "" && o.Run != o.Lineage.Run {
		faults = append(faults, "run: the call being served is of another run")
	}
	if o.MaxDepth < 0 || o.TTL < 0 {
		faults = append(faults, "max_depth and ttl: must not be negative")
	}
	if len(faults) > 0 {
		return r, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: strings.Join(faults, "; ")}
	}
	if e.serves(&r.Lineage) {
		r.Payer, r.MaxDepth = cmp.Or(r.Payer, e.options.Payer), cmp.Or(r.MaxDepth, e.options.MaxDepth)
		r.AskTimeout, r.Reasoning = cmp.Or(r.AskTimeout, e.options.AskTimeout), cmp.Or(r.Reasoning, e.options.Reasoning)
		if r.Redact == nil {
			r.Redact = e.options.Redact
		}
		if r.Threshold == nil {
			r.Threshold = e.options.Threshold
		}
		r.NoEscalation = r.NoEscalation || e.options.NoEscalation
		if r.Journal == nil {
			r.Journal, r.Runs, r.Owner, r.TTL = e.options.Journal, e.options.Runs, e.options.Owner, e.options.TTL
			r.Events = e.options.Events
		}
	}
	if r.Journal == nil {
		m := newMemory()
		r.Journal, r.Runs = m, m
	}
	r.Owner = cmp.Or(r.Owner, "driver-"+rand.Text())
	r.TTL = cmp.Or(r.TTL, DefaultTTL)
	r.MaxDepth = cmp.Or(r.MaxDepth, agentbus.DefaultMaxDepth)
	r.AskTimeout = cmp.Or(max(0, r.AskTimeout), DefaultAskTimeout)
	return r, nil
}

// execution returns the execution that o asks for, and the lineage its calls
// are made from.
func (o *Options) execution(c *Conversation) (agentbus.Execution, agentbus.Lineage) {
	l := o.Lineage
	id := agentbus.ExecutionOf(o.Payer, l, c.Name)
	if l.Run == "" {
		l.Run = cmp.Or(o.Run, agentbus.NewRunID())
		id = agentbus.ExecutionID(l.Run)
	}
	session := string(id)
	if o.Lineage.Run != "" && l.RootContext == "" && l.ParentContext == "" {
		session = string(l.Run) // nobody told of a conversation (K3)
	}
	l.ParentContext, l.RootContext = l.Contexts(session, !o.NoLegacyParent)
	if l.Chain == nil { // the calls of a dispatcher are hop 1 (C7)
		root := agentbus.RootChain(max(cmp.Or(o.MaxHops, agentbus.DefaultMaxHops), 0))
		l.Chain = &root
	}
	return agentbus.Execution{
		ID: id, Run: l.Run, Conversation: c.Name, Definition: c.digest(), Seed: o.Seed, Payer: o.Payer,
		Path: l.Path, Parent: l.Turn, Depth: l.Depth, Spec: o.Spec, Sealed: o.Sealed, Began: time.Now().UTC(),
	}, l
}

// differences names what a stored execution was begun with otherwise (R15).
func differences(stored, asked *agentbus.Execution) error {
	var what []string
	if stored.Conversation != asked.Conversation {
		what = append(what, fmt.Sprintf("conversation %q, not %q", stored.Conversation, asked.Conversation))
	} else if stored.Definition != asked.Definition {
		what = append(what, fmt.Sprintf("another definition of %q (%s, not %s)", stored.Conversation, stored.Definition, asked.Definition))
	}
	if asked.Seed != "" && stored.Seed != asked.Seed {
		what = append(what, "another seed")
	}
	if len(what) == 0 {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "run " + string(stored.ID) + " was begun with " + strings.Join(what, " and "),
		Explain: &agentbus.Explain{Rule: "R15", Next: "resume it with what it was begun with, or force it, or begin another run"},
	}
}
