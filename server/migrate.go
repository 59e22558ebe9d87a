package server

import (
	"context"
	"errors"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/sqlite"
)

// Moved is what a migration took over.
type Moved struct {
	Rows   map[string]int64       `json:"rows"` // by table
	Ledger agentbus.LedgerVerdict `json:"ledger"`
}

// Migrate brings the tables of the configured store up to date and, where from
// names the file of a SQLite store, fills the PostgreSQL store with all of it:
// everything or nothing, verified before it counts. No bus may run on either of
// them. CodeInvalidRequest: the configured store is no PostgreSQL, or not empty.
func Migrate(ctx context.Context, c *config.Config, from string) (moved Moved, err error) {
	if c.Store.SQLite != "" {
		if from != "" {
			return moved, &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: "the configured store is a file, and nothing was copied",
				Explain: &agentbus.Explain{Observed: c.Store.URL, Next: "let store.url name a PostgreSQL database: that is where the copy goes"},
			}
		}
		s, err := sqlite.Open(ctx, sqlite.Config{Path: c.Store.SQLite})
		if err != nil {
			return moved, err
		}
		return moved, s.Close()
	}
	to, err := postgres.Open(ctx, postgres.Config{URL: c.Store.URL, Password: c.Store.Password})
	if err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if from == "" {
		return moved, nil
	}
	source, err := sqlite.Open(ctx, sqlite.Config{Path: from})
	if err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if moved.Ledger, err = source.VerifyLedger(ctx); err != nil {
		return moved, err
	}
	if moved.Ledger.Fault != "" {
		return moved, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "the ledger of " + from + " is not in order, and nothing was copied: " + moved.Ledger.Fault,
			Explain: &agentbus.Explain{Rule: "G28", Next: "see agentbus ledger verify"},
		}
	}
	moved.Rows, err = to.Import(ctx, moved.Ledger, source.Export)
	return moved, err
}
