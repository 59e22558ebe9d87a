package sqlite

import (
	"context"
	"slices"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

func dropFrames(c *conn, call int64) error {
	_, err := c.exec("DELETE FROM frames WHERE id BETWEEN ?1 << 28 AND (?1 << 28) + 0xfffffff", call)
	return err
}

// errFenced answers a write of an attempt that the ledger no longer knows as
// the executing one.
var errFenced = refusal(agentbus.CodeLeaseLost, "this attempt of the call was ended or taken over; drop it, the attempt that follows answers")

// Append stores the next bytes of the answer that an attempt streams, durably
// (G21). It may wait a moment for others to share a commit with: the stream goes
// on meanwhile. CodeLeaseLost: the call is not executing under that attempt.
func (s *Store) Append(ctx context.Context, id int64, attempt int, frames []byte) error {
	data, packed := pack(frames, packPart)
	_, err := writeWith(ctx, s, "store a part of a stream", len(frames) < largePart, func(c *conn) (struct{}, error) {
		none := struct{}{}
		a, executes := c.running(id, attempt)
		if !executes {
			_, found, err := c.first("SELECT 1 FROM calls WHERE id = ?1 AND attempts = ?2 AND state = 'executing'", id, int64(attempt))
			if err == nil && !found {
				err = errFenced
			}
			if err != nil {
				return none, err
			}
		} else if !a.streamed {
			a.streamed = true
			c.attempts[id] = a
		}
		return none, appendFrames(c, id, data, packed)
	})
	return err
}

// largePart is from what length on a part of a stream fills a commit of its own.
// The next one of a stream that is so fast is there already.
const largePart = 4 << 10

// appendFrames stores data behind the frames of a call.
func appendFrames(c *conn, call int64, data []byte, packed bool) error {
	_, err := c.exec(`INSERT INTO frames (id, data, packed) VALUES (
		coalesce((SELECT max(id) + 1 FROM frames WHERE id BETWEEN ?1 << 28 AND (?1 << 28) + 0xfffffff), ?1 << 28), ?2, ?3)`, call, data, flag(packed))
	return err
}

// Settle ends an attempt with an answer that counts, durably (G21), and enters
// its charge (G28). A settled call never changes, so one key has at most one
// charge (I1). What the call held of its budgets is released, and its cost
// spent (G27). CodeLeaseLost: the call is not executing under that attempt.
// CodeRunNotFound: one of st.Tasks is another payer's (A12).
func (s *Store) Settle(ctx context.Context, st agentbus.Settlement) error {
	head := rawjson.HeaderText(st.Reply.Header)
	_, err := write(ctx, s, "settle a call", func(c *conn) (struct{}, error) { return struct{}{}, settle(c, &st, head) })
	return err
}

var settles = ends(`state = 'settled', status = ?3, input_tokens = ?4, cached_tokens = ?5, output_tokens = ?6,
		usage_cost = ?7, estimated = ?8, cost = ?9, unbilled = unbilled + ?10, notes = coalesce(?11, notes), ended = ?12, kept = ?13`)

func settle(c *conn, st *agentbus.Settlement, head any) error {
	if err := seeTasks(c, st.Tasks); err != nil { // first: what writes nothing is not undone
		return err
	}
	notes, err := notesBehind(c, st.ID, st.Notes)
	if err != nil {
		return err
	}
	a, err := endAttempt(c, settles, st.ID, st.Attempt, int64(st.Reply.Status), st.Usage.InputTokens, st.Usage.CachedTokens, st.Usage.OutputTokens, int64(st.Usage.Cost),
		flag(st.Usage.Estimated), int64(st.Cost), int64(st.Unbilled), notes, micros(st.Ended), flag(!st.Drop))
	if err != nil {
		return err
	}
	a.entry.Kind, a.entry.Amount, a.entry.Unbilled, a.entry.At = agentbus.EntryCharge, st.Cost, st.Unbilled, st.Ended
	paid, err := a.held.spend(c, st.ID, st.Hold, st.Cost)
	if err != nil {
		return err
	}
	if err := a.enter(c, paid); err != nil {
		return err
	}
	if err := recordEnd(c, st.ID, st.Attempt, st.Sent, st.Answer); err != nil {
		return err
	}
	if a.streamed && (st.Drop || !st.Appended) {
		if err := dropFrames(c, st.ID); err != nil {
			return err
		}
	}
	if st.Drop {
		return nil
	}
	return keepReply(c, st.ID, head, st.Reply.Body)
}

// notesBehind returns the notes of a call with more behind them, as they are
// stored; NULL when there are none to add.
func notesBehind(c *conn, call int64, more []string) (any, error) {
	if len(more) == 0 {
		return nil, nil
	}
	r, found, err := c.first("SELECT notes FROM calls WHERE id = ?1", call)
	if err != nil || !found {
		return nil, err
	}
	var before []string
	r.json(&before)
	return notesText(slices.Concat(before, more)), r.err
}

// maxReplyBody is how long a body, or the part of one that is not in frames,
// may be to stand in one row (G25).
const maxReplyBody = 1 << 20

// keepReply stores the answer of a call; body comes behind its frames.
func keepReply(c *conn, call int64, head any, body []byte) error {
	for len(body) > maxReplyBody {
		part, packed := pack(body[:maxReplyBody], packPart)
		if err := appendFrames(c, call, part, packed); err != nil {
			return err
		}
		body = body[maxReplyBody:]
	}
	packed, ok := pack(body, packBytes)
	_, err := c.exec("INSERT INTO replies (call_id, head, body, packed) VALUES (?1, ?2, ?3, ?4)", call, head, blob(packed), flag(ok))
	return err
}

// Void ends an attempt that failed or was cut: nothing is charged, what it
// streamed is dropped, what it used is added to Unbilled and entered, what it
// held is released, and the key is free again (G20, G27). CodeLeaseLost: the
// call is not executing under that attempt.
func (s *Store) Void(ctx context.Context, v agentbus.Voiding) error {
	_, err := write(ctx, s, "void a call", func(c *conn) (struct{}, error) { return struct{}{}, void(c, &v) })
	return err
}

var voids = ends(`state = 'voided', status = ?3, code = ?4, message = ?5, input_tokens = ?6,
		cached_tokens = ?7, output_tokens = ?8, usage_cost = ?9, estimated = ?10, unbilled = unbilled + ?11, ended = ?12`)

func void(c *conn, v *agentbus.Voiding) error {
	a, err := endAttempt(c, voids, v.ID, v.Attempt, int64(v.Status), string(v.Code), v.Message, v.Usage.InputTokens,
		v.Usage.CachedTokens, v.Usage.OutputTokens, int64(v.Usage.Cost), flag(v.Usage.Estimated), int64(v.Unbilled), micros(v.Ended))
	if err != nil {
		return err
	}
	a.entry.Kind, a.entry.Unbilled, a.entry.At = agentbus.EntryVoid, v.Unbilled, v.Ended
	if err := a.enter(c, nil); err != nil {
		return err
	}
	if err := recordEnd(c, v.ID, v.Attempt, v.Sent, v.Answer); err != nil {
		return err
	}
	if a.streamed {
		if err := dropFrames(c, v.ID); err != nil {
			return err
		}
	}
	return a.held.release(c, v.ID, false, 0)
}

// reply reads the stored answer of a settled call to the byte (G23); nil when
// its body is no longer kept.
func (s *Store) reply(ctx context.Context, what string, id int64) (*agentbus.StoredReply, error) {
	// Frames first: when the call still keeps its reply after that, they were
	// all there.
	parts, err := list(ctx, s, what, (*row).unpacked, "SELECT data, packed FROM frames WHERE id BETWEEN ?1 << 28 AND (?1 << 28) + 0xfffffff ORDER BY id", id)
	if err != nil {
		return nil, err
	}
	reply, found, err := only(ctx, s, what, func(r *row) agentbus.StoredReply {
		var a agentbus.StoredReply
		a.Status = r.int()
		r.json(&a.Header)
		a.Body = slices.Concat(append(parts, r.unpacked())...)
		return a
	}, "SELECT c.status, r.head, r.body, r.packed FROM replies r JOIN calls c ON c.id = r.call_id WHERE r.call_id = ?1 AND c.state = 'settled'", id)
	if err != nil || !found {
		return nil, err
	}
	return &reply, nil
}
