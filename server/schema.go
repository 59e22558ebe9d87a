package server

import (
	"context"

	"github.com/agentbus/agentbus/server/config"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/sqlite"
)

// Schema returns the schema version of the configured store, 0 when there is
// nothing in it yet, and the newest that this build knows, to which [New] brings
// it. It changes nothing. A file that is not there is an fs.ErrNotExist.
func Schema(ctx context.Context, c *config.Config) (version, newest int64, err error) {
	if c.Store.SQLite != "" {
		return sqlite.Schema(c.Store.SQLite)
	}
	return postgres.Schema(ctx, postgres.Config{URL: c.Store.URL, Password: c.Store.Password})
}
