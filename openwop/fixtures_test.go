//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/woptest"
)

// E72, E75: each fixture ends as its table says, with schema-valid events; what
// counts is how many did, so that none is passed over in silence.
func TestFixtures(t *testing.T) {
	t.Parallel()
	b, s := newBus(t), woptest.Load(t)
	_, doc, _ := b.do(http.MethodGet, "/.well-known/openwop", nil)
	s.Check(t, "capabilities.schema.json", any(doc)) // E4
	want := map[string]struct {
		body    object
		status  string
		code    string
		answers []any // what is sent to whoever it waits for
	}{
		"noop": {}, "idempotent": {}, "identity": {body: object{"inputs": object{"payload": object{"a": []any{1.0, "é"}}}}}, "multi-node": {},
		"cap-breach":  {body: object{"configurable": object{"recursionLimit": 3}}, status: "failed", code: "recursion_limit_exceeded"},
		"delay":       {body: object{"inputs": object{"delayMs": 5}}},
		"cancellable": {body: object{"inputs": object{"delayMs": 1}}},
		"run-duration-breach": {
			body: object{"configurable": object{"runTimeoutMs": 20}}, status: "failed", code: "run_timeout",
		},
		"failure":         {status: "failed", code: "conformance_failure"},
		"clarification":   {answers: []any{object{"answers": object{"q1": "blue"}}}},
		"approval":        {answers: []any{object{"action": "accept"}}},
		"agent-reasoning": {}, "agent-reasoning-streaming": {},
		"agent-low-confidence": {answers: []any{object{"action": "accept"}}},
		"agent-identity":       {}, "agent-pack-provenance": {},
		"agent-pack-handoff-schema-validation": {body: object{"inputs": object{"text": "x", "extractionFields": []any{"a"}}}},
		"message-reducer":                      {},
		"orchestrator-low-confidence":          {answers: []any{object{"action": "accept"}}},
		"orchestrator-terminate":               {}, "orchestrator-dispatch": {}, "dispatch-loop": {},
		"conversation-lifecycle": {}, "conversation-replay": {}, "conversation-vs-clarification": {},
		"multi-agent-handoff": {}, "multi-agent-handoff-child": {},
		"multi-agent-confidence-escalation": {answers: []any{object{"action": "accept"}}},
	}
	var names []string
	for _, id := range doc["fixtures"].([]any) {
		names = append(names, strings.TrimPrefix(id.(string), "conformance-"))
	}
	if len(names) != len(want) {
		t.Errorf("%d fixtures are offered, %d known: %v", len(names), len(want), names)
	}
	var passed atomic.Int64
	t.Cleanup(func() {
		if n := int(passed.Load()); n != len(names) && !t.Failed() {
			t.Errorf("%d of %d fixtures passed", n, len(names))
		}
	})
	for name, w := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if !t.Failed() && !t.Skipped() {
					passed.Add(1)
				}
			}()
			b := &bus{T: t, url: b.url}
			if !slices.Contains(names, name) {
				t.Fatal("it is not offered")
			}
			_, def, _ := b.do(http.MethodGet, "/v1/workflows/conformance-"+name, nil)
			s.Check(t, "workflow-definition.schema.json", any(def))
			run := b.start("conformance-"+name, w.body)
			for _, answer := range w.answers {
				snap := b.settle(run)
				s.Check(t, "run-snapshot.schema.json", any(snap))
				s.Events(t, b.events(run))
				if !strings.HasPrefix(snap["status"].(string), "waiting-") {
					t.Fatalf("it does not wait: %v", snap)
				}
				status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/"+snap["currentNodeId"].(string), object{"resumeValue": answer})
				if status != http.StatusOK {
					t.Fatalf("resolve: %d %v", status, out)
				}
				b.left(run, snap["status"].(string))
			}
			snap, events := b.settle(run), b.events(run)
			s.Check(t, "run-snapshot.schema.json", any(snap))
			s.Events(t, events)
			if w.status == "" {
				w.status = "completed"
			}
			if snap["status"] != w.status {
				t.Errorf("it is %v, want %s: %v", snap["status"], w.status, snap["error"])
			}
			if e, _ := snap["error"].(object); w.code != "" && e["code"] != w.code {
				t.Errorf("it failed with %v, want %s", e, w.code)
			}
			b.forkedEqually(s, run, events, snap)
		})
	}
}

// left waits until a run does not wait any more.
func (b *bus) left(run, status string) {
	b.Helper()
	for range 5000 {
		if _, snap, _ := b.do(http.MethodGet, "/v1/runs/"+run, nil); snap["status"] != status {
			return
		}
		<-time.After(2 * time.Millisecond) // as a client asks
	}
	b.Fatalf("run %s still is %s", run, status)
}

// forkedEqually: E51, E52, two replays say the same as their source, byte by byte
// but for the ids of the run.
func (b *bus) forkedEqually(s *woptest.Schemas, run string, events []object, snap object) {
	b.Helper()
	for range 2 {
		status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "replay"})
		if status != http.StatusCreated || out["sourceRunId"] != run || out["fromSeq"] != 0.0 {
			b.Fatalf("fork: %d %v", status, out)
		}
		id := out["runId"].(string)
		forkSnap, forkEvents := b.settle(id), b.events(id)
		s.Events(b.T, forkEvents)
		if diff := cmp.Diff(shapeOf(run, events), shapeOf(id, forkEvents)); diff != "" {
			b.Errorf("the replay differs (-source +replay):\n%s", diff)
		}
		for _, member := range []string{"status", "channels", "variables", "agent", "runOrchestrator", "error"} {
			if diff := cmp.Diff(snap[member], forkSnap[member]); diff != "" {
				b.Errorf("%s of the replay (-source +replay):\n%s", member, diff)
			}
		}
	}
}

// shapeOf is what forks have in common.
func shapeOf(run string, events []object) (shape []object) {
	for _, e := range events {
		shape = append(shape, object{"type": e["type"], "nodeId": e["nodeId"], "payload": rewritten(run, e["payload"])})
	}
	return shape
}

func rewritten(run string, v any) any {
	switch v := v.(type) {
	case string:
		if v == run {
			return "SELF"
		}
	case object:
		out := object{}
		for k, m := range v {
			out[k] = rewritten(run, m)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = rewritten(run, v[i])
		}
		return out
	}
	return v
}
