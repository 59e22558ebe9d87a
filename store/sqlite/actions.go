package sqlite

import (
	"context"
	"math"

	"github.com/agentbus/agentbus"
)

// RecordAction stores what an operator did, behind everything stored before
// (U5).
func (s *Store) RecordAction(ctx context.Context, a agentbus.Action) error {
	_, err := write(ctx, s, "record an action", func(c *conn) (struct{}, error) {
		_, err := c.exec("INSERT INTO actions (at, who, kind, object, run, detail, code, request) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
			micros(a.At), a.By, a.Kind, a.Object, string(a.Run), a.Detail, string(a.Code), a.RequestID)
		return struct{}{}, err
	})
	return err
}

// Actions returns what operators did, newest first.
func (s *Store) Actions(ctx context.Context, q agentbus.ActionQuery) ([]agentbus.Action, error) {
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	return list(ctx, s, "list actions", func(r *row) agentbus.Action {
		return agentbus.Action{
			ID: r.int64(), At: r.time(), By: r.text(), Kind: r.text(), Object: r.text(), Run: agentbus.RunID(r.text()),
			Detail: r.text(), Code: agentbus.Code(r.text()), RequestID: r.text(),
		}
	}, `SELECT id, at, who, kind, object, run, detail, code, request FROM actions
		WHERE id < ?1 AND (?2 = '' OR run = ?2) AND (?3 = '' OR object = ?3) ORDER BY id DESC LIMIT ?4`,
		before, string(q.Run), q.Object, q.Limit)
}

// Drain notes that an agent gets no new calls, or, unless drained, that it gets
// them again. Draining a drained agent changes nothing (U14).
func (s *Store) Drain(ctx context.Context, d agentbus.Drained, drained bool) error {
	_, err := write(ctx, s, "drain an agent", func(c *conn) (struct{}, error) {
		var err error
		if drained {
			_, err = c.exec("INSERT INTO drained_agents (agent, drained_by, at) VALUES (?1, ?2, ?3) ON CONFLICT (agent) DO NOTHING", d.Agent, d.By, micros(d.At))
		} else {
			_, err = c.exec("DELETE FROM drained_agents WHERE agent = ?1", d.Agent)
		}
		return struct{}{}, err
	})
	return err
}

// DrainedAgents returns the agents that get no new calls, by name.
func (s *Store) DrainedAgents(ctx context.Context) ([]agentbus.Drained, error) {
	return list(ctx, s, "list drained agents", func(r *row) agentbus.Drained {
		return agentbus.Drained{Agent: r.text(), By: r.text(), At: r.time()}
	}, "SELECT agent, drained_by, at FROM drained_agents ORDER BY agent")
}
