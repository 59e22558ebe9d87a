package postgres

import (
	"context"
	"iter"

	"github.com/agentbus/agentbus"
)

func readEvent(r *row, id agentbus.ExecutionID) agentbus.Event {
	e := agentbus.Event{Execution: id, Position: agentbus.Position(r.int64())}
	e.ID = agentbus.EventIDOf(id, e.Position)
	e.At, e.Type, e.Run = r.time(), r.text(), agentbus.RunID(r.text())
	e.Turn, e.Cause, e.Data = agentbus.TurnID(r.text()), agentbus.EventID(r.text()), r.blob()
	e.Node = r.text()
	return e
}

// Events yields the events of an execution past a position, in order; -1 is
// before the first. It sees every event that was acknowledged before it
// started. One that is held back has no position yet, and is not among them. It
// ends with its first error, which is CodeReplyExpired when they were removed:
// see [Store.ForgetEvents].
func (s *Store) Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return pages(func(after int64) ([]agentbus.Event, error) {
		var page []agentbus.Event
		size := 0
		err := s.each(ctx, "read the events of an execution", func(r *row) bool {
			page = append(page, readEvent(r, id))
			size += len(page[len(page)-1].Data)
			return size < pageBytes
		}, `SELECT position, at, type, run, turn, cause, data, node FROM events
			WHERE number = (SELECT number FROM executions WHERE id = $1) AND position > $2 ORDER BY position LIMIT $3`, string(id), after, pageRows)
		if err == nil && len(page) == 0 {
			err = s.remembered(ctx, id)
		}
		return page, err
	}, func(e agentbus.Event) int64 { return int64(e.Position) }, int64(after))
}
