package postgres

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// forgettable selects the executions behind number $1 of runs that were over
// before $2 and whose events are there, with how many they are.
const forgettable = `SELECT number, events FROM (SELECT e.number, (SELECT max(position) + 1 FROM events v WHERE v.number = e.number) AS events
		FROM executions e WHERE e.number > $1 AND e.state = 'done' AND e.ended < $2
			AND NOT EXISTS (SELECT 1 FROM executions r WHERE r.id = e.run AND (r.state <> 'done' OR r.ended >= $2))) done
	WHERE events IS NOT NULL ORDER BY number LIMIT $3`

// ForgetEvents removes the events of executions whose runs were over before a
// time, of at most limit at once, and returns of how many; 0: there are none left.
// Turns, calls and entries stay. Whoever asks for the events is told that they are
// gone: see [Store.Events]. It walks the executions from the oldest on, and begins
// anew at their end.
func (s *Store) ForgetEvents(ctx context.Context, before time.Time, limit int) (n int, err error) {
	const what = "remove old events"
	type gone struct{ number, events int64 }
	found, err := list(ctx, s, what, func(r *row) gone { return gone{r.int64(), r.int64()} }, forgettable, s.forgot.Load(), micros(before), limit)
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		s.forgot.Store(0)
		return 0, nil
	}
	return write(ctx, s, what, func(c *conn) (int, error) {
		for _, g := range found {
			if _, err := c.exec("DELETE FROM events WHERE number = $1", g.number); err != nil {
				return 0, err
			}
			if _, err := c.exec("UPDATE executions SET forgotten = $2 WHERE number = $1", g.number, g.events); err != nil {
				return 0, err
			}
		}
		s.forgot.Store(found[len(found)-1].number)
		return len(found), nil
	})
}

// remembered refuses to tell of events that were removed.
func (s *Store) remembered(ctx context.Context, id agentbus.ExecutionID) error {
	_, gone, err := only(ctx, s, "look for the events of an execution", (*row).int64, "SELECT forgotten FROM executions WHERE id = $1 AND forgotten > 0", string(id))
	if err == nil && gone {
		err = refusal(agentbus.CodeReplyExpired, "the events of this run are gone: they are kept for as long as retention.events says; its turns and calls are there, see agentbus trace")
	}
	return err
}
