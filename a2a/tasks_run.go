package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/guard"
)

// The artifacts of a task: what its agent says, and the tools it asks for.
const (
	artifactAnswer = "answer"
	artifactTools  = "tool_calls"
)

// errCancelled ends an execution whose caller cancelled the task: nobody will
// ask for its answer again.
var errCancelled = errors.Join(errors.New("the task was cancelled"), agentbus.ErrForGood)

func (f *Face) log(ctx context.Context, what, task string, err error) {
	f.config.Logger.LogAttrs(ctx, slog.LevelWarn, "task", slog.String("id", task), slog.String("what", what), slog.Any("error", err))
}

// execute calls the agent and settles what comes of it.
func (l *live) execute(ctx context.Context, b agentbus.Backend) {
	now := time.Now().UTC()
	l.tell(func(t *sdk.Task) { t.Status = sdk.TaskStatus{State: sdk.TaskStateWorking, Timestamp: &now} },
		&sdk.TaskStatusUpdateEvent{TaskID: l.task.ID, ContextID: l.task.ContextID, Status: sdk.TaskStatus{State: sdk.TaskStateWorking, Timestamp: &now}})
	call := &agentbus.Call{Lineage: l.request.Lineage, Agent: l.request.Agent, Messages: l.work.Messages, Resolution: l.work.Resolution}
	var reply agentbus.ReplyBuilder
	var failure error
	var children []agentbus.Child
	for chunk, err := range guard.Call(ctx, b, call) {
		if failure = err; err != nil {
			break
		}
		reply.Add(chunk)
		l.hear(&chunk)
		if chunk.Children != nil {
			children = chunk.Children
		}
	}
	switch {
	case left(ctx):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		l.told()
	case errors.Is(context.Cause(ctx), errCancelled):
		l.settle(ctx, sdk.TaskStateCanceled, nil, nil, false)
	case failure != nil:
		l.fail(ctx, failure)
	default:
		answer := reply.Reply()
		l.meter(answer, children)
		l.settle(ctx, sdk.TaskStateCompleted, l.paid(answer.Receipts), nil, false)
	}
}

// hear makes artifacts of the next piece of the answer. A void one begins the
// answer anew.
func (l *live) hear(c *agentbus.Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.task
	var events []sdk.Event
	if c.Void {
		for _, a := range t.Artifacts {
			if a.ID != artifactAnswer || c.Text == "" {
				events = append(events, l.update(t, a.ID, false, sdk.NewTextPart("")))
			}
		}
	}
	if c.Text != "" {
		events = append(events, l.update(t, artifactAnswer, !c.Void, sdk.NewTextPart(c.Text)))
	}
	if c.ToolCall != nil {
		events = append(events, l.update(t, artifactTools, true, toolPart(c.ToolCall)))
	}
	if len(events) > 0 {
		l.told(events...)
	}
}

// update adds a part to an artifact of t, or begins it with the part, and returns
// the event that tells so.
func (l *live) update(t *sdk.Task, id sdk.ArtifactID, goesOn bool, p *sdk.Part) sdk.Event {
	e := &sdk.TaskArtifactUpdateEvent{TaskID: t.ID, ContextID: t.ContextID, Artifact: &sdk.Artifact{ID: id, Parts: sdk.ContentParts{p}}}
	for _, a := range t.Artifacts {
		if a.ID != id {
			continue
		}
		if e.Append = goesOn && len(a.Parts) > 0; !e.Append {
			a.Parts = nil
		}
		if n := len(a.Parts); n > 0 && id == artifactAnswer { // one text, however it came
			a.Parts = sdk.ContentParts{sdk.NewTextPart(a.Parts[0].Text() + p.Text())}
			return e
		}
		a.Parts = append(a.Parts, p)
		return e
	}
	t.Artifacts = append(t.Artifacts, &sdk.Artifact{ID: id, Parts: sdk.ContentParts{p}})
	return e
}

// meter notes what the answer took, and what it is made of, in the metadata of the
// task.
func (l *live) meter(r agentbus.Reply, children []agentbus.Child) {
	l.tell(func(t *sdk.Task) {
		told := map[string]any{"usage": tellUsage(r.Usage)}
		tellChildren(told, children)
		if known, ok := t.Metadata[MetadataKey].(map[string]any); ok {
			maps.Copy(told, known)
		}
		t.Metadata = map[string]any{MetadataKey: told} // events hold the one before
	})
}

// paid returns a message with the receipts of what the answer was paid, where x402
// reads them (C32); nil: there are none.
func (l *live) paid(receipts []json.RawMessage) *sdk.Message {
	if len(receipts) == 0 {
		return nil
	}
	m := l.say("The payment was completed.", "paid")
	m.SetMeta(x402Status, x402Completed)
	kept := latest(receipts)
	if len(kept) > 0 {
		m.SetMeta(x402Receipts, kept)
	}
	if n := len(receipts) - len(kept); n > 0 {
		m.SetMeta(MetadataKey, map[string]any{"receiptsLeftOut": float64(n)})
	}
	return m
}

// latest returns, in their order, the last of receipts that together are no more than a
// bus takes from an agent: of more than that it takes none.
func latest(receipts []json.RawMessage) (kept []json.RawMessage) {
	size := len("[]")
	for _, r := range slices.Backward(receipts) {
		raw, err := json.Marshal(r) // as it is sent
		if size += len(raw) + len(","); err != nil || size > maxReceipts {
			break
		}
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	return kept
}

// tellUsage returns u for metadata, JSON-shaped (A27). Its members are named as those
// of A2A are: the TCK takes any other name in an answer for a fault (A18).
func tellUsage(u agentbus.Usage) map[string]any {
	told := map[string]any{"inputTokens": float64(u.InputTokens), "outputTokens": float64(u.OutputTokens)}
	if u.CachedTokens != 0 {
		told["cachedTokens"] = float64(u.CachedTokens)
	}
	if u.Cost != 0 {
		told["costMicros"] = float64(u.Cost)
	}
	if u.Estimated {
		told["estimated"] = true
	}
	return told
}

// fail settles a task whose agent gave no answer: it waits, when the agent asks
// for something (C28, E60), else it has failed. A failure that may pass does not
// keep its message from being executed again.
func (l *live) fail(ctx context.Context, failure error) {
	e := agentbus.AsError(failure)
	if _, ours := errors.AsType[*agentbus.Error](failure); !ours && ctx.Err() != nil {
		e = &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "the task was ended by the bus", Err: failure}
	}
	if e.Code == agentbus.CodeInternal {
		l.face.log(ctx, "a task failed", l.stored.ID, failure)
	}
	if e.Ask != nil {
		state := sdk.TaskStateInputRequired
		if e.Ask.Kind == agentbus.AskAuth {
			state = sdk.TaskStateAuthRequired
		}
		l.settle(ctx, state, l.question(ctx, e), e.Ask, false)
		return
	}
	m := l.say(string(e.Code)+": "+e.Message, "failed")
	told := map[string]any{"code": string(e.Code), "retryable": e.Retryable()}
	if e.Explain != nil {
		told["rule"], told["next"] = e.Explain.Rule, e.Explain.Next
	}
	tellChildren(told, e.Children)
	m.SetMeta(MetadataKey, told)
	state := sdk.TaskStateFailed
	if e.Policy != nil { // whoever refused, its words surface as they came (C19)
		m.SetMeta(metaMentionable, map[string]any{metaPolicy: e.Policy})
		m.Parts = append(m.Parts, dataOf(e.Policy))
		if e.Code == agentbus.CodeForbidden { // C27
			state = sdk.TaskStateRejected
		}
	}
	l.settle(ctx, state, m, nil, e.Code.Retryable())
}

// dataOf is a policy part as a part of a message (C28).
func dataOf(policy json.RawMessage) *sdk.Part {
	data := sdk.NewDataPart(policy)
	data.MediaType = "application/json"
	return data
}

// tellChildren adds to what metadata tells what became of each of several agents
// that were asked at once (C18).
func tellChildren(told map[string]any, children []agentbus.Child) {
	raw, err := json.Marshal(children)
	var list []any // JSON-shaped (A27)
	if len(children) > 0 && err == nil && json.Unmarshal(raw, &list) == nil {
		told["children"] = list
	}
}

// say returns a message of the agent about the task. Its id is the task's and
// what it is about: the same when it is said again.
func (l *live) say(text, about string) *sdk.Message {
	return &sdk.Message{
		ID: string(l.task.ID) + "." + about, Role: sdk.MessageRoleAgent, TaskID: l.task.ID, ContextID: l.task.ContextID,
		Parts: sdk.ContentParts{sdk.NewTextPart(text)},
	}
}
