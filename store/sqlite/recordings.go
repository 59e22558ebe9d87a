package sqlite

import (
	"context"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// keepRecording stores what an attempt that begins was asked, in place of what the
// one before was.
func keepRecording(c *conn, call *agentbus.CallRecord, r *agentbus.Recording) error {
	came, err := jsonText(r.In)
	if err != nil {
		return err
	}
	body, packed := pack([]byte(r.Body), packBytes)
	_, err = c.exec(`INSERT OR REPLACE INTO recordings (call_id, attempt, at, size, cut, came, body, packed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`,
		call.ID, int64(call.Attempts), call.Began.UnixMicro(), r.Size, flag(r.Cut), came, blob(body), flag(packed))
	return err
}

// recordSent adds to the recording of an attempt what its agent was sent.
func recordSent(c *conn, call int64, attempt int, sent http.Header) error {
	if sent == nil {
		return nil
	}
	went, err := jsonText(sent)
	if err == nil {
		_, err = c.exec("UPDATE recordings SET went = ?3 WHERE call_id = ?1 AND attempt = ?2", call, int64(attempt), went)
	}
	return err
}

// Recording returns what a call was asked in the last of its attempts that was
// recorded (U11).
func (s *Store) Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error) {
	return only(ctx, s, "read a recorded request", func(r *row) agentbus.Recording {
		rec := agentbus.Recording{Attempt: r.int(), At: r.time(), Size: r.int64(), Cut: r.bool()}
		r.json(&rec.In)
		r.json(&rec.Out)
		rec.Body = string(r.unpacked())
		return rec
	}, "SELECT attempt, at, size, cut, came, went, body, packed FROM recordings WHERE call_id = ?1", call)
}

// ForgetRecordings removes the recordings of attempts that began before a time,
// the oldest ones, at most limit of them, and returns how many; 0: there are none
// left (G25).
func (s *Store) ForgetRecordings(ctx context.Context, before time.Time, limit int) (n int, err error) {
	const what = "remove old recordings"
	old, err := list(ctx, s, what, (*row).int64, "SELECT call_id FROM recordings WHERE at < ?1 ORDER BY at LIMIT ?2", micros(before), limit)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return write(ctx, s, what, func(c *conn) (int, error) {
		for _, call := range old {
			if _, err := c.exec("DELETE FROM recordings WHERE call_id = ?1 AND at < ?2", call, micros(before)); err != nil {
				return 0, err
			}
		}
		return len(old), nil
	})
}
