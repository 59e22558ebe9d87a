package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

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

// outlives sees to it that a stopped run which another process drives ends in any case.
func (s *Server) outlives(ctx context.Context, run agentbus.RunID) {
	id := agentbus.ExecutionID(run)
	e, found, err := s.store.Execution(context.WithoutCancel(ctx), id)
	if owner := e.Lease.Owner; err == nil && found && e.State == agentbus.RunRunning && owner != "" && owner != s.owner {
		s.wop.Stopped(id)
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
	if !ours {
		return fmt.Errorf("%w: it was not begun by this program", errAlone)
	}
	w := s.now()
	o := w.options(e.Run)
	o.Payer, o.Spec, o.Redact = e.Payer, e.Spec, w.redacts
	o.Force = true // it is over, whatever its conversation has become
	o.Halt = &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: "stopped by its operator", Error: &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator"}}
	sp.tell(&o)
	c, err := w.conversation(sp)
	if err != nil { // it, or an agent of it, is not in the configuration
		if c, err = s.standIn(ctx, e); err != nil {
			return err
		}
	}
	if owner := e.Lease.Owner; owner != "" && owner != s.owner {
		if _, err := s.store.Open(ctx, *e, agentbus.Claim{TakeOver: e.Lease.Epoch}); err != nil {
			return err
		}
	}
	_, err = conversation.Run(context.WithoutCancel(ctx), c, o)
	return err
}

// standIn is a conversation by which a run is ended whose own cannot be built: that of
// all who took part.
func (s *Server) standIn(ctx context.Context, e *agentbus.Execution) (conversation.Conversation, error) {
	c := conversation.Conversation{Name: e.Conversation, MaxTurns: 1}
	nobody := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { return agentbus.Chunk{}, errAlone })
	add := func(name agentbus.Speaker) {
		if !slices.ContainsFunc(c.Participants, func(p conversation.Participant) bool { return p.Name.Slug() == name.Slug() }) {
			c.Participants = append(c.Participants, conversation.Participant{Name: name, Backend: nobody})
		}
	}
	for t, err := range s.store.Turns(ctx, e.ID) {
		if err != nil {
			return c, err
		}
		add(t.Speaker)
	}
	for i := 1; len(c.Participants) < 2; i++ {
		add(agentbus.Speaker("nobody" + strconv.Itoa(i)))
	}
	return c, nil
}
