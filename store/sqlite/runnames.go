package sqlite

import (
	"context"

	"github.com/agentbus/agentbus"
)

// fewRuns is how many runs a name may have for a list to be made of them, and not
// of the index of its order: either way a page looks at some thousand rows.
const fewRuns = 4096

// rareName returns the kind of the rarest name that f asks for; "": many runs
// have each of them.
func (s *Store) rareName(ctx context.Context, what string, f *agentbus.RunFilter) (rare string, err error) {
	least := fewRuns
	for kind, name := range f.Names() {
		if name == "" {
			continue
		}
		n, _, err := only(ctx, s, what, (*row).int, "SELECT count(*) FROM (SELECT 1 FROM run_names WHERE kind = ?1 AND name = ?2 LIMIT ?3)", kind, name, fewRuns)
		if err != nil {
			return "", err
		}
		if n < least {
			rare, least = kind, n
		}
	}
	return rare, nil
}

// nameRuns writes who took part in the next runs that are marked, behind their
// figures. A name that was seen stays, also when its call is made again under
// another.
const nameRuns = `WITH changed AS MATERIALIZED (SELECT f.number, f.run
		FROM (SELECT run FROM changed_runs ORDER BY run LIMIT ?1) x CROSS JOIN run_figures f ON f.run = x.run),
	called AS MATERIALIZED (SELECT DISTINCT x.number, c.payer, c.agent, c.speaker FROM changed x CROSS JOIN calls c ON c.run = x.run),
	driven AS MATERIALIZED (SELECT DISTINCT x.number, e.payer, e.conversation FROM changed x CROSS JOIN executions e ON e.run = x.run)
	INSERT OR IGNORE INTO run_names (kind, name, number)
	SELECT 'payer', payer, number FROM called UNION ALL SELECT 'payer', payer, number FROM driven
	UNION ALL SELECT 'agent', agent, number FROM called
	UNION ALL SELECT 'speaker', speaker, number FROM called WHERE speaker <> ''
	UNION ALL SELECT 'conversation', conversation, number FROM driven`

// tookPart is who must have taken part in a run r of run_figures, and how its id
// must end.
const tookPart = `
			AND (?4 = '' OR EXISTS (SELECT 1 FROM run_names n WHERE n.kind = 'payer' AND n.name = ?4 AND n.number = r.number))
			AND (?5 = '' OR EXISTS (SELECT 1 FROM run_names n WHERE n.kind = 'agent' AND n.name = ?5 AND n.number = r.number))
			AND (?6 = '' OR EXISTS (SELECT 1 FROM run_names n WHERE n.kind = 'speaker' AND n.name = ?6 AND n.number = r.number))
			AND (?7 = '' OR EXISTS (SELECT 1 FROM run_names n WHERE n.kind = 'conversation' AND n.name = ?7 AND n.number = r.number))
			AND (?10 = '' OR substr(r.run, -length(?10)) = ?10)`
