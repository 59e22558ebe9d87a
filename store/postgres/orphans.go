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
// others; not those of stopped runs.
const (
	orphansOf = "SELECT " + executionColumns + ` FROM executions
		WHERE state = 'running' AND id = run AND owner = $1 AND NOT EXISTS (SELECT 1 FROM stopped_runs WHERE stopped_runs.run = executions.run)`
	expiredOf = orphansOf + " AND expires <= " + nowMicros + " ORDER BY expires"
	allOf     = orphansOf + " ORDER BY expires NULLS FIRST"
)

// Orphans returns running runs that nobody drives: those nobody has claimed
// yet, those whose lease has expired, and those whose owner is not alive (R19),
// at most limit of them and none that skip names. A run that serves a call of
// somebody else, nested ones among them, is none: who calls it calls again. A
// stopped run is none. Halt is why it stopped last, if it did. What it costs grows with the orphans and with how many
// processes drive runs, not with the runs that are driven. alive and skip must
// not use the store.
func (s *Store) Orphans(ctx context.Context, limit int, alive func(owner string) bool, skip func(agentbus.ExecutionID) bool) ([]agentbus.Execution, error) {
	const what = "look for orphans"
	owners, err := list(ctx, s, what, (*row).text, drivers)
	if err != nil {
		return nil, err
	}
	var found []agentbus.Execution
	for _, owner := range owners {
		query := allOf
		if owner != "" && alive(owner) {
			query = expiredOf
		}
		if len(found) >= limit {
			break
		}
		err := s.each(ctx, what, func(r *row) bool {
			if e := readExecution(r); !skip(e.ID) {
				found = append(found, e)
			}
			return len(found) < limit
		}, query, owner)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
