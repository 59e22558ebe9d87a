//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loops returns a bus with a workflow whose supervisor chooses workers, once, and
// whose dispatch has a configuration.
func loops(t *testing.T, workers, dispatch string) *bus {
	t.Helper()
	b := newBus(t)
	b.host.AddLoop("loop", `{"mockDecisions":[{"kind":"next-worker","nextWorkerIds":[`+workers+`]}]}`, dispatch)
	return b
}

// dispatched waits until a run has a worker, and returns that one's run.
func (b *bus) dispatched(run string) string {
	b.Helper()
	for after, seen := "", 0; ; after = "&lastSequence=" + itoaN(seen-1) {
		status, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events/poll?timeout=30"+after, nil)
		events, _ := out["events"].([]any)
		if status != http.StatusOK || len(events) == 0 {
			b.Fatalf("run %s dispatches nobody: %d %v", run, status, out)
		}
		for _, e := range events {
			if e := e.(object); e["type"] == "node.dispatched" {
				return e["payload"].(object)["childRunId"].(string)
			}
		}
		seen += len(events)
	}
}

// E41, E42: workers run one behind the other, each in a run of its own, on what the
// mapping gives it; what they made is taken, but of one that failed nothing is.
func TestE41Workers(t *testing.T) {
	t.Parallel()
	b := loops(t, `"conformance-identity","conformance-failure","conformance-noop"`, `{"fanOutPolicy":"sequential","inputMapping":{"payload":"note"},
		"outputMapping":{"note":"payload"},"perWorkerOutputMappings":{"conformance-noop":{},"conformance-identity":{"seen":"payload"}}}`)
	run := b.start("conformance-loop", object{"inputs": object{"note": "hello"}})
	if snap := b.settle(run); snap["status"] != "completed" || !cmp.Equal(snap["variables"], object{"note": "hello", "seen": "hello"}) {
		t.Errorf("%v", snap)
	}
	var steps []string
	children := map[any]bool{}
	for _, e := range b.events(run) {
		if p := e["payload"].(object); e["type"] == "core.workflowChain.event" {
			steps = append(steps, p["phase"].(string)+" "+p["workerId"].(string)[len("conformance-"):])
		} else if e["type"] == "node.dispatched" {
			children[p["childRunId"]] = true
		}
	}
	want := []string{
		"dispatch.began identity", "dispatch.succeeded identity", "child.completed identity", "output.harvested identity",
		"dispatch.began failure", "dispatch.succeeded failure", "child.failed failure",
		"dispatch.began noop", "dispatch.succeeded noop", "child.completed noop",
	}
	if diff := cmp.Diff(want, steps); diff != "" || len(children) != 3 {
		t.Errorf("%d runs, (-want +got):\n%s", len(children), diff)
	}
}

// E41: a dispatch that takes one worker at a time begins none of several.
func TestE41Rejects(t *testing.T) {
	t.Parallel()
	b := loops(t, `"conformance-noop","conformance-identity"`, `{"fanOutPolicy":"reject"}`)
	run := b.start("conformance-loop")
	snap := b.settle(run)
	if e, _ := snap["error"].(object); snap["status"] != "failed" || e["code"] != "fan_out_rejected" || first(b.events(run), "node.dispatched") != nil {
		t.Errorf("%v", snap)
	}
}

// E35, E41: beyond its cap a dispatch dispatches nobody, and the run fails.
func TestE35IterationCap(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	const next = `{"kind":"next-worker","nextWorkerIds":["conformance-noop"]}`
	b.host.AddLoop("loop", `{"mockDecisions":[`+next+`,`+next+`]}`, `{"iterationCap":1}`)
	run := b.start("conformance-loop")
	snap, events := b.settle(run), b.events(run)
	if e, _ := snap["error"].(object); snap["status"] != "failed" || e["code"] != "iteration_cap_exceeded" {
		t.Errorf("%v", snap)
	}
	want := object{"kind": "loop-iterations", "limit": 1.0, "observed": 2.0, "nodeId": "dispatch"}
	if diff := cmp.Diff(want, first(events, "cap.breached")); diff != "" {
		t.Error(diff)
	}
	if got := typesOf(events, "node.dispatched"); len(got) != 1 {
		t.Errorf("%d workers", len(got))
	}
}

// E41: cancelling a run cancels the run of its worker, at work or waiting.
func TestE41CancelReachesChildren(t *testing.T) {
	t.Parallel()
	for _, worker := range []string{"conformance-cancellable", "conformance-approval"} {
		t.Run(worker, func(t *testing.T) {
			t.Parallel()
			b := loops(t, `"`+worker+`"`, "")
			run := b.start("conformance-loop")
			child := b.dispatched(run)
			if worker == "conformance-approval" {
				b.settle(child)
			}
			status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", object{"reason": "enough"})
			if status != http.StatusOK || out["status"] != "cancelled" {
				t.Errorf("cancel: %d %v", status, out)
			}
			if snap := b.settle(child); snap["status"] != "cancelled" || snap["workflowId"] != worker {
				t.Errorf("the child: %v", snap)
			}
		})
	}
}
