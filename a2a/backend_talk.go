package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

const (
	lostTries = 5                      // to find a task again whose connection was lost (A22)
	pollLeast = 200 * time.Millisecond // between two looks at a task, doubled
	pollMost  = 5 * time.Second
	cancelFor = 5 * time.Second // to tell an agent that nobody waits any more (C17)
)

type talkKey struct{}

// A talk is one call of an agent: the message, and what comes of it. It belongs
// to the goroutine that reads the answer.
type talk struct {
	backend *Backend
	call    *agentbus.Call
	yield   func(agentbus.Chunk, error) bool

	peer     *peer
	session  session
	message  string // id of the message
	first    string // that of the turn, when its task was cancelled and this is another
	streamed bool   // the answer comes as a stream
	policy   []byte // what a status asked for, as it came
	x402     map[string]json.RawMessage
	receipts []json.RawMessage // of payments that the agent took
	answer   answer
	named    chan struct{} // closed once the agent has named a task
}

// run performs the call.
func (t *talk) run(ctx context.Context) (err error) {
	b := t.backend
	if b.plaintext && (!t.call.Lineage.Auth.IsZero() || !b.config.Key.IsZero()) {
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "a credential would leave over plain HTTP to " + b.url.Hostname() + "; nothing was sent",
			Explain: &agentbus.Explain{Rule: "P24", Observed: "http", Supported: []string{"https", "loopback"}, Next: "use https, or set allow_plaintext for this agent"},
		}
	}
	if t.peer, err = b.peer(ctx); err != nil {
		return err
	}
	if err := t.recall(ctx); err != nil {
		return err
	}
	defer t.leave(ctx)
	done, err := t.begun(ctx)
	if !done && err == nil {
		err = t.send(ctx)
	}
	if err != nil {
		return err
	}
	return t.conclude(ctx)
}

// begun looks for what an earlier attempt made of the same message (A22): its
// task is followed, and the message not sent again, unless it failed.
func (t *talk) begun(ctx context.Context) (done bool, err error) {
	if t.session.Message != t.message && t.session.First != t.message || t.session.Task == "" {
		return false, nil
	}
	if t.session.First != "" {
		t.rename(t.session.Message)
	}
	task, err := t.look(ctx, sdk.TaskID(t.session.Task))
	if err != nil {
		if e, told := errors.AsType[*Error](err); told && e.Code == CodeTaskNotFound {
			return false, nil
		}
		return false, err
	}
	if s := task.Status.State; s.Terminal() && s != sdk.TaskStateCompleted {
		if s == sdk.TaskStateCanceled {
			t.anew()
		}
		return false, nil
	}
	if _, err := t.hopFor(ctx); err != nil { // the call is proved by one, which no message brings (C16)
		return false, err
	}
	if err := t.hear(ctx, task); err != nil {
		return true, err
	}
	return true, t.follow(ctx)
}

// anew has the turn asked as if for the first time: its task was cancelled, by a
// fan-out that was aborted, and its message, or its turn, would be answered with
// that (C17). What it is called now follows from the task, so that it is the same
// on every retry.
func (t *talk) anew() {
	t.rename(messageID(&t.call.Lineage, t.backend.config.Name, "after", t.session.Task))
}

func (t *talk) rename(message string) {
	t.first, t.message = cmp.Or(t.first, t.message), message
	call := *t.call
	if call.Lineage.Turn != "" {
		call.Lineage.Turn += agentbus.TurnID("-c" + message[2:10])
	}
	t.call = &call
}

// send sends the message and hears the answer to its end.
func (t *talk) send(ctx context.Context) error {
	for try := 1; ; try++ {
		evidence, err := evidenceOf(ctx, t.message) // each time anew: what was shown once does not count again (C22)
		if err != nil {
			return err
		}
		hop, err := t.hopFor(ctx)
		if err != nil {
			return err
		}
		t.streamed = false
		err = t.say(context.WithValue(ctx, hopSentKey{}, hop), t.request(evidence, hop))
		switch {
		case err != nil && !lost(ctx, err):
			return err
		case t.answer.over():
			return nil
		case err == nil && t.streamed: // A33
			return unusable("the agent's stream ended before its answer did", nil)
		case err == nil || t.answer.task != "":
			return t.follow(ctx)
		case !t.backend.config.Idempotent:
			return &agentbus.Error{
				Code: agentbus.CodeOutcomeUnknown, Message: "the connection was lost after the message was sent: nobody knows whether the agent works on it", Err: err,
				Explain: &agentbus.Explain{Rule: "A22", Next: "look at the agent, then begin a new turn; set idempotent for an agent that knows a message again"},
			}
		case try == lostTries:
			return err
		}
		if err := pause(ctx, pollLeast<<try); err != nil {
			return err
		}
	}
}

// say sends the message and hears what comes of it at once. Whoever calls may leave
// for good before the agent has named the task that it began: the connection is
// kept for that moment, since an agent can be told only by that name that nobody
// waits any more (C17).
func (t *talk) say(ctx context.Context, req *sdk.SendMessageRequest) error {
	kept, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // waited for below
		defer close(over)
		if errors.Is(context.Cause(ctx), agentbus.ErrForGood) {
			late := time.NewTimer(cancelFor)
			defer late.Stop()
			select {
			case <-t.named:
			case <-late.C:
			case <-kept.Done():
			}
		}
		cut(context.Cause(ctx))
	})
	defer func() {
		cut(nil)
		if !stop() {
			<-over
		}
	}()
	return t.listen(ctx, t.peer.client.SendStreamingMessage(kept, req))
}

// listen hears events until they end, or the answer is over.
func (t *talk) listen(ctx context.Context, events iter.Seq2[sdk.Event, error]) error {
	for event, err := range events {
		if err != nil {
			return err
		}
		if err := t.hear(ctx, event); err != nil {
			return err
		}
		if t.answer.over() {
			return nil
		}
	}
	return nil
}

// lost reports whether err is the connection's, and not what the agent or the
// reader said.
func lost(ctx context.Context, err error) bool {
	_, theirs := errors.AsType[*Error](err)
	_, ours := errors.AsType[*agentbus.Error](err)
	return err != nil && ctx.Err() == nil && !theirs && !ours && !errors.Is(err, errStopped)
}

// follow goes on with a task until the answer is over (A22, A23, A38): by its
// stream where the agent has one, else by looking at it now and then. A
// connection that is lost is made again, a few times in a row.
func (t *talk) follow(ctx context.Context) error {
	wait, failures := pollLeast, 0
	for !t.answer.over() {
		before := t.answer.heard
		err := t.again(ctx)
		switch {
		case err != nil && !lost(ctx, err):
			return err
		case t.answer.over():
			return nil
		case err != nil:
			if failures++; failures == lostTries {
				return fmt.Errorf("the connection to the agent was lost %d times: %w", failures, err)
			}
		default:
			failures = 0
		}
		if t.answer.heard != before && t.streamed {
			wait = pollLeast
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, pollMost)
	}
	return nil
}

// again looks at the task, and hears its stream where there is one.
func (t *talk) again(ctx context.Context) error {
	id := t.answer.task
	task, err := t.look(ctx, id)
	if e, told := errors.AsType[*Error](err); told && e.Code == CodeTaskNotFound {
		return unusable("the agent does not know the task any more that it worked on", nil) // begun has it begin another
	}
	if err != nil {
		return err
	}
	if err := t.hear(ctx, task); err != nil || t.answer.over() || !t.peer.streaming {
		return err
	}
	first := true
	t.streamed = false
	err = t.listen(ctx, func(yield func(sdk.Event, error) bool) {
		for event, err := range t.peer.client.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: id}) {
			if task, whole := event.(*sdk.Task); err == nil && first && (!whole || task.ID != id) { // A34
				err = unusable("the agent's subscription does not begin with its task", nil)
			}
			if first = false; !yield(event, err) || err != nil {
				return
			}
		}
	})
	if e, told := errors.AsType[*Error](err); told && (e.Code == CodeUnsupportedOperation || e.Code == CodeMethodNotFound || e.Code == CodeTaskNotFound) {
		return nil // it is over, or cannot be followed: the next look tells
	}
	return err
}

// look asks the agent how a task stands. What tells of no task, or of another, would
// never be over.
func (t *talk) look(ctx context.Context, id sdk.TaskID) (*sdk.Task, error) {
	task, err := t.peer.client.GetTask(ctx, &sdk.GetTaskRequest{ID: id})
	if err == nil && task.ID != id { // A34
		return nil, unusable("the agent told of another task than it was asked for", nil)
	}
	return task, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// name notes which task the message began, or goes on with.
func (t *talk) name(id sdk.TaskID) {
	if t.answer.task == "" && id != "" {
		t.answer.task = id
		close(t.named)
	}
}

// hear takes the next event of the answer, and passes on what is new in it.
func (t *talk) hear(ctx context.Context, event sdk.Event) error {
	if info := event.TaskInfo(); info.TaskID != "" || info.ContextID != "" {
		t.name(info.TaskID)
		if err := t.keep(ctx, info); err != nil {
			return err
		}
	}
	chunks, err := t.answer.hear(event)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if !t.yield(c, nil) {
			return errStopped
		}
	}
	return nil
}

// leave tells the agent that nobody wants the answer any more, when whoever
// called says that it is so for good (C17). Otherwise the task goes on: the turn
// may be called again, and finds it (A11, G14).
func (t *talk) leave(ctx context.Context) {
	if !errors.Is(context.Cause(ctx), agentbus.ErrForGood) || t.answer.task == "" || t.answer.over() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelFor)
	defer cancel()
	_, _ = t.peer.client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: t.answer.task}) // nobody is left to be told
}
