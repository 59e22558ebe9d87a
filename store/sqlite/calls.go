package sqlite

import (
	"context"

	"github.com/agentbus/agentbus"
)

// callColumns are the columns readCall reads, in its order.
const callColumns = `id, state, attempts, payer, agent, run, path, parent, turn, request_id, caller, speaker, depth, digest,
	owner, stream, replays, repeats, status, code, message, input_tokens, cached_tokens, output_tokens, usage_cost, estimated,
	cost, unbilled, notes, began, ended, chain`

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

// opened is the time at which the row about to be inserted opens its run, or
// NULL when the run is known or has no id.
const opened = "CASE WHEN ?5 <> '' AND NOT EXISTS (SELECT 1 FROM calls WHERE run = ?5) THEN ?18 END"

// insertCall stores a new call. It changes nothing when the key is known.
const insertCall = `INSERT INTO calls (key, state, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker,
		depth, digest, owner, stream, notes, began, attempts, opened, chain)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 1, ` + opened + `, ?19)
	ON CONFLICT (key) DO NOTHING`

// insertRefused stores a hop that executed nothing. It changes nothing when the key
// is known.
const insertRefused = `INSERT INTO calls (key, state, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker,
		depth, digest, owner, stream, notes, began, attempts, opened, status, code, message, repeats, ended, chain)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 0, ` + opened + `,
		?20, ?21, ?22, ?23, ?24, ?19)
	ON CONFLICT (key) DO NOTHING`

// repeatRefused counts repetitions of it. In one statement with the insert, SQLite
// would keep a journal of every insert, for the trigger that this one may fire.
const repeatRefused = "UPDATE calls SET repeats = repeats + ?2 + 1, ended = ?3 WHERE key = ?1"

// insertRow runs insertCall or insertRefused. What it hands on stays on its stack: a
// refusal is little more than these values, and each would be memory of its own.
func insertRow(c *conn, query string, key []byte, r *agentbus.CallRecord, repeats int64) (id, changed int64, err error) {
	return c.insert(query,
		key, string(r.State), string(r.Payer), r.Agent, string(r.Run), r.Path, string(r.Parent), string(r.TurnKey.ID), int64(r.TurnKey.ID.Index(r.Run)),
		r.RequestID, r.Caller, string(r.Speaker), int64(r.Depth), r.Digest[:], r.Owner, flag(r.Stream), notesText(r.Notes), micros(r.Began),
		chainText(r.Chain), int64(r.Status), string(r.Code), r.Message, repeats, micros(r.Ended))
}

// insertRefusal writes what [Store.Record] noted.
func insertRefusal(c *conn, r *refusalNote) error {
	// Apart from the keys of calls, and those of one run side by side, in the order
	// of runs as the index of runs has it: fewer pages are written for them.
	room := [128]byte{'r'}
	key := append(append(room[:1], r.record.Run...), r.key[:]...)
	_, stored, err := insertRow(c, insertRefused, key, &r.record, r.repeats)
	if err == nil && stored == 0 {
		_, err = c.exec(repeatRefused, key, r.repeats, micros(r.record.Ended))
	}
	return err
}

// Calls returns the calls and refusals of a run by id, which is the order in
// which the ledger first saw them. It includes everything that this process
// queued before; a run it does not know has none.
func (s *Store) Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error) {
	const what = "read the calls of a run"
	_, err := write(ctx, s, what, func(*conn) (struct{}, error) { return struct{}{}, nil }) // behind everything queued
	if err != nil {
		return nil, err
	}
	return list(ctx, s, what, readCall, "SELECT "+callColumns+" FROM calls WHERE run = ?1 ORDER BY id", string(run))
}
