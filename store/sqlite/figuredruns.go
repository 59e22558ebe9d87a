package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentbus/agentbus"
)

// How much of what changed one transaction brings up to date: others wait for
// it.
const (
	callsSeenAtOnce = 4096
	runsAddedAtOnce = 200
)

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
// rare name. A column with + before it is not looked up in its index, and a CROSS
// JOIN is looked up in its order.
func figuredQuery(f *agentbus.RunFilter, limit int, before agentbus.RunID, rare string) (query string, args []any) {
	order, names := agentbus.FigureBegan, f.Names()
	args = []any{string(before), string(f.Standing), limit, names["payer"], names["agent"], names["speaker"], names["conversation"], rare, names[rare], f.Run}
	var b strings.Builder
	b.WriteString("SELECT r.run, r.began FROM ")
	if rare == "" {
		b.WriteString("run_figures r WHERE 1")
	} else {
		b.WriteString("run_names w CROSS JOIN run_figures r ON r.number = w.number WHERE w.kind = ?8 AND w.name = ?9")
	}
	for _, figure := range agentbus.RunFigures() {
		if f.By == figure {
			order = figure
		}
		fmt.Fprintf(&b, " AND (?%d IS NULL OR +r.%s >= ?%d)", len(args)+1, figure, len(args)+1)
		if least, asked := f.Least[figure]; asked {
			args = append(args, least)
		} else {
			args = append(args, nil)
		}
	}
	if f.Standing != "" {
		b.WriteString(" AND r.standing = ?2")
	}
	keys := "r." + string(order) + ", r.began, r.number"
	if before != "" {
		b.WriteString(" AND (" + keys + ") < (SELECT " + keys + " FROM run_figures r WHERE r.run = ?1)")
	}
	b.WriteString(tookPart)
	b.WriteString(" ORDER BY " + strings.ReplaceAll(keys, ",", " DESC,") + " DESC LIMIT ?3")
	return b.String(), args
}

// addUpRuns brings the figures of runs up to date with everything that was
// queued before, in transactions that others do not wait for long.
func (s *Store) addUpRuns(ctx context.Context, what string) (err error) {
	more := true
	for first := true; more && err == nil; first = false {
		more, err = write(ctx, s, what, func(c *conn) (more bool, err error) {
			if first {
				if _, err = c.exec("INSERT OR IGNORE INTO changed_runs (run) SELECT run FROM run_figures WHERE moves = 1"); err != nil {
					return false, err
				}
			}
			return addUp(c)
		})
	}
	return err
}

// addUp marks the runs of the next calls that were not seen, adds up the next
// of those that are marked, and reports whether there are more.
func addUp(c *conn) (more bool, err error) {
	if _, err := c.exec(`INSERT OR IGNORE INTO changed_runs (run)
		SELECT run FROM calls WHERE id > (SELECT last FROM seen_calls) AND id <= (SELECT last + ?1 FROM seen_calls)`, int64(callsSeenAtOnce)); err != nil {
		return false, err
	}
	if _, err := c.exec(`UPDATE seen_calls SET last = min(last + ?1, (SELECT coalesce(max(id), 0) FROM calls))
		WHERE last <> (SELECT coalesce(max(id), 0) FROM calls)`, int64(callsSeenAtOnce)); err != nil {
		return false, err
	}
	if _, err := c.exec(figureRuns, int64(runsAddedAtOnce)); err != nil {
		return false, err
	}
	if _, err := c.exec(nameRuns, int64(runsAddedAtOnce)); err != nil {
		return false, err
	}
	if _, err := c.exec("DELETE FROM changed_runs WHERE run IN (SELECT run FROM changed_runs ORDER BY run LIMIT ?1)", int64(runsAddedAtOnce)); err != nil {
		return false, err
	}
	r, _, err := c.first("SELECT EXISTS (SELECT 1 FROM changed_runs) OR (SELECT last FROM seen_calls) < (SELECT coalesce(max(id), 0) FROM calls)")
	if err != nil {
		return false, err
	}
	return r.bool(), r.err
}

// figureRuns writes the figures of the next runs that are marked. Its words are
// those of [agentbus.RunSummary.Standing], and its figures those of
// [agentbus.RunSummary.Figure]. A CROSS JOIN is looked up in its order: by the
// runs that changed, not through all calls.
const figureRuns = `WITH changed AS MATERIALIZED (SELECT run FROM changed_runs ORDER BY run LIMIT ?1),
	called AS MATERIALIZED (SELECT c.run, min(c.opened) AS opened, min(c.id) FILTER (WHERE c.state <> 'passed') AS first,
			count(*) FILTER (WHERE c.state = 'executing') AS live, count(*) FILTER (WHERE c.state IN ('executing', 'settled', 'voided')) AS calls,
			coalesce(sum(c.repeats + 1) FILTER (WHERE c.state = 'refused'), 0) AS refusals, max(c.depth) AS depth,
			sum(c.cost) + coalesce(sum((SELECT amount FROM holds h WHERE h.call_id = c.id)) FILTER (WHERE c.state = 'executing'), 0) AS cost,
			sum(c.cost * c.replays) AS saved, sum(c.input_tokens + c.output_tokens) AS tokens,
			coalesce(sum(c.attempts - 1) FILTER (WHERE c.state = 'settled'), 0) AS retries, max(max(coalesce(c.ended, c.began), c.began)) AS last
		FROM changed x CROSS JOIN calls c ON c.run = x.run GROUP BY c.run),
	driven AS MATERIALIZED (SELECT e.run, min(e.began) AS began, max(e.depth) AS depth, max(e.state = 'running') AS runs, max(max(coalesce(e.ended, e.began), e.began)) AS last
		FROM changed x CROSS JOIN executions e ON e.run = x.run GROUP BY e.run),
	spoken AS MATERIALIZED (SELECT e.run, count(*) FILTER (WHERE t.state = 'done') AS turns, max(max(coalesce(t.ended, t.began), t.began)) AS last
		FROM changed x CROSS JOIN executions e ON e.run = x.run CROSS JOIN turns t ON t.id BETWEEN e.number << 28 AND (e.number << 28) + 0xfffffff GROUP BY e.run),
	known AS (SELECT x.run, c.live, c.calls, c.refusals, c.cost, c.saved, c.tokens, c.retries, d.runs, s.turns,
			max(coalesce(c.depth, 0), coalesce(d.depth, 0)) AS depth, max(coalesce(c.last, 0), coalesce(d.last, 0), coalesce(s.last, 0)) AS latest,
			coalesce(min(c.opened, d.began), c.opened, d.began) AS beginning, f.state AS first_state, f.status AS first_status, e.state,
			json_extract(e.halt, '$.kind') AS kind, coalesce(json_extract(e.halt, '$.failed'), 0) AS failed,
			EXISTS (SELECT 1 FROM stopped_runs p WHERE p.run = x.run AND p.stopped_by <> '') AS stopped,
			EXISTS (SELECT 1 FROM interrupts i WHERE i.run = x.run AND i.decision = '') AS asks
		FROM changed x LEFT JOIN called c ON c.run = x.run LEFT JOIN driven d ON d.run = x.run LEFT JOIN spoken s ON s.run = x.run
			LEFT JOIN calls f ON f.id = c.first
			LEFT JOIN executions e ON e.number = (SELECT number FROM executions t WHERE t.run = x.run AND t.parent = '' ORDER BY t.began, t.id LIMIT 1))
	INSERT INTO run_figures (run, standing, moves, cost, saved, turns, depth, tokens, retries, refusals, duration, last, began)
	SELECT run, CASE WHEN stopped THEN 'stopped'
			WHEN state = 'running' OR state IS NULL AND live > 0 THEN 'running'
			WHEN state = 'paused' AND kind IN ('waiting', 'waiting_auth') OR state IS NULL AND asks THEN 'waiting'
			WHEN state = 'paused' THEN 'paused'
			WHEN state IS NULL AND first_state = 'voided' AND first_status = 499 THEN 'stopped'
			WHEN state = 'done' AND failed OR state IS NULL AND first_state = 'voided' THEN 'failed'
			WHEN state IS NULL AND first_state = 'refused' THEN 'refused'
			ELSE 'done' END,
		coalesce(live, 0) > 0 OR coalesce(runs, 0), coalesce(cost, 0), coalesce(saved, 0), coalesce(turns, 0) + coalesce(calls, 0),
		depth, coalesce(tokens, 0), coalesce(retries, 0), coalesce(refusals, 0),
		latest - beginning, latest, beginning
	FROM known WHERE beginning IS NOT NULL
	ON CONFLICT (run) DO UPDATE SET standing = excluded.standing, moves = excluded.moves, cost = excluded.cost, saved = excluded.saved,
		turns = excluded.turns, depth = excluded.depth, tokens = excluded.tokens, retries = excluded.retries, refusals = excluded.refusals,
		duration = excluded.duration, last = excluded.last, began = excluded.began`
