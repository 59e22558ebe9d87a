package postgres

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
		"SELECT "+remoteTaskColumns+" FROM remote_tasks WHERE agent = $1 AND id = $2 AND seen > $3", agent, id, micros(forgotten()))
}

// RemoteContext returns the task of a payer that was seen last in a context.
func (s *Store) RemoteContext(ctx context.Context, agent string, payer agentbus.Payer, id string) (t agentbus.RemoteTask, found bool, err error) {
	return only(ctx, s, "look up a context", readRemoteTask, "SELECT "+remoteTaskColumns+` FROM remote_tasks
		WHERE agent = $1 AND payer = $2 AND context = $3 AND seen > $4 ORDER BY seen DESC, id LIMIT 1`, agent, string(payer), id, micros(forgotten()))
}

// OthersRemoteTasks reports whether an agent has tasks of other payers than this
// one that were seen within [agentbus.RemoteTaskAge].
func (s *Store) OthersRemoteTasks(ctx context.Context, agent string, payer agentbus.Payer) (bool, error) {
	_, found, err := only(ctx, s, "look for tasks of others", (*row).int64, `SELECT 1 FROM remote_tasks WHERE agent = $1 AND payer < $2 AND seen > $3
		UNION ALL SELECT 1 FROM remote_tasks WHERE agent = $1 AND payer > $2 AND seen > $3 LIMIT 1`, agent, string(payer), micros(forgotten()))
	return found, err
}

// SeeRemoteTask stores that a task was seen, durably. One that is known as
// another payer's stays as it is, until it is forgotten.
func (s *Store) SeeRemoteTask(ctx context.Context, t agentbus.RemoteTask) error {
	_, err := write(ctx, s, "remember a task", func(c *conn) (struct{}, error) {
		_, err := c.exec(seesTask, seenTask(&t)...)
		return struct{}{}, err
	})
	return err
}

const seesTask = `INSERT INTO remote_tasks (` + remoteTaskColumns + `) VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (agent, id) DO UPDATE SET upstream = $3, payer = $4, seen = greatest(remote_tasks.seen, $6),
		context = CASE WHEN $5 = '' THEN remote_tasks.context ELSE $5 END
	WHERE remote_tasks.payer = $4 OR remote_tasks.seen <= $7`

func seenTask(t *agentbus.RemoteTask) []any {
	return []any{storable(t.Agent), storable(t.ID), storable(t.Upstream), storable(string(t.Payer)), storable(t.Context), micros(t.Seen), micros(forgotten())}
}

// errTheirs answers the settlement of an answer that tells of another's task.
var errTheirs = refusal(agentbus.CodeRunNotFound, "the answer tells of a task of another payer; void the call, and tell nothing of it")

// A remote names a task of an agent.
type remote struct{ agent, id string }

// wantTasks asks whose the tasks of an answer are.
func (p *ledgerPage) wantTasks(tasks []agentbus.RemoteTask) {
	for i := range tasks {
		p.wantsTasks[remote{tasks[i].Agent, tasks[i].ID}] = true
	}
}

// readTasks reads whose tasks are; those that are not remembered are nobody's.
func (p *ledgerPage) readTasks(l *load) {
	var agents, ids []string
	for k := range p.wantsTasks {
		agents, ids = append(agents, storable(k.agent)), append(ids, storable(k.id))
	}
	if len(ids) > 0 {
		l.ask(func(r *row) { p.tasks[remote{r.text(), r.text()}] = agentbus.Payer(r.text()) },
			"SELECT t.agent, t.id, t.payer FROM remote_tasks t JOIN unnest($1::text[], $2::text[]) w (agent, id) ON t.agent = w.agent AND t.id = w.id WHERE t.seen > $3",
			agents, ids, micros(forgotten()))
	}
}

// see notes that the tasks of an answer were seen. It fails when one of them is
// another payer's.
func (p *ledgerPage) see(tasks []agentbus.RemoteTask) error {
	for i := range tasks {
		if whose, known := p.tasks[remote{tasks[i].Agent, tasks[i].ID}]; known && whose != tasks[i].Payer {
			return errTheirs
		}
	}
	for i := range tasks {
		p.tasks[remote{tasks[i].Agent, tasks[i].ID}] = tasks[i].Payer
	}
	p.seen = append(p.seen, tasks...)
	return nil
}

// ForgetRemoteTasks removes tasks that were not seen since before, at most limit
// of them, and returns how many; 0: there are none left (A12).
func (s *Store) ForgetRemoteTasks(ctx context.Context, before time.Time, limit int) (n int, err error) {
	return write(ctx, s, "forget tasks", func(c *conn) (int, error) {
		changed, err := c.exec(`DELETE FROM remote_tasks WHERE (agent, id) IN
			(SELECT agent, id FROM remote_tasks WHERE seen <= $1 ORDER BY seen LIMIT $2)`, micros(before), int64(limit))
		return int(changed), err
	})
}

// forgotten is when a task must have been seen last to be forgotten.
func forgotten() time.Time { return time.Now().Add(-agentbus.RemoteTaskAge) }
