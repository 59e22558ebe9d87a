package openwop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// Why a driver stops before its run ends.
var (
	errCancelled = errors.New("the run was cancelled")
	errTimeout   = errors.New("the time of the run is up")
	errLeave     = errors.New("the host closes")
)

// A failure ends a node, and its run, with an error of the wire.
type failure struct{ agentbus.EventError }

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func fail(code, format string, args ...any) *failure {
	return &failure{agentbus.EventError{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// A breach ends a run at one of its bounds (E35).
type breach struct {
	agentbus.CapBreached
	failure
}

func (b *breach) Error() string { return b.failure.Error() }

// breachOf is the bound of c, with the error that the run ends with.
func breachOf(c agentbus.CapBreached) *breach {
	switch c.Kind {
	case "node-executions":
		return &breach{c, *fail("recursion_limit_exceeded", "the run may begin %v nodes", c.Limit)}
	case "loop-iterations":
		return &breach{c, *fail("iteration_cap_exceeded", "it may dispatch %v times", c.Limit)}
	}
	return &breach{c, *fail("run_timeout", "the run may take %v ms", c.Limit)}
}

// A suspension parks a run on an interrupt.
type suspension struct {
	id     agentbus.InterruptID
	raised *agentbus.Interrupt // nil: it was stored before
}

func (*suspension) Error() string { return "the run waits" }

// terminated ends a run because its supervisor said so.
var errTerminate = errors.New("the supervisor ended the run")

// A driver drives one run of a workflow, under its lease. What it does follows
// from the events there are: it is the same after a crash, in another process,
// and in a fork.
type driver struct {
	*Host

	ctx    context.Context //nolint:containedctx // of the run, which is what a driver is
	reads  context.Context //nolint:containedctx // for what is read first: it does not end with a cancelled run, which is driven to its end
	exec   agentbus.Execution
	spec   spec
	opts   configurable
	wf     *Workflow
	fold   *Fold
	redact *eventlog.Redactor

	tape    []agentbus.Event // of the source of a replay; what is not there yet is done
	pending []agentbus.Event // not stored yet
}

// emitted is an event that was emitted: what a later one is caused by.
type emitted struct {
	at   agentbus.Position
	data json.RawMessage
}

// emit adds an event to those that wait to be stored. In a replay it is that of
// the source, byte by byte (E51).
func (d *driver) emit(kind, node string, cause *emitted, v any) emitted {
	data, err := oneLine(v)
	if err != nil {
		data = []byte("{}")
	}
	e := agentbus.Event{
		At: time.Now().UTC(), Type: kind, Node: node, Execution: d.exec.ID, Run: d.exec.Run, Position: d.fold.next, Data: d.redact.JSON(data),
	}
	if rec := d.recorded(); rec != nil {
		if rec.Type != kind || rec.Node != node {
			d.diverge(rec, "type-mismatch")
			e.Position = d.fold.next
		} else {
			e.Data = rec.Data
		}
	}
	if cause != nil {
		e.Cause = agentbus.EventIDOf(d.exec.ID, cause.at)
	}
	return d.put(e)
}

func (d *driver) put(e agentbus.Event) emitted {
	e.ID = agentbus.EventIDOf(d.exec.ID, e.Position)
	d.pending = append(d.pending, e)
	d.fold.Add(e)
	return emitted{e.Position, e.Data}
}

// recorded returns the event of the source at the place of the next one; nil: it
// has none, or there is no source.
func (d *driver) recorded() *agentbus.Event {
	if at := int(d.fold.next); at < len(d.tape) {
		return &d.tape[at]
	}
	return nil
}

// diverge notes that the replay is not what its source was, and goes on (E53).
func (d *driver) diverge(rec *agentbus.Event, kind string) {
	d.tape = nil
	data, _ := oneLine(agentbus.ReplayDiverged{
		SourceRunID: d.spec.Fork.Source, AtSequence: rec.Position, DivergenceKind: kind,
		OriginalEventID: agentbus.EventIDOf(d.spec.Fork.Source, rec.Position),
	})
	d.put(agentbus.Event{At: time.Now().UTC(), Type: agentbus.EventReplayDiverged, Execution: d.exec.ID, Run: d.exec.Run, Position: d.fold.next, Data: data})
}

// store stores what waits to be, before something takes effect (CO-1).
func (d *driver) store() error {
	if len(d.pending) == 0 {
		return nil
	}
	events := d.pending
	d.pending = nil
	_, err := d.cfg.Store.AppendEvents(context.WithoutCancel(d.ctx), d.exec.Lease, events...)
	return err
}

// halt ends the driving, and stores why with what waits to be stored.
func (d *driver) halt(h agentbus.Halt) error {
	return d.cfg.Store.Halt(context.WithoutCancel(d.ctx), d.exec.Lease, h, d.pending...)
}

// run drives to the end, or to where the run parks.
func (d *driver) run() error {
	if d.fold.next == 0 {
		d.emit(agentbus.EventRunStarted, "", nil, agentbus.RunStarted{
			WorkflowID: d.wf.ID, Inputs: d.spec.Asked.Inputs, Transport: "rest", Configurable: d.spec.Asked.Configurable,
			Tags: d.spec.Asked.Tags, Metadata: d.spec.Asked.Metadata,
		})
		if err := d.store(); err != nil {
			return err
		}
	}
	if d.fold.snap.Status.Terminal() { // the end was stored and the halt was not
		return d.halt(haltOf(&d.fold.snap))
	}
	err := d.walk()
	switch cause := context.Cause(d.ctx); {
	case err == nil, d.ctx.Err() == nil:
	case errors.Is(cause, errCancelled), errors.Is(cause, errTimeout):
		err = cause
	default:
		return cause // the lease is lost, or the host closes: others go on
	}
	return d.finish(err)
}

// walk performs node after node.
func (d *driver) walk() error {
	for {
		if d.fold.ending != nil {
			return d.fold.ending
		}
		n := d.wf.next(d.fold.began, d.fold.done)
		if n == nil {
			return nil
		}
		if d.fold.active == "" {
			if limit := d.opts.recursionLimit(); d.fold.executions() >= limit {
				return breachOf(agentbus.CapBreached{Kind: "node-executions", Limit: float64(limit), Observed: float64(limit + 1), NodeID: n.ID})
			}
			if rec := d.recorded(); rec != nil && stops(rec) {
				return stopOf(rec)
			}
			if d.ctx.Err() != nil {
				return context.Cause(d.ctx)
			}
		}
		if err := d.perform(n); err != nil {
			return err
		}
		if err := d.store(); err != nil {
			return err
		}
	}
}

// perform performs a node, or goes on with it where its events end.
func (d *driver) perform(n *Node) error {
	a := &activation{driver: d, node: n, log: d.fold.log, asked: d.fold.asked[n.ID], index: d.fold.began[n.ID]}
	if d.fold.active == n.ID {
		a.asked, a.index = d.fold.base, a.index-1
	} else {
		a.log = nil
	}
	agent := n.Agent
	if agent == nil {
		agent = hostAgent(n)
	}
	a.agent = agent
	a.emit(agentbus.EventNodeStarted, nil, agentbus.NodeStarted{NodeID: n.ID, TypeID: n.TypeID, Attempt: 0, Agent: agent})
	outputs, err := performer(n.TypeID)(a)
	var f *failure
	switch {
	case err == nil || errors.Is(err, errTerminate):
		if len(outputs) == 0 {
			outputs = json.RawMessage("{}")
		}
		a.emit(agentbus.EventNodeCompleted, nil, agentbus.NodeCompleted{NodeID: n.ID, Outputs: outputs, Agent: agent})
	case errors.As(err, &f):
		a.emit(agentbus.EventNodeFailed, nil, agentbus.NodeFailed{NodeID: n.ID, Error: f.EventError, Attempts: 1})
		return &nodeError{n.ID, f}
	}
	return err
}

// A nodeError is a failure and the node that failed.
type nodeError struct {
	node string
	*failure
}

// finish ends the run by what its walk came to, or parks it.
func (d *driver) finish(err error) error {
	var (
		wait   *suspension
		bound  *breach
		failed *nodeError
	)
	switch {
	case errors.As(err, &wait):
		w := &agentbus.Wait{Interrupts: []agentbus.InterruptID{wait.id}}
		if wait.raised != nil {
			w.Raised = []agentbus.Interrupt{*wait.raised}
		}
		return d.halt(agentbus.Halt{Kind: agentbus.HaltWaiting, Participant: d.fold.snap.CurrentNodeID, Wait: w})
	case err == nil, errors.Is(err, errTerminate):
		d.emit(agentbus.EventRunCompleted, "", nil, agentbus.RunCompleted{Outputs: json.RawMessage("{}"), DurationMS: d.elapsed()})
		return d.halt(agentbus.Halt{Kind: agentbus.HaltDone})
	case errors.Is(err, errCancelled):
		return d.cancelled(err)
	case errors.Is(err, errTimeout):
		limit := d.opts.timeoutMS()
		bound = breachOf(agentbus.CapBreached{Kind: "run-duration", Limit: float64(limit), Observed: float64(max(d.elapsed(), limit+1))})
	case errors.As(err, &failed):
		return d.failed(failed.EventError, failed.node)
	case !errors.As(err, &bound):
		return err
	}
	if !errors.As(d.fold.ending, new(*breach)) {
		d.emit(agentbus.EventCapBreached, bound.NodeID, nil, bound.CapBreached)
	}
	return d.failed(bound.EventError, bound.NodeID)
}

func (d *driver) failed(e agentbus.EventError, node string) error {
	d.emit(agentbus.EventRunFailed, "", nil, agentbus.RunFailed{Error: e, FailedNodeID: node, DurationMS: d.elapsed()})
	return d.halt(agentbus.Halt{
		Kind: agentbus.HaltParticipantError, Participant: node, Failed: true,
		Error: &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: e.Code + ": " + e.Message},
	})
}

// cancelled ends a run that was told to end.
func (d *driver) cancelled(err error) error {
	reason := ""
	if c, ok := errors.AsType[*cancellation](err); ok {
		reason = c.reason
	}
	if node := d.fold.active; node != "" {
		d.emit(agentbus.EventNodeCancelled, node, nil, agentbus.NodeCancelled{NodeID: node, Reason: reason})
	}
	d.emit(agentbus.EventRunCancelled, "", nil, agentbus.RunCancelled{Reason: reason, DurationMS: d.elapsed()})
	return d.halt(agentbus.Halt{Kind: agentbus.HaltAbort, Reason: reason, Failed: true})
}

// haltOf is the halt of a run whose end stands in its events.
func haltOf(s *Snapshot) agentbus.Halt {
	switch s.Status {
	case StatusFailed:
		h := agentbus.Halt{Kind: agentbus.HaltParticipantError, Failed: true}
		if s.Error != nil {
			h.Error = &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: s.Error.Code + ": " + s.Error.Message}
		}
		return h
	case StatusCancelled:
		return agentbus.Halt{Kind: agentbus.HaltAbort, Failed: true}
	default:
		return agentbus.Halt{Kind: agentbus.HaltDone}
	}
}

// endOf is how a run ended whose events are gone, as far as its row tells.
func endOf(h *agentbus.Halt) Status {
	switch {
	case h == nil:
		return StatusPending
	case h.Kind == agentbus.HaltAbort:
		return StatusCancelled
	case h.Failed || h.Kind == agentbus.HaltDeadline || h.Kind == agentbus.HaltRecursionLimit:
		return StatusFailed
	}
	return StatusCompleted
}

// A cancellation is errCancelled, why, and by whom.
type cancellation struct{ reason, by string }

func (*cancellation) Error() string { return errCancelled.Error() }

// Is reports whether target is errCancelled.
func (*cancellation) Is(target error) bool { return target == errCancelled }

// elapsed is how long ago the run began, in milliseconds.
func (d *driver) elapsed() int64 {
	if d.fold.snap.StartedAt == nil {
		return 0
	}
	return max(time.Since(*d.fold.snap.StartedAt).Milliseconds(), 0)
}

// stops reports whether the run of the source was stopped from outside here.
func stops(e *agentbus.Event) bool {
	switch e.Type {
	case agentbus.EventNodeCancelled, agentbus.EventRunCancelled:
		return true
	case agentbus.EventCapBreached:
		p, _ := payload[agentbus.CapBreached](e)
		return p.Kind == "run-duration"
	}
	return false
}

// stopOf is what stopped it.
func stopOf(e *agentbus.Event) error {
	if e.Type == agentbus.EventCapBreached {
		return errTimeout
	}
	return errCancelled
}
