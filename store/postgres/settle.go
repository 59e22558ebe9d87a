package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// errFenced answers a write of an attempt that the ledger no longer knows as
// the executing one.
var errFenced = refusal(agentbus.CodeLeaseLost, "this attempt of the call was ended or taken over; drop it, the attempt that follows answers")

// payerOf returns who pays a call; "" when there is no such call.
func (s *Store) payerOf(ctx context.Context, what string, id int64) (agentbus.Payer, error) {
	if payer, known := s.places.payer(id); known {
		return payer, nil
	}
	payer, found, err := only(ctx, s, what, (*row).text, "SELECT payer FROM calls WHERE id = $1", id)
	if found {
		s.places.remember(id, agentbus.Payer(payer))
	}
	return agentbus.Payer(payer), err
}

// attempt hands a write of the executing attempt of a call to its committer. f
// changes the call on the page.
func (s *Store) attempt(ctx context.Context, what string, id int64, number int, hold agentbus.Hold, tasks []agentbus.RemoteTask, f func(*ledgerPage, *call) error) error {
	payer, err := s.payerOf(ctx, what, id)
	if err != nil {
		return err
	}
	return of(s.ledger, string(payer)).do(ctx, s, what, func(p *ledgerPage) {
		p.wantCall(payer, id)
		p.wantHold(hold)
		p.wantTasks(tasks)
	}, func(p *ledgerPage) error {
		k := p.byID[id]
		if k == nil || k.State != agentbus.CallExecuting || k.Attempts != number {
			return errFenced
		}
		return f(p, k)
	})
}

// Append stores the next bytes of the answer that an attempt streams, durably
// (G21). CodeLeaseLost: the call is not executing under that attempt.
func (s *Store) Append(ctx context.Context, id int64, attempt int, frames []byte) error {
	part := stow(frames)
	return s.attempt(ctx, "store a part of a stream", id, attempt, agentbus.Hold{}, nil, func(_ *ledgerPage, k *call) error {
		k.addFrame(part)
		return nil
	})
}

// Settle ends an attempt with an answer that counts, durably (G21), and enters
// its charge (G28). A settled call never changes, so one key has at most one
// charge (I1). What the call held of its budgets is released, and its cost
// spent (G27). CodeLeaseLost: the call is not executing under that attempt.
// CodeRunNotFound: one of st.Tasks is another payer's (A12).
func (s *Store) Settle(ctx context.Context, st agentbus.Settlement) error {
	const what = "settle a call"
	recorded, err := endOf(st.ID, st.Attempt, st.Sent, st.Answer)
	if err != nil {
		return unavailable(ctx, what, &rowError{err})
	}
	var pieces []frame
	reply := &stowed{head: rawjson.HeaderText(st.Reply.Header)}
	if !st.Drop {
		pieces, reply.body, reply.packed = cut(bytes.Clone(st.Reply.Body))
	}
	return s.attempt(ctx, what, st.ID, st.Attempt, st.Hold, st.Tasks, func(p *ledgerPage, k *call) error {
		if err := p.see(st.Tasks); err != nil {
			return err
		}
		p.recordedEnds = append(p.recordedEnds, recorded...)
		k.State, k.Status, k.Usage, k.Cost = agentbus.CallSettled, st.Reply.Status, st.Usage, st.Cost
		k.Unbilled += st.Unbilled
		if len(st.Notes) > 0 {
			k.Notes = slices.Concat(k.Notes, st.Notes)
		}
		k.Ended, k.changed = stored(st.Ended), true
		paid := p.spend(k, st.Hold, st.Cost)
		p.enter(k, agentbus.EntryCharge, st.Cost, st.Unbilled, st.Ended, paid)
		if st.Drop || !st.Appended {
			k.dropFrames()
		}
		if !st.Drop {
			for _, piece := range pieces {
				k.addFrame(piece)
			}
			k.reply, k.kept = reply, true
		}
		return nil
	})
}

// maxReplyBody is how long a body, or the part of one that is not in frames,
// may be to stand in one row (G25).
const maxReplyBody = 1 << 20

// cut returns a body as it is stored: what stands in frames, and what is left.
func cut(body []byte) (pieces []frame, rest []byte, packed bool) {
	for len(body) > maxReplyBody {
		pieces, body = append(pieces, stow(body[:maxReplyBody])), body[maxReplyBody:]
	}
	rest, packed = pack(body, packBytes)
	return pieces, rest, packed
}

// Void ends an attempt that failed or was cut: nothing is charged, what it
// streamed is dropped, what it used is added to Unbilled and entered, what it
// held is released, and the key is free again (G20, G27). CodeLeaseLost: the
// call is not executing under that attempt.
func (s *Store) Void(ctx context.Context, v agentbus.Voiding) error {
	const what = "void a call"
	recorded, err := endOf(v.ID, v.Attempt, v.Sent, v.Answer)
	if err != nil {
		return unavailable(ctx, what, &rowError{err})
	}
	return s.attempt(ctx, what, v.ID, v.Attempt, v.Hold, nil, func(p *ledgerPage, k *call) error {
		p.recordedEnds = append(p.recordedEnds, recorded...)
		k.State, k.Status, k.Code, k.Message, k.Usage = agentbus.CallVoided, v.Status, v.Code, v.Message, v.Usage
		k.Unbilled += v.Unbilled
		k.Ended, k.changed = stored(v.Ended), true
		p.enter(k, agentbus.EntryVoid, 0, v.Unbilled, v.Ended, nil)
		k.dropFrames()
		p.release(k, false, 0)
		return nil
	})
}

// enter appends an entry of an attempt that ended to its payer's chain; it was
// spent of the accounts paid.
func (p *ledgerPage) enter(k *call, kind agentbus.EntryKind, amount, unbilled agentbus.Micros, at time.Time, paid []string) {
	e := agentbus.Entry{
		Payer: k.Payer, Kind: kind, Call: k.ID, Attempt: k.Attempts, Agent: k.Agent, Run: k.Run, Turn: k.TurnKey.ID,
		Amount: amount, Unbilled: unbilled, At: at,
	}
	copy(e.Key[:], k.key)
	next := p.payers[k.Payer].append(&e)
	*p.payers[k.Payer] = next
	p.entries, p.sums, p.paid, p.ended = append(p.entries, e), append(p.sums, next), append(p.paid, paid), append(p.ended, roomOf(string(k.key)))
}

// reply reads the stored answer of a settled call to the byte (G23); nil when
// its body is no longer kept.
func (s *Store) reply(ctx context.Context, what string, id int64) (*agentbus.StoredReply, error) {
	// Frames first: when the call still keeps its reply after that, they were
	// all there.
	parts, err := list(ctx, s, what, (*row).unpacked, "SELECT data, packed FROM frames WHERE call_id = $1 ORDER BY place", id)
	if err != nil {
		return nil, err
	}
	reply, found, err := only(ctx, s, what, func(r *row) agentbus.StoredReply {
		var a agentbus.StoredReply
		a.Status = r.int()
		r.json(&a.Header)
		a.Body = slices.Concat(append(parts, r.unpacked())...)
		return a
	}, "SELECT c.status, r.head, r.body, r.packed FROM replies r JOIN calls c ON c.id = r.call_id WHERE r.call_id = $1 AND c.state = 'settled'", id)
	if err != nil || !found {
		return nil, err
	}
	return &reply, nil
}
