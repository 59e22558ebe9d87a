package sqlite

import (
	"context"
	"iter"

	"github.com/agentbus/agentbus"
)

// AppendEvents adds events to an execution outside of its turns, in one transaction,
// and returns how many the execution has then (E9). CodeLeaseLost: the lease was
// given back or has moved on (R17), or the execution is over: nothing comes
// behind its last event (E10). Followers of this process learn of it at once:
// see [Store.Watch].
func (s *Store) AppendEvents(ctx context.Context, l agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error) {
	events = append([]agentbus.Event(nil), events...) // the committer may read them still when ctx has ended
	next, err := write(ctx, s, "append events", func(c *conn) (agentbus.Position, error) {
		_, holds, err := c.first("SELECT 1 FROM executions WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND state = 'running'",
			string(l.Execution), l.Owner, signed(l.Epoch))
		if err == nil && !holds {
			err = errLeaseLost
		}
		if err != nil {
			return 0, err
		}
		d, err := takeDesk(c, l.Execution, l.Epoch)
		if err != nil {
			return 0, err
		}
		err = d.appendEvents(c, events)
		return agentbus.Position(d.event - d.base), err
	})
	s.rang(l.Execution, events, err)
	return next, err
}

// appendEvents stores events from the desk's next id on, as one row. One that is
// held waits in held_batches, in the same transaction; the next that is not puts
// those before itself.
func (d *desk) appendEvents(c *conn, events []agentbus.Event) error {
	var out batch
	for i := 0; i < len(events); {
		if hold := events[i].Hold; hold > 0 {
			var held batch
			for ; i < len(events) && events[i].Hold == hold; i++ {
				if err := held.add(&events[i]); err != nil {
					return err
				}
			}
			if err := d.hold(c, hold, &held); err != nil {
				return err
			}
			continue
		}
		if err := d.release(c, &out); err != nil {
			return err
		}
		if err := out.add(&events[i]); err != nil {
			return err
		}
		if i++; out.full() {
			if err := d.put(c, &out); err != nil {
				return err
			}
		}
	}
	return d.put(c, &out)
}

// put writes a batch, and empties it.
func (d *desk) put(c *conn, b *batch) error {
	if b.n == 0 {
		return nil
	}
	events, packed := b.stored()
	_, err := c.exec("INSERT INTO event_batches (id, n, packed, events) VALUES (?1, ?2, ?3, ?4)", d.event, int64(b.n), packed, events)
	d.event, *b = d.event+int64(b.n), batch{}
	return err
}

// hold keeps a batch back.
func (d *desk) hold(c *conn, hold int, b *batch) error {
	d.held = true
	events, packed := b.stored()
	_, err := c.exec(`INSERT INTO held_batches (number, hold, arrival, n, packed, events)
		SELECT ?1, ?2, coalesce(max(arrival) + 1, 0), ?3, ?4, ?5 FROM held_batches WHERE number = ?1`,
		d.base>>28, int64(hold), int64(b.n), packed, events)
	return err
}

// release puts the events that are held back at the end of out.
func (d *desk) release(c *conn, out *batch) error {
	if !d.held {
		return nil
	}
	hold, arrival := int64(-1), int64(-1)
	for {
		r, found, err := c.first(`SELECT hold, arrival, n, packed, events FROM held_batches
			WHERE number = ?1 AND (hold, arrival) > (?2, ?3) ORDER BY hold, arrival LIMIT 1`, d.base>>28, hold, arrival)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		hold, arrival = r.int64(), r.int64()
		n := r.int()
		if out.join(unpackEvents(r), n); r.err != nil {
			return r.err
		}
		if out.full() {
			if err := d.put(c, out); err != nil {
				return err
			}
		}
	}
	d.held = false
	_, err := c.exec("DELETE FROM held_batches WHERE number = ?1", d.base>>28)
	return err
}

// eventsPast selects the rows of the events of execution ?1 past position ?2:
// the row that holds the next one, and those behind it.
const eventsPast = `SELECT id & 0xfffffff, packed, events FROM event_batches
	WHERE id >= (SELECT coalesce((SELECT max(b.id) FROM event_batches b WHERE b.id BETWEEN e.number << 28 AND (e.number << 28) + ?2 + 1), e.number << 28)
			FROM executions e WHERE e.id = ?1)
		AND id <= (SELECT (number << 28) + 0xfffffff FROM executions WHERE id = ?1)
	ORDER BY id LIMIT ?3`

// Events yields the events of an execution past a position, in order; -1 is
// before the first. It sees every event that was acknowledged before it
// started. One that is held back has no position yet, and is not among them. It
// ends with its first error, which is CodeReplyExpired when they were removed:
// see [Store.ForgetEvents].
func (s *Store) Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return pages(func(after int64) (page []agentbus.Event, more bool, err error) {
		size := 0
		err = s.each(ctx, "read the events of an execution", func(r *row) bool {
			for _, e := range readEvents(r, id) {
				if int64(e.Position) > after {
					page, size = append(page, e), size+len(e.Data)
				}
			}
			return size < pageBytes && len(page) < pageRows
		}, eventsPast, string(id), after, pageRows+1)
		if err == nil && len(page) == 0 {
			err = s.remembered(ctx, id)
		}
		return page, size >= pageBytes || len(page) >= pageRows, err
	}, func(e agentbus.Event) int64 { return int64(e.Position) }, int64(after))
}

// Appended returns how many events an execution has: the position of the next.
func (s *Store) Appended(ctx context.Context, id agentbus.ExecutionID) (agentbus.Position, error) {
	n, _, err := only(ctx, s, "count the events of an execution", (*row).int64, `SELECT coalesce((SELECT (b.id & 0xfffffff) + b.n FROM event_batches b
		WHERE b.id BETWEEN e.number << 28 AND (e.number << 28) + 0xfffffff ORDER BY b.id DESC LIMIT 1), e.forgotten) FROM executions e WHERE e.id = ?1`, string(id))
	return agentbus.Position(n), err
}
