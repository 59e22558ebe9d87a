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

// recordEnd adds to the recording of an attempt what its agent was sent, and what
// it answered.
func recordEnd(c *conn, call int64, attempt int, sent http.Header, answer *agentbus.RecordedBody) (err error) {
	if sent == nil && answer == nil {
		return nil
	}
	var went, size, body any
	var cut, packed bool
	if sent != nil {
		if went, err = jsonText(sent); err != nil {
			return err
		}
	}
	if answer != nil {
		var b []byte
		b, packed = pack([]byte(answer.Body), packBytes)
		size, cut, body = answer.Size, answer.Cut, blob(b)
	}
	_, err = c.exec("UPDATE recordings SET went = ?3, answer_size = ?4, answer_cut = ?5, answer = ?6, answer_packed = ?7 WHERE call_id = ?1 AND attempt = ?2",
		call, int64(attempt), went, size, flag(cut), body, flag(packed))
	return err
}

// Recording returns what a call was asked, and answered, in the last of its
// attempts that was recorded (U11).
func (s *Store) Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error) {
	return only(ctx, s, "read a recorded call", readRecording, `SELECT attempt, at, came, went, size, cut, body, packed,
		answer_size IS NOT NULL, answer_size, answer_cut, answer, answer_packed FROM recordings WHERE call_id = ?1`, call)
}

func readRecording(r *row) agentbus.Recording {
	rec := agentbus.Recording{Attempt: r.int(), At: r.time()}
	r.json(&rec.In)
	r.json(&rec.Out)
	rec.RecordedBody = readRecordedBody(r)
	if r.bool() {
		answer := readRecordedBody(r)
		rec.Answer = &answer
	}
	return rec
}

func readRecordedBody(r *row) agentbus.RecordedBody {
	return agentbus.RecordedBody{Size: r.int64(), Cut: r.bool(), Body: string(r.unpacked())}
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
