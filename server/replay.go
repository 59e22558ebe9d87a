package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// A Replay is what became of the replay of one execution.
type Replay struct {
	Execution    agentbus.ExecutionID     `json:"execution"`
	Conversation string                   `json:"conversation"`
	Turns        int                      `json:"turns"`  // made again
	Events       int                      `json:"events"` // made again
	Divergence   *conversation.Divergence `json:"divergence,omitempty"`
}

// Replay replays every execution of a run that this store has, top level first,
// against what the store holds of it (R23). Nothing is called and nothing is
// written. The conversations are built as for a resume: one whose definition
// has changed since is CodeRunConflict (R15). An unknown run is CodeRunNotFound.
func (s *Server) Replay(ctx context.Context, run agentbus.RunID) ([]Replay, error) {
	executions, err := s.store.Executions(ctx, run)
	if err != nil {
		return nil, err
	}
	if len(executions) == 0 {
		return nil, notDriven(run)
	}
	above, err := s.parents(ctx, run, executions)
	if err != nil {
		return nil, err
	}
	var all []Replay
	for i := range executions {
		r, err := s.now().replay(ctx, &executions[i], above)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// notDriven answers for a run that no driver of this store ran.
func notDriven(run agentbus.RunID) error {
	return &agentbus.Error{
		Code: agentbus.CodeRunNotFound, Message: "no driver of this store ran " + string(run),
		Explain: &agentbus.Explain{Next: "see agentbus runs; a run without a conversation was driven elsewhere, and is known there"},
	}
}

// notOwn answers for a run that no driver of this store ran as its own: what
// conversations serve inside of its calls goes on for who called (R22).
func (s *wiring) notOwn(ctx context.Context, run agentbus.RunID) error {
	within, err := s.store.Executions(ctx, run)
	switch {
	case err != nil:
		return err
	case len(within) == 0:
		return notDriven(run)
	}
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "the conversations of run " + string(run) + " serve calls: nobody else would read what they say",
		Explain: &agentbus.Explain{Rule: "R22", Next: "who called sends that turn again, or the request as a new turn"},
	}
}

// replay replays one execution.
func (s *wiring) replay(ctx context.Context, e *agentbus.Execution, above map[place]agentbus.TurnID) (Replay, error) {
	r := Replay{Execution: e.ID, Conversation: e.Conversation}
	sp, ours := specOf(e)
	if !ours {
		return r, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "execution " + string(e.ID) + " is no conversation of this program",
			Explain: &agentbus.Explain{Rule: "R23", Next: "a run of a workflow is replayed over the event wire: POST /v1/runs/ID:fork with mode replay"},
		}
	}
	if _, known := s.cfg.Conversations[sp.Conversation]; !known && sp.Peers == nil {
		return r, &agentbus.Error{
			Code: agentbus.CodeRunConflict, Message: "conversation " + sp.Conversation + " is not in the configuration any more",
			Explain: &agentbus.Explain{Rule: "R15", Next: "replay it with the definition it was begun with"},
		}
	}
	c, err := s.conversation(sp)
	if err != nil {
		return r, err
	}
	rec, err := s.record(ctx, e.ID)
	if err != nil {
		return r, err
	}
	if parent, known := above[place{e.Path, e.Parent}]; known {
		rec.Above = &parent
	}
	got, err := conversation.Replay(ctx, c, rec)
	r.Turns, r.Events, r.Divergence = len(got.Turns), len(got.Events), got.Divergence
	return r, err
}

// A place is a turn as an execution names the one it serves.
type place struct {
	path string
	turn agentbus.TurnID
}

// parents returns the parents of the turns of a run, which its executions do not
// hold of the turns they serve: of those made here, and of those that came.
func (s *Server) parents(ctx context.Context, run agentbus.RunID, executions []agentbus.Execution) (map[place]agentbus.TurnID, error) {
	parents := map[place]agentbus.TurnID{}
	calls, err := s.store.Calls(ctx, run)
	if err != nil {
		return nil, err
	}
	for i := range calls {
		k := &calls[i].TurnKey
		parents[place{k.Path, k.ID}] = k.Parent
	}
	for i := range executions {
		for t, err := range s.store.Turns(ctx, executions[i].ID) {
			if err != nil {
				return nil, err
			}
			parents[place{t.Path, t.ID}] = t.Parent
		}
	}
	return parents, nil
}

// recordTries is how often a record is read of an execution that goes on.
const recordTries = 10

// record reads what the store holds of an execution: its state, turns and events
// of one moment, which is one in which no event was written meanwhile.
func (s *Server) record(ctx context.Context, id agentbus.ExecutionID) (r conversation.Record, err error) {
	for range recordTries {
		r = conversation.Record{}
		if err := s.events(ctx, &r, id); err != nil {
			return r, err
		}
		if r.Execution, _, err = s.store.Execution(ctx, id); err != nil {
			return r, err
		}
		for t, err := range s.store.Turns(ctx, id) {
			if err != nil {
				return r, err
			}
			r.Turns = append(r.Turns, t)
		}
		known := len(r.Events)
		if err := s.events(ctx, &r, id); err != nil || len(r.Events) == known {
			return r, err
		}
	}
	return r, &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: fmt.Sprintf("execution %s goes on faster than it can be read", id),
		Explain: &agentbus.Explain{Rule: "R23", Next: "replay it when it has halted"},
	}
}

// events reads the events of an execution behind those that r has.
func (s *Server) events(ctx context.Context, r *conversation.Record, id agentbus.ExecutionID) error {
	for e, err := range s.store.Events(ctx, id, agentbus.Position(len(r.Events)-1)) {
		if err != nil {
			return err
		}
		r.Events = append(r.Events, e)
	}
	return nil
}

// A Fork says where a new run goes on from another one.
type Fork struct {
	Run  agentbus.RunID
	Turn int // the first turn that is not copied
}

// A source is a Fork as the spec of a run keeps it.
type source struct {
	Execution agentbus.ExecutionID `json:"execution"`
	Turns     int                  `json:"turns"`
	Origin    agentbus.ExecutionID `json:"origin,omitempty"` // the first run of the line, if Execution is not it (E45)
}

// forked returns how the conversation of a fork is built, and its seed.
func (s *Server) forked(ctx context.Context, f *Fork) (sp spec, seed string, err error) {
	executions, err := s.store.Executions(ctx, f.Run)
	if err != nil {
		return sp, "", err
	}
	if len(executions) == 0 {
		return sp, "", notDriven(f.Run)
	}
	e := &executions[0]
	if err := json.Unmarshal(e.Spec, &sp); err != nil {
		return sp, "", fmt.Errorf("run %s was not begun by this program: %w", f.Run, err)
	}
	done, err := s.done(ctx, e)
	if err != nil {
		return sp, "", err
	}
	if f.Turn < 0 || f.Turn > done {
		return sp, "", &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: fmt.Sprintf("run %s cannot be forked at turn %d", f.Run, f.Turn),
			Explain: &agentbus.Explain{Rule: "R23", Observed: f.Turn, Limit: done, Next: fmt.Sprintf("its first %d turns are done: fork it at 0 to %d", done, done)},
		}
	}
	from := &source{Execution: e.ID, Turns: f.Turn}
	if sp.From != nil {
		from.Origin = cmp.Or(sp.From.Origin, sp.From.Execution)
	}
	sp.From = from
	return sp, e.Seed, nil
}

// done returns how many of its first turns a run has done. Those behind one that
// is open or waits, which are branches beside it, do not count.
func (s *Server) done(ctx context.Context, e *agentbus.Execution) (n int, err error) {
	for t, err := range s.store.Turns(ctx, e.ID) {
		if err != nil {
			return 0, err
		}
		if t.State == agentbus.TurnPending || t.State == agentbus.TurnWaiting {
			break
		}
		n++
	}
	return min(n, e.Turns), nil
}
