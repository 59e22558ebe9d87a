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

// A recordedEnd is what an attempt that ended on a page adds to its recording:
// what its agent was sent, and what it answered.
type recordedEnd struct {
	call, attempt int64
	went, size    any // NULL: it was sent nothing; it answered nothing
	cut           bool
	answer        []byte
	packed        bool
}

const recordingSheetColumns = "call_id int8, attempt int8, at int8, size int8, cut bool, came text, went text, body bytea, packed bool, " +
	"answer_size int8, answer_cut bool, answer bytea, answer_packed bool"

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

// endOf returns what the end of an attempt adds to its recording, as it is
// written; nothing when it is not recorded.
func endOf(call int64, attempt int, sent http.Header, answer *agentbus.RecordedBody) (ends []recordedEnd, err error) {
	if sent == nil && answer == nil {
		return nil, nil
	}
	e := recordedEnd{call: call, attempt: int64(attempt)}
	if sent != nil {
		e.went, err = jsonText(sent)
	}
	if answer != nil {
		e.size, e.cut = answer.Size, answer.Cut
		e.answer, e.packed = pack([]byte(answer.Body), packBytes)
	}
	return []recordedEnd{e}, err
}

// queueRecordings adds what was recorded of attempts that began, and of those
// that ended.
func (p *ledgerPage) queueRecordings(b *pgx.Batch) {
	rows := recordingSheet.rows()
	for _, r := range p.recorded {
		rows.add(r.call, int64(r.attempt), r.at.UnixMicro(), r.size, r.cut, r.came, nil, blob(r.body), r.packed, nil, false, nil, false)
	}
	rows.queue(b)
	for _, e := range p.recordedEnds {
		b.Queue("UPDATE recordings SET went = $3, answer_size = $4, answer_cut = $5, answer = $6, answer_packed = $7 WHERE call_id = $1 AND attempt = $2",
			e.call, e.attempt, e.went, e.size, e.cut, blob(e.answer), e.packed)
	}
}

// Recording returns what a call was asked, and answered, in the last of its
// attempts that was recorded (U11).
func (s *Store) Recording(ctx context.Context, call int64) (rec agentbus.Recording, found bool, err error) {
	return only(ctx, s, "read a recorded call", readRecording, `SELECT attempt, at, came, went, size, cut, body, packed,
		answer_size IS NOT NULL, answer_size, answer_cut, answer, answer_packed FROM recordings WHERE call_id = $1`, call)
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
	return write(ctx, s, "remove old recordings", func(c *conn) (int, error) {
		gone, err := c.exec(`DELETE FROM recordings WHERE call_id IN (SELECT call_id FROM recordings WHERE at < $1 ORDER BY at LIMIT $2)`, micros(before), limit)
		return int(gone), err
	})
}
