package postgres

import (
	"context"
	"time"
)

// Sweep removes the stored answers of calls that ended before a time, up to
// limit of them, and returns how many (G25). Key, digest and amount stay: a
// duplicate gets OutcomeExpired. It walks the answers from the oldest on, a
// stretch a call; 0 says that it came to an end, and begins anew. The room is
// the server's to use again. Before it begins anew it adds up the runs that
// changed, so that their marks do not pile up where nobody looks at runs.
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (n int, err error) {
	const what = "sweep old answers"
	if s.swept.Load() == 0 {
		if err := s.addUpRuns(ctx, what); err != nil {
			return 0, err
		}
	}
	var expired []int64
	seen, last := 0, int64(0)
	err = s.each(ctx, what, func(r *row) bool {
		seen++
		if last = r.int64(); r.bool() {
			expired = append(expired, last)
		}
		return true
	}, `SELECT r.call_id, coalesce(c.ended, c.began, 0) < $2 FROM replies r JOIN calls c ON c.id = r.call_id
		WHERE r.call_id > $1 ORDER BY r.call_id LIMIT $3`, s.swept.Load(), before.UnixMicro(), limit)
	if err != nil {
		return 0, err
	}
	if seen < limit || len(expired) == 0 {
		last = 0 // what follows ended later still, or there is nothing
	}
	s.swept.Store(last)
	if len(expired) == 0 {
		return 0, nil
	}
	return write(ctx, s, what, func(c *conn) (int, error) {
		gone, err := c.exec("DELETE FROM replies WHERE call_id = ANY($1)", expired) // fewer when another process sweeps too
		if err == nil {
			_, err = c.exec("DELETE FROM frames WHERE call_id = ANY($1)", expired)
		}
		return int(gone), err
	})
}
