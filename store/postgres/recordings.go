package postgres

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// A recording is what a call was asked, as it is written.
type recording struct {
	size   int64
	cut    bool
	came   any
	body   []byte
	packed bool
}

// recorded is a recording of an attempt that began on a page.
type recorded struct {
	*recording

	call    int64
	attempt int
	at      time.Time
}

// sent is what the agent of an attempt that ended on a page was sent.
type sent struct {
	call, attempt int64
	went          any
}

const recordingSheetColumns = "call_id int8, attempt int8, at int8, size int8, cut bool, came text, went text, body bytea, packed bool"

var recordingSheet = newSheet("recordings", recordingSheetColumns, replacing("call_id", recordingSheetColumns))

// recordingOf returns r as it is written; nil when there is none.
func recordingOf(r *agentbus.Recording) (*recording, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // nothing is recorded
	}
	came, err := jsonText(r.In)
	body, packed := pack([]byte(r.Body), packBytes)
	return &recording{r.Size, r.Cut, came, body, packed}, err
}

// sentOf returns what an agent was sent as it is written; nothing when that is
// not recorded.
func sentOf(call int64, attempt int, headers http.Header) ([]sent, error) {
	if headers == nil {
		return nil, nil
	}
	went, err := jsonText(headers)
	return []sent{{call, int64(attempt), went}}, err
}

// queueRecordings adds what was recorded of attempts that began, and of those
// that ended.
func (p *ledgerPage) queueRecordings(b *pgx.Batch) {
	rows := recordingSheet.rows()
	for _, r := range p.recorded {
		rows.add(r.call, int64(r.attempt), r.at.UnixMicro(), r.size, r.cut, r.came, nil, blob(r.body), r.packed)
	}
	rows.queue(b)
	for _, s := range p.sent {
		b.Queue("UPDATE recordings SET went = $3 WHERE call_id = $1 AND attempt = $2", s.call, s.attempt, s.went)
	}
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
	}, "SELECT attempt, at, size, cut, came, went, body, packed FROM recordings WHERE call_id = $1", call)
}

// ForgetRecordings removes the recordings of attempts that began before a time,
// the oldest ones, at most limit of them, and returns how many; 0: there are none
// left (G25).
func (s *Store) ForgetRecordings(ctx context.Context, before time.Time, limit int) (n int, err error) {
	return write(ctx, s, "remove old recordings", func(c *conn) (int, error) {
		gone, err := c.exec(`DELETE FROM recordings WHERE call_id IN (SELECT call_id FROM recordings WHERE at < $1 ORDER BY at LIMIT $2)`, micros(before), limit)
		return int(gone), err
	})
}
