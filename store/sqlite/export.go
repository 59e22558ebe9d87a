package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentbus/agentbus"
)

// exported is what a store of another kind takes over, a table at a time, as it
// calls the columns there.
var exported = []struct{ table, query string }{
	{"meta", "SELECT name, value FROM meta WHERE name = 'install_key'"},
	{"calls", `SELECT id, key, state, attempts, payer, agent, run, path, parent, turn, turn_index, request_id, caller, speaker, depth, digest, owner,
		stream, replays, repeats, status, code, message, input_tokens, cached_tokens, output_tokens, usage_cost, estimated, cost, unbilled, notes,
		began, ended, chain FROM calls ORDER BY id`},
	{"opened_runs", "SELECT run, opened, payer FROM calls WHERE opened IS NOT NULL"},
	{"frames", "SELECT id >> 28 AS call_id, id & 0xfffffff AS place, data, packed FROM frames ORDER BY id"},
	{"replies", "SELECT call_id, head, body, packed FROM replies ORDER BY call_id"},
	{"recordings", `SELECT call_id, attempt, at, size, cut, came, went, body, packed, answer_size, answer_cut, answer, answer_packed
		FROM recordings ORDER BY call_id`},
	{"entries", "SELECT payer, seq, kind, call_id, attempt, amount, unbilled, at, hash, charged_sum, unbilled_sum, charges, accounts FROM entries ORDER BY payer, seq"},
	{"payers", "SELECT payer, max(seq) AS seq, hash, charged_sum, unbilled_sum, charges FROM entries GROUP BY payer"},
	{"accounts", "SELECT account, held, spent, calls, opened, before_spent, before_calls FROM accounts"},
	{"holds", "SELECT call_id, amount, accounts FROM holds"},
	{"stopped_runs", "SELECT run, stopped_by, reason, at FROM stopped_runs"},
	// Leases go by another clock there: all of them are over.
	{"executions", `SELECT number, id, run, conversation, definition, seed, payer, path, parent, depth, first, spec, state, halt, owner, epoch,
		iif(expires IS NULL, NULL, 0) AS expires, began, ended FROM executions ORDER BY number`},
	{"turns", `SELECT id >> 28 AS number, id & 0xfffffff AS idx, turn, odd, payer, agent, run, path, parent, speaker, digest, epoch, state, cost, attempts,
		error, began, ended, reply FROM turns ORDER BY id`},
	{"sealed_credentials", "SELECT execution, sealed FROM sealed_credentials"},
	{"api_keys", "SELECT hash, handle, principal, role, inter_agent, created, revoked, grants FROM api_keys ORDER BY rowid"},
	{"interrupts", `SELECT number, id, run, execution, root, turn, payer, path, ask, policy, resume, raised, expires, decision, text, resolution,
		decided_by, decided FROM interrupts ORDER BY number`},
	{"remote_tasks", "SELECT agent, id, upstream, payer, context, seen FROM remote_tasks"},
	{"a2a_tasks", "SELECT id, agent, principal, payer, context, state, version, owner, created, updated, shown, work, sealed, waits FROM a2a_tasks"},
	{"a2a_messages", "SELECT principal, agent, message, digest, task, at FROM a2a_messages"},
	{"run_keys", "SELECT payer, key, digest, run, expires FROM run_keys"},
	{"a2a_sessions", "SELECT key, state, at FROM a2a_sessions"},
	{"used_proofs", "SELECT digest, expires FROM used_proofs"},
	{"hop_tokens", "SELECT id, run, request, sent, token, at FROM hop_tokens ORDER BY id"},
	{"actions", "SELECT id, at, who, kind, object, run, detail, code, request FROM actions ORDER BY id"},
	{"drained_agents", "SELECT agent, drained_by, at FROM drained_agents"},
}

// Export gives row everything that the store holds, in one state of it, for a
// store of another kind to take over: a row of a table at a time, whose values
// are int64, string, []byte or nil. It ends with the first error of row.
func (s *Store) Export(ctx context.Context, row func(table string, columns []string, values []any) error) (err error) {
	const what = "read everything"
	c, err := s.readers.Conn(ctx)
	if err != nil {
		return unavailable(what, err)
	}
	defer func() { _ = c.Close() }() // it goes back to the pool
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return unavailable(what, err)
	}
	defer func() {
		_, end := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, end)
	}()
	for _, e := range exported {
		if err := export(ctx, c, e.table, e.query, row); err != nil {
			return fmt.Errorf("copy %s: %w", e.table, err)
		}
	}
	return errors.Join(exportEvents(ctx, c, row), exportHeld(ctx, c, row))
}

// exportEvents exports what stands in batches, an event at a time.
func exportEvents(ctx context.Context, c *sql.Conn, row func(table string, columns []string, values []any) error) error {
	columns := []string{"number", "position", "at", "type", "run", "turn", "cause", "data", "node"}
	return export(ctx, c, "events", `SELECT e.number, e.id, b.id & 0xfffffff, b.packed, b.events FROM event_batches b JOIN executions e ON e.number = b.id >> 28
		ORDER BY b.id`, func(table string, _ []string, values []any) error {
		r := newRow(values[1:])
		for _, e := range readEvents(r, agentbus.ExecutionID(r.text())) {
			err := row(table, columns, []any{values[0], int64(e.Position), micros(e.At), e.Type, string(e.Run), string(e.Turn), string(e.Cause), blob(e.Data), e.Node})
			if err != nil {
				return err
			}
		}
		return r.err
	})
}

// exportHeld exports the events that wait for their position. Their place among
// those of their batch becomes a part of their arrival.
func exportHeld(ctx context.Context, c *sql.Conn, row func(table string, columns []string, values []any) error) error {
	columns := []string{"number", "hold", "arrival", "at", "type", "run", "turn", "cause", "data", "node", "back"}
	return export(ctx, c, "held_events", "SELECT number, hold, arrival, packed, events FROM held_batches ORDER BY number, arrival",
		func(table string, _ []string, values []any) error {
			r := newRow(values[2:])
			arrival := r.int64()
			var list []storedEvent
			if err := json.Unmarshal(unpackEvents(r), &list); err != nil {
				return err
			}
			for i := range list {
				s := &list[i]
				var at, data any
				if s.At != 0 {
					at = s.At
				}
				if s.Data != nil {
					data = []byte(*s.Data)
				}
				err := row(table, columns, []any{values[0], values[1], arrival<<20 + int64(i), at, s.Type, string(s.Run), string(s.Turn), string(s.Cause), data, s.Node, int64(s.Back)})
				if err != nil {
					return err
				}
			}
			return r.err
		})
}

func newRow(values []any) *row { return &row{values: values} }

func export(ctx context.Context, c *sql.Conn, table, query string, row func(table string, columns []string, values []any) error) error {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := row(table, columns, values); err != nil {
			return err
		}
	}
	return rows.Err()
}
