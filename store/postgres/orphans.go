package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

// drivers are the owners of the leases of running runs, from one to the next
// along their index.
const drivers = `WITH RECURSIVE drivers (owner) AS (
		SELECT min(owner) FROM executions WHERE state = 'running' AND id = run
		UNION ALL
		SELECT (SELECT min(e.owner) FROM executions e WHERE e.state = 'running' AND e.id = e.run AND e.owner > drivers.owner)
			FROM drivers WHERE drivers.owner IS NOT NULL)
	SELECT owner FROM drivers WHERE owner IS NOT NULL`

// orphansOf selects the running runs under the leases of owner $1 that have
// expired, or under all of its leases, those that ended first before the
// others; not those of $2.
const (
	orphansOf = "SELECT " + executionColumns + ` FROM executions
		WHERE state = 'running' AND id = run AND owner = $1 AND id <> ALL($2)`
	expiredOf = orphansOf + " AND expires <= " + nowMicros + " ORDER BY expires LIMIT $3"
	allOf     = orphansOf + " ORDER BY expires NULLS FIRST LIMIT $3"
	unlocked  = " FOR NO KEY UPDATE SKIP LOCKED" // what another process claims at this moment is no orphan any more
)

// orphanPage is how many orphans are read at once where some are skipped.
const orphanPage = 256

// Orphans claims running runs that nobody drives: those nobody has claimed yet,
// those whose lease has expired, and those whose owner is not alive (R19), at
// most limit of them and none that skip names. Of several processes that look at
// once each gets others, and none waits. They are returned under the lease of
// the claim; a claim without an Owner only looks. A run that serves a call of
// somebody else, nested ones among them, is none: who calls it calls again. A
// stopped run is one until somebody has ended it: its claim is told with Renew.
// Halt is why it stopped last, if it did. What it costs grows with the orphans and
// with how many processes drive runs, not with the runs that are driven. alive and
// skip must not use the store.
func (s *Store) Orphans(ctx context.Context, claim agentbus.Claim, limit int, alive func(owner string) bool, skip func(agentbus.ExecutionID) bool) ([]agentbus.Execution, error) {
	const what = "look for orphans"
	if limit <= 0 {
		return nil, nil
	}
	owners, err := list(ctx, s, what, (*row).text, drivers)
	if err != nil || len(owners) == 0 {
		return nil, err
	}
	return write(ctx, s, what, func(c *conn) ([]agentbus.Execution, error) {
		var found []agentbus.Execution
		for _, owner := range owners {
			query := allOf
			if owner != "" && alive(owner) {
				query = expiredOf
			}
			if claim.Owner != "" {
				query += unlocked
			}
			got, err := orphansUnder(c, query, owner, limit-len(found), skip)
			if err != nil {
				return nil, err
			}
			if found = append(found, got...); len(found) == limit {
				break
			}
		}
		return found, c.claim(found, claim)
	})
}

// orphansUnder returns at most limit of the orphans that query selects of an
// owner, and none that skip names.
func orphansUnder(c *conn, query, owner string, limit int, skip func(agentbus.ExecutionID) bool) (found []agentbus.Execution, err error) {
	seen, page := []string{}, limit
	for len(found) < limit {
		n := 0
		err := c.each(func(r *row) {
			e := readExecution(r)
			n, seen = n+1, append(seen, storable(string(e.ID)))
			if !skip(e.ID) && len(found) < limit {
				found = append(found, e)
			}
		}, query, owner, seen, int64(page))
		if err != nil || n < page {
			return found, err
		}
		page = max(limit, orphanPage)
	}
	return found, nil
}

// claim claims the leases of executions that this transaction has locked.
func (c *conn) claim(found []agentbus.Execution, claim agentbus.Claim) error {
	if claim.Owner == "" || len(found) == 0 {
		return nil
	}
	now, err := now(c)
	if err != nil {
		return err
	}
	ids := make([]string, len(found))
	for i := range found {
		l := &found[i].Lease
		ids[i], l.Owner, l.Epoch, l.Expires = storable(string(found[i].ID)), claim.Owner, l.Epoch+1, expiry(claim, now)
	}
	_, err = c.exec("UPDATE executions SET owner = $2, epoch = epoch + 1, expires = $3 WHERE id = ANY($1)", ids, claim.Owner, micros(expiry(claim, now)))
	return err
}
