package sqlite

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

const remoteTaskColumns = "agent, id, upstream, payer, context, seen"

func readRemoteTask(r *row) agentbus.RemoteTask {
	return agentbus.RemoteTask{Agent: r.text(), ID: r.text(), Upstream: r.text(), Payer: agentbus.Payer(r.text()), Context: r.text(), Seen: r.time()}
}

// RemoteTask returns where a task of an A2A agent is, and whose, if it was seen
// within [agentbus.RemoteTaskAge] (A12).
func (s *Store) RemoteTask(ctx context.Context, agent, id string) (t agentbus.RemoteTask, found bool, err error) {
	return only(ctx, s, "look up a task", readRemoteTask,
		"SELECT "+remoteTaskColumns+" FROM remote_tasks WHERE agent = ?1 AND id = ?2 AND seen > ?3", agent, id, micros(forgotten()))
}

// RemoteContext returns the task of a payer that was seen last in a context.
func (s *Store) RemoteContext(ctx context.Context, agent string, payer agentbus.Payer, id string) (t agentbus.RemoteTask, found bool, err error) {
	return only(ctx, s, "look up a context", readRemoteTask, "SELECT "+remoteTaskColumns+` FROM remote_tasks
		WHERE agent = ?1 AND payer = ?2 AND context = ?3 AND seen > ?4 ORDER BY seen DESC, id LIMIT 1`, agent, string(payer), id, micros(forgotten()))
}

// OthersRemoteTasks reports whether an agent has tasks of other payers than this
// one that were seen within [agentbus.RemoteTaskAge].
func (s *Store) OthersRemoteTasks(ctx context.Context, agent string, payer agentbus.Payer) (bool, error) {
	_, found, err := only(ctx, s, "look for tasks of others", (*row).int64, `SELECT 1 FROM remote_tasks WHERE agent = ?1 AND payer < ?2 AND seen > ?3
		UNION ALL SELECT 1 FROM remote_tasks WHERE agent = ?1 AND payer > ?2 AND seen > ?3 LIMIT 1`, agent, string(payer), micros(forgotten()))
	return found, err
}

// SeeRemoteTask stores that a task was seen, durably. One that is known as
// another payer's stays as it is, until it is forgotten.
func (s *Store) SeeRemoteTask(ctx context.Context, t agentbus.RemoteTask) error {
	_, err := write(ctx, s, "remember a task", func(c *conn) (bool, error) { return seeTask(c, &t) })
	return err
}

// seesTask names no parameter twice: each naming is bound apart.
const seesTask = `INSERT INTO remote_tasks (` + remoteTaskColumns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
	ON CONFLICT (agent, id) DO UPDATE SET upstream = excluded.upstream, payer = excluded.payer, seen = max(seen, excluded.seen),
		context = CASE WHEN excluded.context = '' THEN context ELSE excluded.context END
	WHERE payer = excluded.payer OR seen <= ?7`

// seeTask stores that a task was seen, and reports whether it is its payer's.
func seeTask(c *conn, t *agentbus.RemoteTask) (own bool, err error) {
	changed, err := c.exec(seesTask, t.Agent, t.ID, t.Upstream, string(t.Payer), t.Context, micros(t.Seen), micros(forgotten()))
	return changed > 0, err
}

// errTheirs answers the settlement of an answer that tells of another's task.
var errTheirs = refusal(agentbus.CodeRunNotFound, "the answer tells of a task of another payer; void the call, and tell nothing of it")

// seeTasks stores that the tasks of an answer were seen. It fails when one of
// them is another payer's.
func seeTasks(c *conn, tasks []agentbus.RemoteTask) error {
	for i := range tasks {
		own, err := seeTask(c, &tasks[i])
		if err != nil {
			return err
		}
		if !own {
			return errTheirs
		}
	}
	return nil
}

// ForgetRemoteTasks removes tasks that were not seen since before, at most limit
// of them, and returns how many; 0: there are none left (A12).
func (s *Store) ForgetRemoteTasks(ctx context.Context, before time.Time, limit int) (n int, err error) {
	return write(ctx, s, "forget tasks", func(c *conn) (int, error) {
		changed, err := c.exec(`DELETE FROM remote_tasks WHERE (agent, id) IN
			(SELECT agent, id FROM remote_tasks WHERE seen <= ?1 ORDER BY seen LIMIT ?2)`, micros(before), int64(limit))
		return int(changed), err
	})
}

// forgotten is when a task must have been seen last to be forgotten.
func forgotten() time.Time { return time.Now().Add(-agentbus.RemoteTaskAge) }
