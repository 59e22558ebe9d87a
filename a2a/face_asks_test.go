package a2a_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// C28, C19, E60, R22: what an agent asks for reaches the caller untouched, and
// the caller's answer the agent, in the same turn.
func TestFaceAsks(t *testing.T) {
	t.Parallel()
	policy := `{"kind":"payment_required","message":"pay","state":"s3cret","data":{"x402.payment.status":"payment-required","n":1}}`
	for name, tt := range map[string]struct {
		ask      agentbus.Ask
		state    sdk.TaskState
		meta     map[string]any
		decision agentbus.Decision
	}{
		"clarification": {agentbus.Ask{Kind: agentbus.AskClarification, Prompt: "which?"}, sdk.TaskStateInputRequired, nil, agentbus.DecisionGranted},
		"auth":          {agentbus.Ask{Kind: agentbus.AskAuth, Prompt: "who?"}, sdk.TaskStateAuthRequired, nil, agentbus.DecisionGranted},
		"policy": {
			agentbus.Ask{Kind: agentbus.AskPolicy, Policy: json.RawMessage(policy)},
			sdk.TaskStateInputRequired,
			map[string]any{"mentionable": map[string]any{"policy_resolution": map[string]any{"in_reply_to_state": "s3cret", "outcome": "denied"}}},
			agentbus.DecisionDenied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.ask.Resume = json.RawMessage(`{"task":"below"}`)
			var turns []agentbus.TurnID
			var answered *agentbus.Resolution
			u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
				turns = append(turns, c.Lineage.Turn)
				if answered = c.Resolution; answered == nil {
					return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeInputRequired, Message: "asks", Ask: &tt.ask}
				}
				return agentbus.Chunk{Text: "thanks"}, nil
			}), false)
			c := u.client(t, sdk.TransportProtocolJSONRPC)
			got, err := c.SendMessage(t.Context(), say("hi"))
			if err != nil {
				t.Fatal(err)
			}
			task := got.(*sdk.Task) //nolint:errcheck,forcetypeassert // it is one
			if task.Status.State != tt.state {
				t.Fatalf("got %+v", task.Status)
			}
			if name == "policy" {
				raw, _ := json.Marshal(task.Status.Message.Metadata["mentionable"])
				if string(raw) != `{"policy":{"data":{"n":1,"x402.payment.status":"payment-required"},"kind":"payment_required","message":"pay","state":"s3cret"}}` {
					t.Errorf("the policy part: %s", raw)
				}
				if task.Status.Message.Metadata["x402.payment.status"] != "payment-required" {
					t.Errorf("metadata: %v", task.Status.Message.Metadata)
				}
			}
			n := 0
			for e, err := range c.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: task.ID}) { // A29
				if _, whole := e.(*sdk.Task); err != nil || !whole {
					t.Errorf("subscribe: %+v, %v", e, err)
				}
				n++
			}
			if n != 1 {
				t.Errorf("subscribe told %d events", n)
			}
			next := say("blue")
			next.Message.TaskID, next.Message.Metadata = task.ID, tt.meta
			for range 2 { // the second time it is known (A19)
				if got, err = c.SendMessage(t.Context(), next); err != nil {
					t.Fatal(err)
				}
			}
			if task = got.(*sdk.Task); task.Status.State != sdk.TaskStateCompleted || textOf(task) != "thanks" || len(task.History) != 3 { //nolint:errcheck,forcetypeassert // as above
				t.Errorf("got %+v", task)
			}
			if len(turns) != 2 || turns[0] != turns[1] || turns[0] == "" {
				t.Errorf("turns %v", turns)
			}
			if answered.Decision != tt.decision || answered.Text != "blue" || string(answered.Resume) != `{"task":"below"}` || answered.By != "ann" {
				t.Errorf("resolution %+v", answered)
			}
			if tt.meta != nil && string(answered.Policy) != `{"in_reply_to_state":"s3cret","outcome":"denied"}` {
				t.Errorf("policy resolution %s", answered.Policy)
			}
		})
	}
}

// C32, C19: the numbers of an offer, and of what pays for it, are those that were
// written, also in a task that is read from the store: who signs, signs them.
func TestC32NumbersAsTheyCame(t *testing.T) {
	t.Parallel()
	const offer, payload = `{"accepts":[{"<":1E+2,"amount":123456789012345678901,"tiny":1.50}]}`, `{"n":1.50,"value":9007199254740993}`
	ask := agentbus.Ask{
		Kind:   agentbus.AskPolicy,
		Policy: json.RawMessage(`{"kind":"payment_required","message":"pay","data":{"x402.payment.status":"payment-required","x402.payment.required":` + offer + `}}`),
	}
	var given string
	u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		if c.Resolution == nil {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "asks", Ask: &ask}
		}
		given = string(c.Resolution.Policy)
		return agentbus.Chunk{Text: "thanks"}, nil
	}), false)
	_, _, asked := u.post(t, "", rpc("SendMessage", message("m1", "hi")))
	id := gjson.Get(asked, "result.task.id").Str
	_, _, stored := u.post(t, "", rpc("GetTask", `{"id":"`+id+`"}`))
	for from, m := range map[string]gjson.Result{"the answer": gjson.Get(asked, "result.task.status.message"), "the store": gjson.Get(stored, "result.status.message")} {
		metadata := m.Get("metadata").Map() // whose keys have dots
		data := m.Get("parts.#.data").Array()
		if len(data) == 0 {
			t.Fatalf("%s: %s", from, m.Raw)
		}
		for _, told := range []gjson.Result{metadata["x402.payment.required"], metadata["mentionable"].Get("policy.data").Map()["x402.payment.required"], data[0].Get("data").Map()["x402.payment.required"]} {
			if got := strings.ReplaceAll(told.Raw, `\u003c`, "<"); got != offer {
				t.Errorf("%s: %s", from, got)
			}
		}
	}
	paid := `{"message":{"messageId":"m2","taskId":"` + id + `","role":"ROLE_USER","parts":[{"text":"paid"}],"metadata":{"x402.payment.payload":` + payload +
		`,"mentionable":{"policy_resolution":{"outcome":"granted","n":2.50}}}}}`
	u.post(t, "", rpc("SendMessage", paid))
	if want := `{"n":2.50,"outcome":"granted","x402.payment.payload":` + payload + `}`; given != want {
		t.Errorf("the agent was given %s", given)
	}
	_, _, over := u.post(t, "", rpc("GetTask", `{"id":"`+id+`"}`))
	history := gjson.Get(over, "result.history").Array()
	if len(history) != 3 || gjson.Get(over, "result.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatalf("over: %s", over)
	}
	for from, told := range map[string]gjson.Result{
		"the old offer": history[1].Get("metadata").Map()["x402.payment.required"], "its data": history[1].Get("parts.#.data").Array()[0].Get("data").Map()["x402.payment.required"],
	} {
		if got := strings.ReplaceAll(told.Raw, `\u003c`, "<"); got != offer {
			t.Errorf("over, %s: %s", from, got)
		}
	}
	if got := history[2].Get("metadata").Map()["x402.payment.payload"].Raw; got != payload {
		t.Errorf("over, what paid: %s", got)
	}
}

// A24: a context is remembered for its agent. K2, K3: it is the session that the
// agents below are told, and the root is what came.
func TestFaceContexts(t *testing.T) {
	t.Parallel()
	var calls []agentbus.Call
	u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		calls = append(calls, *c)
		return agentbus.Chunk{Text: "yes " + c.Messages[len(c.Messages)-1].Content}, nil
	}), false)
	send := func(id, contextID, user string, header ...string) {
		t.Helper()
		body := rpc("SendMessage", `{"message":{"messageId":"`+id+`","contextId":"`+contextID+`","role":"ROLE_USER","parts":[{"text":"`+id+`"}]}}`)
		if _, _, got := u.post(t, "", body, append([]string{"X-User", user}, header...)...); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, contextID) { // A30
			t.Fatalf("got %s", got)
		}
	}
	send("one", "chat 1 é", "ann")
	send("two", "chat 1 é", "ann", "X-Kagent-Root-Context-Id", "root-9")
	send("three", "chat 1 é", "bob")
	var said []string
	for i := range calls {
		var text strings.Builder
		for _, m := range calls[i].Messages {
			text.WriteString(m.Content + ";")
		}
		said = append(said, text.String())
	}
	if d := cmp.Diff([]string{"one;", "one;yes one;two;", "three;"}, said); d != "" {
		t.Error(d)
	}
	first, second := calls[0].Lineage, calls[1].Lineage
	if !strings.HasPrefix(first.ParentContext, "h.") || len(first.ParentContext) != 34 || first.RootContext != first.ParentContext {
		t.Errorf("K3: %q in %q", first.ParentContext, first.RootContext)
	}
	if second.ParentContext != first.ParentContext || second.RootContext != "root-9" {
		t.Errorf("K2: %q in %q", second.ParentContext, second.RootContext)
	}
}

// C32: receipts that come to more than an answer may have are passed on as far as a bus
// takes them, the latest, and what is left out is counted.
func TestC32ReceiptsAreTakenWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ of, size, left int }{
		"all": {3, 10 << 10, 0}, "some": {5, 10 << 10, 2}, "escaped": {2, 20 << 10, 1}, "none": {1, 40 << 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fill := "x"
			if name == "escaped" {
				fill, tt.size = "<", tt.size/len(`\u003c`)
			}
			var all []json.RawMessage
			var want []string
			for i := range tt.of {
				r := `{"transaction":"` + strings.Repeat(fill, tt.size) + `","n":` + strconv.Itoa(i) + `}`
				if all = append(all, json.RawMessage(r)); i >= tt.left {
					want = append(want, r)
				}
			}
			u := newBus(t, a2a.FaceConfig{}, agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
				return agentbus.Chunk{Text: "thanks", Finish: "stop", Receipts: all}, nil
			}), false)
			reply, err := collect(t, newBackend(t, a2a.BackendConfig{URL: u.URL + "/a2a/critic"}), call("hello"))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range reply.Receipts {
				got = append(got, strings.ReplaceAll(string(r), `\u003c`, "<"))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d receipts are taken, want %d", len(got), len(want))
			}
			_, _, task := u.post(t, "", rpc("SendMessage", message("m1", "hi")))
			if left := gjson.Get(task, "result.task.status.message.metadata.agentbus.receiptsLeftOut").Int(); left != int64(tt.left) {
				t.Errorf("%d are left out", left)
			}
		})
	}
}
