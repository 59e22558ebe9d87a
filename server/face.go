package server

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// extensions are those that the cards of agents declare (A31).
var extensions = []string{a2a.ExtensionPolicy, a2a.ExtensionIdentity}

// buildFace builds what serves agents of other dialects to callers that speak
// A2A. It outlasts configurations: a task ends with the agents it began with.
func (s *Server) buildFace() (err error) {
	if s.fleeting, err = fleeting(); err != nil {
		return err
	}
	s.face, err = a2a.NewFace(a2a.FaceConfig{
		Tasks: s.store, Owner: s.owner, Alive: s.alive, Logger: s.log, Extensions: extensions,
		Agent: func(name string) (a2a.Served, bool) { return s.now().served(name) },
		Seal:  s.sealTask, Unseal: s.openTask,
		Decide: s.decide, Interrupt: s.store.Interrupt,
	})
	return err
}

// decide resolves an interrupt for whoever answered the task that shows it, unless
// somebody else was faster (R22), or the answer is to another policy part (C31).
func (s *Server) decide(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (done bool, err error) {
	i, found, err := s.store.Interrupt(ctx, id)
	if err != nil || !found {
		return false, err
	}
	state := r.PolicyState()
	if state != "" && state != i.Ask.PolicyState() || state == "" && !i.Open() {
		return false, nil
	}
	if r.Decision == agentbus.DecisionExpired { // who asked decides for how long it waits
		r.Decision = agentbus.DecisionDenied
	}
	_, err = s.Resolve(ctx, id, r)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict {
		return true, nil
	}
	return err == nil, err
}

// served returns an agent as the face serves it: behind this bus's own gateway.
func (s *wiring) served(name string) (a2a.Served, bool) {
	t, ok := s.router.Route(name)
	if !ok {
		return a2a.Served{}, false
	}
	b, err := s.agent(t.Name)
	if err != nil {
		return a2a.Served{}, false
	}
	return a2a.Served{Backend: agentbus.Wrap(b, faced, calling), Version: s.cfg.Version, Compat: s.cfg.A2A.Compat == config.Compat03, NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback}, true
}

// faced tells the gateway on whose behalf the face calls an agent. The hop of the
// call is that of the request to the face, which the face was told as counted:
// the call is the same one, and counts it itself (P9).
func faced(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		r, _ := a2a.FromContext(ctx)
		call := *c
		call.Lineage.Depth--
		mark := gateway.InProcess{Caller: r.Caller, Payer: r.Payer, Minted: r.Minted, Outside: true, Evidence: r.Evidence, Hop: r.Hop}
		return b.Call(gateway.WithInProcess(ctx, mark), &call)
	})
}

// recoverEvery is how often tasks are looked for whose process has died, or for which
// another process has decided what they wait for.
const recoverEvery = 2 * time.Second

// recovering takes up the tasks of dead processes, and those that somebody has decided
// for, until the function it returns is called.
func (s *Server) recovering(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		tick := time.NewTicker(recoverEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			dead := s.takeUp(ctx, "tasks of dead processes", s.face.Recover)
			if woken := s.takeUp(ctx, "tasks that were decided", s.face.Wake); dead+woken > 0 {
				continue
			}
			select {
			case <-tick.C:
			case <-s.decided:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// takeUp goes on with tasks, and returns how many.
func (s *Server) takeUp(ctx context.Context, which string, take func(context.Context) (int, error)) int {
	n, err := take(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot look for tasks", slog.String("which", which), slog.Any("error", err))
	}
	if n > 0 {
		s.log.LogAttrs(ctx, slog.LevelInfo, "tasks taken up", slog.String("which", which), slog.Int("tasks", n))
	}
	return n
}

// tellDecided has the tasks looked at that wait for a decision.
func (s *Server) tellDecided() {
	select {
	case s.decided <- struct{}{}:
	default: // they will be
	}
}
