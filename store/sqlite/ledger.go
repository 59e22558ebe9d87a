package sqlite

import (
	"context"
	"slices"

	"github.com/agentbus/agentbus"
)

// Reserve asks for the right to execute a call (G20, G21). Its outcomes:
//
//   - OutcomeExecute: the key is new, was voided, or was left executing by
//     r.TakeOver (G24). The call is stored as executing under a new attempt,
//     durably; call the agent, then Settle or Void.
//   - OutcomeSettled: the same request was settled before; Reply is the stored
//     answer (G23), counted as a replay. OutcomeExpired: its body is not kept.
//   - OutcomeInFlight: the same request is executing by Call.Owner (G22).
//   - OutcomeMismatch: the key stands for another request.
//
// Of a known key, Call keeps the run and turn ids that were first given or
// minted (P7).
func (s *Store) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	const what = "reserve a call"
	got, err := write(ctx, s, what, func(c *conn) (agentbus.Reserved, error) { return reserve(c, r) })
	if err != nil || got.Outcome != agentbus.OutcomeSettled {
		return got, err
	}
	// The answer never changes once it is settled, so it is read beside the
	// writer; the count of replays is not waited for.
	got.Reply, err = s.reply(ctx, what, got.Call.ID)
	if err != nil {
		return agentbus.Reserved{}, err
	}
	if got.Reply == nil {
		got.Outcome = agentbus.OutcomeExpired
	}
	_ = s.Replayed(ctx, got.Call.ID) // the answer stands without the count
	return got, nil
}

func reserve(c *conn, r agentbus.Reservation) (agentbus.Reserved, error) {
	call := r.Call
	call.State, call.Attempts = agentbus.CallExecuting, 1
	call.Began, call.Ended = stored(call.Began), stored(call.Ended)
	if r.MintTurn != "" {
		n, err := nextTurn(c, call.TurnKey)
		if err != nil {
			return agentbus.Reserved{}, err
		}
		call.TurnKey.ID = call.Run.Turn(n, agentbus.Speaker(r.MintTurn))
	}
	id, changed, err := c.insert(insertCall, callArgs(r.Key[:], &call)...)
	if err != nil {
		return agentbus.Reserved{}, err
	}
	if changed == 1 {
		call.ID = id
		return agentbus.Reserved{Outcome: agentbus.OutcomeExecute, Call: call}, nil
	}
	return reserveKnown(c, r)
}

// nextTurn returns the next free turn index beside k (P7).
func nextTurn(c *conn, k agentbus.TurnKey) (int, error) {
	r, _, err := c.first("SELECT coalesce(max(turn_index) + 1, 0) FROM calls WHERE run = ?1 AND payer = ?2 AND parent = ?3",
		string(k.Run), string(k.Payer), string(k.Parent))
	if err != nil {
		return 0, err
	}
	return r.int(), nil
}

// reserveKnown decides on a reservation whose key is stored.
func reserveKnown(c *conn, r agentbus.Reservation) (agentbus.Reserved, error) {
	found, _, err := c.first("SELECT "+callColumns+", kept FROM calls WHERE key = ?1", r.Key[:])
	if err != nil {
		return agentbus.Reserved{}, err
	}
	call := readCall(found)
	kept := found.bool()
	if found.err != nil {
		return agentbus.Reserved{}, found.err
	}
	free := call.State == agentbus.CallVoided
	outcome := agentbus.OutcomeInFlight
	switch {
	case free:
	case call.Digest != r.Call.Digest:
		outcome = agentbus.OutcomeMismatch
	case call.State == agentbus.CallSettled && kept:
		outcome = agentbus.OutcomeSettled
	case call.State == agentbus.CallSettled:
		outcome = agentbus.OutcomeExpired
	default:
		free = r.TakeOver != "" && call.Owner == r.TakeOver // G24
	}
	if !free {
		return agentbus.Reserved{Outcome: outcome, Call: call}, nil
	}
	call, err = again(c, call, r.Call)
	return agentbus.Reserved{Outcome: agentbus.OutcomeExecute, Call: call}, err
}

// again starts the next attempt of call, on behalf of the request asked. What
// the attempt before streamed is dropped.
func again(c *conn, call, asked agentbus.CallRecord) (agentbus.CallRecord, error) {
	call.State, call.Attempts = agentbus.CallExecuting, call.Attempts+1
	call.RequestID, call.Caller, call.Speaker, call.Depth = asked.RequestID, asked.Caller, asked.Speaker, asked.Depth
	call.Digest, call.Owner, call.Stream, call.Notes = asked.Digest, asked.Owner, asked.Stream, asked.Notes
	call.Began, call.Ended = stored(asked.Began), stored(asked.Ended)
	call.Status, call.Code, call.Message = 0, "", ""
	_, err := c.exec(`UPDATE calls SET state = 'executing', attempts = ?2, request_id = ?3, caller = ?4, speaker = ?5, depth = ?6,
			digest = ?7, owner = ?8, stream = ?9, notes = ?10, began = ?11, ended = NULL, status = 0, code = '', message = ''
		WHERE id = ?1`,
		call.ID, int64(call.Attempts), call.RequestID, call.Caller, string(call.Speaker), int64(call.Depth),
		call.Digest[:], call.Owner, flag(call.Stream), notesText(call.Notes), micros(call.Began))
	if err != nil {
		return call, err
	}
	return call, dropFrames(c, call.ID)
}

func dropFrames(c *conn, id int64) error {
	_, err := c.exec("DELETE FROM frames WHERE call_id = ?1", id)
	return err
}

// errFenced answers a write of an attempt that the ledger no longer knows as
// the executing one.
var errFenced = refusal(agentbus.CodeLeaseLost, "this attempt of the call was ended or taken over; drop it, the attempt that follows answers")

// Append stores the next bytes of the answer that an attempt streams, durably
// (G21). CodeLeaseLost: the call is not executing under that attempt.
func (s *Store) Append(ctx context.Context, id int64, attempt int, frames []byte) error {
	_, err := write(ctx, s, "store a part of a stream", func(c *conn) (struct{}, error) {
		return fenced(c.exec(`INSERT INTO frames (call_id, data) SELECT ?1, ?3
			WHERE EXISTS (SELECT 1 FROM calls WHERE id = ?1 AND attempts = ?2 AND state = 'executing')`, id, int64(attempt), frames))
	})
	return err
}

// fenced turns the outcome of a statement that matches the executing attempt
// into that of a task.
func fenced(changed int64, err error) (struct{}, error) {
	if err == nil && changed == 0 {
		err = errFenced
	}
	return struct{}{}, err
}

// Settle ends an attempt with an answer that counts, durably (G21). A settled
// call never changes, so one key has at most one charge (I1). CodeLeaseLost:
// the call is not executing under that attempt.
func (s *Store) Settle(ctx context.Context, st agentbus.Settlement) error {
	head, err := jsonText(st.Reply.Header)
	if err != nil {
		return unavailable("encode the header of an answer", err)
	}
	_, err = write(ctx, s, "settle a call", func(c *conn) (struct{}, error) { return settle(c, st, head) })
	return err
}

func settle(c *conn, st agentbus.Settlement, head any) (struct{}, error) {
	body := blob(st.Reply.Body)
	if st.Drop {
		head, body = nil, nil
	}
	_, err := fenced(c.exec(`UPDATE calls SET state = 'settled', status = ?3, input_tokens = ?4, cached_tokens = ?5, output_tokens = ?6,
			usage_cost = ?7, estimated = ?8, cost = ?9, ended = ?10, kept = ?11, head = ?12, body = ?13
		WHERE id = ?1 AND attempts = ?2 AND state = 'executing'`,
		st.ID, int64(st.Attempt), int64(st.Reply.Status), st.Usage.InputTokens, st.Usage.CachedTokens, st.Usage.OutputTokens,
		int64(st.Usage.Cost), flag(st.Usage.Estimated), int64(st.Cost), micros(st.Ended), flag(!st.Drop), head, body))
	if err != nil {
		return struct{}{}, err
	}
	if st.Drop || !st.Appended {
		if err := dropFrames(c, st.ID); err != nil {
			return struct{}{}, err
		}
	}
	return struct{}{}, addNotes(c, st.ID, st.Notes)
}

// addNotes appends notes to those of a call.
func addNotes(c *conn, id int64, notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	r, _, err := c.first("SELECT notes FROM calls WHERE id = ?1", id)
	if err != nil {
		return err
	}
	var before []string
	if r.json(&before); r.err != nil {
		return r.err
	}
	_, err = c.exec("UPDATE calls SET notes = ?2 WHERE id = ?1", id, notesText(slices.Concat(before, notes)))
	return err
}

// Void ends an attempt that failed or was cut: nothing is charged, what it
// streamed is dropped, what it used is added to Unbilled, and the key is free
// again (G20). CodeLeaseLost: the call is not executing under that attempt.
func (s *Store) Void(ctx context.Context, v agentbus.Voiding) error {
	_, err := write(ctx, s, "void a call", func(c *conn) (struct{}, error) {
		_, err := fenced(c.exec(`UPDATE calls SET state = 'voided', status = ?3, code = ?4, message = ?5, input_tokens = ?6,
				cached_tokens = ?7, output_tokens = ?8, usage_cost = ?9, estimated = ?10, unbilled = unbilled + ?11, ended = ?12
			WHERE id = ?1 AND attempts = ?2 AND state = 'executing'`,
			v.ID, int64(v.Attempt), int64(v.Status), string(v.Code), v.Message, v.Usage.InputTokens,
			v.Usage.CachedTokens, v.Usage.OutputTokens, int64(v.Usage.Cost), flag(v.Usage.Estimated), int64(v.Unbilled), micros(v.Ended)))
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, dropFrames(c, v.ID)
	})
	return err
}

// reply reads the stored answer of a settled call to the byte (G23); nil when
// its body is no longer kept.
func (s *Store) reply(ctx context.Context, what string, id int64) (*agentbus.StoredReply, error) {
	// Frames first: when the call still keeps its reply after that, they were
	// all there.
	parts, err := list(ctx, s, what, (*row).blob, "SELECT data FROM frames WHERE call_id = ?1 ORDER BY id", id)
	if err != nil {
		return nil, err
	}
	reply, found, err := only(ctx, s, what, func(r *row) agentbus.StoredReply {
		var a agentbus.StoredReply
		a.Status = r.int()
		r.json(&a.Header)
		a.Body = slices.Concat(append(parts, r.blob())...)
		return a
	}, "SELECT status, head, body FROM calls WHERE id = ?1 AND kept = 1", id)
	if err != nil || !found {
		return nil, err
	}
	return &reply, nil
}
