package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/agentbus/agentbus"
)

// runsByBeginning lists runs, newest first. A run began with its first
// execution or its first call, whichever came first; both tables are walked
// along an index, so that a page costs the same however many runs there are.
const runsByBeginning = `
	SELECT run, opened FROM calls r
		WHERE opened IS NOT NULL AND (opened, run) < (?1, ?2)
			AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.run = r.run AND e.began <= r.opened)
	UNION ALL
	SELECT run, began FROM executions r
		WHERE began IS NOT NULL AND (began, run) < (?1, ?2)
			AND NOT EXISTS (SELECT 1 FROM executions f WHERE f.run = r.run AND (f.began, f.id) < (r.began, r.id))
			AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.run = r.run AND c.opened < r.began)
	ORDER BY 2 DESC, 1 DESC LIMIT ?3`

// beginning is when a run began, by its journal and the ledger.
const beginning = `SELECT began FROM (
	SELECT opened AS began FROM calls WHERE run = ?1 AND opened IS NOT NULL
	UNION ALL SELECT began FROM executions WHERE run = ?1 AND began IS NOT NULL) ORDER BY 1 LIMIT 1`

// RunSummaries returns up to limit runs that f lets pass, in its order: those
// behind the run named before, or from the first when it is "". Lists that are
// sorted or filtered are read from the figures and the names of runs.
func (s *Store) RunSummaries(ctx context.Context, f agentbus.RunFilter, limit int, before agentbus.RunID) (runs []agentbus.RunSummary, err error) {
	const what = "list runs"
	if f.Figures() {
		runs, err = s.figuredRuns(ctx, what, &f, limit, before)
	} else {
		runs, err = s.newestRuns(ctx, what, limit, before)
	}
	if err != nil {
		return nil, err
	}
	for i := range runs {
		if err := s.summarize(ctx, what, &runs[i]); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// newestRuns lists all runs, newest first by when they began.
func (s *Store) newestRuns(ctx context.Context, what string, limit int, before agentbus.RunID) ([]agentbus.RunSummary, error) {
	until := int64(math.MaxInt64)
	if before != "" {
		began, found, err := only(ctx, s, what, (*row).int64, beginning, string(before))
		if err != nil || !found {
			return nil, err
		}
		until = began
	}
	return list(ctx, s, what, func(r *row) agentbus.RunSummary {
		return agentbus.RunSummary{Run: agentbus.RunID(r.text()), Began: r.time()}
	}, runsByBeginning, until, string(before), limit)
}

// RunSummary returns one run at a glance, and whether the store knows it.
func (s *Store) RunSummary(ctx context.Context, run agentbus.RunID) (sum agentbus.RunSummary, found bool, err error) {
	const what = "read a run"
	began, found, err := only(ctx, s, what, (*row).time, beginning, string(run))
	if err != nil || !found {
		return agentbus.RunSummary{}, false, err
	}
	sum = agentbus.RunSummary{Run: run, Began: began}
	return sum, true, s.summarize(ctx, what, &sum)
}

// summarize fills in a run from the ledger and the journal.
func (s *Store) summarize(ctx context.Context, what string, sum *agentbus.RunSummary) error {
	_, _, err := only(ctx, s, what, func(r *row) struct{} {
		sum.Calls, sum.Replays, sum.Refusals = r.int(), r.int(), r.int()
		sum.MaxDepth, sum.Cost, sum.Payer, sum.Last = r.int(), r.micros(), agentbus.Payer(r.text()), r.time()
		sum.Live, sum.Failed, sum.Retries, sum.Saved, sum.Unbilled = r.int(), r.int(), r.int(), r.micros(), r.micros()
		sum.Usage = agentbus.Usage{InputTokens: r.int64(), CachedTokens: r.int64(), OutputTokens: r.int64(), Estimated: r.bool()}
		sum.Held = r.micros()
		return struct{}{}
	}, `SELECT count(*) FILTER (WHERE state IN ('executing', 'settled', 'voided')), coalesce(sum(replays), 0),
			coalesce(sum(repeats + 1) FILTER (WHERE state = 'refused'), 0), coalesce(max(depth), 0), coalesce(sum(cost), 0),
			coalesce(min(payer) FILTER (WHERE opened IS NOT NULL), ''), max(max(coalesce(ended, began), began)),
			count(*) FILTER (WHERE state = 'executing'), count(*) FILTER (WHERE state = 'voided'),
			coalesce(sum(attempts - 1) FILTER (WHERE state = 'settled'), 0), coalesce(sum(cost * replays), 0), coalesce(sum(unbilled), 0),
			coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(max(estimated), 0),
			coalesce(sum((SELECT amount FROM holds WHERE call_id = calls.id)) FILTER (WHERE state = 'executing'), 0)
		FROM calls WHERE run = ?1`, string(sum.Run))
	if err != nil {
		return err
	}
	_, _, err = only(ctx, s, what, func(r *row) struct{} {
		first := agentbus.CallRecord{State: agentbus.CallState(r.text()), Status: r.int()}
		sum.Agent, sum.First, sum.Left = r.text(), first.State, first.CallerLeft()
		return struct{}{}
	}, "SELECT state, status, agent FROM calls WHERE id = (SELECT min(id) FROM calls WHERE run = ?1 AND state <> 'passed')", string(sum.Run))
	if err != nil {
		return err
	}
	_, _, err = only(ctx, s, what, func(r *row) struct{} {
		sum.Stopper, sum.Stopped = r.text(), r.time()
		return struct{}{}
	}, "SELECT stopped_by, at FROM stopped_runs WHERE run = ?1", string(sum.Run))
	if err != nil {
		return err
	}
	if sum.Asks, _, err = only(ctx, s, what, (*row).int, "SELECT count(*) FROM interrupts WHERE run = ?1 AND decision = ''", string(sum.Run)); err != nil {
		return err
	}
	return s.summarizeDrivers(ctx, what, sum)
}

// summarizeDrivers fills in what the journal knows.
func (s *Store) summarizeDrivers(ctx context.Context, what string, sum *agentbus.RunSummary) error {
	loops, err := s.Executions(ctx, sum.Run)
	if err != nil {
		return err
	}
	for i := range loops {
		e := &loops[i]
		if i == 0 && e.Parent == "" {
			sum.State, sum.Conversation, sum.Halt = e.State, e.Conversation, e.Halt
			sum.Payer = e.Payer
		}
		sum.Turns += e.Turns
		sum.MaxDepth = max(sum.MaxDepth, e.Depth)
		sum.Last = latest(sum.Last, e.Began, e.Ended)
	}
	last, _, err := only(ctx, s, what, (*row).time, `SELECT max(max(coalesce(t.ended, t.began), t.began))
		FROM executions e JOIN turns t ON t.id BETWEEN e.number << 28 AND (e.number << 28) + 0xfffffff WHERE e.run = ?1`, string(sum.Run))
	sum.Last = latest(sum.Last, last)
	return err
}

func latest(t time.Time, others ...time.Time) time.Time {
	for _, u := range others {
		if u.After(t) {
			t = u
		}
	}
	return t
}
