//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/woptest"
	"github.com/agentbus/agentbus/openwop"
)

// E1, E22, E23, E74: what a mock agent says, in order, under both names.
func TestAgentReasoning(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-agent-reasoning")
	b.settle(run)
	events := b.events(run)
	want := []string{"agent.reasoned", "agent.toolCalled", "agent.toolReturned", "agent.handoff", "agent.decided"}
	if diff := cmp.Diff(want, typesOf(events, "agent.")); diff != "" {
		t.Error(diff)
	}
	called, returned := first(events, "agent.toolCalled"), first(events, "agent.toolReturned")
	for _, same := range [][2]any{
		{called["toolId"], called["toolName"]},
		{called["arguments"], called["inputs"]},
		{returned["toolId"], returned["toolName"]},
		{returned["result"], returned["outcome"]},
		{called["callId"], returned["callId"]},
		{called["inputs"], object{"x": 1.0}},
		{returned["outcome"], object{"x": 1.0}},
	} {
		if diff := cmp.Diff(same[0], same[1]); diff != "" {
			t.Error(diff)
		}
	}
	handed := first(events, "agent.handoff")
	if handed["toAgentId"] != "core.conformance.handoff-target" || handed["to"].(object)["agentId"] != handed["toAgentId"] || handed["from"].(object)["agentId"] != handed["fromAgentId"] {
		t.Errorf("handoff: %v", handed)
	}
	if d := first(events, "agent.decided"); d["confidence"] != 1.0 || d["decision"].(object)["next"] != "done" {
		t.Errorf("decided: %v", d)
	}
	// E52: no id of the run in a payload.
	for _, e := range events {
		if diff := cmp.Diff(e["payload"], rewritten(run, e["payload"])); diff != "" {
			t.Errorf("%s names the run", e["type"])
		}
	}
}

// E22: what no agent did is not reported as one's doing.
func TestNoAgentEvents(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for _, w := range []string{"conformance-agent-identity", "conformance-noop", "conformance-multi-node"} {
		run := b.start(w)
		b.settle(run)
		if got := typesOf(b.events(run), "agent."); got != nil {
			t.Errorf("%s: %v", w, got)
		}
	}
}

// E25: deltas, and one closing text that is what they say; verbosity off says none
// of it.
func TestReasoningStreams(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-agent-reasoning-streaming")
	b.settle(run)
	var said strings.Builder
	deltas := 0
	events := b.events(run)
	for _, e := range events {
		if p := e["payload"].(object); e["type"] == "agent.reasoning.delta" {
			if p["sequence"] != float64(deltas) {
				t.Errorf("delta %d has sequence %v", deltas, p["sequence"])
			}
			deltas++
			said.WriteString(p["delta"].(string))
		}
	}
	if got := first(events, "agent.reasoned")["reasoning"]; deltas != 3 || got != said.String() || len(typesOf(events, "agent.reasoned")) != 1 {
		t.Errorf("%d deltas say %q, closed by %q", deltas, said.String(), got)
	}
	quiet := b.start("conformance-agent-reasoning-streaming", object{"configurable": object{"reasoningVerbosity": "off"}})
	b.settle(quiet)
	if got := typesOf(b.events(quiet), "agent."); got != nil {
		t.Errorf("off: %v", got)
	}
}

// E8, E20: the snapshot has the agent as it is pinned.
func TestAgentOfSnapshot(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for w, want := range map[string]object{
		"conformance-agent-identity": {"agentId": "core.conformance.identity-agent", "modelClass": "chat"},
		"conformance-agent-pack-provenance": {
			"agentId": "core.conformance.pack-installed-agent", "modelClass": "chat", "sourceManifestId": "core.conformance.agent-pack.installed-agent",
		},
	} {
		run := b.start(w)
		if diff := cmp.Diff(want, b.settle(run)["agent"]); diff != "" {
			t.Errorf("%s: %s", w, diff)
		}
		if diff := cmp.Diff(want, first(b.events(run), "node.started")["agent"]); diff != "" {
			t.Errorf("%s: %s", w, diff)
		}
	}
	run := b.start("conformance-identity", object{"inputs": object{"payload": object{"a": []any{1.5, nil, "é"}}}})
	if diff := cmp.Diff(object{"payload": object{"a": []any{1.5, nil, "é"}}}, b.settle(run)["variables"]); diff != "" {
		t.Error(diff)
	}
}

// E30 to E34: a low confidence suspends, and is ratified, replaced or rejected;
// one that equals the threshold stands.
func TestEscalation(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for _, c := range []struct {
		answer   object
		status   string
		decision any
	}{
		{object{"action": "accept"}, "completed", object{"kind": "stub-low-conf"}},
		{object{"decision": object{"kind": "other"}}, "completed", object{"kind": "other"}},
		{object{"action": "reject"}, "failed", nil},
	} {
		run := b.start("conformance-agent-low-confidence")
		if snap := b.settle(run); snap["status"] != "waiting-approval" {
			t.Fatalf("%v", snap)
		}
		events := b.events(run)
		s := first(events, "node.suspended")
		if s["reason"] != "low-confidence" || s["kind"] != "low-confidence" || s["threshold"] != 0.7 || s["observed"] != 0.5 ||
			s["agentId"] != "core.conformance.low-conf-decider" || s["interruptId"] != "low-conf-decider:0" || s["nodeId"] != "low-conf-decider" {
			t.Errorf("suspended: %v", s)
		}
		if diff := cmp.Diff([]string{"agent.decided", "interrupt.requested", "node.suspended"}, typesOf(events, "")[len(events)-3:]); diff != "" {
			t.Error(diff)
		}
		b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/low-conf-decider", object{"resumeValue": c.answer})
		b.left(run, "waiting-approval")
		if snap := b.settle(run); snap["status"] != c.status {
			t.Errorf("%v: %v", c.answer, snap)
		}
		events = b.events(run)[len(events):]
		if d := first(events, "agent.decided"); c.decision != nil && (d["confidence"] != nil || !cmp.Equal(d["decision"], c.decision)) {
			t.Errorf("%v: decided %v", c.answer, d)
		}
		if c.status == "failed" && first(events, "node.failed")["error"].(object)["code"] != "decision_rejected" {
			t.Errorf("%v", events)
		}
	}
	run := b.start("conformance-agent-low-confidence", object{"configurable": object{"escalationThreshold": 0.5}})
	if snap := b.settle(run); snap["status"] != "completed" {
		t.Errorf("at the threshold: %v", snap)
	}
}

// E33: where nobody is to be asked, it is noted that nobody was.
func TestEscalationOff(t *testing.T) {
	t.Parallel()
	b, s := newBus(t, func(c *openwop.Config) { c.NoEscalation = true }), woptest.Load(t)
	run := b.start("conformance-agent-low-confidence")
	snap, events := b.settle(run), b.events(run)
	s.Events(t, events)
	p := first(events, "agentbus.escalation.suppressed")
	if snap["status"] != "completed" || p["kind"] != "confidence-escalation-suppressed" || p["observed"] != 0.5 || first(events, "node.suspended") != nil {
		t.Errorf("%v, %v", snap, p)
	}
}

// E31, E40: a supervisor's decision of low confidence is not told before it is
// ratified; its agent is that of the run.
func TestSupervisorIsHeld(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-orchestrator-low-confidence")
	if snap := b.settle(run); snap["status"] != "waiting-approval" || first(b.events(run), "runOrchestrator.decided") != nil {
		t.Fatalf("%v %v", snap, typesOf(b.events(run), ""))
	}
	for _, none := range []any{ // E37, E40: what is no decision of a supervisor ends nothing
		object{"kind": "explode"}, 5, "stop", nil, object{"kind": "next-worker", "nextWorkerIds": []string{}}, object{"kind": "ask-user"},
	} {
		status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/supervisor", object{"resumeValue": object{"decision": none}})
		b.refused("a decision that is none", http.StatusUnprocessableEntity, "validation_error", status, out)
	}
	b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/supervisor", object{"resumeValue": object{"action": "accept"}})
	b.left(run, "waiting-approval")
	snap, events := b.settle(run), b.events(run)
	if got := typesOf(events, "runOrchestrator."); len(got) != 2 || snap["runOrchestrator"].(object)["agentId"] != "core.conformance.low-conf-supervisor" {
		t.Errorf("%v, %v", got, snap)
	}
	for _, e := range events {
		if e["type"] == "runOrchestrator.decided" && e["payload"].(object)["agentId"] != "core.conformance.low-conf-supervisor" {
			t.Errorf("CO-2: %v", e)
		}
	}
}

// E42: the steps of handing work to a child, each caused by the one before.
func TestHandoffChain(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-multi-agent-handoff")
	if snap := b.settle(run); !cmp.Equal(snap["variables"], object{"parentResult": "handoff-complete"}) {
		t.Errorf("variables: %v", snap["variables"])
	}
	var phases []any
	var cause any
	for _, e := range b.events(run) {
		if e["type"] == "runOrchestrator.decided" && cause == nil {
			cause = e["eventId"]
		}
		if p := e["payload"].(object); e["type"] == "core.workflowChain.event" {
			if e["causationId"] != cause || p["parentRunId"] != run {
				t.Errorf("%v is caused by %v", p, e["causationId"])
			}
			phases, cause = append(phases, p["phase"]), e["eventId"]
			if p["phase"] == "output.harvested" && !cmp.Equal(p["harvestedKeys"], []any{"parentResult"}) {
				t.Errorf("harvested %v", p)
			}
		}
	}
	if diff := cmp.Diff([]any{"dispatch.began", "dispatch.succeeded", "child.completed", "output.harvested"}, phases); diff != "" {
		t.Error(diff)
	}
}

// E43: a decision whose own confidence is below the floor is asked about before
// it is dispatched.
func TestDispatchFloor(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-multi-agent-confidence-escalation")
	snap, events := b.settle(run), b.events(run)
	p := first(events, "core.workflowChain.confidence-escalated")
	if snap["status"] != "waiting-approval" || p["confidence"] != 0.3 || p["floor"] != 0.5 || p["workerId"] != "conformance-multi-agent-handoff-child" ||
		first(events, "core.workflowChain.event") != nil || first(events, "interrupt.requested")["kind"] != "approval" {
		t.Errorf("%v %v", snap, p)
	}
}

// E35: which bound, at which figures, before the end.
func TestCaps(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-cap-breach", object{"configurable": object{"recursionLimit": 3}})
	b.settle(run)
	events := b.events(run)
	if diff := cmp.Diff(object{"kind": "node-executions", "limit": 3.0, "observed": 4.0, "nodeId": "n4"}, first(events, "cap.breached")); diff != "" {
		t.Error(diff)
	}
	if got := typesOf(events, "node.started"); len(got) != 3 {
		t.Errorf("%d nodes were begun", len(got))
	}
	run = b.start("conformance-run-duration-breach", object{"configurable": object{"runTimeoutMs": 10}})
	b.settle(run)
	_, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "branch", "fromSeq": 0}) // E51: it runs live, under the same options
	for _, id := range []string{run, out["runId"].(string)} {
		b.settle(id)
		if p := first(b.events(id), "cap.breached"); p["kind"] != "run-duration" || p["limit"] != 10.0 || p["observed"].(float64) <= 10 {
			t.Errorf("%v", p)
		}
	}
}

// E47: a message that is written twice is there once, and stays in the log twice.
func TestMessageReducer(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-message-reducer")
	var ids []any
	for _, m := range b.settle(run)["channels"].(object)["messages"].([]any) {
		ids = append(ids, m.(object)["messageId"])
	}
	if diff := cmp.Diff([]any{"m1", "m2"}, ids); diff != "" {
		t.Error(diff)
	}
	if got := typesOf(b.events(run), "channel.written"); len(got) != 3 {
		t.Errorf("%d writes in the log", len(got))
	}
}

// E45, E46: a conversation is opened, exchanged and closed; its id is the same in
// forks.
func TestConversation(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-conversation-replay")
	snap, events := b.settle(run), b.events(run)
	want := []string{"conversation.opened", "conversation.exchanged", "conversation.exchanged", "conversation.exchanged", "conversation.closed"}
	if diff := cmp.Diff(want, typesOf(events, "conversation.")); diff != "" {
		t.Error(diff)
	}
	if n := len(snap["channels"].(object)["conversation"].([]any)); n != 4 {
		t.Errorf("%d messages", n)
	}
	opened := first(events, "conversation.opened")
	id := opened["conversationId"].(string)
	if !strings.HasPrefix(id, "conv_") || len(id) != 21 || opened["initialTurn"].(object)["messageId"] != id+":0:user" {
		t.Errorf("%v", opened)
	}
	for _, e := range events {
		if e["type"] == "interrupt.requested" || strings.HasPrefix(e["type"].(string), "clarification.") {
			t.Errorf("%v", e)
		}
	}
	_, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "branch", "fromSeq": 1})
	b.settle(out["runId"].(string))
	if got := first(b.events(out["runId"].(string)), "conversation.opened")["conversationId"]; got != id {
		t.Errorf("in a branch it is %v, not %s", got, id)
	}
}

// E72: hand-over schemas.
func TestHandoffSchemas(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for code, in := range map[string]object{
		"handoff_task_schema_violation":   {"text": "x"},
		"handoff_return_schema_violation": {"text": "x", "extractionFields": []any{"a"}, "scenario": "mock-return-violation"},
	} {
		run := b.start("conformance-agent-pack-handoff-schema-validation", object{"inputs": in})
		b.settle(run)
		if e, _ := first(b.events(run), "node.failed")["error"].(object); e["code"] != code {
			t.Errorf("%v, want %s", e, code)
		}
	}
}

// E26, E27, E73: a live call is bracketed, and a tool that is not allowed is never
// called.
func TestLiveInvoke(t *testing.T) {
	t.Parallel()
	b, s := newBus(t), woptest.Load(t)
	for _, c := range []struct {
		body    object
		outcome string
		types   []string
	}{
		{object{}, "completed", nil},
		{object{"source": "workflow-node", "agentId": "host:writer", "attemptTool": "openwop:rm"}, "refused", []string{"agent.toolReturned"}},
		{object{"forceInvalidResult": true}, "failed", nil},
	} {
		status, out, _ := b.do(http.MethodPost, "/v1/host/sample/agents/live-invoke", c.body)
		if status != http.StatusOK || out["outcome"] != c.outcome {
			t.Fatalf("%v: %d %v", c.body, status, out)
		}
		run := out["runId"].(string)
		_, seam, _ := b.do(http.MethodGet, "/v1/host/sample/test/runs/"+run+"/events", nil)
		var events []object
		for _, e := range seam["events"].([]any) {
			events = append(events, e.(object))
		}
		s.Events(t, events)
		want := append(append([]string{"agent.invocation.started"}, c.types...), "agent.invocation.completed")
		if diff := cmp.Diff(want, typesOf(events, "agent.")); diff != "" {
			t.Errorf("%v: %s", c.body, diff)
		}
		begin, end := first(events, "agent.invocation.started"), first(events, "agent.invocation.completed")
		if begin["invocationId"] != out["invocationId"] || end["invocationId"] != begin["invocationId"] || end["schemaValidated"] != (c.outcome != "failed") {
			t.Errorf("%v %v", begin, end)
		}
	}
	if _, out, _ := b.do(http.MethodGet, "/v1/host/sample/test/runs/__probe__/events", nil); len(out["events"].([]any)) != 0 {
		t.Error("the probe has events")
	}
}

// E73: the seam of events tells those of a type, a cause or a node, to whose run it
// is; a reset is answered, and takes nothing away.
func TestE73EventsOfASeam(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-agent-reasoning")
	b.settle(run)
	events := b.events(run)
	called, returned := "", ""
	for _, e := range events {
		switch e["type"] {
		case "agent.toolCalled":
			called = e["eventId"].(string)
		case "agent.toolReturned":
			returned = e["eventId"].(string)
		}
	}
	if status, _, _ := b.do(http.MethodPost, "/v1/host/sample/test/reset", object{}); status != http.StatusOK {
		t.Errorf("reset: %d", status)
	}
	at := "/v1/host/sample/test/runs/" + run + "/events"
	for query, want := range map[string]int{
		"": len(events), "?type=agent.toolReturned": 1, "?causationId=" + called: 1, "?causationId=" + returned: 0, "?nodeId=reasoner": len(events) - 2,
		"?type=agent.toolReturned&causationId=" + called + "&nodeId=reasoner": 1, "?type=agent.toolCalled&causationId=" + called: 0, "?nodeId=other": 0,
	} {
		status, out, _ := b.do(http.MethodGet, at+query, nil)
		got, _ := out["events"].([]any)
		if status != http.StatusOK || len(got) != want || want == 1 && got[0].(object)["eventId"] != returned {
			t.Errorf("%q: %d, %d events, want %d", query, status, len(got), want)
		}
	}
	status, out, _ := b.do(http.MethodGet, at, nil, "Authorization", "Bearer bob")
	b.refused("another's run", http.StatusNotFound, "run_not_found", status, out)
}

// E28, E73: the hook of tools denies what it cannot decide, and hashes what was
// redacted.
func TestToolHook(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	hook := func(more object) (int, object, http.Header) {
		body := object{"principal": "p", "toolName": "openwop:echo", "args": object{"b": 1, "a": "x"}}
		maps.Copy(body, more)
		return b.do(http.MethodPost, "/v1/host/sample/toolhooks/invoke", body)
	}
	status, out, _ := hook(nil)
	hash := out["toolCalled"].(object)["argsHash"].(string)
	if status != http.StatusOK || len(hash) != 64 || out["toolReturned"].(object)["status"] != "ok" {
		t.Errorf("%d %v", status, out)
	}
	if _, again, _ := hook(object{"args": object{"a": "x", "b": 1.0}}); again["toolCalled"].(object)["argsHash"] != hash {
		t.Error("the hash is not canonical")
	}
	if status, out, _ = hook(object{"requiredScopes": []string{"x"}}); status != http.StatusForbidden || out["toolReturned"].(object)["status"] != "forbidden" {
		t.Errorf("%d %v", status, out)
	}
	if took, is := out["toolReturned"].(object)["durationMs"]; is {
		t.Errorf("what was never called took %v", took)
	}
	status, out, h := hook(object{"simulateRateLimitExhausted": true})
	if status != http.StatusTooManyRequests || h.Get("Retry-After") == "" || out["toolReturned"].(object)["status"] != "rate_limited" {
		t.Errorf("%d %v", status, out)
	}
	_, one, _ := hook(object{"args": object{"k": planted}})
	_, two, _ := hook(object{"args": object{"k": "[REDACTED:agents.writer]"}})
	if one["toolCalled"].(object)["argsHash"] != two["toolCalled"].(object)["argsHash"] {
		t.Error("the hash is of what was not redacted")
	}
}

// E28: a planted secret, and the caller's key, are in no byte of the store.
func TestNothingSecretIsStored(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-identity", object{
		"inputs": object{"payload": object{"k": planted, "sk": "sk-abcdefghijklmnop0123"}}, "metadata": object{"m": planted}, "tags": []string{planted},
	})
	b.settle(run)
	run = b.start("conformance-approval")
	b.settle(run)
	b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/gate", object{"resumeValue": object{"action": "accept", "why": planted}})
	b.left(run, "waiting-approval")
	b.settle(run)
	b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "branch", "fromSeq": 1, "runOptionsOverlay": object{"configurable": object{"note": planted}}})
	run = b.start("conformance-cancellable")
	b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", object{"reason": "for " + planted + " by " + callersKey}, "Authorization", "Bearer "+callersKey)
	status, out, _ := b.do(http.MethodPost, "/v1/host/sample/agents/live-invoke", object{"agentId": "host:" + planted, "attemptTool": planted + ":x"})
	if status != http.StatusOK {
		t.Fatal(status, out)
	}
	b.close()
	files, _ := filepath.Glob(b.path + "*")
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{planted, callersKey, "sk-abcdefghijklmnop0123"} {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s holds %s", filepath.Base(f), secret)
			}
		}
	}
}
