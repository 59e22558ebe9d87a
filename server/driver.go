package server

import (
	"context"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// A driver goes on with runs in the name of operators. Runs are driven as those
// that are begun over the event wire: in this process, in its places, handed back
// when it drains.
type driver struct{ *Server }

// Drives reports whether an execution is of a conversation that is known here.
func (d driver) Drives(e agentbus.Execution) bool {
	sp, ours := specOf(&e)
	if !ours {
		return false
	}
	_, known := d.now().cfg.Conversations[sp.Conversation]
	return known || sp.Peers != nil
}

// Resume lets a paused run go on.
func (d driver) Resume(ctx context.Context, run agentbus.RunID, limit *agentbus.Micros) error {
	e, found, err := d.store.Execution(ctx, agentbus.ExecutionID(run))
	switch {
	case err != nil:
		return err
	case !found:
		return notDriven(run)
	case e.State != agentbus.RunPaused:
		return &agentbus.Error{
			Code: agentbus.CodeRunConflict, Message: "run " + string(run) + " is " + string(e.State) + ": only a paused one is resumed",
			Explain: &agentbus.Explain{Rule: "R16", Observed: string(e.State), Next: "fork it to go on from one of its turns"},
		}
	}
	return d.begin(ctx, Start{Run: run, Resume: true, Budget: limit})
}

// Fork begins a run with the first turns of another one, for the operator to pay.
func (d driver) Fork(ctx context.Context, run agentbus.RunID, turn int) (agentbus.RunID, error) {
	st := Start{Run: agentbus.NewRunID(), From: &Fork{Run: run, Turn: turn}}
	return st.Run, d.begin(ctx, st)
}

func (d driver) begin(ctx context.Context, st Start) error {
	if !d.driven.begin(st.Run) {
		return driven(st.Run, d.owner)
	}
	return d.starts.begin(ctx, st)
}

// Replay makes a run again from its record.
func (d driver) Replay(ctx context.Context, run agentbus.RunID) ([]admin.Replayed, error) {
	all, err := d.Server.Replay(ctx, run)
	if err != nil {
		return nil, err
	}
	replayed := make([]admin.Replayed, len(all))
	for i, r := range all {
		replayed[i] = admin.Replayed{Execution: r.Execution, Conversation: r.Conversation, Turns: r.Turns, Events: r.Events}
		if r.Divergence != nil {
			replayed[i].Divergence = r.Divergence.String()
		}
	}
	return replayed, nil
}
