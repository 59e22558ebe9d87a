package a2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// deciding is an agent that answers by a status with a policy part.
func deciding(state sdk.TaskState, policy map[string]any) executor {
	return func(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
		m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("see the policy"))
		m.Metadata = map[string]any{"mentionable": map[string]any{"policy": policy}}
		emit(sdk.NewSubmittedTask(x, x.Message))
		emit(sdk.NewStatusUpdateEvent(x, state, m))
	}
}

// C27: what each kind of a policy part is to a caller of the bus, by its code and
// its HTTP status, whether somebody can answer it, and what it is again as a task
// of the face; untouched, all the way (C19). X25: a kind that is not known is kept,
// and is no success in any state.
func TestC27PolicyKinds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy map[string]any
		state  sdk.TaskState
		code   agentbus.Code
		status int
		asks   agentbus.AskKind // "": nobody can answer it
		wait   time.Duration
		shown  sdk.TaskState
	}{
		"consent":             {map[string]any{"kind": "consent_required"}, sdk.TaskStateInputRequired, agentbus.CodeInputRequired, 422, agentbus.AskPolicy, 0, sdk.TaskStateInputRequired},
		"payment":             {map[string]any{"kind": "payment_required"}, sdk.TaskStateInputRequired, agentbus.CodePaymentRequired, 402, agentbus.AskPolicy, 0, sdk.TaskStateInputRequired},
		"unauthorized":        {map[string]any{"kind": "unauthorized", "auth_challenges": []any{map[string]any{"scheme": "Bearer", "realm": "x"}}}, sdk.TaskStateAuthRequired, agentbus.CodeInputRequired, 422, agentbus.AskAuth, 0, sdk.TaskStateAuthRequired},
		"unauthorized, over":  {map[string]any{"kind": "unauthorized", "auth_challenges": []any{map[string]any{"scheme": "Bearer"}}}, sdk.TaskStateFailed, agentbus.CodeUnauthenticated, 401, "", 0, sdk.TaskStateFailed},
		"forbidden":           {map[string]any{"kind": "forbidden"}, sdk.TaskStateRejected, agentbus.CodeForbidden, 403, "", 0, sdk.TaskStateRejected},
		"legal":               {map[string]any{"kind": "unavailable_for_legal_reasons"}, sdk.TaskStateRejected, agentbus.CodeForbidden, 451, "", 0, sdk.TaskStateRejected},
		"too many":            {map[string]any{"kind": "too_many_requests", "retry_after_seconds": 30}, sdk.TaskStateFailed, agentbus.CodeRateLimited, 429, "", 30 * time.Second, sdk.TaskStateFailed},
		"service":             {map[string]any{"kind": "service_unavailable"}, sdk.TaskStateFailed, agentbus.CodeOverloaded, 503, "", 0, sdk.TaskStateFailed},
		"refusal that waits":  {map[string]any{"kind": "forbidden"}, sdk.TaskStateInputRequired, agentbus.CodeForbidden, 403, "", 0, sdk.TaskStateRejected},
		"payment, over":       {map[string]any{"kind": "payment_required"}, sdk.TaskStateCompleted, agentbus.CodePaymentRequired, 402, "", 0, sdk.TaskStateFailed},
		"X25 completed":       {map[string]any{"kind": "payment_ok"}, sdk.TaskStateCompleted, agentbus.CodeForbidden, 403, "", 0, sdk.TaskStateRejected},
		"X25 failed":          {map[string]any{"kind": "payment_ok"}, sdk.TaskStateFailed, agentbus.CodeForbidden, 403, "", 0, sdk.TaskStateRejected},
		"X25 waits":           {map[string]any{"kind": "payment_ok"}, sdk.TaskStateInputRequired, agentbus.CodeInputRequired, 422, agentbus.AskPolicy, 0, sdk.TaskStateInputRequired},
		"X25 kind of no text": {map[string]any{"kind": true}, sdk.TaskStateCompleted, agentbus.CodeForbidden, 403, "", 0, sdk.TaskStateRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.policy["message"], tt.policy["unknown"] = "a word & a <b>", []any{1.5, nil}
			below := newBackend(t, a2a.BackendConfig{URL: peer(t, deciding(tt.state, tt.policy), sdk.TransportProtocolJSONRPC, true)})
			_, err := collect(t, below, call("do it"))
			e, ok := errors.AsType[*agentbus.Error](err)
			if !ok || e.Code != tt.code || (e.Ask != nil) != (tt.asks != "") {
				t.Fatalf("got %v", err)
			}
			part := e.Policy
			if status := e.Code.Status(); e.Ask != nil {
				if part = e.Ask.Policy; e.Ask.Kind != tt.asks || status != tt.status {
					t.Errorf("asks %s under %d", e.Ask.Kind, status)
				}
			} else if e.Status != tt.status || e.RetryAfter != tt.wait || e.Code.Retryable() != (tt.status == http.StatusTooManyRequests || tt.status == http.StatusServiceUnavailable) {
				t.Errorf("%d, again after %v", e.Status, e.RetryAfter)
			}
			var got any
			if err := json.Unmarshal(part, &got); err != nil {
				t.Fatal(err)
			}
			want := jsonOf(t, tt.policy)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the part (-issued +kept):\n%s", d)
			}
			if tt.policy["auth_challenges"] != nil && !cmp.Equal(e.Explain.Supported, []string{"Bearer"}) {
				t.Errorf("ways to sign in: %v", e.Explain)
			}
			u := newBus(t, a2a.FaceConfig{}, below, false)
			answer, err := u.client(t, sdk.TransportProtocolJSONRPC).SendMessage(t.Context(), say("do it"))
			if err != nil {
				t.Fatal(err)
			}
			task := answer.(*sdk.Task) //nolint:errcheck,forcetypeassert // it is one
			if task.Status.State != tt.shown {
				t.Errorf("shown as %s", task.Status.State)
			}
			said, _ := task.Status.Message.Metadata["mentionable"].(map[string]any)
			if d := cmp.Diff(want, said["policy"]); d != "" {
				t.Errorf("surfaced (-issued +surfaced):\n%s", d)
			}
			if last := task.Status.Message.Parts[len(task.Status.Message.Parts)-1]; last.MediaType != "application/json" || !cmp.Equal(want, last.Data()) { // C2, C28
				t.Errorf("the part beside it: %+v", last)
			}
		})
	}
}

// jsonOf is v as JSON is read.
func jsonOf(t *testing.T, v any) (out any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// X25: nor is it when the agent answers by a message, without a task.
func TestX25PolicyOfAMessage(t *testing.T) {
	t.Parallel()
	at := hostile(t, func(w http.ResponseWriter, _ string) {
		events(w, `{"message":{"messageId":"a","role":"ROLE_AGENT","parts":[{"text":"all paid"}],"metadata":{"mentionable":{"policy":{"kind":"payment_ok","message":"fine"}}}}}`)
	})
	_, err := collect(t, newBackend(t, a2a.BackendConfig{URL: at}), call("pay"))
	if agentbus.CodeOf(err) != agentbus.CodeForbidden || !strings.Contains(err.Error(), "fine") {
		t.Errorf("got %v", err)
	}
}

// A27: what our client sends, and what the face answers, are JSON-shaped values: the
// SDK's own store of tasks takes them, which fails for any other type.
func TestA27SDKStoreTakesOurValues(t *testing.T) {
	t.Parallel()
	peerAt := peer(t, func(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
		if x.StoredTask == nil {
			m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("pay"))
			m.Metadata = map[string]any{"mentionable": map[string]any{"policy": map[string]any{"kind": "payment_required", "message": "pay", "state": "s", "data": map[string]any{"n": 1.5}}}}
			emit(sdk.NewSubmittedTask(x, x.Message))
			emit(sdk.NewStatusUpdateEvent(x, sdk.TaskStateInputRequired, m))
			return
		}
		emit(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, nil))
	}, sdk.TransportProtocolJSONRPC, true)
	u := newBus(t, a2a.FaceConfig{}, newBackend(t, a2a.BackendConfig{URL: peerAt, Sessions: &memory{}}), false)
	c := u.client(t, sdk.TransportProtocolJSONRPC)
	theirs := taskstore.NewInMemory(&taskstore.InMemoryStoreConfig{Authenticator: func(context.Context) (string, error) { return "ann", nil }})
	next := say("compare")
	for _, state := range []sdk.TaskState{sdk.TaskStateInputRequired, sdk.TaskStateCompleted} {
		answer, err := c.SendMessage(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		task := answer.(*sdk.Task) //nolint:errcheck,forcetypeassert // it is one
		if task.Status.State != state {
			t.Fatalf("got %+v", task.Status)
		}
		kept := *task
		kept.ID += sdk.TaskID(state)
		if _, err := theirs.Create(t.Context(), &kept); err != nil {
			t.Error(err)
		}
		next = say("here")
		next.Message.TaskID = task.ID
		next.Message.Metadata = map[string]any{
			"mentionable":          map[string]any{"policy_resolution": map[string]any{"in_reply_to_state": "s", "outcome": "granted", "evidence": map[string]any{"list": []any{"x", 1.0}}}},
			"x402.payment.payload": map[string]any{"x402Version": 1.0},
		}
	}
}
