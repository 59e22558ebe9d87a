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
	e, found, err := s.store.Execution(ctx, agentbus.ExecutionID(run))
	if err != nil || !found || e.State == agentbus.RunDone || openwop.Drives(&e) || e.Lease.Owner != "" && s.alive(e.Lease.Owner) || !s.driven.begin(run) {
		return
	}
	defer s.driven.end(run)
	if err := s.end(ctx, &e); err != nil && agentbus.CodeOf(err) != agentbus.CodeRunConflict && !errors.Is(err, errAlone) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "stopped run not ended", slog.String("run", string(run)), slog.Any("error", err))
	}
}

// end ends a conversation that was stopped, without asking anybody. Its caller has
// begun to drive it.
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
	_, err = conversation.Run(context.WithoutCancel(ctx), c, o)
	return err
}
