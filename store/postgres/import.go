package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// flags are the columns that are true or false here, and 0 or 1 where they come
// from.
var flags = []string{"stream", "estimated", "packed", "odd", "inter_agent", "sent", "cut", "answer_cut", "answer_packed"}

// A copying is rows on their way into a table.
type copying struct {
	c       *conn
	table   string
	columns []string
	rows    [][]any
	size    int
	counts  map[string]int64 // of all tables
}

// A stretch of rows is sent at either limit.
const (
	copyRows  = 5_000
	copyBytes = 8 << 20
)

// Import fills an empty store with what export gives, a row of a table at a
// time: all of it, in one transaction, or nothing. Before it is committed the
// rows are counted again and the ledger is verified, which must find what the
// source's found. No process may use either store meanwhile; this one is closed
// and opened again after it.
func (s *Store) Import(ctx context.Context, want agentbus.LedgerVerdict,
	export func(context.Context, func(table string, columns []string, values []any) error) error,
) (counts map[string]int64, err error) {
	const what = "take over another store"
	counts = make(map[string]int64)
	tx, err := s.readers.Begin(ctx)
	if err != nil {
		return nil, unavailable(ctx, what, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // unless it was committed
	k := &copying{c: &conn{ctx: ctx, raw: tx.Conn()}, counts: counts}
	if err := k.empty(); err != nil {
		return nil, unavailable(ctx, what, err)
	}
	if err := export(ctx, k.row); err != nil {
		return nil, unavailable(ctx, what, err)
	}
	if err = k.flush(); err == nil {
		err = k.verify(want)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	return counts, unavailable(ctx, what, err)
}

// empty refuses a store that holds something, or that somebody uses.
func (k *copying) empty() error {
	if _, err := k.c.exec("LOCK TABLE calls, executions, api_keys, interrupts, a2a_tasks, owners IN EXCLUSIVE MODE"); err != nil {
		return err
	}
	r, _, err := k.c.first(`SELECT EXISTS (SELECT 1 FROM calls) OR EXISTS (SELECT 1 FROM executions) OR EXISTS (SELECT 1 FROM api_keys)
			OR EXISTS (SELECT 1 FROM interrupts) OR EXISTS (SELECT 1 FROM a2a_tasks) OR EXISTS (SELECT 1 FROM stopped_runs),
		EXISTS (SELECT 1 FROM owners WHERE expires > ` + nowMicros + ")")
	if err != nil {
		return err
	}
	switch filled, used := r.bool(), r.bool(); {
	case filled:
		return refusal(agentbus.CodeInvalidRequest, "the database is not empty; name an empty one")
	case used:
		return refusal(agentbus.CodeInvalidRequest, "a bus uses the database; stop it first")
	}
	_, err = k.c.exec("DELETE FROM meta WHERE name = 'install_key'") // that of the source takes its place
	return err
}

// row takes a row.
func (k *copying) row(table string, columns []string, values []any) error {
	if table != k.table || len(k.rows) == copyRows || k.size > copyBytes {
		if err := k.flush(); err != nil {
			return err
		}
		k.table, k.columns = table, columns
	}
	for i, v := range values {
		switch v := v.(type) {
		case string:
			values[i] = storable(v)
			k.size += len(v)
		case []byte:
			k.size += len(v)
		case int64:
			if slices.Contains(flags, columns[i]) {
				values[i] = v != 0
			}
		}
	}
	k.rows = append(k.rows, values)
	return nil
}

// flush sends the rows that wait.
func (k *copying) flush() error {
	if len(k.rows) == 0 {
		return nil
	}
	n, err := k.c.raw.CopyFrom(k.c.ctx, pgx.Identifier{k.table}, k.columns, pgx.CopyFromRows(k.rows))
	if err != nil {
		return fmt.Errorf("copy into %s: %w", k.table, err)
	}
	k.counts[k.table] += n
	k.rows, k.size = nil, 0
	return nil
}

// verify counts what is there, holds the ledger to what it was, and lets new
// rows come behind.
func (k *copying) verify(want agentbus.LedgerVerdict) error {
	for table, n := range k.counts {
		if table == "meta" {
			continue // it has more of its own
		}
		r, _, err := k.c.first("SELECT count(*) FROM " + pgx.Identifier{table}.Sanitize())
		if err != nil {
			return err
		}
		if got := r.int64(); got != n {
			return &rowError{fmt.Errorf("%s has %d rows, %d were copied", table, got, n)}
		}
	}
	a := &audit{charged: make(map[int64]uint64)}
	err := a.all(func(f func(*row) bool, query string, args ...any) error {
		found, err := k.c.raw.Query(k.c.ctx, query, arguments(args)...)
		if err != nil {
			return err
		}
		return scan(found, f)
	})
	if err != nil {
		return err
	}
	if a.verdict.Fault != "" || a.verdict != want {
		return &rowError{errors.New("the ledger that was copied is not the one that was there: " + a.verdict.Fault)}
	}
	for _, set := range []string{
		"SELECT setval('call_ids', greatest((SELECT max(id) FROM calls), 1))",
		"SELECT setval(pg_get_serial_sequence('executions', 'number'), greatest((SELECT max(number) FROM executions), 1))",
		"SELECT setval(pg_get_serial_sequence('interrupts', 'number'), greatest((SELECT max(number) FROM interrupts), 1))",
		"SELECT setval(pg_get_serial_sequence('hop_tokens', 'id'), greatest((SELECT max(id) FROM hop_tokens), 1))",
		"SELECT setval(pg_get_serial_sequence('actions', 'id'), greatest((SELECT max(id) FROM actions), 1))",
	} {
		if _, _, err := k.c.first(set); err != nil {
			return err
		}
	}
	return nil
}
