package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

// schemaVersion is the newest migration, and the user_version it leaves.
const schemaVersion = 1

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings an older schema up to date. Each migration is one transaction
// that also sets user_version, so that a store that is up to date opens without
// asking goose. When two processes migrate at once, the one that loses finds
// the work done.
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
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, folder, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if _, err = provider.Up(ctx); err == nil {
		return nil
	}
	if version, verr := s.identify(); verr == nil && version == schemaVersion {
		return nil
	}
	return fmt.Errorf("migrate to schema %d: %w", schemaVersion, err)
}
