package sqlite

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// Lookup says what [Store.Reserve] would say of a known key, and writes
// nothing: OutcomeSettled with the stored answer, OutcomeExpired,
// OutcomeInFlight or OutcomeMismatch. A key that is unknown or free is not
// found. Who answers a duplicate by it counts it with [Store.Replayed].
func (s *Store) Lookup(ctx context.Context, key, digest agentbus.Digest) (got agentbus.Reserved, found bool, err error) {
	const what = "look up a call"
	// Most keys that are looked up are new: they are refused for want of room or
	// money.
	known, err := s.asker.knows(key)
	if err != nil || !known {
		return agentbus.Reserved{}, false, unavailable(what, err)
	}
	ctx = context.WithoutCancel(ctx) // a look that can be broken off costs a goroutine
	got, found, err = only(ctx, s, what, func(r *row) agentbus.Reserved {
		call := readCall(r)
		return agentbus.Reserved{Outcome: outcomeOf(&call, r.bool(), digest), Call: call}
	}, "SELECT "+callColumns+", kept FROM calls WHERE key = ?1", key[:])
	if err != nil || !found || got.Outcome == agentbus.OutcomeExecute {
		return agentbus.Reserved{}, false, err
	}
	if got.Outcome != agentbus.OutcomeSettled {
		return got, true, nil
	}
	if got.Reply, err = s.reply(ctx, what, got.Call.ID); err != nil {
		return agentbus.Reserved{}, false, err
	}
	if got.Reply == nil {
		got.Outcome = agentbus.OutcomeExpired
	}
	return got, true, nil
}

// maxParents is how many calls of one turn id ParentCalls returns: nested runs
// restart their index, so that one run can have several (P17).
//
// It is a text, since SQLite plans a statement whose limit is a parameter anew at
// each run.
const maxParents = "16"

// parentCalls finds the calls of one turn along the index of runs, whose third
// column is the parent: from one parent to the next, at the turn's index.
const parentCalls = `WITH RECURSIVE parents (parent) AS (
		SELECT min(parent) FROM calls WHERE run = ?1 AND payer = ?2
		UNION ALL
		SELECT (SELECT min(c.parent) FROM calls c WHERE c.run = ?1 AND c.payer = ?2 AND c.parent > parents.parent)
			FROM parents WHERE parents.parent IS NOT NULL)
	SELECT c.id FROM parents CROSS JOIN calls c ON c.run = ?1 AND c.payer = ?2 AND c.parent = parents.parent AND c.turn_index = ?4
	WHERE c.turn = ?3 AND c.state IN ('executing', 'settled', 'voided') LIMIT ` + maxParents

// ParentCalls returns the calls of a payer's run whose turn id is turn, refused
// ones left out, at most 16 of them.
func (s *Store) ParentCalls(ctx context.Context, payer agentbus.Payer, run agentbus.RunID, turn agentbus.TurnID) ([]agentbus.CallRecord, error) {
	return list(ctx, s, "find a parent turn", readCall, "SELECT "+callColumns+" FROM calls WHERE id IN ("+parentCalls+") ORDER BY id",
		string(run), string(payer), string(turn), turn.Index(run))
}

// Unfinished returns the calls that are executing by id, and those a dead
// process left so (G24). It walks all calls: an index of these few would cost
// every call.
func (s *Store) Unfinished(ctx context.Context) ([]agentbus.CallRecord, error) {
	return list(ctx, s, "list unfinished calls", readCall, "SELECT "+callColumns+" FROM calls WHERE state = 'executing' ORDER BY id")
}

// StopRun notes that a run was stopped: by whom, why, and when. Again changes
// nothing. Sealed credentials of the run are removed (R18), its interrupts
// are withdrawn, and it is no orphan any more (R19).
func (s *Store) StopRun(ctx context.Context, run agentbus.RunID, by, reason string, at time.Time) error {
	_, err := write(ctx, s, "stop a run", func(c *conn) (struct{}, error) {
		_, err := c.exec("INSERT INTO stopped_runs (run, stopped_by, reason, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (run) DO NOTHING", string(run), by, reason, micros(at))
		if err == nil {
			_, err = c.exec("DELETE FROM sealed_credentials WHERE execution IN (SELECT id FROM executions WHERE run = ?1)", string(run))
		}
		if err == nil {
			_, err = c.exec(`UPDATE interrupts SET policy = NULL, resume = NULL, resolution = NULL, decided_by = iif(decision = '', ?2, decided_by),
				decided = iif(decision = '', ?3, decided), decision = iif(decision = '', 'withdrawn', decision) WHERE run = ?1`, string(run), by, micros(at))
		}
		return struct{}{}, err
	})
	return err
}

// StopReason returns why a run was stopped; "" when nobody said, or it was not.
func (s *Store) StopReason(ctx context.Context, run agentbus.RunID) (string, error) {
	reason, _, err := only(ctx, s, "find why a run was stopped", func(r *row) string { return r.text() }, "SELECT reason FROM stopped_runs WHERE run = ?1", string(run))
	return reason, err
}

// StoppedRuns returns the runs that were stopped, in the order of their ids.
func (s *Store) StoppedRuns(ctx context.Context) ([]agentbus.RunID, error) {
	return list(ctx, s, "list stopped runs", func(r *row) agentbus.RunID { return agentbus.RunID(r.text()) }, "SELECT run FROM stopped_runs ORDER BY run")
}

// StoppedPaused returns those of them whose execution is paused, and not over: who stopped
// them died before it ended them.
func (s *Store) StoppedPaused(ctx context.Context) ([]agentbus.RunID, error) {
	return list(ctx, s, "list stopped runs that are paused", func(r *row) agentbus.RunID { return agentbus.RunID(r.text()) },
		"SELECT p.run FROM stopped_runs p JOIN executions e ON e.id = p.run WHERE e.state = 'paused' ORDER BY p.run")
}
