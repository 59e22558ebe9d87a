package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
)

// starts are the conversations that are begun over the event wire (E55). This
// process drives them, on the credential that they were asked for with, as many at
// once as workers would; as it drains it hands them back as workers do.
type starts struct {
	*Server

	slots   chan struct{}   // one taken for each run that is driven
	ctx     context.Context //nolint:containedctx // of drives, which outlive the requests that began them
	cut     context.CancelCauseFunc
	leaving atomic.Bool // each run is left after the turn it is in
	going   sync.WaitGroup
	late    *time.Timer // cuts what is left; nil before leave
}

func newStarts(s *Server) *starts {
	b := &starts{Server: s, slots: make(chan struct{}, s.cfg.Workers.Max)}
	b.ctx, b.cut = context.WithCancelCause(context.Background())
	return b
}

// leave lets every run be left after the turn it is in, and cuts those that are in
// a turn for longer than atMost.
func (b *starts) leave(atMost time.Duration) {
	b.leaving.Store(true)
	b.late = time.AfterFunc(atMost, func() { b.cut(conversation.ErrLeave) })
}

// wait waits until every run is left; at once, unless leave was called.
func (b *starts) wait() {
	if b.late == nil {
		b.cut(conversation.ErrLeave)
	}
	b.going.Wait()
	b.cut(conversation.ErrLeave)
	if b.late != nil {
		b.late.Stop()
	}
}

// Workflow returns a configured conversation as a workflow: a node for each
// participant, edges in the order of its turns (E55).
func (b *starts) Workflow(name string) *openwop.Workflow {
	w := b.now()
	def, ok := w.cfg.Conversations[name]
	if !ok {
		return nil
	}
	c, err := w.configured(name, def)
	if err != nil {
		return nil
	}
	return workflowOf(&c)
}

// Start begins a conversation, or a branch of one; see openwop.Starter.
func (b *starts) Start(ctx context.Context, st openwop.Start) error {
	if _, found, err := b.store.Execution(ctx, agentbus.ExecutionID(st.Run)); found || err != nil {
		return err
	}
	begun := Start{
		Conversation: st.Workflow, Seed: st.Seed, Run: st.Run, Authorization: st.Auth, Timeout: st.Timeout,
		OnHalt: conversation.OnHalt(st.OnHalt), Reasoning: st.Reasoning, Threshold: st.Threshold, Started: st.Started,
		Overrides: st.Overrides, Budget: st.Budget, trace: st.Trace,
	}
	if st.From != "" {
		begun.From = &Fork{Run: st.From, Turn: st.Turns}
	}
	if !b.driven.begin(st.Run) {
		return nil // its twin has begun it (E6)
	}
	err := b.begin(ctx, begun)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict && st.From == "" {
		return nil // in another process
	}
	return err
}

// Resolve decides an interrupt and lets its run go on here, on the credential of
// who decided; see openwop.Starter. A run that serves a call of somebody else goes
// on when that one calls again.
func (b *starts) Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution, auth agentbus.Credential) error {
	i, found, err := b.store.Interrupt(ctx, id)
	if err != nil {
		return err
	}
	run := agentbus.RunID(i.Root)
	ours := found && i.Root == agentbus.ExecutionID(i.Run) && b.driven.begin(run) // before a worker takes it, without the credential
	if _, err := b.Server.Resolve(ctx, id, r); err != nil || !ours {
		if ours {
			b.driven.end(run)
		}
		return err
	}
	if err := b.begin(ctx, Start{Run: run, Resume: true, Authorization: auth}); err != nil {
		b.log.LogAttrs(ctx, slog.LevelWarn, "run not taken up", slog.String("run", string(run)), slog.Any("error", err))
	}
	return nil // it is decided
}

// Resume drives a run that waits for the credential of its payer; see
// openwop.Starter.
func (b *starts) Resume(ctx context.Context, run agentbus.RunID, auth agentbus.Credential) error {
	if !b.driven.begin(run) {
		return driven(run, b.owner)
	}
	return b.begin(ctx, Start{Run: run, Resume: true, Authorization: auth})
}

// begin drives a run, which the caller has begun to, until it is to be left. It
// returns when the run can be read, or why it is not driven.
func (b *starts) begin(ctx context.Context, st Start) error {
	select {
	case b.slots <- struct{}{}:
	default:
		b.driven.end(st.Run)
		return &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "this bus drives as many runs as it may",
			Explain: &agentbus.Explain{Rule: "R19", Limit: cap(b.slots), Next: "try again, or raise workers.max"},
		}
	}
	opened := make(chan error, 1)
	b.going.Go(func() { //nolint:contextcheck // it outlives the request
		defer func() { <-b.slots }()
		defer b.driven.end(st.Run)
		b.perform(st, opened)
	})
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform drives a run to its halt, and tells opened once how it began.
func (b *starts) perform(st Start, opened chan<- error) {
	ctx, cancel := context.WithCancelCause(b.ctx)
	defer cancel(nil)
	if err := b.timed(ctx, &st); err != nil {
		opened <- err
		return
	}
	c, o, err := b.now().prepare(ctx, &st, nil)
	if err != nil {
		opened <- err
		return
	}
	o.Lineage.TraceParent, o.Lineage.TraceState = st.trace.Parent, st.trace.State
	told := false
	for event, err := range b.drive(ctx, c, o) {
		if !told {
			told = true
			opened <- err
		} else if err != nil && !errors.Is(err, conversation.ErrLeave) {
			b.log.LogAttrs(ctx, slog.LevelWarn, "run left", slog.String("run", string(st.Run)), slog.Any("error", err))
		}
		if b.leaving.Load() && (event.Type == conversation.EventStarted || event.Type == conversation.EventResumed || event.Type == conversation.EventTurnDone) {
			cancel(conversation.ErrLeave)
		}
	}
	if !told {
		opened <- fmt.Errorf("run %s: %w", st.Run, conversation.ErrLeave)
	}
}

// timed gives a run that goes on the time that it was begun with.
func (b *starts) timed(ctx context.Context, st *Start) error {
	if !st.Resume {
		return nil
	}
	e, _, err := b.store.Execution(ctx, agentbus.ExecutionID(st.Run))
	if err != nil {
		return err
	}
	if sp, ours := specOf(&e); ours && !sp.Deadline.IsZero() {
		st.Timeout = max(time.Until(sp.Deadline), time.Millisecond)
	}
	return nil
}

// Cancel stops a bus run for good, and ends what of it waits; see openwop.Starter.
// The reason is stored first: whoever drives the run asks for it as its calls end.
func (b *starts) Cancel(ctx context.Context, run agentbus.RunID, by, reason string) error {
	if err := b.store.StopRun(ctx, run, by, reason, time.Now().UTC()); err != nil {
		return err
	}
	_, err := b.stop(ctx, run, by)
	return err
}

// Overtake ends a run that was cancelled, whoever drives it; see openwop.Starter.
func (b *starts) Overtake(ctx context.Context, run agentbus.RunID) error {
	err := b.endFrom(ctx, run, func(owner string) bool { return owner == b.owner })
	if errors.Is(err, errAlone) {
		return nil // only its driver can
	}
	return err
}

// Replay drives a conversation again over its record; see openwop.Starter.
func (b *starts) Replay(ctx context.Context, id agentbus.ExecutionID) (*openwop.Divergence, error) {
	e, found, err := b.store.Execution(ctx, id)
	if err != nil || !found {
		return nil, err
	}
	executions, err := b.store.Executions(ctx, e.Run)
	if err != nil {
		return nil, err
	}
	above, err := b.parents(ctx, e.Run, executions)
	if err != nil {
		return nil, err
	}
	r, err := b.now().replay(ctx, &e, above)
	if err != nil || r.Divergence == nil {
		return nil, err
	}
	d := &openwop.Divergence{At: max(r.Divergence.Position, 0), Kind: "output"}
	switch r.Divergence.What {
	case "event", "turn":
		d.Kind = "type-mismatch"
		if r.Divergence.Recorded == "none" {
			d.Kind = "extra"
		} else if strings.HasPrefix(r.Divergence.Replayed, "no") {
			d.Kind = "missing"
		}
	}
	return d, nil
}
