package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

// callColumns are the columns readCall reads, in its order, of calls c.
const callColumns = `c.id, c.state, c.attempts, c.payer, c.agent, c.run, c.path, c.parent, c.turn, c.request_id, c.caller, c.speaker, c.depth,
	c.digest, c.owner, c.stream, c.replays, c.repeats, c.status, c.code, c.message, c.input_tokens, c.cached_tokens, c.output_tokens,
	c.usage_cost, c.estimated, c.cost, c.unbilled, c.notes, c.began, c.ended, c.chain`

func readCall(r *row) agentbus.CallRecord {
	c := agentbus.CallRecord{ID: r.int64(), State: agentbus.CallState(r.text()), Attempts: r.int()}
	c.TurnKey = readTurnKey(r)
	c.RequestID, c.Caller, c.Speaker = r.text(), r.text(), agentbus.Speaker(r.text())
	c.Depth, c.Digest = r.int(), r.digest()
	c.Owner, c.Stream = r.text(), r.bool()
	c.Replays, c.Repeats = r.int(), r.int()
	c.Status, c.Code, c.Message = r.int(), agentbus.Code(r.text()), r.text()
	c.Usage = agentbus.Usage{
		InputTokens: r.int64(), CachedTokens: r.int64(), OutputTokens: r.int64(), Cost: r.micros(), Estimated: r.bool(),
	}
	c.Cost, c.Unbilled = r.micros(), r.micros()
	r.json(&c.Notes)
	c.Began, c.Ended = r.time(), r.time()
	r.json(&c.Chain)
	return c
}

// readTurnKey reads payer, agent, run, path, parent and turn.
func readTurnKey(r *row) agentbus.TurnKey {
	return agentbus.TurnKey{
		Payer: agentbus.Payer(r.text()), Agent: r.text(), Run: agentbus.RunID(r.text()),
		Path: r.text(), Parent: agentbus.TurnID(r.text()), ID: agentbus.TurnID(r.text()),
	}
}

const callSheetColumns = `id int8, key bytea, state text, attempts int8, payer text, agent text, run text, path text, parent text, turn text,
	turn_index int8, request_id text, caller text, speaker text, depth int8, digest bytea, owner text, stream bool, replays int8, repeats int8,
	status int8, code text, message text, input_tokens int8, cached_tokens int8, output_tokens int8, usage_cost int8, estimated bool, cost int8,
	unbilled int8, notes text, began int8, ended int8, chain text`

// What the ledger writes to.
var (
	callSheet    = newSheet("calls", callSheetColumns, replacing("payer, id", callSheetColumns))
	frameSheet   = newSheet("frames", "call_id int8, place int8, data bytea, packed bool", "")
	replySheet   = newSheet("replies", "call_id int8, head text, body bytea, packed bool", "")
	holdSheet    = newSheet("holds", "call_id int8, amount int8, accounts text", "")
	entrySheet   = newSheet("entries", entrySheetColumns, "")
	payerSheet   = newSheet("payers", payerSheetColumns, replacing("payer", payerSheetColumns))
	accountSheet = newSheet("accounts", accountSheetColumns, replacing("account", accountSheetColumns))
	runSheet     = newSheet("opened_runs", "run text, opened int8, payer text", "ON CONFLICT (run) DO NOTHING")
)

const (
	entrySheetColumns = `payer text, seq int8, kind text, call_id int8, attempt int8, amount int8, unbilled int8, at int8, hash bytea,
		charged_sum int8, unbilled_sum int8, charges int8, accounts text`
	payerSheetColumns   = "payer text, seq int8, hash bytea, charged_sum int8, unbilled_sum int8, charges int8"
	accountSheetColumns = "account text, held int8, spent int8, calls int8, opened int8"
)

// callValues returns a row of callSheet.
func callValues(k *call) []any {
	c := &k.CallRecord
	return []any{
		c.ID, k.key, string(c.State), int64(c.Attempts), string(c.Payer), c.Agent, string(c.Run), c.Path, string(c.Parent), string(c.TurnKey.ID),
		int64(c.TurnKey.ID.Index(c.Run)), c.RequestID, c.Caller, string(c.Speaker), int64(c.Depth), c.Digest[:], c.Owner, c.Stream, int64(c.Replays), int64(c.Repeats),
		int64(c.Status), string(c.Code), c.Message, c.Usage.InputTokens, c.Usage.CachedTokens, c.Usage.OutputTokens, int64(c.Usage.Cost), c.Usage.Estimated, int64(c.Cost),
		int64(c.Unbilled), notesText(c.Notes), micros(c.Began), micros(c.Ended), chainText(c.Chain),
	}
}

// Calls returns the calls and refusals of a run by id, which is about the order
// in which the ledger first saw them. It includes everything that this process
// queued before; a run it does not know has none.
func (s *Store) Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error) {
	const what = "read the calls of a run"
	if err := s.settled(ctx, what); err != nil {
		return nil, err
	}
	return list(ctx, s, what, readCall, "SELECT "+callColumns+" FROM calls c WHERE c.run = $1 ORDER BY c.id", string(run))
}
