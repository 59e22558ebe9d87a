package postgres

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// ClaimRunKey stores k, unless its payer used the key before and that has not
// expired at a time. It returns what is stored, and whether that is k: of
// several that claim a key at once one does (E6).
func (s *Store) ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (stored agentbus.RunKey, claimed bool, err error) {
	const what = "claim the key of a run"
	n, err := write(ctx, s, what, func(c *conn) (int64, error) {
		return c.exec(`INSERT INTO run_keys (payer, key, digest, run, expires) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (payer, key) DO UPDATE SET digest = $3, run = $4, expires = $5 WHERE run_keys.expires <= $6`,
			string(k.Payer), k.Key, k.Digest[:], string(k.Run), k.Expires.UnixMicro(), at.UnixMicro())
	})
	if err != nil || n > 0 {
		return k, err == nil, err
	}
	stored, _, err = only(ctx, s, what, func(r *row) agentbus.RunKey {
		return agentbus.RunKey{Payer: k.Payer, Key: k.Key, Digest: r.digest(), Run: agentbus.ExecutionID(r.text()), Expires: r.time()}
	}, "SELECT digest, run, expires FROM run_keys WHERE payer = $1 AND key = $2", string(k.Payer), k.Key)
	return stored, false, err
}

// PayersRuns returns the top-level executions that a payer pays for, newest
// first, at most q.Limit of them; turns are not counted.
func (s *Store) PayersRuns(ctx context.Context, q agentbus.RunQuery) ([]agentbus.Execution, error) {
	return list(ctx, s, "list the runs of a payer", readPresent, "SELECT "+executionColumns+` FROM executions
		WHERE id = run AND payer = $1 AND ($2 = '' OR conversation = $2)
			AND ($3 = '' OR (began, id) < (SELECT f.began, f.id FROM executions f WHERE f.id = $3 AND f.payer = $1))
		ORDER BY began DESC, id DESC LIMIT $4`, string(q.Payer), q.Workflow, string(q.Before), int64(q.Limit))
}
