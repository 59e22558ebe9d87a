package sqlite

import (
	"context"

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
//   - OutcomeShort: the call would be executed, and does not fit into one of
//     the budgets of r.Hold. Short names the first of them, in the order given;
//     nothing was reserved (G27).
//
// With OutcomeExecute the call holds r.Hold.Amount of each of its budgets, in
// place of what an attempt before it held, until it is settled or voided.
//
// Of a known key, Call keeps the run and turn ids that were first given or
// minted (P7).
func (s *Store) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	const what = "reserve a call"
	got, err := write(ctx, s, what, func(c *conn) (agentbus.Reserved, error) { return reserve(c, &r) })
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

func reserve(c *conn, r *agentbus.Reservation) (agentbus.Reserved, error) {
	if len(r.Hold.Budgets) > 0 { // of a new key, so that a refusal writes nothing
		missing, err := short(c, r, taken{})
		if err != nil {
			return agentbus.Reserved{}, err
		}
		if missing != nil {
			return reserveShort(c, *r, missing)
		}
	}
	call := r.Call
	call.State, call.Attempts = agentbus.CallExecuting, 1
	call.Began, call.Ended = stored(call.Began), stored(call.Ended)
	if r.MintTurn != "" {
		n, err := nextTurn(c, call.TurnKey)
		if err != nil {
			return agentbus.Reserved{}, err
		}
		call.TurnKey.ID = call.Run.MintTurn(n, agentbus.Speaker(r.MintTurn))
	}
	id, changed, err := insertRow(c, insertCall, r.Key[:], &call, 0)
	if err != nil {
		return agentbus.Reserved{}, err
	}
	if changed == 0 {
		got, _, err := reserveKnown(c, *r)
		return got, err
	}
	call.ID = id
	return executes(c, call, r)
}

// executes answers a reservation whose call is stored as executing, and holds
// what it takes.
func executes(c *conn, call agentbus.CallRecord, r *agentbus.Reservation) (agentbus.Reserved, error) {
	held, err := take(c, call.ID, r)
	if err != nil {
		return agentbus.Reserved{}, err
	}
	if r.Recording != nil {
		if err := keepRecording(c, &call, r.Recording); err != nil {
			return agentbus.Reserved{}, err
		}
	}
	c.begun(r.Key, &call, held)
	return agentbus.Reserved{Outcome: agentbus.OutcomeExecute, Call: call}, nil
}

// reserveShort answers a reservation that does not fit into its budgets, unless
// its key is known: a duplicate needs no budget.
func reserveShort(c *conn, r agentbus.Reservation, missing *agentbus.Shortage) (agentbus.Reserved, error) {
	got, known, err := reserveKnown(c, r)
	if err != nil || known {
		return got, err
	}
	return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Call: r.Call, Short: missing}, nil
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

// reserveKnown decides on a reservation whose key is stored, and reports
// whether it is.
func reserveKnown(c *conn, r agentbus.Reservation) (got agentbus.Reserved, known bool, err error) {
	found, known, err := c.first("SELECT "+callColumns+", kept FROM calls WHERE key = ?1", r.Key[:])
	if err != nil || !known {
		return agentbus.Reserved{}, false, err
	}
	call := readCall(found)
	kept := found.bool()
	if found.err != nil {
		return agentbus.Reserved{}, true, found.err
	}
	outcome := outcomeOf(&call, kept, r.Call.Digest)
	dead := outcome == agentbus.OutcomeInFlight && r.TakeOver != "" && call.Owner == r.TakeOver // G24
	if outcome != agentbus.OutcomeExecute && !dead {
		return agentbus.Reserved{Outcome: outcome, Call: call}, true, nil
	}
	got, err = reserveAgain(c, call, r)
	return got, true, err
}

// outcomeOf says what a request with digest comes to whose key stands for call.
func outcomeOf(call *agentbus.CallRecord, kept bool, digest agentbus.Digest) agentbus.Outcome {
	switch {
	case call.State == agentbus.CallVoided:
		return agentbus.OutcomeExecute
	case call.Digest != digest:
		return agentbus.OutcomeMismatch
	case call.State == agentbus.CallSettled && kept:
		return agentbus.OutcomeSettled
	case call.State == agentbus.CallSettled:
		return agentbus.OutcomeExpired
	}
	return agentbus.OutcomeInFlight
}

// reserveAgain starts the next attempt of call if it fits into its budgets,
// from which what the attempt before holds is given back.
func reserveAgain(c *conn, call agentbus.CallRecord, r agentbus.Reservation) (agentbus.Reserved, error) {
	var freed taken
	var err error
	if call.State == agentbus.CallExecuting { // a voided attempt holds nothing
		if freed, err = takenBy(c, call.ID); err != nil {
			return agentbus.Reserved{}, err
		}
	}
	missing, err := short(c, &r, freed)
	if err != nil {
		return agentbus.Reserved{}, err
	}
	if missing != nil {
		return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Call: call, Short: missing}, nil
	}
	if err := freed.release(c, call.ID, false, 0); err != nil {
		return agentbus.Reserved{}, err
	}
	if call, err = again(c, call, r.Call); err != nil {
		return agentbus.Reserved{}, err
	}
	return executes(c, call, &r)
}

// again starts the next attempt of call, on behalf of the request asked. What
// the attempt before streamed is dropped.
func again(c *conn, call, asked agentbus.CallRecord) (agentbus.CallRecord, error) {
	call.State, call.Attempts = agentbus.CallExecuting, call.Attempts+1
	call.RequestID, call.Caller, call.Speaker, call.Depth = asked.RequestID, asked.Caller, asked.Speaker, asked.Depth
	call.Digest, call.Owner, call.Stream, call.Notes, call.Chain = asked.Digest, asked.Owner, asked.Stream, asked.Notes, asked.Chain
	call.Began, call.Ended = stored(asked.Began), stored(asked.Ended)
	call.Status, call.Code, call.Message = 0, "", ""
	_, err := c.exec(`UPDATE calls SET state = 'executing', attempts = ?2, request_id = ?3, caller = ?4, speaker = ?5, depth = ?6,
			digest = ?7, owner = ?8, stream = ?9, notes = ?10, began = ?11, ended = NULL, status = 0, code = '', message = '',
			chain = ?12
		WHERE id = ?1`,
		call.ID, int64(call.Attempts), call.RequestID, call.Caller, string(call.Speaker), int64(call.Depth),
		call.Digest[:], call.Owner, flag(call.Stream), notesText(call.Notes), micros(call.Began), chainText(call.Chain))
	if err != nil {
		return call, err
	}
	return call, dropFrames(c, call.ID)
}
