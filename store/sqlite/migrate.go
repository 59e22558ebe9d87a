package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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

// errInUse is why the tables of a store stay as they are.
var errInUse = errors.New("its tables are older than this version, and another process has it open, " +
	"which would go on writing them as they were; end that process first")

// migrateAlone brings the tables of a store up to date that other processes may
// use: one of an older version that goes on would not count what the new tables
// do (decision 147). It fails with [errInUse] while there is one, and keeps others
// from opening the file until it is done. It is one try, and leaves no writer:
// who waits for others must not keep them waiting.
func (s *Store) migrateAlone(ctx context.Context, dsn string) error {
	writer := s.writer
	s.writer = nil
	if err := writer.close(); err != nil {
		return err
	}
	// Two that wait with the file open would keep each other waiting.
	db, err := pool(strings.Replace(dsn, busyTimeout, "busy_timeout(0)&_pragma=locking_mode(EXCLUSIVE)", 1))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // everything is committed, or rolled back
	db.SetMaxOpenConns(1)             // which keeps the lock that its first transaction takes
	if _, err := db.ExecContext(ctx, "BEGIN IMMEDIATE; COMMIT"); err != nil {
		if code := sqliteCode(err); code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED {
			err = fmt.Errorf("%w: %w", errInUse, err)
		}
		return err
	}
	return upgrade(ctx, db)
}

// migrate makes the tables of a store that is empty. When two processes do at
// once, the one that loses a migration goes on behind it, or finds the work done.
func (s *Store) migrate(ctx context.Context, dsn string) error {
	db, err := pool(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // everything is committed, or rolled back
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range migrateTries {
		if err = upgrade(ctx, db); err == nil {
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
	return err
}

// pool returns the connections that migrations use.
func pool(dsn string) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// upgrade runs the migrations that a store lacks. Each is one transaction that
// also sets user_version, so that a store that is up to date opens without asking
// goose. Stores of builds between two releases may lack one that came beside
// others.
func upgrade(ctx context.Context, db *sql.DB) error {
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, folder, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()),
		goose.WithAllowOutofOrder(true), goose.WithGoMigrations(goose.NewGoMigration(3, &goose.GoFunc{RunTx: chainKnownCalls}, nil)))
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate to schema %d: %w", schemaVersion, err)
	}
	return nil
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
