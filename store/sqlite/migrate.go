package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/agentbus/agentbus"
)

// schemaVersion is the newest migration, and the user_version it leaves.
const schemaVersion = 30

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings an older schema up to date. Each migration is one transaction
// that also sets user_version, so that a store that is up to date opens without
// asking goose. When two processes migrate at once, the one that loses a
// migration goes on behind it, or finds the work done.
func (s *Store) migrate(ctx context.Context, dsn string) error {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // everything is committed, or rolled back
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, folder, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()),
		goose.WithGoMigrations(goose.NewGoMigration(3, &goose.GoFunc{RunTx: chainKnownCalls}, nil)))
	if err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range migrateTries {
		if _, err = provider.Up(ctx); err == nil {
			return nil
		}
		if version, verr := s.identify(); verr == nil && version == schemaVersion {
			return nil
		}
		if fatal(err) || sqliteCode(err) == codes.SQLITE_FULL {
			break // the disk's doing, not another process's
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("migrate to schema %d: %w", schemaVersion, err)
}

// migrateTries is how often a migration is tried that fails: another process
// may be in the middle of the same ones.
const migrateTries = 100

// chainKnownCalls is the third migration: it writes the entries of calls that
// ended before there were any. What is not known any more of a call's failed
// attempts is put together in one entry.
func chainKnownCalls(ctx context.Context, tx *sql.Tx) error {
	heads := make(map[agentbus.Payer]*link)
	for after, more := int64(0), true; more; {
		calls, err := endedCalls(ctx, tx, after)
		if err != nil {
			return err
		}
		for i := range calls {
			after = calls[i].ID
			head := heads[calls[i].Payer]
			if head == nil {
				head = &link{}
				heads[calls[i].Payer] = head
			}
			if err := chainCall(ctx, tx, head, &calls[i].CallRecord, calls[i].key); err != nil {
				return err
			}
		}
		more = len(calls) > 0
	}
	_, err := tx.ExecContext(ctx, "PRAGMA user_version = 3")
	return err
}

// A keyedCall is a call with its key.
type keyedCall struct {
	agentbus.CallRecord

	key agentbus.Digest
}

// endedCalls returns the next calls after an id of which an attempt has ended.
func endedCalls(ctx context.Context, tx *sql.Tx, after int64) (calls []keyedCall, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, key, payer, agent, run, turn, state, attempts, cost, unbilled, coalesce(ended, began) FROM calls
		WHERE id > ?1 AND (state IN ('settled', 'voided') OR state = 'executing' AND attempts > 1) ORDER BY id LIMIT 1000`, after)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c keyedCall
		var key []byte
		var ended any
		err := rows.Scan(&c.ID, &key, &c.Payer, &c.Agent, &c.Run, &c.TurnKey.ID, &c.State, &c.Attempts, &c.Cost, &c.Unbilled, &ended)
		if err != nil {
			return nil, err
		}
		copy(c.key[:], key)
		c.Ended = (&row{values: []any{ended}}).time()
		calls = append(calls, c)
	}
	return calls, rows.Err()
}

// insertChained is insertEntry as of schema 3.
const insertChained = `INSERT INTO entries (payer, seq, kind, call_id, attempt, amount, unbilled, at, hash, charged_sum, unbilled_sum, charges)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`

// chainCall writes what c came to: its failed attempts, then its charge.
func chainCall(ctx context.Context, tx *sql.Tx, head *link, c *agentbus.CallRecord, key agentbus.Digest) error {
	e := agentbus.Entry{
		Payer: c.Payer, Kind: agentbus.EntryVoid, Call: c.ID, Attempt: c.Attempts, Key: key,
		Agent: c.Agent, Run: c.Run, Turn: c.TurnKey.ID, Unbilled: c.Unbilled, At: c.Ended,
	}
	if c.State != agentbus.CallVoided {
		e.Attempt--
	}
	if e.Attempt > 0 {
		next := head.append(&e)
		if _, err := tx.ExecContext(ctx, insertChained, next.args(&e)...); err != nil {
			return err
		}
		*head = next
	}
	if c.State != agentbus.CallSettled {
		return nil
	}
	e.Kind, e.Attempt, e.Amount, e.Unbilled = agentbus.EntryCharge, c.Attempts, c.Cost, 0
	next := head.append(&e)
	_, err := tx.ExecContext(ctx, insertChained, next.args(&e)...)
	*head = next
	return err
}
