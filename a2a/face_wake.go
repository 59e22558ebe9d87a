package a2a

import (
	"context"
	"slices"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// maxPassed is how many tasks are remembered that this process cannot go on with;
// beyond, all are looked at once more.
const maxPassed = 65_536

// Wake goes on with the tasks that wait for somebody, and for which that was decided
// elsewhere than in a message to them: by an operator, or because the time was up
// (R22). Each is executed again in the same turn, as if its caller had sent a
// message. One whose credential is not known here waits for its caller. It returns
// how many it went on with.
func (f *Face) Wake(ctx context.Context) (n int, err error) {
	decided, err := f.config.Tasks.DecidedTasks(ctx, f.passes, maxRecovered)
	if err != nil {
		return 0, err
	}
	for i := range decided {
		if f.full() {
			break // later
		}
		woken, err := f.wake(ctx, &decided[i])
		if err != nil {
			if agentbus.CodeOf(err) != agentbus.CodeLeaseLost { // its caller, or another process, was faster
				f.log(ctx, "a task that was decided does not go on", decided[i].ID, err)
			}
			continue
		}
		if woken {
			n++
		}
	}
	return n, nil
}

func (f *Face) wake(ctx context.Context, t *agentbus.Task) (woken bool, err error) {
	u, err := f.takeUp(ctx, t)
	if err != nil {
		return false, err
	}
	if !u.ok || u.work.Asked == nil {
		f.pass(t.ID)
		return false, nil
	}
	for _, id := range u.work.Asked.Interrupts {
		i, found, err := f.config.Interrupt(ctx, id)
		if err != nil {
			return false, err
		}
		if found && !i.Open() {
			u.work.decided = append(u.work.decided, id)
		}
	}
	if u.task.Status.Message != nil {
		u.task.History = append(u.task.History, u.task.Status.Message)
	}
	u.work.Asked, u.work.Resolution = nil, nil // what was decided stands with the run below
	return true, f.goOn(ctx, t, &u, nil)
}

// goOn executes a task that waited, in the state that it has now. What its agent said
// before it says again.
func (f *Face) goOn(ctx context.Context, t *agentbus.Task, u *taken, m *agentbus.TaskMessage) error {
	now := time.Now().UTC()
	u.task.Artifacts = nil
	u.task.Status = sdk.TaskStatus{State: sdk.TaskStateSubmitted, Timestamp: &now}
	t.State, t.Owner, t.Updated, t.Version, t.Waits = string(u.task.Status.State), f.config.Owner, now, t.Version+1, nil
	if err := f.fill(t, u.task, &u.work, u.request.Lineage.Auth); err != nil {
		return err
	}
	if err := f.config.Tasks.UpdateTask(ctx, *t, m); err != nil {
		return err
	}
	return f.begin(*t, u.task, u.work, u.request, u.backend) //nolint:contextcheck // a task outlives its caller (A32)
}

// waitsFor returns the interrupts that the task waits for: not those that it was
// executed again for already.
func (w *work) waitsFor(ask *agentbus.Ask) []agentbus.InterruptID {
	return slices.DeleteFunc(slices.Clone(ask.Interrupts), func(id agentbus.InterruptID) bool { return slices.Contains(w.decided, id) })
}

// pass remembers that this process cannot go on with a task.
func (f *Face) pass(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.passed) >= maxPassed {
		clear(f.passed)
	}
	f.passed[id] = struct{}{}
}

// passes reports whether a task is left alone: it was passed, or its caller is about
// to go on with it.
func (f *Face) passes(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, passed := f.passed[id]
	return passed || f.answering[id] > 0
}

// answer notes that the caller of a task is about to go on with it, until the
// function it returns is called.
func (f *Face) answer(id string) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answering[id]++
	delete(f.passed, id)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.answering[id]--; f.answering[id] == 0 {
			delete(f.answering, id)
		}
	}
}
