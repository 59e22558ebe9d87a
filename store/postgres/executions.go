package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

const executionColumns = `id, run, conversation, definition, seed, payer, path, parent, depth, first, spec, state, halt,
	owner, epoch, expires, began, ended`

func readExecution(r *row) agentbus.Execution {
	e := agentbus.Execution{ID: agentbus.ExecutionID(r.text()), Run: agentbus.RunID(r.text()), Conversation: r.text()}
	e.Definition, e.Seed, e.Payer = r.digest(), r.text(), agentbus.Payer(r.text())
	e.Path, e.Parent, e.Depth, e.First = r.text(), agentbus.TurnID(r.text()), r.int(), r.int()
	e.Spec, e.State = r.blob(), agentbus.RunState(r.text())
	r.json(&e.Halt)
	e.Lease = agentbus.Lease{Execution: e.ID, Owner: r.text(), Epoch: r.epoch(), Expires: r.time()}
	e.Began, e.Ended = r.time(), r.time()
	return e
}

// readPresent reads an execution as it stands: one that runs again has no halt.
func readPresent(r *row) agentbus.Execution {
	e := readExecution(r)
	if e.State == agentbus.RunRunning {
		e.Halt = nil
	}
	return e
}

// countTurns sets how many turns of e are done and what all of them cost.
func (s *Store) countTurns(ctx context.Context, what string, e *agentbus.Execution) error {
	_, _, err := only(ctx, s, what, func(r *row) struct{} {
		e.Turns, e.Cost = r.int(), r.micros()
		return struct{}{}
	}, `SELECT count(*) FILTER (WHERE state = 'done'), coalesce(sum(cost), 0)::bigint FROM turns
		WHERE number = (SELECT number FROM executions WHERE id = $1)`, string(e.ID))
	return err
}

// Execution returns an execution, and whether the store knows it.
func (s *Store) Execution(ctx context.Context, id agentbus.ExecutionID) (agentbus.Execution, bool, error) {
	const what = "read an execution"
	e, found, err := only(ctx, s, what, readPresent, "SELECT "+executionColumns+" FROM executions WHERE id = $1", string(id))
	if err != nil || !found {
		return agentbus.Execution{}, false, err
	}
	return e, true, s.countTurns(ctx, what, &e)
}

// Executions returns the executions of a run, top-level ones first, then by
// when they began. A run the store does not know has none.
func (s *Store) Executions(ctx context.Context, run agentbus.RunID) ([]agentbus.Execution, error) {
	const what = "read the executions of a run"
	all, err := list(ctx, s, what, readPresent,
		"SELECT "+executionColumns+" FROM executions WHERE run = $1 ORDER BY parent <> '', began NULLS FIRST, id", string(run))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := s.countTurns(ctx, what, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
