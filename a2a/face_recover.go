package a2a

import (
	"context"
	"encoding/json"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// maxRecovered is how many tasks of dead processes are looked at in one go.
const maxRecovered = 256

// Recover takes up the tasks that processes left which no longer run: each is
// executed again, in the same turn, so that the ledger answers where the agent
// had answered; where its agent would have to be called without the credential
// that it was called with, it fails. It returns how many it took up
// or ended; 0: there is nothing left to do.
func (f *Face) Recover(ctx context.Context) (n int, err error) {
	dead, err := f.config.Tasks.DeadTasks(ctx, func(owner string) bool { return owner == f.config.Owner || f.config.Alive(owner) }, maxRecovered)
	if err != nil {
		return 0, err
	}
	for i := range dead {
		if f.full() {
			break // later
		}
		if err := f.recover(ctx, &dead[i]); err != nil {
			if agentbus.CodeOf(err) != agentbus.CodeLeaseLost { // another process took it up
				f.log(ctx, "a task of a dead process is not taken up", dead[i].ID, err)
			}
			continue
		}
		n++
	}
	return n, nil
}

func (f *Face) recover(ctx context.Context, t *agentbus.Task) error {
	u, err := f.takeUp(ctx, t)
	if err != nil {
		return err
	}
	t.Owner, t.Version, t.Updated = f.config.Owner, t.Version+1, time.Now().UTC()
	if !u.ok {
		return f.lose(ctx, t, u.task, t.Updated)
	}
	if err := f.config.Tasks.UpdateTask(ctx, *t, nil); err != nil {
		return err
	}
	return f.begin(*t, u.task, u.work, u.request, u.backend) //nolint:contextcheck // a task outlives whoever took it up (A32)
}

// A taken is a stored task that nobody executes, with what it takes to do so.
type taken struct {
	task    *sdk.Task
	work    work
	request *Request
	backend agentbus.Backend
	ok      bool // its agent is there, and its credential known
}

func (f *Face) takeUp(ctx context.Context, t *agentbus.Task) (u taken, err error) {
	if u.task, err = shown(t); err != nil {
		return u, err
	}
	if err := json.Unmarshal(t.Work, &u.work); err != nil {
		return u, err
	}
	if u.request, err = u.work.request(t); err != nil {
		return u, err
	}
	served, ok := f.config.Agent(t.Agent)
	if ok && t.Sealed != nil && f.config.Unseal != nil {
		u.request.Lineage.Auth, ok, err = f.config.Unseal(ctx, t.ID, t.Payer, t.Sealed)
	} else if t.Sealed != nil || u.work.Signed {
		ok = false
	}
	u.backend, u.ok = served.Backend, ok
	return u, err
}

// lose ends a task that cannot be gone on with. Whether its agent has answered
// is not known; its message is answered with this failure.
func (f *Face) lose(ctx context.Context, t *agentbus.Task, task *sdk.Task, now time.Time) error {
	m := &sdk.Message{
		ID: t.ID + ".failed", Role: sdk.MessageRoleAgent, TaskID: task.ID, ContextID: task.ContextID,
		Parts: sdk.ContentParts{sdk.NewTextPart(string(agentbus.CodeOutcomeUnknown) + ": the process that executed the task ended, and the credential it had is not kept: nobody knows whether the agent did its work")},
	}
	m.SetMeta(MetadataKey, map[string]any{"code": string(agentbus.CodeOutcomeUnknown), "retryable": false})
	task.Status = sdk.TaskStatus{State: sdk.TaskStateFailed, Message: m, Timestamp: &now}
	t.State, t.Owner, t.Work, t.Sealed = string(task.Status.State), "", nil, nil
	var err error
	if t.Shown, err = oneLine(task); err != nil {
		return err
	}
	return f.config.Tasks.UpdateTask(ctx, *t, nil)
}
