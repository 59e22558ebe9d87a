//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/woptest"
	"github.com/agentbus/agentbus/openwop"
)

// refused checks the body of an error: error, message and details, nothing else
// (E3).
func (b *bus) refused(what string, status int, code string, got int, body object) {
	b.Helper()
	if got != status || body["error"] != code {
		b.Errorf("%s: %d %v, want %d %s", what, got, body, status, code)
	}
	for member := range body {
		if member != "error" && member != "message" && member != "details" {
			b.Errorf("%s: the error has a member %q", what, member)
		}
	}
	if details, _ := body["details"].(object); details["correlationId"] == nil {
		b.Errorf("%s: no correlationId", what)
	}
}

// E2: nobody reads or writes without a key, and never 403; of another's run nobody
// learns that it is there.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-noop")
	b.settle(run)
	for _, r := range []string{
		"POST /v1/runs", "GET /v1/runs", "GET /v1/runs/" + run, "GET /v1/runs/" + run + "/events", "GET /v1/runs/" + run + "/events/poll",
		"POST /v1/runs/" + run + "/cancel", "POST /v1/runs/" + run + ":fork", "POST /v1/runs/" + run + "/interrupts/noop", "GET /v1/interrupts/x",
		"POST /v1/interrupts/x", "GET /v1/workflows/conformance-noop", "POST /v1/host/sample/test/reset", "GET /v1/runs/" + run + "/nothing",
	} {
		method, path, _ := strings.Cut(r, " ")
		for _, key := range []string{"", "Bearer wrong"} {
			status, out, h := b.do(method, path, nil, "Authorization", key)
			b.refused(r, http.StatusUnauthorized, "unauthenticated", status, out)
			if out["details"].(object)["correlationId"] != h.Get("X-Request-Id") {
				b.Errorf("%s: %v, %v", r, out, h)
			}
			if h.Get("X-Should-Retry") != "false" { // P12
				b.Errorf("%s: %v", r, h)
			}
		}
		if strings.Contains(path, run) {
			status, out, _ := b.do(method, path, nil, "Authorization", "Bearer bob")
			if status != http.StatusNotFound {
				b.Errorf("%s of another: %d %v", r, status, out)
			}
		}
	}
	for _, path := range []string{"/.well-known/openwop", "/v1/openapi.json"} {
		if status, _, h := b.do(http.MethodGet, path, nil, "Authorization", ""); status != http.StatusOK || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, status, h)
		}
	}
}

// E5, E7: what cannot be run is refused, and unknown members are not.
func TestCreate(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	noop := func(member, value string) string {
		return `{"workflowId":"conformance-noop","` + member + `":` + value + `}`
	}
	for body, want := range map[string]string{
		``: "400 validation_error", `{`: "400 validation_error", `[]`: "400 validation_error", `{}`: "400 validation_error", `{"workflowId":3}`: "400 validation_error",
		noop("workflowId", `"nothing"`): "400 validation_error", noop("WorkflowId", `"nothing"`): "400 validation_error", // readers differ in which they take
		noop("configurable", `{"recursionLimit":1,"RecursionLimit":2}`): "400 validation_error",
		`{"workflowId":"nothing"}`:                                      "404 workflow_not_found", `{"workflowId":"conformance-live-invoke"}`: "404 workflow_not_found",
		noop("callbackUrl", `"http://x"`): "400 validation_error", noop("inputs", `[1]`): "400 validation_error", noop("metadata", `"x"`): "400 validation_error",
		noop("configurable", `{"recursionLimit":0}`): "400 validation_error", noop("configurable", `{"recursionLimit":"3"}`): "400 validation_error",
		noop("configurable", `{"escalationThreshold":1.5}`): "400 validation_error", noop("configurable", `{"reasoningVerbosity":"loud"}`): "400 validation_error",
		noop("configurable", `{"temperature":3}`): "400 validation_error", noop("configurable", `[]`): "400 validation_error",
		noop("configurable", `{"onHalt":"x"}`): "400 validation_error", noop("configurable", `{"runTimeoutMs":0}`): "400 validation_error",
		noop("tags", `[""]`): "400 validation_error", noop("tags", `["`+strings.Repeat("x", 257)+`"]`): "400 validation_error",
		noop("tags", `[`+strings.Repeat(`"a",`, 100)+`"b"]`):        "400 validation_error",
		noop("metadata", `{"x":"`+strings.Repeat("x", 50<<10)+`"}`): "400 validation_error",
	} {
		status, out, _ := b.do(http.MethodPost, "/v1/runs", body)
		code, name := want[:3], want[4:]
		if http.StatusText(status) == "" || code != strings.Fields(itoa(status))[0] {
			t.Errorf("%.60s: %d, want %s", body, status, want)
		}
		b.refused(body, status, name, status, out)
	}
	if status, out, _ := b.do(http.MethodPost, "/v1/runs", object{"workflowId": "conformance-idempotent", "tags": []string{strings.Repeat("é", 256)}}); status != http.StatusCreated {
		t.Errorf("a tag of 256 characters: %d %v", status, out)
	}
	status, out, h := b.do(http.MethodPost, "/v1/runs", noop("configurable", `{"odd":[1],"recursionLimit":5000},"inputs":{"a":1,"A":2}`))
	run, _ := out["runId"].(string)
	if status != http.StatusCreated || out["workflowId"] != "conformance-noop" || out["eventsUrl"] != "/v1/runs/"+run+"/events" || h.Get("Location") != "/v1/runs/"+run {
		t.Fatalf("%d %v", status, out)
	}
	if diff := cmp.Diff(object{"odd": []any{1.0}, "recursionLimit": 5000.0}, b.settle(run)["configurable"]); diff != "" {
		t.Error(diff)
	}
	status, out, _ = b.do(http.MethodGet, "/v1/runs?workflowId=conformance-noop&limit=5", nil)
	if runs, _ := out["runs"].([]any); status != http.StatusOK || len(runs) != 1 || runs[0].(object)["runId"] != run {
		t.Errorf("list: %d %v", status, out)
	}
}

// Runs whose events are gone are listed with the others, and as they ended: one of them
// keeps no other from being listed.
func TestListBehindRetention(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	want := map[any]any{}
	for workflow, status := range map[string]string{"conformance-noop": "completed", "conformance-failure": "failed", "conformance-cancellable": "cancelled"} {
		run := b.start(workflow)
		if status == "cancelled" {
			b.left(run, "pending")
			b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", nil)
		}
		b.settle(run)
		want[run] = status
	}
	if _, err := b.store.ForgetEvents(t.Context(), time.Now().Add(time.Hour), 100); err != nil {
		t.Fatal(err)
	}
	waits := b.start("conformance-approval")
	b.settle(waits)
	want[waits] = "waiting-approval"
	status, out, _ := b.do(http.MethodGet, "/v1/runs", nil)
	got := map[any]any{}
	runs, _ := out["runs"].([]any)
	for _, r := range runs {
		got[r.(object)["runId"]] = r.(object)["status"]
	}
	if diff := cmp.Diff(want, got); diff != "" || status != http.StatusOK {
		t.Error(status, diff)
	}
}

// A readStore counts the events that are read.
type readStore struct {
	openwop.Store

	read atomic.Int64
}

func (s *readStore) Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) {
		for e, err := range s.Store.Events(ctx, id, after) {
			if s.read.Add(1); !yield(e, err) {
				return
			}
		}
	}
}

// A list reads of a run that is over where it begins and ends, however long it was,
// and tells what GET of the run does; the page behind no run is none, not the last.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	var store readStore
	b := newBus(t, func(c *openwop.Config) { store.Store, c.Store = c.Store, &store })
	events := spokenEvents()
	for range 300 {
		events = slices.Insert(events, 1, agentbus.Event{Type: agentbus.EventOutputChunk, Node: "a", Data: json.RawMessage(`{"nodeId":"a","chunk":"x","isLast":false}`)})
	}
	run := b.spoken(events...)
	store.read.Store(0)
	status, out, _ := b.do(http.MethodGet, "/v1/runs", nil)
	if n := store.read.Load(); status != http.StatusOK || n > 2 {
		t.Errorf("%d, %d events were read", status, n)
	}
	snap, listed := b.settle(run), out["runs"].([]any)[0].(object)
	for _, name := range []string{"runId", "workflowId", "status", "startedAt", "completedAt"} {
		if listed[name] != snap[name] {
			t.Errorf("%s: listed as %v, it is %v", name, listed[name], snap[name])
		}
	}
	if _, out, _ = b.do(http.MethodGet, "/v1/runs?before="+run, nil); len(out["runs"].([]any)) != 0 {
		t.Errorf("behind the last: %v", out)
	}
	for _, key := range []string{"alice", "bob"} {
		for _, before := range map[string][]string{"alice": {"run_x", "%00"}, "bob": {run}}[key] {
			status, out, _ := b.do(http.MethodGet, "/v1/runs?before="+before, nil, "Authorization", "Bearer "+key)
			b.refused("before "+before, http.StatusBadRequest, "validation_error", status, out)
		}
	}
}

func itoa(n int) string {
	return strings.TrimSpace(string([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)}))
}

// E3: a route that is asked by a method that it does not take is 405 in the shape of
// the wire's errors, and says which it takes; without a key it is 401 before (E2).
func TestE3Methods(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for _, c := range [][3]string{
		{http.MethodPut, "/v1/runs", "GET, HEAD, POST"},
		{http.MethodDelete, "/v1/runs/run_x", "GET, HEAD, POST"},
		{http.MethodPost, "/v1/runs/run_x", "GET, HEAD"},
		{http.MethodPost, "/v1/runs/run_x/events", "GET, HEAD"},
		{http.MethodGet, "/v1/runs/run_x/cancel", "POST"},
		{http.MethodPut, "/v1/interrupts/x", "GET, HEAD, POST"},
		{http.MethodDelete, "/v1/workflows/x", "GET, HEAD"},
		{http.MethodPost, "/.well-known/openwop", "GET, HEAD"},
		{http.MethodPost, "/v1/openapi.json", "GET, HEAD"},
	} {
		status, out, h := b.do(c[0], c[1], object{})
		b.refused(c[0]+" "+c[1], http.StatusMethodNotAllowed, "method_not_allowed", status, out)
		if h.Get("Allow") != c[2] || h.Get("X-Should-Retry") != "false" {
			t.Errorf("%s %s: %v", c[0], c[1], h)
		}
	}
}

// E70: outside of the conformance profile there is none of it.
func TestOutsideConformance(t *testing.T) {
	t.Parallel()
	b := newBus(t, func(c *openwop.Config) { c.Conformance = false })
	_, doc, h := b.do(http.MethodGet, "/.well-known/openwop", nil)
	if doc["fixtures"] != nil || doc["conformance"] != nil || h.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("it offers %v, %s", doc, h.Get("Cache-Control"))
	}
	for _, id := range []string{"conformance-noop", "conformance-agent-reasoning"} {
		status, out, _ := b.do(http.MethodPost, "/v1/runs", object{"workflowId": id})
		b.refused(id, http.StatusNotFound, "workflow_not_found", status, out)
		status, out, _ = b.do(http.MethodGet, "/v1/workflows/"+id, nil)
		b.refused(id, http.StatusNotFound, "workflow_not_found", status, out)
	}
	for _, path := range []string{"agents/live-invoke", "toolhooks/invoke", "test/reset"} {
		status, out, _ := b.do(http.MethodPost, "/v1/host/sample/"+path, object{})
		b.refused(path, http.StatusNotFound, "not_found", status, out)
	}
	if err := newBus(t).host.AddMockAgent("mine", "{}"); err == nil { // not within it either, but for its own workflows
		t.Error("a workflow of another name has a mock agent")
	}
	status, out, _ := b.do(http.MethodPost, "/v1/runs", object{"workflowId": "x", "configurable": object{"mockProvider": object{"id": "x"}}})
	b.refused("mockProvider", http.StatusForbidden, "mock_provider_forbidden", status, out) // E7
}

// E6: a key makes one run, also for twins; another body is refused, and another's
// key is another key.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	var twins sync.WaitGroup
	ids := make([]any, 8)
	for i := range ids {
		twins.Go(func() {
			_, out, _ := b.do(http.MethodPost, "/v1/runs", object{"workflowId": "conformance-idempotent", "inputs": object{"nonce": 1}}, "Idempotency-Key", "k")
			ids[i] = out["runId"]
		})
	}
	twins.Wait()
	for _, id := range ids {
		if id == nil || id != ids[0] {
			t.Fatalf("twins made %v", ids)
		}
	}
	b.settle(ids[0].(string))
	status, out, h := b.do(http.MethodPost, "/v1/runs", `{"inputs" : {"nonce":1.0},"workflowId":"conformance-idempotent"}`, "Idempotency-Key", "k")
	if status != http.StatusOK || out["runId"] != ids[0] || h.Get("openwop-Idempotent-Replay") != "true" {
		t.Errorf("again: %d %v %v", status, out, h)
	}
	status, out, _ = b.do(http.MethodPost, "/v1/runs", object{"workflowId": "conformance-idempotent", "inputs": object{"nonce": 2}}, "Idempotency-Key", "k")
	b.refused("another body", http.StatusConflict, "idempotency_key_mismatch", status, out)
	status, out, _ = b.do(http.MethodPost, "/v1/runs", object{"workflowId": "conformance-noop"}, "Idempotency-Key", "k", "Authorization", "Bearer bob")
	if status != http.StatusCreated || out["runId"] == ids[0] {
		t.Errorf("another's key: %d %v", status, out)
	}
}

// E4: a run is cancelled while it sleeps and while it waits, again without effect,
// and not when it has ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	sleeping, waiting, ended := b.start("conformance-cancellable"), b.start("conformance-approval"), b.start("conformance-noop")
	b.settle(waiting)
	b.settle(ended)
	for _, run := range []string{sleeping, waiting} {
		for range 2 {
			status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", object{"reason": "enough"})
			if status != http.StatusOK || out["status"] != "cancelled" || out["runId"] != run { // clients read the id
				t.Errorf("cancel: %d %v", status, out)
			}
		}
		events := b.events(run)
		if p := first(events, "run.cancelled"); p["reason"] != "enough" {
			t.Errorf("cancelled for %v", p)
		}
		if got := typesOf(events, "node.c"); len(got) != 1 || got[0] != "node.cancelled" {
			t.Errorf("nodes: %v", got)
		}
	}
	status, out, _ := b.do(http.MethodPost, "/v1/runs/"+ended+"/cancel", nil)
	b.refused("of an ended run", http.StatusConflict, "run_already_terminal", status, out)
	status, out, _ = b.do(http.MethodPost, "/v1/runs/run_x/cancel", nil)
	b.refused("of no run", http.StatusNotFound, "run_not_found", status, out)
	status, out, _ = b.do(http.MethodPost, "/v1/runs/"+waiting+"/interrupts/gate", object{"resumeValue": object{"action": "accept"}})
	if status != http.StatusConflict {
		t.Errorf("its interrupt is decided: %d %v", status, out)
	}
}

// E4: a run that is cancelled as its driver begins, or as it parks, is cancelled.
func TestCancelBetween(t *testing.T) {
	t.Parallel()
	for workflow, at := range map[string]agentbus.HaltKind{"conformance-cancellable": "", "conformance-approval": agentbus.HaltWaiting} {
		t.Run(workflow, func(t *testing.T) {
			t.Parallel()
			b, held := heldBus(t, at)
			run := b.start(workflow)
			<-held.reached
			status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", object{"reason": "enough"})
			if p := first(b.events(run), "run.cancelled"); status != http.StatusOK || out["status"] != "cancelled" || p["reason"] != "enough" {
				t.Errorf("cancel: %d %v, %v", status, out, p)
			}
		})
	}
}

// E4: who cancels a run that is being cancelled leaves it to the first.
func TestCancelTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b, held := heldBus(t, agentbus.HaltAbort)
	run := b.start("conformance-approval")
	b.settle(run)
	var both sync.WaitGroup
	defer both.Wait()
	cancel := func(reason string) {
		status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/cancel", object{"reason": reason})
		if p := first(b.events(run), "run.cancelled"); status != http.StatusOK || out["status"] != "cancelled" || p["reason"] != "first" {
			t.Errorf("cancel %s: %d %v, %v", reason, status, out, p)
		}
	}
	both.Go(func() { cancel("first") })
	<-held.reached
	both.Go(func() { cancel("second") })
}

// E4, R17: a run that another process takes as it is cancelled here is stopped there; that
// one does nothing about it, and is fenced.
func TestCancelWhatAnotherTakes(t *testing.T) {
	t.Parallel()
	b, held := heldBus(t, "")
	run := agentbus.ExecutionID(b.start("conformance-cancellable"))
	<-held.reached
	e, _, err := held.Execution(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = held.Store.Open(t.Context(), e, agentbus.Claim{Owner: "another", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	cancelling.Go(func() {
		status, out, _ := b.do(http.MethodPost, "/v1/runs/"+string(run)+"/cancel", object{"reason": "enough"})
		snap := b.settle(string(run)) // on a slow machine the answer comes before the end
		if p := first(b.events(string(run)), "run.cancelled"); status != http.StatusOK || snap["status"] != "cancelled" || p["reason"] != "enough" {
			t.Errorf("cancel: %d %v, %v, %v", status, out, snap, p)
		}
		if _, err := held.AppendEvents(t.Context(), e.Lease, agentbus.Event{Type: "agentbus.late"}); agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
			t.Errorf("the other process writes: %v", err)
		}
	})
	for ctx, done := context.WithTimeout(t.Context(), time.Minute); ; {
		if _, err = held.Renew(t.Context(), e.Lease, time.Hour); err != nil || ctx.Err() != nil { // or it was fenced before it looked
			done()
			break
		}
		<-time.After(2 * time.Millisecond) // it learns it as it renews its lease
	}
	if reason, _ := held.StopReason(t.Context(), agentbus.RunID(run)); err == nil || reason != "enough" {
		t.Errorf("%v, %q", err, reason)
	}
}

// E4, R17: a bus that closes as it cancels a run takes it from nobody: who drives it may
// well be about to end it.
func TestCancelAsTheHostCloses(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := agentbus.ExecutionID(b.start("conformance-approval"))
	b.settle(string(run))
	e, _, err := b.store.Execution(t.Context(), run)
	if err == nil {
		e, err = b.store.Open(t.Context(), e, agentbus.Claim{Owner: "another", TTL: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.host.Close()
	if status, out, _ := b.do(http.MethodPost, "/v1/runs/"+string(run)+"/cancel", object{"reason": "enough"}); out["status"] != "cancelling" {
		t.Errorf("cancel: %d %v", status, out)
	}
	if _, err := b.store.Renew(t.Context(), e.Lease, time.Hour); agentbus.CodeOf(err) != agentbus.CodeRunStopped {
		t.Errorf("who drives it learns %v", err)
	}
}

// A heldStore holds the driver of a run where it claims it, or where it halts it by
// at, until somebody follows the run: as who cancels it does, once that is under way.
type heldStore struct {
	openwop.Store

	at                agentbus.HaltKind
	held              atomic.Bool
	follows           sync.Once
	reached, followed chan struct{}
}

func heldBus(t *testing.T, at agentbus.HaltKind) (*bus, *heldStore) {
	t.Helper()
	held := &heldStore{at: at, reached: make(chan struct{}), followed: make(chan struct{})}
	return newBus(t, func(c *openwop.Config) { held.Store, c.Store = c.Store, held }), held
}

func (s *heldStore) hold() {
	if s.held.CompareAndSwap(false, true) {
		close(s.reached)
		<-s.followed
	}
}

func (s *heldStore) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	if s.at == "" && claim.Owner != "" {
		s.hold()
	}
	return s.Store.Open(ctx, e, claim) //nolint:wrapcheck // it is the store
}

func (s *heldStore) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	if s.at == h.Kind {
		s.hold()
	}
	return s.Store.Halt(ctx, l, h, events...) //nolint:wrapcheck // it is the store
}

func (s *heldStore) Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func()) {
	s.follows.Do(func() { close(s.followed) })
	return s.Store.Watch(id)
}

// E37: what an interrupt is answered.
func TestResolve(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-approval")
	b.settle(run)
	at := "/v1/runs/" + run + "/interrupts/gate"
	post := func(path string, v any) (int, object) {
		status, out, _ := b.do(http.MethodPost, path, object{"resumeValue": v})
		return status, out
	}
	status, out := post("/v1/runs/run_x/interrupts/gate", 1)
	b.refused("no run", http.StatusNotFound, "run_not_found", status, out)
	for _, two := range []string{`{"resumeValue":{"action":"accept","Action":"reject"}}`, `{"resumeValue":{"action":"accept"},"resumeValue":{"action":"reject"}}`} {
		status, out, _ = b.do(http.MethodPost, at, two)
		b.refused("two answers", http.StatusBadRequest, "validation_error", status, out)
	}
	status, out = post("/v1/runs/"+run+"/interrupts/other", object{"action": "accept"})
	b.refused("no interrupt", http.StatusNotFound, "interrupt_not_found", status, out)
	status, out, _ = b.do(http.MethodPost, at, object{})
	b.refused("no value", http.StatusBadRequest, "validation_error", status, out)
	for _, v := range []any{object{"action": "maybe"}, object{}, "accept", nil} {
		if status, out = post(at, v); status != http.StatusUnprocessableEntity && v != nil {
			t.Errorf("%v: %d %v", v, status, out)
		}
	}
	status, tok, _ := b.do(http.MethodGet, "/v1/interrupts/"+run+":gate:0", nil)
	if status != http.StatusOK || tok["interruptId"] != "gate:0" {
		t.Fatalf("its token: %d %v", status, tok)
	}
	token := tok["token"].(string)
	for _, bad := range []string{token[:len(token)-2], "A" + token[1:], "x", "%00"} {
		if status, _, _ := b.do(http.MethodGet, "/v1/interrupts/"+bad, nil); status != http.StatusNotFound {
			t.Errorf("a forged token: %d", status)
		}
	}
	if status, _, _ := b.do(http.MethodGet, "/v1/interrupts/"+token, nil, "Authorization", "Bearer bob"); status != http.StatusNotFound {
		t.Errorf("another's token: %d", status)
	}
	var won, lost int
	var mu sync.Mutex
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			status, _ := post("/v1/interrupts/"+token, object{"action": "accept"})
			mu.Lock()
			defer mu.Unlock()
			switch status {
			case http.StatusOK:
				won++
			case http.StatusConflict:
				lost++
			}
		})
	}
	racers.Wait()
	if won != 1 || lost != 7 {
		t.Errorf("%d won and %d lost, want 1 and 7", won, lost)
	}
	if snap := b.settle(run); snap["status"] != "completed" {
		b.left(run, "waiting-approval")
	}
	status, out = post(at, object{"action": "accept"})
	b.refused("again", http.StatusConflict, "interrupt_already_resolved", status, out)
}

// E37: answers come as a map or as an array.
func TestClarification(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	for _, v := range []any{object{"answers": object{"q1": "blue"}}, []any{object{"id": "q1", "answer": "blue"}}, object{"answers": []any{object{"id": "q1", "answer": "blue"}}}} {
		run := b.start("conformance-clarification")
		if snap := b.settle(run); snap["status"] != "waiting-input" || snap["currentNodeId"] != "ask" {
			t.Errorf("%v", snap)
		}
		if status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/ask", object{"resumeValue": v}); status != http.StatusOK || out["runId"] != run || out["nodeId"] != "ask" {
			t.Fatalf("%v: %d %v", v, status, out)
		}
		b.left(run, "waiting-input")
		b.settle(run)
		if diff := cmp.Diff(object{"answers": object{"q1": "blue"}}, first(b.events(run), "node.completed")["outputs"]); diff != "" {
			t.Error(diff)
		}
	}
}

// E50: what cannot be forked.
func TestForkRefusals(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	done, active := b.start("conformance-noop"), b.start("conformance-cancellable")
	b.settle(done)
	for body, want := range map[string]int{
		`{"mode":"replay","runOptionsOverlay":{"configurable":{}}}`: 400, `{"mode":"branch"}`: 400, `{"mode":"other"}`: 400, `{}`: 400,
		`{"mode":"replay","fromSeq":-1}`: 400, `{"mode":"branch","fromSeq":99}`: 422, `{"mode":"branch","fromSeq":1,"runOptionsOverlay":{"configurable":{"recursionLimit":0}}}`: 400,
		`{"mode":"replay","runOptionsOverlay":{}}`: 201,
	} {
		if status, out, _ := b.do(http.MethodPost, "/v1/runs/"+done+":fork", body); status != want {
			t.Errorf("%s: %d %v, want %d", body, status, out, want)
		}
	}
	status, out, _ := b.do(http.MethodPost, "/v1/runs/"+active+":fork", object{"mode": "replay"})
	b.refused("an active run", http.StatusConflict, "run_active", status, out)
	status, out, _ = b.do(http.MethodPost, "/v1/runs/run_x:fork", object{"mode": "replay"})
	b.refused("no run", http.StatusNotFound, "run_not_found", status, out)
	status, out, _ = b.do(http.MethodPost, "/v1/runs/"+done+":other", object{})
	b.refused("no verb", http.StatusNotFound, "not_found", status, out)
}

// E51: a branch runs live under its overlay, from any event of its source on.
func TestBranchFromEveryEvent(t *testing.T) {
	t.Parallel()
	b, s := newBus(t), woptest.Load(t)
	for _, workflow := range []string{"conformance-agent-reasoning", "conformance-multi-agent-handoff", "conformance-conversation-replay", "conformance-failure"} {
		run := b.start(workflow)
		b.settle(run)
		events := b.events(run)
		for from := range events {
			status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "branch", "fromSeq": from})
			if status != http.StatusCreated {
				t.Fatalf("branch at %d: %d %v", from, status, out)
			}
			id := out["runId"].(string)
			snap, forked := b.settle(id), b.events(id)
			if s.Events(t, forked); snap["status"] != "completed" && workflow != "conformance-failure" {
				t.Errorf("branch at %d: %v", from, snap)
			}
			if diff := cmp.Diff(typesOf(events, ""), typesOf(forked, "")); diff != "" {
				t.Errorf("%s, branch at %d (-source +branch):\n%s", workflow, from, diff)
			}
		}
	}
	run := b.start("conformance-agent-low-confidence")
	b.settle(run)
	_, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "branch", "fromSeq": 1, "runOptionsOverlay": object{"configurable": object{"escalationThreshold": 0.4}}})
	snap := b.settle(out["runId"].(string))
	if snap["status"] != "completed" || snap["configurable"].(object)["escalationThreshold"] != 0.4 {
		t.Errorf("under a lower threshold: %v", snap)
	}
	_, frames := b.stream(out["runId"].(string), "?streamMode=values")
	var last object // E14: the state that the stream tells is that of the run
	if err := json.Unmarshal(frames[len(frames)-2].data, &last); err != nil || !cmp.Equal(last, snap) {
		t.Errorf("the last state of its stream: %v\n%s", err, cmp.Diff(snap, last))
	}
}

// E4: a run that was stopped when its driver had died is ended by whoever finds it,
// with the reason that it was stopped for.
func TestEndOfAStoppedOrphan(t *testing.T) {
	t.Parallel()
	dead := newBus(t)
	run := agentbus.RunID(dead.start("conformance-cancellable"))
	dead.left(string(run), "pending")
	dead.close()
	b := openBus(t, dead.path, func(c *openwop.Config) { c.Owner = "another" })
	if err := b.store.StopRun(t.Context(), run, "alice", "enough", time.Now()); err != nil {
		t.Fatal(err)
	}
	orphans, err := b.store.Orphans(t.Context(), agentbus.Claim{Owner: "another", TTL: time.Hour}, 1, func(string) bool { return false }, func(agentbus.ExecutionID) bool { return false })
	if err != nil || len(orphans) != 1 {
		t.Fatal(orphans, err)
	}
	if err := b.host.End(t.Context(), &orphans[0]); err != nil {
		t.Fatal(err)
	}
	if snap := b.settle(string(run)); snap["status"] != "cancelled" || first(b.events(string(run)), "run.cancelled")["reason"] != "enough" {
		t.Error(snap)
	}
}

// E10: a replay that waits ends when it is answered behind the retention of its source,
// whose events it can no longer be held to.
func TestReplayBehindRetention(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	source := b.start("conformance-approval")
	b.settle(source)
	_, out, _ := b.do(http.MethodPost, "/v1/runs/"+source+":fork", object{"mode": "replay"})
	replay := out["runId"].(string)
	b.left(replay, "running")
	b.settle(replay)
	accept := func(run string) {
		if status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+"/interrupts/gate", object{"resumeValue": object{"action": "accept"}}); status != http.StatusOK {
			t.Fatal(status, out)
		}
		b.left(run, "waiting-approval")
		b.settle(run)
	}
	accept(source)
	if n, err := b.store.ForgetEvents(t.Context(), time.Now().Add(time.Hour), 100); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	accept(replay)
	if snap := b.settle(replay); snap["status"] != "failed" || snap["error"].(object)["code"] != "reply_expired" {
		t.Error(snap)
	}
}
