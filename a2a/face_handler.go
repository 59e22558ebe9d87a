package a2a

import (
	"context"
	"encoding/base64"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// A handler serves the operations of A2A. What fails, fails with an *Error; the
// SDK, which knows fewer, is passed by (A29): see [exchange].
type handler struct{ *Face }

// fault returns a standard error of A2A (A16).
func fault(code int, reason, message, next string) *Error {
	return Standard(code, reason, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Next: next}})
}

var (
	errNoTask   = fault(CodeTaskNotFound, "", "there is no task of this id", "send a message without a task, or look at ListTasks")
	errOver     = fault(CodeUnsupportedOperation, "", "the task is over", "read it with GetTask, or send a message without a task, in the same context")
	errBusy     = fault(CodeUnsupportedOperation, "EXECUTION_IN_PROGRESS", "the task is being executed", "wait until it has ended, or asks for something")
	errNoPush   = fault(CodePushNotSupported, "", "push notifications are not served", "stream, or subscribe to the task")
	errConflict = fault(CodeInvalidParams, "MESSAGE_ID_CONFLICT", "another message came under this id", "give every message an id of its own; send the same message again unchanged")
	errHistory  = fault(CodeInvalidParams, "", "historyLength is negative", "send 0 for no history, or leave it out for all of it")
	errPage     = fault(CodeInvalidParams, "", "pageSize is not from 1 to 100", "leave it out for 50")
	errNoID     = fault(CodeInvalidParams, "", "there is no id of a task", "send the id of a task")
	errOther    = fault(CodeInvalidParams, "", "the task belongs to another context", "leave the context out, or name the task's own")
	errNoCaller = &agentbus.Error{Code: agentbus.CodeInternal, Message: "the request did not come through the gateway"}
)

// of returns the task of that id, if it is the caller's and the agent's, and the
// request that asks for it.
func (h handler) of(ctx context.Context, id string) (t agentbus.Task, err error) {
	r, ok := FromContext(ctx)
	if !ok {
		return t, errNoCaller
	}
	if id == "" {
		return t, errNoID
	}
	t, found, err := h.config.Tasks.Task(ctx, id)
	if err == nil && (!found || t.Agent != r.Agent || t.Principal != r.owner()) { // X34
		err = errNoTask
	}
	return t, err
}

// now returns a stored task as it is now.
func (h handler) now(t *agentbus.Task) (*sdk.Task, error) {
	if l := h.find(t.ID); l != nil {
		task, _ := l.snapshot()
		return task, nil
	}
	return shown(t)
}

// trimmed returns t with as much of its history as was asked for.
func trimmed(t *sdk.Task, history *int) *sdk.Task {
	if history == nil || len(t.History) <= *history {
		return t
	}
	c := *t
	c.History = t.History[len(t.History)-*history:]
	return &c
}

// countable refuses a number of messages that is none.
func countable(history *int) error {
	if history != nil && *history < 0 {
		return errHistory
	}
	return nil
}

// GetTask returns a task as it is.
func (h handler) GetTask(ctx context.Context, req *sdk.GetTaskRequest) (*sdk.Task, error) {
	if err := countable(req.HistoryLength); err != nil {
		return nil, failed(ctx, err)
	}
	t, err := h.of(ctx, string(req.ID))
	if err != nil {
		return nil, failed(ctx, err)
	}
	task, err := h.now(&t)
	if err != nil {
		return nil, failed(ctx, err)
	}
	return trimmed(task, req.HistoryLength), nil
}

const (
	pageDefault = 50
	pageMost    = 100
)

// taskStates are those that a list may be of.
var taskStates = []sdk.TaskState{
	sdk.TaskStateSubmitted, sdk.TaskStateWorking, sdk.TaskStateInputRequired, sdk.TaskStateAuthRequired,
	sdk.TaskStateCompleted, sdk.TaskStateFailed, sdk.TaskStateCanceled, sdk.TaskStateRejected,
}

// ListTasks returns the caller's tasks of the agent, last changed first, in pages.
func (h handler) ListTasks(ctx context.Context, req *sdk.ListTasksRequest) (*sdk.ListTasksResponse, error) {
	r, ok := FromContext(ctx)
	if !ok {
		return nil, failed(ctx, errNoCaller)
	}
	if err := countable(req.HistoryLength); err != nil {
		return nil, failed(ctx, err)
	}
	q := agentbus.TaskQuery{Agent: r.Agent, Principal: r.owner(), Context: req.ContextID, State: string(req.Status), Limit: pageDefault}
	if req.StatusTimestampAfter != nil {
		q.Since = *req.StatusTimestampAfter
	}
	if req.PageSize != 0 {
		q.Limit = req.PageSize
	}
	if q.Limit < 1 || q.Limit > pageMost {
		return nil, failed(ctx, errPage)
	}
	if q.State == "TASK_STATE_UNSPECIFIED" { // as ProtoJSON writes none
		q.State = ""
	}
	if q.State != "" && !slices.Contains(taskStates, sdk.TaskState(q.State)) {
		return nil, failed(ctx, fault(CodeInvalidParams, "", "status is no state of a task", "send one such as "+string(sdk.TaskStateCompleted)+", or leave it out for all"))
	}
	if req.PageToken != "" {
		if q.Before, q.BeforeID, ok = readToken(req.PageToken); !ok {
			return nil, failed(ctx, fault(CodeInvalidParams, "", "pageToken is none of ours", "send nextPageToken of the page before, unchanged"))
		}
	}
	size := q.Limit
	q.Limit++ // one more tells whether there is a next page
	stored, total, err := h.config.Tasks.Tasks(ctx, q)
	if err != nil {
		return nil, failed(ctx, err)
	}
	out := &sdk.ListTasksResponse{Tasks: make([]*sdk.Task, 0, len(stored)), TotalSize: total, PageSize: size} // never null (A29)
	if len(stored) > size {
		stored = stored[:size]
		last := &stored[size-1]
		out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(last.Updated.UnixMicro(), 10) + " " + last.ID))
	}
	for i := range stored {
		task, err := h.now(&stored[i])
		if err != nil {
			return nil, failed(ctx, err)
		}
		if task = trimmed(task, req.HistoryLength); !req.IncludeArtifacts {
			bare := *task
			bare.Artifacts = nil
			task = &bare
		}
		out.Tasks = append(out.Tasks, task)
	}
	return out, nil
}

func readToken(token string) (at time.Time, id string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return at, "", false
	}
	n, id, ok := strings.Cut(string(raw), " ")
	micros, err := strconv.ParseInt(n, 10, 64)
	return time.UnixMicro(micros), id, ok && err == nil
}

// CancelTask ends a task: its agent is told that nobody waits any more, and what
// it said until then stays.
func (h handler) CancelTask(ctx context.Context, req *sdk.CancelTaskRequest) (*sdk.Task, error) {
	for {
		t, err := h.of(ctx, string(req.ID))
		if err != nil {
			return nil, failed(ctx, err)
		}
		if sdk.TaskState(t.State).Terminal() {
			return nil, failed(ctx, fault(CodeTaskNotCancelable, "", "the task is over", "read it with GetTask"))
		}
		if l := h.find(t.ID); l != nil {
			l.cancel(errCancelled)
			select {
			case <-l.ended:
			case <-ctx.Done():
				return nil, failed(ctx, ctx.Err())
			}
			task, _ := l.snapshot()
			if s := task.Status.State; s != sdk.TaskStateCanceled && s.Terminal() {
				return nil, failed(ctx, fault(CodeTaskNotCancelable, "", "the task has ended meanwhile", "read it with GetTask"))
			}
			if task.Status.State == sdk.TaskStateCanceled {
				return task, nil
			}
			continue // it asked for something meanwhile
		}
		task, err := shown(&t)
		if err != nil {
			return nil, failed(ctx, err)
		}
		now := time.Now().UTC()
		task.Status = sdk.TaskStatus{State: sdk.TaskStateCanceled, Timestamp: &now}
		t.State, t.Owner, t.Work, t.Sealed, t.Waits, t.Updated, t.Version = string(sdk.TaskStateCanceled), "", nil, nil, nil, now, t.Version+1
		if t.Shown, err = oneLine(task); err == nil {
			err = h.config.Tasks.UpdateTask(ctx, t, nil)
		}
		if agentbus.CodeOf(err) == agentbus.CodeLeaseLost {
			continue
		}
		if err != nil {
			return nil, failed(ctx, err)
		}
		return task, nil
	}
}

// SubscribeToTask tells of a task that is executed, from a snapshot on; of one
// that waits only the snapshot (A29).
func (h handler) SubscribeToTask(ctx context.Context, req *sdk.SubscribeToTaskRequest) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		t, err := h.of(ctx, string(req.ID))
		if err == nil && sdk.TaskState(t.State).Terminal() {
			err = errOver
		}
		if err != nil {
			yield(nil, failed(ctx, err))
			return
		}
		h.stream(ctx, &t)(yield)
	}
}

// stream tells of a stored task: whole, then what changes, until it is over or
// waits.
func (h handler) stream(ctx context.Context, t *agentbus.Task) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		if l := h.find(t.ID); l != nil {
			l.stream(ctx)(yield)
			return
		}
		task, err := shown(t)
		if err != nil {
			yield(nil, failed(ctx, err))
			return
		}
		if !yield(task, nil) || task.Status.State.Terminal() || interrupted(task.Status.State) {
			return
		}
		task, err = h.elsewhere(ctx, t)
		if err != nil {
			yield(nil, failed(ctx, err))
			return
		}
		for _, a := range task.Artifacts {
			if !yield(&sdk.TaskArtifactUpdateEvent{TaskID: task.ID, ContextID: task.ContextID, Artifact: a, LastChunk: true}, nil) {
				return
			}
		}
		yield(&sdk.TaskStatusUpdateEvent{TaskID: task.ID, ContextID: task.ContextID, Status: task.Status, Metadata: task.Metadata}, nil)
	}
}

// stream tells of the task from now on.
func (l *live) stream(ctx context.Context) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		task, n := l.snapshot()
		if !yield(task, nil) {
			return
		}
		for {
			events, over, more := l.after(n)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			n += len(events)
			if over {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// elsewhere waits until another process has executed a task, and returns it.
func (h handler) elsewhere(ctx context.Context, t *agentbus.Task) (*sdk.Task, error) {
	for wait := pollLeast; ; wait = min(2*wait, pollMost) {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		now, found, err := h.config.Tasks.Task(ctx, t.ID)
		switch {
		case err != nil:
			return nil, err
		case !found:
			return nil, errNoTask
		}
		if s := sdk.TaskState(now.State); s.Terminal() || interrupted(s) {
			return shown(&now)
		}
	}
}

// The methods of push notifications: webhooks would bypass the bus (A17).

// GetTaskPushConfig refuses.
func (handler) GetTaskPushConfig(ctx context.Context, _ *sdk.GetTaskPushConfigRequest) (*sdk.PushConfig, error) {
	return nil, failed(ctx, errNoPush)
}

// ListTaskPushConfigs refuses.
func (handler) ListTaskPushConfigs(ctx context.Context, _ *sdk.ListTaskPushConfigRequest) (*sdk.ListTaskPushConfigResponse, error) {
	return nil, failed(ctx, errNoPush)
}

// CreateTaskPushConfig refuses.
func (handler) CreateTaskPushConfig(ctx context.Context, _ *sdk.PushConfig) (*sdk.PushConfig, error) {
	return nil, failed(ctx, errNoPush)
}

// DeleteTaskPushConfig refuses.
func (handler) DeleteTaskPushConfig(ctx context.Context, _ *sdk.DeleteTaskPushConfigRequest) error {
	return failed(ctx, errNoPush)
}

// GetExtendedAgentCard returns the card: who is known here reads no other one.
func (h handler) GetExtendedAgentCard(ctx context.Context, _ *sdk.GetExtendedAgentCardRequest) (*sdk.AgentCard, error) {
	r, ok := FromContext(ctx)
	if !ok {
		return nil, failed(ctx, errNoCaller)
	}
	s, ok := h.config.Agent(r.Agent)
	if !ok {
		return nil, failed(ctx, errNoAgent)
	}
	return h.card(r, &s), nil
}

var errNoAgent = &agentbus.Error{Code: agentbus.CodeAgentNotFound, Message: "there is no agent of this name any more"}
