package sqlite

import (
	"context"
	"iter"
	"strconv"

	"github.com/agentbus/agentbus"
)

// appendEvents stores events from the desk's next id on. One that is held waits
// in held_events, in the same transaction; the next that is not puts those
// before itself.
func (d *desk) appendEvents(c *conn, events []agentbus.Event) error {
	for i := range events {
		e := &events[i]
		if e.Hold > 0 {
			if err := d.hold(c, e); err != nil {
				return err
			}
			continue
		}
		if err := d.release(c); err != nil {
			return err
		}
		_, err := c.exec("INSERT INTO events (id, at, type, run, turn, cause, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
			d.event, micros(e.At), e.Type, string(e.Run), string(e.Turn), string(e.Cause), blob(e.Data))
		if err != nil {
			return err
		}
		d.event++
	}
	return nil
}

// hold keeps an event back.
func (d *desk) hold(c *conn, e *agentbus.Event) error {
	d.held = true
	_, err := c.exec(`INSERT INTO held_events (number, hold, arrival, at, type, run, turn, cause, data)
		SELECT ?1, ?2, coalesce(max(arrival) + 1, 0), ?3, ?4, ?5, ?6, ?7, ?8 FROM held_events WHERE number = ?1`,
		d.base>>28, int64(e.Hold), micros(e.At), e.Type, string(e.Run), string(e.Turn), string(e.Cause), blob(e.Data))
	return err
}

// release gives the events that are held back their positions.
func (d *desk) release(c *conn) error {
	if !d.held {
		return nil
	}
	n, err := c.exec(`INSERT INTO events (id, at, type, run, turn, cause, data)
		SELECT ?2 + row_number() OVER (ORDER BY hold, arrival) - 1, at, type, run, turn, cause, data FROM held_events WHERE number = ?1`,
		d.base>>28, d.event)
	if err != nil {
		return err
	}
	d.event, d.held = d.event+n, false
	_, err = c.exec("DELETE FROM held_events WHERE number = ?1", d.base>>28)
	return err
}

func readEvent(r *row, id agentbus.ExecutionID) agentbus.Event {
	e := agentbus.Event{Execution: id, Position: agentbus.Position(r.int64())}
	e.ID = agentbus.EventID("evt_" + string(e.Execution) + "_" + strconv.FormatInt(int64(e.Position), 10))
	e.At, e.Type, e.Run = r.time(), r.text(), agentbus.RunID(r.text())
	e.Turn, e.Cause, e.Data = agentbus.TurnID(r.text()), agentbus.EventID(r.text()), r.blob()
	return e
}

// Events yields the events of an execution past a position, in order; -1 is
// before the first. It sees every event that was acknowledged before it
// started. One that is held back has no position yet, and is not among them. It
// ends with its first error.
func (s *Store) Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return pages(func(after int64) (page []agentbus.Event, more bool, err error) {
		size := 0
		err = s.each(ctx, "read the events of an execution", func(r *row) bool {
			page = append(page, readEvent(r, id))
			size += len(page[len(page)-1].Data)
			return size < pageBytes
		}, "SELECT id & 0xfffffff, at, type, run, turn, cause, data FROM events WHERE id "+pastPlace+onePage, string(id), after)
		return page, size >= pageBytes || len(page) == pageRows, err
	}, func(e agentbus.Event) int64 { return int64(e.Position) }, int64(after))
}
