package a2a_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// A25, E60: the SDK's client meets an agent of another kind as an A2A agent.
func TestFaceWithSDKClient(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		u := newBus(t, a2a.FaceConfig{}, speaks("you ", "said %"), false)
		c := u.client(t, binding)
		got, err := c.SendMessage(t.Context(), say("hi"))
		if err != nil {
			t.Fatal(err)
		}
		task, ok := got.(*sdk.Task)
		if !ok || task.Status.State != sdk.TaskStateCompleted || textOf(task) != "you said hi" || !strings.HasPrefix(string(task.ID), "run_") {
			t.Fatalf("got %+v", got)
		}
		if _, offset := task.Status.Timestamp.Zone(); offset != 0 {
			t.Errorf("the timestamp is not in UTC: %v", task.Status.Timestamp)
		}
		var states []sdk.TaskState
		var text string
		for e, err := range c.SendStreamingMessage(t.Context(), say("ho")) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := e.(type) {
			case *sdk.Task:
				states, text = append(states, e.Status.State), textOf(e)
			case *sdk.TaskStatusUpdateEvent:
				states = append(states, e.Status.State)
			case *sdk.TaskArtifactUpdateEvent:
				text += e.Artifact.Parts[0].Text()
			}
		}
		if text != "you said ho" || states[len(states)-1] != sdk.TaskStateCompleted {
			t.Errorf("streamed %q, %v", text, states)
		}
		again, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID})
		if err != nil || textOf(again) != "you said hi" || len(again.History) != 1 {
			t.Errorf("get: %+v, %v", again, err)
		}
		none := 0
		if again, err = c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: task.ID, HistoryLength: &none}); err != nil || len(again.History) != 0 {
			t.Errorf("get without history: %+v, %v", again, err)
		}
		list, err := c.ListTasks(t.Context(), &sdk.ListTasksRequest{PageSize: 1})
		if err != nil || list.TotalSize != 2 || len(list.Tasks) != 1 || list.NextPageToken == "" || list.Tasks[0].Artifacts != nil {
			t.Fatalf("list: %+v, %v", list, err)
		}
		list, err = c.ListTasks(t.Context(), &sdk.ListTasksRequest{PageSize: 1, PageToken: list.NextPageToken, IncludeArtifacts: true})
		if err != nil || len(list.Tasks) != 1 || list.Tasks[0].ID != task.ID || textOf(list.Tasks[0]) != "you said hi" || list.NextPageToken != "" {
			t.Errorf("second page, the last: %+v, %v", list, err)
		}
		if list, err = c.ListTasks(t.Context(), &sdk.ListTasksRequest{Status: "TASK_STATE_UNSPECIFIED"}); err != nil || list.TotalSize != 2 {
			t.Errorf("of any state: %+v, %v", list, err)
		}
		card, err := c.GetExtendedAgentCard(t.Context(), &sdk.GetExtendedAgentCardRequest{})
		if err != nil || card.Name != "critic" || !card.Capabilities.Streaming || card.Capabilities.PushNotifications {
			t.Errorf("extended card: %+v, %v", card, err)
		}
	})
}

// A32: a task outlives its caller; several listen to it, from where it stands.
// A30: nothing else is said to it meanwhile.
func TestFaceSubscribe(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		gate := make(chan struct{})
		u := newBus(t, a2a.FaceConfig{}, gated(gate), false)
		c := u.client(t, binding)
		req := say("hi")
		req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
		got, err := c.SendMessage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		id := got.TaskInfo().TaskID
		ctx, leave := context.WithCancel(t.Context())
		for _, err := range c.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: id}) {
			if leave(); err != nil { // who leaves takes nothing along
				break
			}
		}
		leave()
		second := say("more")
		second.Message.TaskID = id
		if _, err := c.SendMessage(t.Context(), second); err == nil || binding == sdk.TransportProtocolJSONRPC && !errors.Is(err, sdk.ErrUnsupportedOperation) { // by REST the SDK reads reasons, and does not know this one
			t.Errorf("a second message: %v", err)
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, 3)
		for range 3 {
			wg.Go(func() {
				first, text := true, ""
				for e, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
					if err != nil {
						t.Error(err)
						break
					}
					if task, ok := e.(*sdk.Task); first {
						if !ok {
							t.Errorf("the first event is %T", e)
							break
						}
						text = textOf(task)
						begun <- struct{}{}
					} else if a, ok := e.(*sdk.TaskArtifactUpdateEvent); ok {
						text += a.Artifact.Parts[0].Text()
					}
					first = false
				}
				if text != "one two" {
					t.Errorf("heard %q", text)
				}
			})
		}
		for range 3 {
			<-begun
		}
		close(gate)
		wg.Wait()
		for _, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
			if !errors.Is(err, sdk.ErrUnsupportedOperation) { // A29
				t.Errorf("subscribe to what is over: %v", err)
			}
		}
		second.Message.ID = "another"
		if _, err := c.SendMessage(t.Context(), second); !errors.Is(err, sdk.ErrUnsupportedOperation) { // A29
			t.Errorf("a message to what is over: %v", err)
		}
		if _, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id}); !errors.Is(err, sdk.ErrTaskNotCancelable) {
			t.Errorf("cancel what is over: %v", err)
		}
	})
}

// A32, C17: a task that is cancelled ends its agent for good.
func TestFaceCancel(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, binding sdk.TransportProtocol) {
		t.Helper()
		why := make(chan error, 1)
		began := make(chan struct{})
		slow := agentbus.BackendFunc(func(ctx context.Context, _ *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			return func(func(agentbus.Chunk, error) bool) {
				close(began)
				<-ctx.Done()
				why <- context.Cause(ctx)
			}
		})
		u := newBus(t, a2a.FaceConfig{}, slow, false)
		c := u.client(t, binding)
		req := say("hi")
		req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
		got, err := c.SendMessage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		task, err := c.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: got.TaskInfo().TaskID})
		if err != nil || task.Status.State != sdk.TaskStateCanceled {
			t.Errorf("got %+v, %v", task, err)
		}
		if err := <-why; !errors.Is(err, agentbus.ErrForGood) {
			t.Errorf("the agent read %v", err)
		}
	})
}

// A19: what failed in a way that may pass executes again under the same message;
// what failed for good does not.
func TestFaceFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code       agentbus.Code
		executions int32
	}{{agentbus.CodeOverloaded, 2}, {agentbus.CodeForbidden, 1}} {
		code, executions := tt.code, tt.executions
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
				return agentbus.Chunk{}, &agentbus.Error{Code: code, Message: "not now"}
			}), false)
			for range 2 {
				if _, _, got := u.post(t, "", rpc("SendMessage", message("m", "x"))); !strings.Contains(got, "TASK_STATE_FAILED") || !strings.Contains(got, string(code)) {
					t.Errorf("got %s", got)
				}
			}
			if n := u.calls.Load(); n != executions {
				t.Errorf("%d executions", n)
			}
		})
	}
}

// R11: that an error is final, the client of the bus reads from its face.
func TestFinalErrorOfFace(t *testing.T) {
	t.Parallel()
	for _, final := range []bool{false, true} {
		u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "no", Final: final}
		}), false)
		_, err := collect(t, newBackend(t, a2a.BackendConfig{URL: u.URL + "/a2a/critic"}), call("hello"))
		if e := agentbus.AsError(err); e == nil || e.Code != agentbus.CodeAgentUnavailable || e.Retryable() == final {
			t.Errorf("final %t: %+v", final, e)
		}
	}
}

// A2, A38: what the bus speaks of itself by its own client and face is the answer
// of the agent, with what it took.
func TestBackendOfFace(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, _ sdk.TransportProtocol) {
		t.Helper()
		u := newBus(t, a2a.FaceConfig{}, speaks("you ", "said %"), false)
		b := newBackend(t, a2a.BackendConfig{URL: u.URL + "/a2a/critic", Sessions: &memory{}})
		c := call("hello")
		for range 2 { // the second is a duplicate (A19, A21)
			got, err := collect(t, b, c)
			if err != nil || got.Text != "you said hello" || got.Usage.OutputTokens != 3 || got.Usage.Cost != 40 {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if n := u.calls.Load(); n != 1 {
			t.Errorf("%d executions", n)
		}
	})
}
