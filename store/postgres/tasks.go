package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentbus/agentbus"
)

const taskColumns = "id, agent, principal, payer, context, state, version, owner, created, updated, shown, work, sealed, waits"

func readTask(r *row) agentbus.Task {
	t := agentbus.Task{
		ID: r.text(), Agent: r.text(), Principal: r.text(), Payer: agentbus.Payer(r.text()), Context: r.text(), State: r.text(),
		Version: r.int64(), Owner: r.text(), Created: r.time(), Updated: r.time(), Shown: r.blob(), Work: r.blob(), Sealed: r.blob(),
	}
	r.json(&t.Waits)
	return t
}

// waits is what a task waits for as it is stored.
func waits(t *agentbus.Task) any {
	if len(t.Waits) == 0 {
		return nil
	}
	raw, _ := json.Marshal(t.Waits) // strings
	return string(raw)
}

// maxForgotten is how many old rows of a kind a new task takes away: more than
// it adds.
const maxForgotten = 16

// CreateTask stores a new task, made of a message: both, or, when the message is
// known already, neither; then it returns the task that it made, and its digest
// there (A19). A message is known for [agentbus.TaskMessageAge]. What is older,
// and tasks that are over for longer than [agentbus.TaskAge], go now and then.
func (s *Store) CreateTask(ctx context.Context, t agentbus.Task, m agentbus.TaskMessage) (made agentbus.Task, digest agentbus.Digest, known bool, err error) {
	type result struct {
		task   agentbus.Task
		digest agentbus.Digest
		known  bool
	}
	got, err := write(ctx, s, "create a task", func(c *conn) (result, error) {
		if err := forgetTasks(c, t.Created); err != nil {
			return result{}, err
		}
		// Two that come with one message go one after the other.
		if _, _, err := c.first("SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", t.Principal+"\n"+t.Agent+"\n"+m.ID); err != nil {
			return result{}, err
		}
		r, found, err := c.first(taskOfMessage,
			t.Principal, t.Agent, m.ID)
		if err != nil || found {
			if err != nil {
				return result{}, err
			}
			return result{digest: r.digest(), task: readTask(r), known: true}, nil
		}
		_, err = c.exec("INSERT INTO a2a_tasks ("+taskColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
			t.ID, t.Agent, t.Principal, string(t.Payer), t.Context, t.State, t.Version, t.Owner, micros(t.Created), micros(t.Updated), t.Shown, blob(t.Work), blob(t.Sealed), waits(&t))
		if err == nil {
			err = addMessage(c, &t, &m)
		}
		return result{task: t, digest: m.Digest}, err
	})
	return got.task, got.digest, got.known, err
}

func addMessage(c *conn, t *agentbus.Task, m *agentbus.TaskMessage) error {
	_, err := c.exec("INSERT INTO a2a_messages (principal, agent, message, digest, task, at) VALUES ($1, $2, $3, $4, $5, $6)",
		t.Principal, t.Agent, m.ID, m.Digest[:], t.ID, micros(t.Updated))
	return err
}

// forgetTasks removes a few rows that are old.
func forgetTasks(c *conn, now time.Time) error {
	_, err := c.exec("DELETE FROM a2a_messages WHERE (principal, agent, message) IN (SELECT principal, agent, message FROM a2a_messages WHERE at < $1 LIMIT $2)",
		micros(now.Add(-agentbus.TaskMessageAge)), int64(maxForgotten))
	if err == nil {
		_, err = c.exec("DELETE FROM a2a_tasks WHERE id IN (SELECT id FROM a2a_tasks WHERE work IS NULL AND updated < $1 LIMIT $2)",
			micros(now.Add(-agentbus.TaskAge)), int64(maxForgotten))
	}
	return err
}

// UpdateTask stores what became of a task, whose version is one more than the
// stored one: otherwise somebody else changed it, which is CodeLeaseLost, and
// nothing is stored. A message that it went on with is stored with it; one that
// is known already is CodeTurnMismatch. Who it belongs to does not change.
func (s *Store) UpdateTask(ctx context.Context, t agentbus.Task, m *agentbus.TaskMessage) error {
	_, err := write(ctx, s, "update a task", func(c *conn) (struct{}, error) {
		if m != nil && !m.Forget {
			_, known, err := c.first("SELECT 1 FROM a2a_messages WHERE principal = $1 AND agent = $2 AND message = $3", t.Principal, t.Agent, m.ID)
			if err != nil || known {
				return struct{}{}, knownMessage(err)
			}
		}
		n, err := c.exec("UPDATE a2a_tasks SET state = $2, version = $3, owner = $4, updated = $5, shown = $6, work = $7, sealed = $8, waits = $9 WHERE id = $1 AND version = $3 - 1",
			t.ID, t.State, t.Version, t.Owner, micros(t.Updated), t.Shown, blob(t.Work), blob(t.Sealed), waits(&t))
		switch {
		case err != nil:
			return struct{}{}, err
		case n == 0:
			return struct{}{}, &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "the task was changed by somebody else"}
		case m == nil:
			return struct{}{}, nil
		case m.Forget:
			_, err = c.exec("DELETE FROM a2a_messages WHERE principal = $1 AND agent = $2 AND task = $3", t.Principal, t.Agent, t.ID)
		default:
			err = addMessage(c, &t, m)
		}
		return struct{}{}, err
	})
	return err
}

func knownMessage(err error) error {
	if err != nil {
		return err
	}
	return &agentbus.Error{Code: agentbus.CodeTurnMismatch, Message: "the message is known already"}
}

// Task returns the task of that id.
func (s *Store) Task(ctx context.Context, id string) (t agentbus.Task, found bool, err error) {
	return only(ctx, s, "read a task", readTask, "SELECT "+taskColumns+" FROM a2a_tasks WHERE id = $1", id)
}

// TaskOf returns the task that a message of a principal made, or went on with,
// and the digest of what it asked (A19).
func (s *Store) TaskOf(ctx context.Context, principal, agent, message string) (t agentbus.Task, digest agentbus.Digest, found bool, err error) {
	t, found, err = only(ctx, s, "find the task of a message", func(r *row) agentbus.Task {
		digest = r.digest()
		return readTask(r)
	}, taskOfMessage,
		principal, agent, message)
	return t, digest, found, err
}

// theTasks is which tasks a [agentbus.TaskQuery] means, whatever its page.
const theTasks = " FROM a2a_tasks WHERE principal = $1 AND agent = $2 AND ($3 = '' OR context = $3) AND ($4 = '' OR state = $4) AND updated >= $5"

// Tasks returns the tasks that q means, last changed first, at most q.Limit of
// them, and how many there are in all.
func (s *Store) Tasks(ctx context.Context, q agentbus.TaskQuery) (tasks []agentbus.Task, total int, err error) {
	const what = "list tasks"
	since, before := int64(0), int64(1<<62)
	if !q.Since.IsZero() {
		since = q.Since.UnixMicro()
	}
	if !q.Before.IsZero() {
		before = q.Before.UnixMicro()
	}
	total, _, err = only(ctx, s, what, (*row).int, "SELECT count(*)"+theTasks, q.Principal, q.Agent, q.Context, q.State, since)
	if err != nil {
		return nil, 0, err
	}
	tasks, err = list(ctx, s, what, readTask, "SELECT "+taskColumns+theTasks+" AND (updated, id) < ($6, $7) ORDER BY updated DESC, id DESC LIMIT $8",
		q.Principal, q.Agent, q.Context, q.State, since, before, q.BeforeID, q.Limit)
	return tasks, total, err
}

// DeadTasks returns tasks whose process no longer runs, by id, at most limit.
// alive must not use the store.
func (s *Store) DeadTasks(ctx context.Context, alive func(owner string) bool, limit int) (dead []agentbus.Task, err error) {
	err = s.each(ctx, "find tasks of dead processes", func(r *row) bool {
		if t := readTask(r); !alive(t.Owner) {
			dead = append(dead, t)
		}
		return len(dead) < limit
	}, "SELECT "+taskColumns+" FROM a2a_tasks WHERE owner <> '' ORDER BY id")
	return dead, err
}

// DecidedTasks returns tasks that wait, by id, of whose interrupts one was decided
// (R22), at most limit, and none that skip names. skip must not use the store.
func (s *Store) DecidedTasks(ctx context.Context, skip func(id string) bool, limit int) (decided []agentbus.Task, err error) {
	err = s.each(ctx, "find tasks to go on with", func(r *row) bool {
		if t := readTask(r); !skip(t.ID) {
			decided = append(decided, t)
		}
		return len(decided) < limit
	}, "SELECT "+taskColumns+` FROM a2a_tasks t WHERE t.waits IS NOT NULL
		AND EXISTS (SELECT 1 FROM jsonb_array_elements_text(t.waits::jsonb) w(id) JOIN interrupts i ON i.id = w.id WHERE i.decision <> '') ORDER BY t.id`)
	return decided, err
}

// Session returns what was kept last under key (A24).
func (s *Store) Session(ctx context.Context, key agentbus.Digest) (state []byte, found bool, err error) {
	return only(ctx, s, "read an A2A session", (*row).blob, "SELECT state FROM a2a_sessions WHERE key = $1", key[:])
}

// KeepSession keeps state under key, in place of what was there. Sessions that
// nobody kept for [agentbus.RemoteTaskAge] go now and then.
func (s *Store) KeepSession(ctx context.Context, key agentbus.Digest, state []byte, at time.Time) error {
	_, err := write(ctx, s, "keep an A2A session", func(c *conn) (struct{}, error) {
		_, err := c.exec("INSERT INTO a2a_sessions (key, state, at) VALUES ($1, $2, $3) ON CONFLICT (key) DO UPDATE SET state = excluded.state, at = excluded.at", key[:], state, micros(at))
		if err == nil {
			_, err = c.exec("DELETE FROM a2a_sessions WHERE key IN (SELECT key FROM a2a_sessions WHERE at < $1 LIMIT $2)", micros(at.Add(-agentbus.RemoteTaskAge)), int64(maxForgotten))
		}
		return struct{}{}, err
	})
	return err
}

// TakeSession takes what is kept under key away if it is state still, and reports
// whether it was: of many that have read the same, one (C30).
func (s *Store) TakeSession(ctx context.Context, key agentbus.Digest, state []byte) (taken bool, err error) {
	return write(ctx, s, "take an A2A session", func(c *conn) (bool, error) {
		changed, err := c.exec("DELETE FROM a2a_sessions WHERE key = $1 AND state = $2", key[:], state)
		return changed == 1, err
	})
}

// taskOfMessage finds the task that a message made or went on with.
const taskOfMessage = `SELECT digest, id, t.agent, t.principal, payer, context, state, version, owner, created, updated, shown, work, sealed, waits
	FROM a2a_messages m JOIN a2a_tasks t ON id = task WHERE m.principal = $1 AND m.agent = $2 AND message = $3`
