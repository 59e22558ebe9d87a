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
	c, o, err := b.now().prepare(ctx, &st, func(string) agentbus.Credential { return agentbus.Credential{} })
	if err != nil {
		opened <- err
		return
	}
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
func (b *starts) Cancel(ctx context.Context, run agentbus.RunID, by string) error {
	_, err := b.Stop(ctx, run, by)
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

// endStopped ends a stopped run that nobody drives, so that who follows it reads
// its end (E55). Who drives one learns that it was stopped.
func (s *Server) endStopped(ctx context.Context, run agentbus.RunID) {
	e, found, err := s.store.Execution(ctx, agentbus.ExecutionID(run))
	if err != nil || !found || e.State == agentbus.RunDone || openwop.Drives(&e) || e.Lease.Owner != "" && s.alive(e.Lease.Owner) || !s.driven.begin(run) {
		return
	}
	defer s.driven.end(run)
	sp, ours := specOf(&e)
	if !ours || sp.Peers != nil {
		return
	}
	w := s.now()
	o := w.options(run)
	o.Payer, o.Spec, o.Redact = e.Payer, e.Spec, w.redacts
	o.Halt = &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: "stopped by its operator", Error: &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator"}}
	sp.tell(&o)
	c, err := w.conversation(sp)
	if err == nil {
		_, err = conversation.Run(context.WithoutCancel(ctx), c, o)
	}
	if err != nil && agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		s.log.LogAttrs(ctx, slog.LevelWarn, "stopped run not ended", slog.String("run", string(run)), slog.Any("error", err))
	}
}

// workflowOf is a conversation as a workflow.
func workflowOf(c *conversation.Conversation) *openwop.Workflow {
	w := &openwop.Workflow{
		ID: c.Name, Name: c.Name, Version: "1.0.0", Edges: []openwop.Edge{}, Variables: []openwop.Variable{},
		Triggers: []openwop.Trigger{{ID: "manual", Type: "manual"}}, Channels: map[string]openwop.Channel{"messages": {Reducer: "message"}},
	}
	ids := map[agentbus.Speaker]string{}
	for i := range c.Participants {
		id, agent := c.Participants[i].Node()
		ids[c.Participants[i].Name] = id
		w.Nodes = append(w.Nodes, openwop.Node{
			ID: id, TypeID: conversation.ParticipantType, Name: string(c.Participants[i].Name), Position: openwop.Place{X: 200 * i}, Config: []byte("{}"), Agent: &agent,
		})
	}
	edge := func(from, to agentbus.Speaker) {
		w.Edges = append(w.Edges, openwop.Edge{ID: fmt.Sprintf("e%d", len(w.Edges)+1), Source: ids[from], Target: ids[to]})
	}
	switch p := c.Plan.(type) {
	case conversation.Moderator:
		for _, other := range p.Others {
			edge(p.Decides, other)
			edge(other, p.Decides)
		}
	case conversation.FanOut:
		for _, asked := range p.Ask {
			if p.Synthesizer != "" {
				edge(asked, p.Synthesizer)
			}
		}
	default:
		for i, n := 0, len(c.Participants); i < n; i++ {
			edge(c.Participants[i].Name, c.Participants[(i+1)%n].Name)
		}
	}
	return w
}
