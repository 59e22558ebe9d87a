package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// oldest is the oldest version of the server that the store works on.
const oldest = 150000

// prepare brings the schema up to date, under a lock of the database: processes
// that start together wait for the first.
func prepare(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) error {
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }() // everything is committed, or rolled back
	provider, version, newest, err := schema(ctx, db)
	if err != nil {
		return err
	}
	switch {
	case version > newest:
		return fmt.Errorf("it was written by a newer agentbus (schema %d; this one knows %d); run the newer version, or name another database", version, newest)
	case version == newest:
		return nil
	}
	if version, err = alone(ctx, db, version, newest); err != nil || version >= newest {
		return err // another one has migrated meanwhile
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate to schema %d: %w", newest, err)
	}
	log.LogAttrs(ctx, slog.LevelInfo, "store is up to date", slog.String("database", config.Database), slog.Int64("schema", newest))
	return nil
}

// errInUse is why the tables of a database stay as they are.
var errInUse = errors.New("its tables are older than this version, and other processes use it, which would go on writing them as they were; end all of them first")

// alone waits until no other process uses a database whose tables are older: it
// would go on without counting what the new tables do (decision 147). One that
// was killed is known to be dead after beatLasts. It returns the version that the
// tables have then, and fails with [errInUse] when somebody stays.
func alone(ctx context.Context, db *sql.DB, version, newest int64) (int64, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(beatLasts + beatEvery); 0 < version && version < newest; {
		var used bool
		err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM owners WHERE expires > "+nowMicros+")").Scan(&used)
		if err != nil || !used {
			return version, err
		}
		if time.Now().After(late) {
			return version, errInUse
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return version, fmt.Errorf("%w: %w", errInUse, ctx.Err())
		}
		if version, err = identify(ctx, db); err != nil {
			return version, err
		}
	}
	return version, nil
}

// schema returns the migrations, the schema version of a database, and the newest
// there is.
func schema(ctx context.Context, db *sql.DB) (provider *goose.Provider, version, newest int64, err error) {
	if version, err = identify(ctx, db); err != nil {
		return nil, 0, 0, err
	}
	if provider, err = newProvider(db); err != nil {
		return nil, 0, 0, err
	}
	sources := provider.ListSources()
	return provider, version, sources[len(sources)-1].Version, nil
}

// Schema returns the schema version of the database that cfg names, 0 of an empty
// one, and the newest that this build knows, to which [Open] brings it. It
// changes nothing.
func Schema(ctx context.Context, cfg Config) (version, newest int64, err error) {
	config, err := poolConfig(cfg)
	if err != nil {
		return 0, 0, err
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer func() { _ = db.Close() }() // it was only read
	_, version, newest, err = schema(ctx, db)
	return version, newest, err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, folder, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()),
		goose.WithSessionLocker(locker), goose.WithAllowOutofOrder(true)) // builds between two releases may lack one that came beside others
}

// identify returns the schema version of a database: 0 when it is empty. It
// fails when the database belongs to another program, before anything is
// changed.
func identify(ctx context.Context, db *sql.DB) (version int64, err error) {
	var server, tables int64
	var ours, known bool
	err = db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::bigint,
			(SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname <> 'goose_db_version'),
			to_regclass('payers') IS NOT NULL AND to_regclass('seats') IS NOT NULL, to_regclass('goose_db_version') IS NOT NULL`).Scan(&server, &tables, &ours, &known)
	switch {
	case err != nil:
		return 0, err
	case server < oldest:
		return 0, fmt.Errorf("its server is of version %d; agentbus needs PostgreSQL 15 or newer", server/10000)
	case tables > 0 && !ours:
		return 0, errors.New("it is the database of another program and was left as it is; name an empty one")
	case !ours || !known:
		return 0, nil
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&version)
	return version, err
}
