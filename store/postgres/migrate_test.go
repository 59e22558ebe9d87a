package postgres_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/store/postgres"
)

// Tables that another process uses are not made newer under it, and are once it
// is gone (decision 147); a migration that came beside others is made up for.
func TestADatabaseInUseIsNotMigrated(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	older := stdlib.OpenDB(*config)
	defer func() { _ = older.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, older, os.DirFS("migrations"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 19); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.ApplyVersion(t.Context(), 21, true); err != nil {
		t.Fatal(err)
	}
	if _, err := older.ExecContext(t.Context(), "INSERT INTO owners (owner, expires) VALUES ('older', 1::bigint << 62)"); err != nil {
		t.Fatal(err)
	}
	cfg := postgres.Config{URL: url}
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(time.Second, cancel)
	defer stop.Stop()
	if _, err := postgres.Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("while another uses it: %v", err)
	}
	if version, _, err := postgres.Schema(t.Context(), cfg); version != 21 || err != nil {
		t.Errorf("its schema is %d, %v", version, err)
	}
	if _, err := older.ExecContext(t.Context(), "DELETE FROM owners"); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, url).Close(); err != nil {
		t.Error(err)
	}
	if version, newest, err := postgres.Schema(t.Context(), cfg); version != newest || err != nil {
		t.Errorf("its schema is %d, %v, want %d", version, err, newest)
	}
}
