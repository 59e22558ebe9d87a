package postgres

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
// CodeRunStopped: the call would be executed, and its run was stopped, by
// whatever process: once that is durable, nobody executes anything of it (G14).
//
// With OutcomeExecute the call holds r.Hold.Amount of each of its budgets, in
// place of what an attempt before it held, until it is settled or voided.
//
// Of a known key, Call keeps the run and turn ids that were first given or
// minted (P7).
func (s *Store) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	const what = "reserve a call"
	var got agentbus.Reserved
	recording, err := recordingOf(r.Recording)
	if err != nil {
		return agentbus.Reserved{}, unavailable(ctx, what, &rowError{err})
	}
	err = of(s.ledger, string(r.Call.Payer)).do(ctx, s, what, func(p *ledgerPage) {
		p.wantKey(r.Call.Payer, r.Key[:])
		p.wantHold(r.Hold)
		p.wantsRuns[r.Call.Run] = true
		p.fresh++
		if r.MintTurn != "" {
			p.minted[beside{r.Call.Run, r.Call.Payer, r.Call.Parent}] = 0
		}
	}, func(p *ledgerPage) (err error) {
		if got, err = p.reserve(&r); err == nil && got.Outcome == agentbus.OutcomeExecute && recording != nil {
			p.recorded = append(p.recorded, recorded{recording, got.Call.ID, got.Call.Attempts, got.Call.Began})
		}
		return err
	})
	if err != nil {
		return agentbus.Reserved{}, err // got may be written to still
	}
	if got.Outcome != agentbus.OutcomeSettled {
		return got, nil
	}
	// The answer never changes once it is settled, so it is read beside the
	// committers; the count of replays is not waited for.
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

// errStopped answers who would do something for a run that was stopped.
var errStopped = refusal(agentbus.CodeRunStopped, "this run was stopped by its operator")

// reserve decides on a reservation.
func (p *ledgerPage) reserve(r *agentbus.Reservation) (agentbus.Reserved, error) {
	if k := p.byKey[keyed{r.Call.Payer, string(r.Key[:])}]; k != nil {
		return p.reserveKnown(k, r)
	}
	if p.stopped[r.Call.Run] {
		return agentbus.Reserved{}, errStopped
	}
	if missing := p.short(r, taken{}); missing != nil {
		return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Call: r.Call, Short: missing}, nil
	}
	c := r.Call
	c.State, c.Attempts = agentbus.CallExecuting, 1
	c.Began, c.Ended = stored(c.Began), stored(c.Ended)
	if r.MintTurn != "" {
		n := p.minted[beside{c.Run, c.Payer, c.Parent}]
		c.TurnKey.ID = c.Run.MintTurn(n, agentbus.Speaker(r.MintTurn))
	}
	k := p.insert(c, r.Key[:])
	p.take(k, r)
	return agentbus.Reserved{Outcome: agentbus.OutcomeExecute, Call: k.CallRecord}, nil
}

// reserveKnown decides on a reservation whose key is stored.
func (p *ledgerPage) reserveKnown(k *call, r *agentbus.Reservation) (agentbus.Reserved, error) {
	outcome := outcomeOf(&k.CallRecord, k.kept, r.Call.Digest)
	dead := outcome == agentbus.OutcomeInFlight && r.TakeOver != "" && k.Owner == r.TakeOver // G24
	if outcome != agentbus.OutcomeExecute && !dead {
		return agentbus.Reserved{Outcome: outcome, Call: k.CallRecord}, nil
	}
	if p.stopped[k.Run] {
		return agentbus.Reserved{}, errStopped
	}
	var freed taken
	if k.State == agentbus.CallExecuting { // a voided attempt holds nothing
		freed = k.held
	}
	if missing := p.short(r, freed); missing != nil {
		return agentbus.Reserved{Outcome: agentbus.OutcomeShort, Call: k.CallRecord, Short: missing}, nil
	}
	p.release(k, false, 0)
	k.again(&r.Call)
	p.take(k, r)
	return agentbus.Reserved{Outcome: agentbus.OutcomeExecute, Call: k.CallRecord}, nil
}

// outcomeOf says what a request with digest comes to whose key stands for c.
func outcomeOf(c *agentbus.CallRecord, kept bool, digest agentbus.Digest) agentbus.Outcome {
	switch {
	case c.State == agentbus.CallVoided:
		return agentbus.OutcomeExecute
	case c.Digest != digest:
		return agentbus.OutcomeMismatch
	case c.State == agentbus.CallSettled && kept:
		return agentbus.OutcomeSettled
	case c.State == agentbus.CallSettled:
		return agentbus.OutcomeExpired
	}
	return agentbus.OutcomeInFlight
}

// again starts the next attempt of a call, on behalf of the request asked. What
// the attempt before streamed is dropped.
func (k *call) again(asked *agentbus.CallRecord) {
	k.State, k.Attempts = agentbus.CallExecuting, k.Attempts+1
	k.RequestID, k.Caller, k.Speaker, k.Depth = asked.RequestID, asked.Caller, asked.Speaker, asked.Depth
	k.Digest, k.Owner, k.Stream, k.Notes, k.Chain = asked.Digest, asked.Owner, asked.Stream, asked.Notes, asked.Chain
	k.Began, k.Ended = stored(asked.Began), stored(asked.Ended)
	k.Status, k.Code, k.Message = 0, "", ""
	k.changed = true
	k.dropFrames()
}
