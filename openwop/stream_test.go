//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sse"
	"github.com/agentbus/agentbus/internal/woptest"
	"github.com/agentbus/agentbus/openwop"
)

// A frame is one server-sent event.
type frame struct {
	kind, id string
	data     json.RawMessage
}

// stream reads the events of a run until the server closes.
func (b *bus) stream(run, query string, head ...string) (status int, frames []frame) {
	b.Helper()
	res := b.send(http.MethodGet, "/v1/runs/"+run+"/events"+query, nil, append([]string{"Accept", "text/event-stream"}, head...)...)
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, nil
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		b.Errorf("Content-Type %s", got)
	}
	for reader := sse.NewReader(res.Body, 1<<22); ; {
		e, err := reader.Next()
		if err != nil {
			return res.StatusCode, frames
		}
		frames = append(frames, frame{e.Type, e.ID, slices.Clone(e.Data)})
	}
}

func kinds(frames []frame) (kinds []string) {
	for _, f := range frames {
		kinds = append(kinds, f.kind)
	}
	return kinds
}

// E13: ids are sequences, data is the document on one line, the stream ends with
// the run, and goes on behind any id.
func TestStream(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-delay", object{"inputs": object{"delayMs": 50}})
	status, frames := b.stream(run, "?streamMode=debug")
	events := b.events(run)
	if status != http.StatusOK || len(frames) != len(events) {
		t.Fatalf("%d: %d frames of %d events", status, len(frames), len(events))
	}
	for i, f := range frames {
		var doc object
		if err := json.Unmarshal(f.data, &doc); err != nil || f.id != itoaN(i) || f.kind != events[i]["type"] || !cmp.Equal(doc, events[i]) {
			t.Errorf("frame %d: %s %s %s", i, f.id, f.kind, f.data)
		}
	}
	for after := range frames {
		for _, c := range [][]string{{"?streamMode=debug", "Last-Event-ID", itoaN(after)}, {"?streamMode=debug&lastEventId=" + itoaN(after)}} {
			if _, rest := b.stream(run, c[0], c[1:]...); !cmp.Equal(kinds(rest), kinds(frames[after+1:])) {
				t.Errorf("behind %d: %v", after, kinds(rest))
			}
		}
	}
	if status, rest := b.stream(run, "", "Last-Event-ID", "999"); status != http.StatusOK || rest != nil {
		t.Errorf("behind the end: %d %v", status, rest)
	}
	for _, bad := range []string{"x", "-1", "1.5", "1e3", "99999999999999999999"} {
		if status, _ := b.stream(run, "", "Last-Event-ID", bad); status != http.StatusBadRequest {
			t.Errorf("id %s: %d", bad, status)
		}
	}
}

func itoaN(n int) string { b, _ := json.Marshal(n); return string(b) }

// E12, E14: what each mode passes.
func TestModes(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-agent-reasoning-streaming")
	b.settle(run)
	for mode, want := range map[string][]string{
		"":         {"run.started", "agent.reasoned", "node.completed", "run.completed"},
		"updates":  {"run.started", "agent.reasoned", "node.completed", "run.completed"},
		"messages": {"agent.reasoning.delta", "agent.reasoning.delta", "agent.reasoning.delta", "run.completed"},
		"messages,updates": {
			"run.started", "agent.reasoning.delta", "agent.reasoning.delta", "agent.reasoning.delta", "agent.reasoned", "node.completed", "run.completed",
		},
	} {
		query := ""
		if mode != "" {
			query = "?streamMode=" + mode
		}
		if _, frames := b.stream(run, query); !cmp.Equal(kinds(frames), want) {
			t.Errorf("%q: %v, want %v", mode, kinds(frames), want)
		}
	}
	for _, bad := range []string{"loud", "updates,loud", ",", "updates,", "values,updates", "debug,values"} {
		for _, accept := range []string{"text/event-stream", "application/json"} {
			status, out, _ := b.do(http.MethodGet, "/v1/runs/run_x/events?streamMode="+bad, nil, "Accept", accept) // the mode goes before the run
			b.refused(bad, http.StatusBadRequest, "unsupported_stream_mode", status, out)
			if got := out["details"].(object)["supported"]; !cmp.Equal(got, []any{"updates", "values", "messages", "debug"}) {
				t.Errorf("supported: %v", got)
			}
		}
	}
	_, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events?streamMode=messages", nil, "Accept", "application/json")
	if n := len(out["events"].([]any)); n != 4 {
		t.Errorf("%d messages as JSON", n)
	}
}

// E12: who names JSON gets JSON, unless a stream is liked better.
func TestAccept(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-noop")
	b.settle(run)
	for accept, want := range map[string]string{
		"application/json": "application/json", "Application/JSON; charset=utf-8": "application/json", "application/json, text/plain, */*": "application/json",
		"text/event-stream;q=0.5, application/json": "application/json", "text/html, application/json;q=0.1": "application/json",
		"": "text/event-stream", "*/*": "text/event-stream", "text/event-stream, application/json;q=0.9": "text/event-stream",
		"application/json;q=0, */*": "text/event-stream", "application/jsonl": "text/event-stream", ";;": "text/event-stream",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/runs/"+run+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer alice"}, "Accept": {accept}}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.Header.Get("Content-Type") != want {
			t.Errorf("Accept %q: %s", accept, res.Header.Get("Content-Type"))
		}
	}
}

// E14: values gives the state at once, after every change, and at the end.
func TestValues(t *testing.T) {
	t.Parallel()
	b, s := newBus(t), woptest.Load(t)
	run := b.start("conformance-identity", object{"inputs": object{"payload": 1}})
	b.settle(run)
	_, frames := b.stream(run, "?streamMode=values")
	if len(frames) < 3 || frames[0].kind != "state.snapshot" || frames[len(frames)-1].kind != "run.completed" {
		t.Fatalf("%v", kinds(frames))
	}
	var last object
	for _, f := range frames {
		if f.kind == "state.snapshot" {
			last = nil
			if err := json.Unmarshal(f.data, &last); err != nil {
				t.Fatal(err)
			}
			s.Check(t, "run-snapshot.schema.json", any(last))
		}
	}
	if diff := cmp.Diff(b.settle(run), last); diff != "" {
		t.Error(diff)
	}
}

// E13, E14: who is cut behind any frame comes back with its id for the events that
// were not sent yet, also where snapshots and events of one id stand together.
func TestValuesGoOnBehindAnyFrame(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-multi-node")
	b.settle(run)
	for _, query := range []string{"?streamMode=values", "?streamMode=values&bufferMs=20", "?streamMode=debug", "?streamMode=debug&bufferMs=20"} {
		_, frames := b.stream(run, query)
		id := "" // a client keeps the last that it read
		for i, f := range frames[:len(frames)-1] {
			if f.id != "" {
				id = f.id
			}
			if id == "" {
				continue
			}
			_, rest := b.stream(run, query, "Last-Event-ID", id)
			sent := func(of []frame) []frame {
				return slices.DeleteFunc(slices.Clone(of), func(f frame) bool { return f.kind == "state.snapshot" || f.kind == "batch" })
			}
			if want, got := kinds(sent(frames[i+1:])), kinds(sent(rest)); !cmp.Equal(want, got) || len(rest) == 0 || rest[len(rest)-1].kind != frames[len(frames)-1].kind {
				t.Errorf("%s behind frame %d, %s: %v, want %v", query, i, id, kinds(rest), want)
			}
		}
	}
}

// E13: events that come together are sent as one, when that is asked for.
func TestBatches(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-noop")
	b.settle(run)
	_, frames := b.stream(run, "?streamMode=debug&bufferMs=20")
	var docs []object
	if len(frames) != 1 || frames[0].kind != "batch" || json.Unmarshal(frames[0].data, &docs) != nil || !cmp.Equal(docs, b.events(run)) || frames[0].id != itoaN(len(docs)-1) {
		t.Errorf("%v", frames)
	}
	for _, bad := range []string{"x", "-1", "5001"} {
		for _, accept := range []string{"text/event-stream", "application/json"} {
			status, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events?bufferMs="+bad, nil, "Accept", accept)
			b.refused(bad, http.StatusBadRequest, "validation_error", status, out)
		}
	}
}

// E15: a poll is exclusive, tells when the run is complete, and waits when asked.
func TestPoll(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-noop")
	b.settle(run)
	events := b.events(run)
	for after := -1; after < len(events)+2; after++ {
		query := ""
		if after >= 0 {
			query = "?lastSequence=" + itoaN(after)
		}
		status, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events/poll"+query, nil)
		want := max(len(events)-after-1, 0)
		if got := len(out["events"].([]any)); status != http.StatusOK || got != want || out["isComplete"] != true {
			t.Errorf("behind %d: %d, %d events, complete %v", after, status, got, out["isComplete"])
		}
	}
	for _, bad := range []string{"lastSequence=x", "lastSequence=1.5", "timeout=31", "timeout=x", "timeout=-1"} {
		status, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events/poll?"+bad, nil)
		b.refused(bad, http.StatusBadRequest, "validation_error", status, out)
	}
	waiting := b.start("conformance-approval")
	b.settle(waiting)
	last := itoaN(len(b.events(waiting)) - 1)
	status, out, _ := b.do(http.MethodGet, "/v1/runs/"+waiting+"/events/poll?lastSequence="+last, nil)
	if status != http.StatusOK || len(out["events"].([]any)) != 0 || out["isComplete"] != false {
		t.Errorf("%d %v", status, out)
	}
	done := make(chan object)
	go func() {
		_, out, _ := b.do(http.MethodGet, "/v1/runs/"+waiting+"/events/poll?timeout=30&lastSequence="+last, nil)
		done <- out
	}()
	b.do(http.MethodPost, "/v1/runs/"+waiting+"/interrupts/gate", object{"resumeValue": object{"action": "accept"}})
	if out := <-done; len(out["events"].([]any)) == 0 {
		t.Errorf("a long poll ended with %v", out)
	}
}

// R17, E36: a run whose process is gone is driven on by another one from where its
// events end, and its sleeping and waiting nodes are not begun twice.
func TestAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	s := woptest.Load(t)
	dead := newBus(t, func(c *openwop.Config) { c.Lease = time.Second })
	sleeping := dead.start("conformance-delay", object{"inputs": object{"delayMs": 300}})
	waiting := dead.start("conformance-approval")
	dead.settle(waiting)
	for len(dead.events(sleeping)) < 2 { // begun
		<-time.After(time.Millisecond)
	}
	dead.close()

	b := openBus(t, dead.path, func(c *openwop.Config) { c.Owner = "another" })
	for ctx, done := context.WithTimeout(t.Context(), time.Minute); ; {
		orphans, err := b.store.Orphans(ctx, agentbus.Claim{}, 10, func(string) bool { return true }, func(agentbus.ExecutionID) bool { return false })
		if err != nil {
			done()
			t.Fatal(err)
		}
		for i := range orphans {
			if !openwop.Drives(&orphans[i]) {
				t.Errorf("%s is no run of a workflow", orphans[i].ID)
			}
			if err := b.host.Drive(ctx, orphans[i].ID); err != nil {
				t.Error(err)
			}
		}
		if len(orphans) > 0 {
			done()
			break
		}
		<-time.After(10 * time.Millisecond) // until the lease of the dead has ended
	}
	if snap := b.settle(sleeping); snap["status"] != "completed" {
		t.Errorf("the sleeping one: %v", snap)
	}
	if got := typesOf(b.events(sleeping), "node.started"); len(got) != 1 {
		t.Errorf("its node was begun %d times", len(got))
	}
	status, out, _ := b.do(http.MethodPost, "/v1/runs/"+waiting+"/interrupts/gate", object{"resumeValue": object{"action": "accept"}})
	if status != http.StatusOK {
		t.Fatal(status, out)
	}
	b.left(waiting, "waiting-approval")
	if snap := b.settle(waiting); snap["status"] != "completed" {
		t.Errorf("the waiting one: %v", snap)
	}
	for _, run := range []string{sleeping, waiting} {
		events := b.events(run)
		s.Events(t, events)
		if got := typesOf(events, "interrupt.requested"); len(got) > 1 {
			t.Errorf("it asked %d times", len(got))
		}
	}
	if strings.Contains(strings.Join(typesOf(b.events(waiting), ""), " "), "node.failed") {
		t.Error("a node failed")
	}
}
