package server

import (
	"context"
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
