package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/agentbus/agentbus"
)

// runsAddedAtOnce is how many marks one transaction brings up to date.
const runsAddedAtOnce = 1000

// figuredRuns lists the runs that f lets pass, in its order, from the figures
// that are kept of them. It walks the index of that order from the run before, or
// sorts the few that a rare name has.
func (s *Store) figuredRuns(ctx context.Context, what string, f *agentbus.RunFilter, limit int, before agentbus.RunID) ([]agentbus.RunSummary, error) {
	if err := s.addUpRuns(ctx, what); err != nil {
		return nil, err
	}
	rare, err := s.rareName(ctx, what, f)
	if err != nil {
		return nil, err
	}
	query, args := figuredQuery(f, limit, before, rare)
	return list(ctx, s, what, func(r *row) agentbus.RunSummary {
		return agentbus.RunSummary{Run: agentbus.RunID(r.text()), Began: r.time()}
	}, query, args...)
}

// figuredQuery writes the query of a list. There are as many texts of it as
// orders, twice for a standing, twice for a page behind the first and twice for a
// rare name.
func figuredQuery(f *agentbus.RunFilter, limit int, before agentbus.RunID, rare string) (query string, args []any) {
	order, names := agentbus.FigureBegan, f.Names()
	args = []any{string(before), string(f.Standing), limit, names["payer"], names["agent"], names["speaker"], names["conversation"], rare, names[rare], f.Run}
	var b strings.Builder
	if rare == "" {
		b.WriteString("SELECT r.run, r.began FROM run_figures r")
	} else {
		b.WriteString("WITH w AS MATERIALIZED (SELECT number FROM run_names WHERE kind = $8 AND name = $9) SELECT r.run, r.began FROM w JOIN run_figures r ON r.number = w.number")
	}
	b.WriteString(" WHERE $1::text IS NOT NULL AND $2::text IS NOT NULL AND $8::text IS NOT NULL AND $9::text IS NOT NULL")
	for _, figure := range agentbus.RunFigures() {
		if f.By == figure {
			order = figure
		}
		fmt.Fprintf(&b, " AND r.%s >= $%d", figure, len(args)+1)
		least, asked := f.Least[figure]
		if !asked {
			least = math.MinInt64
		}
		args = append(args, least)
	}
	if f.Standing != "" {
		b.WriteString(" AND r.standing = $2")
	}
	keys := "r." + string(order) + ", r.began, r.number"
	if before != "" {
		b.WriteString(" AND (" + keys + ") < (SELECT " + keys + " FROM run_figures r WHERE r.run = $1)")
	}
	b.WriteString(tookPart)
	b.WriteString(" ORDER BY " + strings.ReplaceAll(keys, ",", " DESC,") + " DESC LIMIT $3")
	return b.String(), args
}

// addUpRuns brings the figures of runs up to date with everything that was
// acknowledged before. One process at a time does: figures that were read later
// are written later.
func (s *Store) addUpRuns(ctx context.Context, what string) error {
	if err := s.settled(ctx, what); err != nil {
		return err
	}
	more, _, err := only(ctx, s, what, (*row).bool, "SELECT EXISTS (SELECT 1 FROM changed_runs) OR EXISTS (SELECT 1 FROM run_figures WHERE moves)")
	for first := true; more && err == nil; first = false {
		more, err = write(ctx, s, what, func(c *conn) (more bool, err error) {
			if _, err = c.exec("SELECT pg_advisory_xact_lock(hashtext('agentbus run_figures')), set_config('jit', 'off', true)"); err != nil {
				return false, err // compiling the statement below takes longer than it runs
			}
			if first {
				if _, err = c.exec("INSERT INTO changed_runs (run) SELECT run FROM run_figures WHERE moves"); err != nil {
					return false, err
				}
			}
			if _, err = c.exec(figureRuns, runsAddedAtOnce); err != nil {
				return false, err
			}
			r, _, err := c.first("SELECT EXISTS (SELECT 1 FROM changed_runs)")
			if err != nil {
				return false, err
			}
			return r.bool(), r.err
		})
	}
	return err
}

// figureRuns writes the figures and the names of the next runs that are marked,
// and takes their marks away. Its words are those of [agentbus.RunSummary.Standing], and
// its figures those of [agentbus.RunSummary.Figure].
const figureRuns = `WITH taken AS (DELETE FROM changed_runs WHERE ctid = ANY (ARRAY (SELECT ctid FROM changed_runs LIMIT $1)) RETURNING run),
	changed AS (SELECT DISTINCT run FROM taken),
	called AS (SELECT c.run, min(c.id) FILTER (WHERE c.state <> 'passed') AS first,
			count(*) FILTER (WHERE c.state = 'executing') AS live, count(*) FILTER (WHERE c.state IN ('executing', 'settled', 'voided')) AS calls,
			coalesce(sum(c.repeats + 1) FILTER (WHERE c.state = 'refused'), 0) AS refusals, max(c.depth) AS depth,
			sum(c.cost) + coalesce(sum((SELECT amount FROM holds h WHERE h.call_id = c.id)) FILTER (WHERE c.state = 'executing'), 0) AS cost,
			sum(c.cost * c.replays) AS saved, sum(c.input_tokens + c.output_tokens) AS tokens,
			coalesce(sum(c.attempts - 1) FILTER (WHERE c.state = 'settled'), 0) AS retries, max(greatest(c.ended, c.began)) AS last
		FROM changed x JOIN calls c ON c.run = x.run GROUP BY c.run),
	driven AS (SELECT e.run, min(e.began) AS began, max(e.depth) AS depth, bool_or(e.state = 'running') AS runs, max(greatest(e.ended, e.began)) AS last
		FROM changed x JOIN executions e ON e.run = x.run GROUP BY e.run),
	spoken AS (SELECT e.run, count(*) FILTER (WHERE t.state = 'done') AS turns, max(greatest(t.ended, t.began)) AS last
		FROM changed x JOIN executions e ON e.run = x.run JOIN turns t ON t.number = e.number GROUP BY e.run),
	known AS (SELECT x.run, c.live, c.calls, c.refusals, c.cost, c.saved, c.tokens, c.retries, d.runs, s.turns,
			coalesce(greatest(c.depth, d.depth), 0) AS depth, coalesce(greatest(c.last, d.last, s.last), 0) AS latest,
			least(o.opened, d.began) AS beginning, f.state AS first_state, f.status AS first_status, e.state,
			e.halt::json ->> 'kind' AS kind, coalesce((e.halt::json ->> 'failed')::boolean, false) AS failed,
			EXISTS (SELECT 1 FROM stopped_runs p WHERE p.run = x.run AND p.stopped_by <> '') AS stopped,
			EXISTS (SELECT 1 FROM interrupts i WHERE i.run = x.run AND i.decision = '') AS asks
		FROM changed x LEFT JOIN opened_runs o ON o.run = x.run LEFT JOIN called c ON c.run = x.run
			LEFT JOIN driven d ON d.run = x.run LEFT JOIN spoken s ON s.run = x.run
			LEFT JOIN calls f ON f.id = c.first
			LEFT JOIN executions e ON e.id = (SELECT id FROM executions t WHERE t.run = x.run AND t.parent = '' ORDER BY t.began, t.id LIMIT 1)),
	written AS (INSERT INTO run_figures (run, standing, moves, cost, saved, turns, depth, tokens, retries, refusals, duration, last, began)
	SELECT run, CASE WHEN stopped THEN 'stopped'
			WHEN state = 'running' OR state IS NULL AND live > 0 THEN 'running'
			WHEN state = 'paused' AND kind IN ('waiting', 'waiting_auth') OR state IS NULL AND asks THEN 'waiting'
			WHEN state = 'paused' THEN 'paused'
			WHEN state IS NULL AND first_state = 'voided' AND first_status = 499 THEN 'stopped'
			WHEN state = 'done' AND failed OR state IS NULL AND first_state = 'voided' THEN 'failed'
			WHEN state IS NULL AND first_state = 'refused' THEN 'refused'
			ELSE 'done' END,
		coalesce(live, 0) > 0 OR coalesce(runs, false), coalesce(cost, 0), coalesce(saved, 0), coalesce(turns, 0) + coalesce(calls, 0),
		depth, coalesce(tokens, 0), coalesce(retries, 0), coalesce(refusals, 0), latest - beginning, latest, beginning
	FROM known WHERE beginning IS NOT NULL
	ON CONFLICT (run) DO UPDATE SET standing = excluded.standing, moves = excluded.moves, cost = excluded.cost, saved = excluded.saved,
		turns = excluded.turns, depth = excluded.depth, tokens = excluded.tokens, retries = excluded.retries, refusals = excluded.refusals,
		duration = excluded.duration, last = excluded.last, began = excluded.began
	RETURNING run, number)` + nameRuns
