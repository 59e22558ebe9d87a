package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

// maxRecorded is how many interrupts of a run are in its record.
const maxRecorded = 1000

// RunRecord returns what is known of a run but what was said in it, as of one
// moment, behind everything that this process queued before. A run that the store
// does not know is empty.
func (s *Store) RunRecord(ctx context.Context, run agentbus.RunID) (rec agentbus.RunRecord, err error) {
	const what = "read a run whole"
	if err := s.settled(ctx, what); err != nil {
		return rec, err
	}
	err = s.snapshot(ctx, what, func(each eachRow) error {
		err := each(func(r *row) bool {
			e := readPresent(r)
			e.Turns, e.Cost = r.int(), r.micros()
			rec.Executions = append(rec.Executions, e)
			return true
		}, recordedExecutions, string(run))
		if err != nil {
			return err
		}
		err = each(func(r *row) bool {
			rec.Calls = append(rec.Calls, readCall(r))
			return true
		}, "SELECT "+callColumns+" FROM calls c WHERE c.run = $1 ORDER BY c.id", string(run))
		if err != nil {
			return err
		}
		for i := range rec.Executions {
			id := rec.Executions[i].ID
			err := each(func(r *row) bool {
				rec.Turns = append(rec.Turns, readTurn(r, id))
				return true
			}, "SELECT "+headColumns+", NULL FROM turns t WHERE t.number = (SELECT number FROM executions WHERE id = $1) ORDER BY t.idx", string(id))
			if err != nil {
				return err
			}
		}
		return each(func(r *row) bool {
			rec.Interrupts = append(rec.Interrupts, readInterrupt(r))
			return true
		}, "SELECT "+interruptColumns+" FROM interrupts WHERE run = $1 ORDER BY number LIMIT $2", string(run), maxRecorded)
	})
	return rec, err
}

// recordedExecutions are those of a run, with how many of their turns are done,
// and what these cost.
const recordedExecutions = "SELECT " + executionColumns + `, (SELECT count(*) FILTER (WHERE t.state = 'done') FROM turns t WHERE t.number = executions.number),
	(SELECT coalesce(sum(t.cost), 0)::bigint FROM turns t WHERE t.number = executions.number)
	FROM executions WHERE run = $1 ORDER BY parent <> '', began NULLS FIRST, id`
