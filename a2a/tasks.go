package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// A work is what it takes to execute a task, or to go on with it, as it is
// stored: all but the credential.
type work struct {
	Caller     agentbus.Principal     `json:"caller"`
	Base       string                 `json:"base"`
	Lineage    http.Header            `json:"lineage"`
	Chain      *agentbus.AgentChain   `json:"chain,omitempty"`
	decided    []agentbus.InterruptID // that it was executed again for
	Minted     bool                   `json:"minted,omitempty"`
	Signed     bool                   `json:"signed,omitempty"` // it was called with a credential
	Messages   []agentbus.Message     `json:"messages"`
	Asked      *wanted                `json:"asked,omitempty"`      // what it waits for
	Resolution *agentbus.Resolution   `json:"resolution,omitempty"` // what came of the ask before
}

// A wanted is what is kept of what an agent asked, to go on with it: what is shown
// stands in the task.
type wanted struct {
	Kind       agentbus.AskKind       `json:"kind"`
	Resume     json.RawMessage        `json:"resume,omitempty"`
	Interrupts []agentbus.InterruptID `json:"interrupts,omitempty"` // that somebody below is parked on
	Issued     []issued               `json:"issued,omitempty"`     // parts of this bus's own
}

// request returns the request that the work is done for, as far as it is stored: without
// the evidence and the signed hop of a message, which are of that one (C16, C20).
func (w *work) request(t *agentbus.Task) (*Request, error) {
	l, err := agentbus.ParseLineage(w.Lineage)
	l.Chain = w.Chain
	return &Request{Agent: t.Agent, Caller: w.Caller, Payer: t.Payer, Lineage: l, Base: w.Base, Minted: w.Minted}, err
}

// A live is a task that this process executes. What is told of it is a list that
// only grows: whoever listens reads it at a pace of its own.
type live struct {
	face    *Face
	request *Request
	work    work
	cancel  context.CancelCauseFunc
	issued  []issued      // with what it asks
	ended   chan struct{} // closed once its end is stored

	mu     sync.Mutex // guards the rest
	stored agentbus.Task
	task   *sdk.Task
	events []sdk.Event
	bell   chan struct{} // closed when there is more
	over   bool
}

// shown reads a task as it is stored.
func shown(t *agentbus.Task) (*sdk.Task, error) {
	var task sdk.Task
	if err := json.Unmarshal(t.Shown, &task); err != nil {
		return nil, fmt.Errorf("read stored task %s: %w", t.ID, err)
	}
	unrounded(&task, t.Shown)
	return &task, nil
}

// interrupted reports whether a task in that state waits for its caller.
func interrupted(s sdk.TaskState) bool {
	return s == sdk.TaskStateInputRequired || s == sdk.TaskStateAuthRequired
}

// find returns the live task of that id; nil: this process does not execute it.
func (f *Face) find(id string) *live {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[id]
}

// begin executes a task that is stored as this process's.
func (f *Face) begin(t agentbus.Task, task *sdk.Task, w work, r *Request, b agentbus.Backend) error {
	ctx, cancel := context.WithCancelCause(NewContext(f.ctx, r))
	l := &live{
		face: f, request: r, work: w, cancel: cancel, ended: make(chan struct{}),
		stored: t, task: task, bell: make(chan struct{}),
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		cancel(nil)
		return errDraining
	}
	f.live[t.ID] = l
	f.going.Go(func() {
		defer cancel(nil)
		l.execute(ctx, b)
		f.mu.Lock()
		delete(f.live, t.ID)
		f.mu.Unlock()
		close(l.ended)
	})
	f.mu.Unlock()
	return nil
}

// room refuses a task that would be one too many.
func (f *Face) room() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errDraining
	case len(f.live) >= f.config.MaxTasks:
		return &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "as many tasks are executed as may be at once",
			Explain: &agentbus.Explain{Rule: "A32", Observed: len(f.live), Limit: f.config.MaxTasks, Next: "send the same message again after the given time"},
		}
	}
	return nil
}

// full reports whether no task more can be executed now.
func (f *Face) full() bool { return f.room() != nil }

// snapshot returns the task as it is now, and how much was told of it. What it
// returns is not changed any more.
func (l *live) snapshot() (*sdk.Task, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return copyOf(l.task), len(l.events)
}

// copyOf returns a copy of a task whose lists are its own.
func copyOf(t *sdk.Task) *sdk.Task {
	c := *t
	c.History = append([]*sdk.Message(nil), t.History...)
	c.Artifacts = make([]*sdk.Artifact, len(t.Artifacts))
	for i, a := range t.Artifacts {
		one := *a
		one.Parts = append(sdk.ContentParts(nil), a.Parts...)
		c.Artifacts[i] = &one
	}
	return &c
}

// tell changes the task and tells of it.
func (l *live) tell(change func(*sdk.Task), events ...sdk.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.task)
	l.told(events...)
}

// told adds events; the caller holds mu.
func (l *live) told(events ...sdk.Event) {
	l.events = append(l.events, events...)
	close(l.bell)
	l.bell = make(chan struct{})
}

// after returns the events after the first n, whether they are the last ones,
// and what is closed when there are more.
func (l *live) after(n int) (events []sdk.Event, over bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[n:len(l.events):len(l.events)], l.over, l.bell
}

// settle ends the execution in a state, durably, and then tells of it. A task
// that somebody else changed meanwhile is theirs.
func (l *live) settle(ctx context.Context, state sdk.TaskState, m *sdk.Message, ask *agentbus.Ask, forget bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UTC()
	next := copyOf(l.task)
	next.Status = sdk.TaskStatus{State: state, Message: m, Timestamp: &now}
	t := l.stored
	t.State, t.Owner, t.Updated, t.Version = string(state), "", now, t.Version+1
	var err error
	if t.Work, t.Sealed, t.Waits = nil, nil, nil; ask != nil {
		t.Waits = l.work.waitsFor(ask)
		l.work.Asked, l.work.Resolution = &wanted{Kind: ask.Kind, Resume: ask.Resume, Interrupts: ask.Interrupts, Issued: l.issued}, nil
		t.Sealed = l.stored.Sealed
		t.Work, err = json.Marshal(l.work)
	}
	var known *agentbus.TaskMessage
	if forget {
		known = &agentbus.TaskMessage{Forget: true}
	}
	if err == nil {
		if t.Shown, err = json.Marshal(next); err == nil {
			err = l.face.config.Tasks.UpdateTask(context.WithoutCancel(ctx), t, known)
		}
	}
	l.over = true
	if err != nil {
		l.face.log(ctx, "the end of a task is not stored", l.stored.ID, err)
		if agentbus.CodeOf(err) == agentbus.CodeLeaseLost {
			l.told() // whoever listens looks it up
			return
		}
	}
	l.stored, l.task = t, next
	l.told(&sdk.TaskStatusUpdateEvent{TaskID: next.ID, ContextID: next.ContextID, Status: next.Status, Metadata: next.Metadata})
}

// left reports whether the execution ended because the face is closed.
func left(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLeaving) }
