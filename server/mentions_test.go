package server_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus/server"
)

// desk is a bus whose desk asks whom a message mentions.
func desk(t *testing.T, siblings ...*sibling) *three {
	t.Helper()
	var yaml strings.Builder
	yaml.WriteString("agents:\n  desk: {kind: conversation, conversation: desk}\n")
	list := make([]string, len(siblings))
	for i, s := range siblings {
		fmt.Fprintf(&yaml, "  %s: {kind: a2a, url: %q}\n", s.name, s.serve(t))
		list[i] = "{agent: " + s.name + "}"
	}
	fmt.Fprintf(&yaml, "conversations:\n  desk: {plan: fan-out, mentions: true, participants: [%s]}\n", strings.Join(list, ", "))
	bus := open(t, yaml.String())
	return &three{b: bus, at: served(t, bus), siblings: siblings}
}

func served(t *testing.T, s *server.Server) *httptest.Server {
	t.Helper()
	at := httptest.NewServer(s.Handler())
	t.Cleanup(at.Close)
	return at
}

// outcomes are what a task tells of those who were asked, a line each.
func outcomes(children gjson.Result) (lines []string) {
	for _, c := range children.Array() {
		lines = append(lines, strings.TrimSpace(strings.Join([]string{c.Get("child").Str, c.Get("outcome").Str, c.Get("code").Str, c.Get("text").Str, c.Get("policy.kind").Str}, " ")))
	}
	return lines
}

// C17, C18, C19, X26, R20, R21: a message that mentions several agents is asked of
// each, and of nobody else; those that answer are kept while one waits and another
// refuses, and both parts surface untouched; the answer goes to the one that asked.
func TestMentionsFanOut(t *testing.T) {
	t.Parallel()
	refusal := map[string]any{"kind": "forbidden", "message": "not for you & <b>", "data": map[string]any{"org.example.n": 1.5}}
	w := desk(t, &sibling{name: "c1"}, &sibling{name: "c2", sells: true}, &sibling{name: "c3", refuses: refusal}, &sibling{name: "c4"})
	task := w.ask(t, "user-secret", "m1", "", "@c3 @c2, and (@c1): compare. Not c4@example.com", "{}").Get("result.task")
	meta := task.Get("status.message.metadata")
	want := []string{"c3 policy forbidden  forbidden", "c2 policy payment_required  payment_required", "c1 ok  work of c1"}
	if diff := cmp.Diff(want, outcomes(meta.Get("agentbus.children"))); diff != "" || task.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatalf("%s\n(-want +got):\n%s", task.Raw, diff)
	}
	if diff := cmp.Diff(any(w.siblings[1].asked()), value(t, meta.Get("mentionable.policy").Raw)); diff != "" { // X21
		t.Errorf("the payment (-issued +surfaced):\n%s", diff)
	}
	if diff := cmp.Diff(any(refusal), value(t, meta.Get("agentbus.children.0.policy").Raw)); diff != "" {
		t.Errorf("the refusal (-issued +surfaced):\n%s", diff)
	}
	done := w.send(t, "user-secret", "m2", task.Get("id").Str, answerC2).Get("result.task")
	want[1] = "c2 ok  work of c2"
	if diff := cmp.Diff(want, outcomes(done.Get("metadata.agentbus.children"))); diff != "" || done.Get("artifacts.0.parts.0.text").Str != "[c2] work of c2\n[c1] work of c1" {
		t.Errorf("%s\n(-want +got):\n%s", done.Raw, diff)
	}
	executed := make([]int, len(w.siblings))
	for i, s := range w.siblings {
		executed[i] = s.executed
	}
	if diff := cmp.Diff([]int{1, 2, 1, 0}, executed); diff != "" {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
}

// C17: the last message decides, not what was said in its context before; who
// mentions nobody asks all.
func TestMentionsOfTheLastMessage(t *testing.T) {
	t.Parallel()
	w := desk(t, &sibling{name: "c1"}, &sibling{name: "c2"}, &sibling{name: "c3"})
	contextID := w.ask(t, "user-secret", "m1", "", "@c1 @c2 look", "{}").Get("result.task.contextId").Str
	for i, tt := range []struct{ text, want string }{{"now @c2", "[c2] work of c2"}, {"all", "[c1] work of c1\n[c2] work of c2\n[c3] work of c3"}} {
		task := w.in(t, contextID, fmt.Sprint("n", i), tt.text).Get("result.task")
		if got := task.Get("artifacts.0.parts.0.text").Str; got != tt.want {
			t.Errorf("%q: %s", tt.text, task.Raw)
		}
	}
}

// C19, C27: the part by which the one agent refused that was asked is that of the
// task, which is rejected.
func TestMentionOfOneThatRefuses(t *testing.T) {
	t.Parallel()
	refusal := map[string]any{"kind": "unavailable_for_legal_reasons", "message": "not here"}
	w := desk(t, &sibling{name: "c1", refuses: refusal}, &sibling{name: "c2"})
	task := w.ask(t, "user-secret", "m1", "", "@c1 well?", "{}").Get("result.task")
	if diff := cmp.Diff(any(refusal), value(t, task.Get("status.message.metadata.mentionable.policy").Raw)); diff != "" || task.Get("status.state").Str != "TASK_STATE_REJECTED" {
		t.Errorf("%s\n(-want +got):\n%s", task.Raw, diff)
	}
	if diff := cmp.Diff([]string{"c1 policy forbidden  unavailable_for_legal_reasons"}, outcomes(task.Get("status.message.metadata.agentbus.children"))); diff != "" {
		t.Error(diff)
	}
}
