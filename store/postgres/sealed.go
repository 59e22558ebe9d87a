package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

// seal stores the sealed credential that e came with, in place of the one
// before; not of a run that was stopped.
func seal(c *conn, e *agentbus.Execution) error {
	if len(e.Sealed) == 0 {
		return nil
	}
	_, err := c.exec(`INSERT INTO sealed_credentials (execution, sealed) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM stopped_runs WHERE run = $3)
		ON CONFLICT (execution) DO UPDATE SET sealed = excluded.sealed`, string(e.ID), e.Sealed, string(e.Run))
	return err
}

// Sealed returns the credential that an execution was opened with last, sealed
// as it came, and whether there is one (R18).
func (s *Store) Sealed(ctx context.Context, id agentbus.ExecutionID) (sealed []byte, found bool, err error) {
	return only(ctx, s, "read a sealed credential", (*row).blob, "SELECT sealed FROM sealed_credentials WHERE execution = $1", string(id))
}
