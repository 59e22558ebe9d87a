package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"

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
// ends with its first error.
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
		return page, err
	}, func(e agentbus.Event) int64 { return int64(e.Position) }, int64(after))
}

// AppendEvents adds events to an execution outside of its turns, in one
// transaction, and returns how many the execution has then (E9). CodeLeaseLost:
// the lease was given back or has moved on (R17), or the execution is over:
// nothing comes behind its last event (E10).
func (s *Store) AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (next agentbus.Position, err error) {
	const what = "append events"
	events = slices.Clone(events)
	for i := range events {
		if len(events[i].Data) > 0 && !json.Valid(events[i].Data) {
			return 0, unavailable(ctx, what, &rowError{errNoJSON})
		}
	}
	err = of(s.journal, string(l.Execution)).do(ctx, s, what, func(p *journalPage) { p.want(l.Execution) }, func(p *journalPage) error {
		return p.all(func() error {
			d, err := p.take(l.Execution, l.Epoch)
			if err != nil {
				return err
			}
			if d.Lease.Owner != l.Owner || d.State != agentbus.RunRunning {
				return errLeaseLost
			}
			d.append(events)
			next = agentbus.Position(d.next)
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// errNoJSON refuses an event that could not be read.
var errNoJSON = errors.New("the data of an event is no JSON")

// Appended returns how many events an execution has: the position of the next.
func (s *Store) Appended(ctx context.Context, id agentbus.ExecutionID) (agentbus.Position, error) {
	n, _, err := only(ctx, s, "count the events of an execution", (*row).int64,
		"SELECT coalesce((SELECT max(position) + 1 FROM events WHERE number = e.number), 0) FROM executions e WHERE e.id = $1", string(id))
	return agentbus.Position(n), err
}

// Watch returns a channel that is closed once something was committed after the
// call, in this process or another, or it is time to look. release is for stores
// that keep a place for each who watches.
func (s *Store) Watch(agentbus.ExecutionID) (rung <-chan struct{}, release func()) {
	return s.Changed(), func() {}
}
