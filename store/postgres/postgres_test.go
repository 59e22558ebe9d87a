package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/storetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(beChild(url))
	}
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// stores are empty stores, each in a database of its own.
var stores = pgtest.Pool{Keep: "goose_db_version", Fill: func(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, postgres.Config{URL: url})
	if err != nil {
		return err
	}
	return s.Close()
}}

// opened opens the store in the database at url.
func opened(tb testing.TB, url string) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), postgres.Config{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestPromises(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, dir string) storetest.Store {
		t.Helper()
		note := filepath.Join(dir, "database") // the same directory is the same store
		url, err := os.ReadFile(note)
		if err != nil {
			url = []byte(stores.Database(t))
			if err := os.WriteFile(note, url, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return opened(t, string(url))
	})
}
