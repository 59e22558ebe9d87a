package sqlite

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// ClaimRunKey stores k, unless its payer used the key before and that has not
// expired at a time. It returns what is stored, and whether that is k: of
// several that claim a key at once one does (E6).
func (s *Store) ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (stored agentbus.RunKey, claimed bool, err error) {
	type claim struct {
		agentbus.RunKey
		fresh bool
	}
	got, err := write(ctx, s, "claim the key of a run", func(c *conn) (claim, error) {
		r, found, err := c.first("SELECT digest, run, expires FROM run_keys WHERE payer = ?1 AND key = ?2 AND expires > ?3",
			string(k.Payer), k.Key, at.UnixMicro())
		if err != nil {
			return claim{}, err
		}
		if found {
			return claim{RunKey: agentbus.RunKey{Payer: k.Payer, Key: k.Key, Digest: r.digest(), Run: agentbus.ExecutionID(r.text()), Expires: r.time()}}, r.err
		}
		if _, err := c.exec("DELETE FROM run_keys WHERE expires <= ?1", at.UnixMicro()); err != nil {
			return claim{}, err
		}
		_, err = c.exec("INSERT OR REPLACE INTO run_keys (payer, key, digest, run, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
			string(k.Payer), k.Key, k.Digest[:], string(k.Run), k.Expires.UnixMicro())
		return claim{RunKey: k, fresh: true}, err
	})
	return got.RunKey, got.fresh, err
}

// FreeRunKey forgets k, whose run was refused. One that another run has is kept, and
// so is that of a run that there is: its twin began it.
func (s *Store) FreeRunKey(ctx context.Context, k agentbus.RunKey) error {
	_, err := write(ctx, s, "free the key of a run", func(c *conn) (int64, error) {
		return c.exec(`DELETE FROM run_keys WHERE payer = ?1 AND key = ?2 AND run = ?3
			AND NOT EXISTS (SELECT 1 FROM executions WHERE id = ?3)`, string(k.Payer), k.Key, string(k.Run))
	})
	return err
}

// PayersRuns returns the top-level executions that a payer pays for, newest
// first, at most q.Limit of them; turns are not counted.
func (s *Store) PayersRuns(ctx context.Context, q agentbus.RunQuery) ([]agentbus.Execution, error) {
	return list(ctx, s, "list the runs of a payer", readPresent, "SELECT "+executionColumns+` FROM executions
		WHERE id = run AND payer = ?1 AND (?2 = '' OR conversation = ?2)
			AND (?3 = '' OR (began, id) < (SELECT f.began, f.id FROM executions f WHERE f.id = ?3 AND f.payer = ?1))
		ORDER BY began DESC, id DESC LIMIT ?4`, string(q.Payer), q.Workflow, string(q.Before), int64(q.Limit))
}
