package sqlite

import (
	"context"
	"time"

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

// orphansOf selects the running runs under the leases of owner ?1 that have
// expired at ?2, or under all of its leases, those that ended first before the
// others.
const (
	orphansOf = "SELECT " + executionColumns + ` FROM executions
		WHERE state = 'running' AND id = run AND owner = ?1`
	expiredOf = orphansOf + " AND expires <= ?2 ORDER BY expires"
	allOf     = orphansOf + " ORDER BY expires"
)

// Orphans claims running runs that nobody drives: those nobody has claimed yet,
// those whose lease has expired, and those whose owner is not alive (R19), at
// most limit of them and none that skip names. Of several processes that look at
// once each gets others. They are returned under the lease of the claim; a claim
// without an Owner only looks. A run that serves a call of somebody else, nested
// ones among them, is none: who calls it calls again. A stopped run is one until
// somebody has ended it: its claim is told with Renew. Halt is why it stopped last,
// if it did. What it costs grows with the orphans and with how many processes drive
// runs, not with the runs that are driven. alive and skip must not use the store.
func (s *Store) Orphans(ctx context.Context, claim agentbus.Claim, limit int, alive func(owner string) bool, skip func(agentbus.ExecutionID) bool) ([]agentbus.Execution, error) {
	const what = "look for orphans"
	owners, err := list(ctx, s, what, (*row).text, drivers)
	if err != nil {
		return nil, err
	}
	var found []agentbus.Execution
	for _, owner := range owners {
		query, args := allOf, []any{owner}
		if owner != "" && alive(owner) {
			query, args = expiredOf, append(args, s.clock.now().UnixMicro())
		}
		if len(found) >= limit {
			break
		}
		err := s.each(ctx, what, func(r *row) bool {
			if id, _ := r.values[0].(string); !skip(agentbus.ExecutionID(id)) { // what is skipped is not decoded
				found = append(found, readExecution(r))
			}
			return len(found) < limit
		}, query, args...)
		if err != nil {
			return nil, err
		}
	}
	if claim.Owner == "" || len(found) == 0 {
		return found, nil
	}
	return write(ctx, s, "claim orphans", func(c *conn) ([]agentbus.Execution, error) { return claimThose(c, found, claim, s.clock.now()) })
}

// claimThose claims those of the orphans that nobody has claimed since they were
// found.
func claimThose(c *conn, found []agentbus.Execution, claim agentbus.Claim, now time.Time) (claimed []agentbus.Execution, err error) {
	for i := range found {
		e := found[i]
		l := &e.Lease
		changed, err := c.exec("UPDATE executions SET owner = ?3, epoch = epoch + 1, expires = ?4 WHERE id = ?1 AND epoch = ?2 AND state = 'running'",
			string(e.ID), signed(l.Epoch), claim.Owner, micros(expiry(claim, now)))
		if err != nil {
			return nil, err
		}
		if changed == 1 {
			l.Owner, l.Epoch, l.Expires = claim.Owner, l.Epoch+1, expiry(claim, now)
			claimed = append(claimed, e)
		}
	}
	return claimed, nil
}
