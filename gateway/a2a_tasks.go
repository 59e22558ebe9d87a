package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// RemoteTasks remember where the tasks of A2A agents are, and whose (A12). They
// are safe for concurrent use; their errors are CodeStoreUnavailable.
type RemoteTasks interface {
	// RemoteTask returns what is known of a task, if it was seen within
	// RemoteTaskAge.
	RemoteTask(ctx context.Context, agent, id string) (t agentbus.RemoteTask, found bool, err error)
	// RemoteContext returns the task of a payer that was seen last in a context.
	RemoteContext(ctx context.Context, agent string, payer agentbus.Payer, id string) (t agentbus.RemoteTask, found bool, err error)
	// OthersRemoteTasks reports whether an agent has tasks of other payers.
	OthersRemoteTasks(ctx context.Context, agent string, payer agentbus.Payer) (bool, error)
	// SeeRemoteTask stores that a task was seen. A task that is known as another
	// payer's stays as it is. It is durable when it returns.
	SeeRemoteTask(ctx context.Context, t agentbus.RemoteTask) error
}

const (
	maxTasks  = 1 << 16   // that are remembered here, beside the store
	taskFresh = time.Hour // how long a sighting is not stored again
)

type taskKey struct{ agent, id string }

// tasks are the tasks of A2A agents that were seen last.
type tasks struct {
	seen *lru.Cache[taskKey, agentbus.RemoteTask]
}

func newTasks() tasks {
	c, _ := lru.New[taskKey, agentbus.RemoteTask](maxTasks) // fails for a size of 0 only
	return tasks{seen: c}
}

// recall returns what is known here of a task.
func (s tasks) recall(agent, id string) (t agentbus.RemoteTask, found bool) {
	t, found = s.seen.Get(taskKey{agent, id})
	return t, found && time.Since(t.Seen) < agentbus.RemoteTaskAge
}

// see remembers tasks here.
func (s tasks) see(seen []agentbus.RemoteTask) {
	for _, t := range seen {
		s.seen.Add(taskKey{t.Agent, t.ID}, t)
	}
}

// taskOf returns what is known of a task.
func (g *Gateway) taskOf(ctx context.Context, agent, id string) (t agentbus.RemoteTask, found bool, err error) {
	if t, found = g.tasks.recall(agent, id); found || g.cfg.A2A.Tasks == nil {
		return t, found, nil
	}
	if t, found, err = g.cfg.A2A.Tasks.RemoteTask(ctx, agent, id); found {
		g.tasks.seen.ContainsOrAdd(taskKey{agent, id}, t)
	}
	return t, found, err
}

// locate says where a request goes that is about a task (A12): to the URL that
// has it. Another's task is as good as none.
func (g *Gateway) locate(ctx context.Context, x *exchange) error {
	c, urls := &x.envelope.call, x.target.upstreams().list
	switch {
	case c.TaskID != "":
		t, found, err := g.taskOf(ctx, x.target.Name, c.TaskID)
		switch {
		case err != nil:
			return err
		case found && t.Payer != x.payer:
			return errNotYours
		case found:
			x.pinned = t.Upstream
		case c.Operation != a2a.OpOther: // whose id may be that of something else
			x.pinned = urls[0].name
		}
	case c.Operation == a2a.OpList && len(urls) > 1:
		return g.locateContext(ctx, x)
	}
	return nil
}

// locateContext finds the URL that has the tasks of a context.
func (g *Gateway) locateContext(ctx context.Context, x *exchange) error {
	if c := x.envelope.call.ContextID; c != "" && g.cfg.A2A.Tasks != nil {
		t, found, err := g.cfg.A2A.Tasks.RemoteContext(ctx, x.target.Name, x.payer, c)
		if x.pinned = t.Upstream; found || err != nil {
			return err
		}
	}
	return a2a.Standard(a2a.CodeUnsupportedOperation, "", &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "agent " + x.target.Name + " runs at several places, and each has tasks of its own",
		Explain: &agentbus.Explain{Rule: "A12", Next: "list the tasks of one context: send contextId"},
	})
}

var errNotYours = a2a.Standard(a2a.CodeTaskNotFound, "", &agentbus.Error{
	Code: agentbus.CodeRunNotFound, Message: "there is no such task",
	Explain: &agentbus.Explain{Rule: "A12", Next: "name a task of your own"},
})

// owns notes the tasks that an answer names as the caller's. It fails when one
// of them is known as another's: nothing of the answer is told then (A12).
func (a *answer) owns(f *a2a.Frame) error {
	for _, ref := range f.Tasks {
		if err := a.own(ref); err != nil {
			return err
		}
	}
	return nil
}

// own notes a task as the caller's, or fails with errNotYours.
func (a *answer) own(ref a2a.TaskRef) error {
	x, g := a.exchange, a.gateway
	known, found, err := g.taskOf(a.ctx, x.target.Name, ref.ID)
	if err != nil {
		return err
	}
	if found && known.Payer != x.payer {
		return errNotYours
	}
	t, fresh := a.sighting(ref, known, found)
	if fresh {
		return nil
	}
	g.tasks.seen.Add(taskKey{t.Agent, t.ID}, t)
	if g.cfg.A2A.Tasks != nil {
		ctx := context.WithoutCancel(a.ctx)
		a.learning.Go(func() {
			if err := g.cfg.A2A.Tasks.SeeRemoteTask(ctx, t); err != nil {
				g.log.LogAttrs(ctx, slog.LevelError, "task not remembered", slog.String("agent", t.Agent), slog.Any("error", err))
			}
		})
	}
	return nil
}

// ownList leaves the tasks of others out of a list. How many there are over all
// pages is told where nobody else is known to have any: it would count theirs. In
// its place stands what is left of the page.
func (a *answer) ownList(body []byte, kept http.Header) (_ []byte, err error) {
	x, tasks := a.exchange, a.gateway.cfg.A2A.Tasks
	edited, left := a2a.EditList(body, x.envelope.binding, func(ref a2a.TaskRef) bool {
		if ref.ID == "" || err != nil {
			return true
		}
		fault := a.own(ref)
		if fault != nil && !errors.Is(fault, errNotYours) {
			err = fault
		}
		return fault == nil
	})
	others := true
	if err == nil && tasks != nil {
		others, err = tasks.OthersRemoteTasks(a.ctx, x.target.Name, x.payer)
	}
	if err != nil {
		return nil, err
	}
	if others {
		edited = a2a.SetTotal(edited, x.envelope.binding, left)
	}
	if !bytes.Equal(edited, body) {
		delete(kept, "Etag") // of what the agent sent
	}
	return edited, nil
}

// claims notes the tasks that the whole answer of a call names. What is not
// known here is settled with the call: the ledger says whose they are, and
// stores them in the same commit (A12).
func (a *answer) claims(f *a2a.Frame) error {
	x, g := a.exchange, a.gateway
	for _, ref := range f.Tasks {
		known, found := g.tasks.recall(x.target.Name, ref.ID)
		if found && known.Payer != x.payer {
			return errNotYours
		}
		if t, fresh := a.sighting(ref, known, found); !fresh {
			a.claimed = append(a.claimed, t)
		}
	}
	return nil
}

// sighting returns a task as an answer names it now. It is fresh when what is
// known of it says the same.
func (a *answer) sighting(ref a2a.TaskRef, known agentbus.RemoteTask, found bool) (t agentbus.RemoteTask, fresh bool) {
	x := a.exchange
	t = agentbus.RemoteTask{Agent: x.target.Name, ID: ref.ID, Upstream: a.try.to.name, Payer: x.payer, Context: ref.Context, Seen: time.Now()}
	return t, found && known.Upstream == t.Upstream && t.Seen.Sub(known.Seen) < taskFresh
}

// settlesTasks reports whether the ledger settles tasks with the call: where
// they are stored at all, of an answer that can be the call's.
func (a *answer) settlesTasks(f *a2a.Frame) bool {
	return a.exchange.flight != nil && a.gateway.cfg.A2A.Tasks != nil && f.Err == nil
}
