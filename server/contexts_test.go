package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// K4, K-7, K-11, K-12, K9: every call of an agent tells the same session and root,
// over A2A and the dialect of OpenAI, the first one and the one that goes on with a
// task that waited, and where each call has a context of its own; the root is the
// one that a caller tells, who may speak for nobody else.
func TestK4ContextsOfEveryCall(t *testing.T) {
	t.Parallel()
	model, shop := newTold(t), &sibling{name: "shop", sells: true}
	const yaml = `
agents:
  model: {kind: openai, url: %q}
  shop: {kind: a2a, url: %q, isolate_sessions: %v}
  desk: {kind: conversation, conversation: desk}
conversations:
  desk: {participants: [{agent: model}, {agent: shop}], max_turns: 3}
`
	for _, isolated := range []bool{false, true} {
		model.contexts, shop.header, shop.metadata = nil, nil, nil
		bus := open(t, fmt.Sprintf(yaml, model.URL, shop.serve(t), isolated))
		w := &three{b: bus, at: served(t, bus)}
		w.header = http.Header{"X-Kagent-Root-Context-Id": {"r"}}
		task := w.ask(t, "user-secret", "m1", "", "hi", "{}").Get("result.task")
		if task.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" {
			t.Fatal(task.Raw)
		}
		w.header = http.Header{}
		done := w.send(t, "user-secret", "m2", task.Get("id").Str, strings.ReplaceAll(answerC2, "c2", "shop")).Get("result.task")
		if done.Get("status.state").Str != "TASK_STATE_COMPLETED" {
			t.Fatal(done.Raw)
		}
		told := slices.Clone(model.contexts)
		for _, h := range shop.header {
			told = append(told, [2]string{strings.Join(h["X-Kagent-Parent-Context-Id"], "|"), strings.Join(h["X-Kagent-Root-Context-Id"], "|")})
		}
		parent := told[0][0] // its own session
		if parent == "" || parent == "r" || len(model.contexts) != 2 || len(shop.metadata) != 2 || len(told) < 4 {
			t.Fatalf("session %q: %d calls of the model, %d of the shop", parent, len(model.contexts), len(shop.metadata))
		}
		for _, c := range told {
			if diff := cmp.Diff([2]string{parent, "r"}, c); diff != "" {
				t.Errorf("isolated %v (-want +got):\n%s", isolated, diff)
			}
		}
		for _, m := range shop.metadata { // and for agents that keep messages in a queue
			said, _ := m["agentbus"].(map[string]any)
			if said["x-kagent-parent-context-id"] != parent || said["x-kagent-root-context-id"] != "r" {
				t.Errorf("metadata %v", said)
			}
		}
	}
}
