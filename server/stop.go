package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
)

// endStopped ends a stopped run that nobody drives, so that who follows it reads
// its end (E55). Who drives one learns that it was stopped.
func (s *Server) endStopped(ctx context.Context, run agentbus.RunID) {
	if err := s.endFrom(ctx, run, s.alive); err != nil && agentbus.CodeOf(err) != agentbus.CodeRunConflict && !errors.Is(err, errAlone) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "stopped run not ended", slog.String("run", string(run)), slog.Any("error", err))
	}
}

// endFrom ends a stopped run, unless it is driven by one of those whose lease counts.
func (s *Server) endFrom(ctx context.Context, run agentbus.RunID, counts func(owner string) bool) error {
	e, found, err := s.store.Execution(ctx, agentbus.ExecutionID(run))
	if err != nil || !found || e.State == agentbus.RunDone || openwop.Drives(&e) || e.Lease.Owner != "" && counts(e.Lease.Owner) || !s.driven.begin(run) {
		return err
	}
	defer s.driven.end(run)
	return s.end(ctx, &e)
}

// end ends a conversation that was stopped, without asking anybody, from whoever has
// its lease. Its caller has begun to drive it.
func (s *Server) end(ctx context.Context, e *agentbus.Execution) error {
	sp, ours := specOf(e)
	if !ours || sp.Peers != nil {
		return fmt.Errorf("%w: its agents are not in the configuration", errAlone)
	}
	w := s.now()
	o := w.options(e.Run)
	o.Payer, o.Spec, o.Redact = e.Payer, e.Spec, w.redacts
	o.Force = true // it is over, whatever its conversation has become
	o.Halt = &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: "stopped by its operator", Error: &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator"}}
	sp.tell(&o)
	c, err := w.conversation(sp)
	if err != nil {
		return fmt.Errorf("%w: %w", errAlone, err)
	}
	if owner := e.Lease.Owner; owner != "" && owner != s.owner {
		if _, err := s.store.Open(ctx, *e, agentbus.Claim{TakeOver: e.Lease.Epoch}); err != nil {
			return err
		}
	}
	_, err = conversation.Run(context.WithoutCancel(ctx), c, o)
	return err
}
