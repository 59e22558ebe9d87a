//nolint:errcheck // a document without the member that is looked at fails its test
package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
)

// A wireBus is a bus as clients of the event wire see it.
type wireBus struct {
	*testing.T
	*agentbustest.Bus
}

func onWire(t *testing.T, agents map[string]agentbustest.Agent, yaml string) *wireBus {
	t.Helper()
	b := agentbustest.New(t, agentbustest.Config{Agents: agents, YAML: yaml, Principals: []agentbus.Principal{{ID: "alice"}, {ID: "bob"}}})
	t.Cleanup(func() { agentbustest.Replay(t, b.Server()) })
	return &wireBus{t, b}
}

// do sends a request as a principal, and returns what comes.
func (b *wireBus) do(as, method, path, body string, head ...string) (int, map[string]any) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", b.Key(as).Reveal())
	r.Header.Set("Accept", "application/json")
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		b.Fatalf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	return res.StatusCode, out
}

// began begins a run of alice's.
func (b *wireBus) began(body string) string {
	b.Helper()
	status, out := b.do("alice", http.MethodPost, "/v1/runs", body)
	if status != http.StatusCreated {
		b.Fatal(status, out)
	}
	return out["runId"].(string)
}

// stands waits until a run stands so, and returns its snapshot.
func (b *wireBus) stands(run, as string) map[string]any {
	b.Helper()
	var snap map[string]any
	soon(b.T, run+" "+as, func() bool {
		_, snap = b.do("alice", http.MethodGet, "/v1/runs/"+run, "")
		if s, _ := snap["status"].(string); s != as && (s == "completed" || s == "failed" || s == "cancelled") {
			b.Fatalf("it is %s: %v", s, snap)
		}
		return snap["status"] == as
	})
	return snap
}

// events returns the log of a run.
func (b *wireBus) events(run string) (all []map[string]any) {
	b.Helper()
	_, out := b.do("alice", http.MethodGet, "/v1/runs/"+run+"/events", "")
	for _, e := range out["events"].([]any) {
		all = append(all, e.(map[string]any))
	}
	return all
}

func payloadsOf(events []map[string]any, kind string) (all []map[string]any) {
	for _, e := range events {
		if e["type"] == kind {
			all = append(all, e["payload"].(map[string]any))
		}
	}
	return all
}

const (
	talk = `
conversations:
  talk: {participants: [{agent: a}, {agent: b}], max_turns: 4}
`
	gated = `  gated: {participants: [{agent: a}, {agent: b, approval: true}], max_turns: 2}
`
	led = `  led: {participants: [{agent: mod, decides: true}, {agent: b}], plan: moderator}
`
)

// E5, E6, E8, E14, E55, E56: a configured conversation is a workflow: it is begun
// once for a key, read, listed and followed by who began it, and by nobody else.
func TestWireConversation(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk+gated)
	if status, w := b.do("alice", http.MethodGet, "/v1/workflows/talk", ""); status != http.StatusOK || len(w["nodes"].([]any)) != 2 {
		t.Error(status, w)
	}
	const body = `{"workflowId":"talk","inputs":{"seed":[{"text":"hello"},{"text":"there"}]},"tags":["x"],"metadata":{"k":1},"configurable":{"mine":2}}`
	var ids []string
	for _, want := range []int{http.StatusCreated, http.StatusOK} {
		status, out := b.do("alice", http.MethodPost, "/v1/runs", body, "Idempotency-Key", "k")
		if status != want {
			t.Fatal(status, out)
		}
		ids = append(ids, out["runId"].(string))
	}
	if ids[0] != ids[1] {
		t.Error(ids)
	}
	for _, c := range []struct { // what was refused leaves its key to what was mended
		body string
		want int
	}{
		{`{"workflowId":"talk"}`, http.StatusBadRequest},
		{`{"workflowId":"talk","inputs":{"seed":"x"},"configurable":{"promptOverrides":{"nobody":"x"}}}`, http.StatusBadRequest},
		{`{"workflowId":"talk","inputs":{"seed":"x"}}`, http.StatusCreated},
		{`{"workflowId":"talk"}`, http.StatusConflict},
		{`{"workflowId":"talk","inputs":{"seed":"x"}}`, http.StatusOK},
	} {
		status, out := b.do("alice", http.MethodPost, "/v1/runs", c.body, "Idempotency-Key", "mended")
		if status != c.want {
			t.Errorf("%s: %d %v, want %d", c.body, status, out, c.want)
		}
		if status == http.StatusCreated {
			b.stands(out["runId"].(string), "completed")
		}
	}
	snap := b.stands(ids[0], "completed")
	if snap["workflowId"] != "talk" || snap["tags"].([]any)[0] != "x" || len(snap["channels"].(map[string]any)["messages"].([]any)) != 4 || len(snap["nodeStates"].(map[string]any)) != 2 {
		t.Errorf("%v", snap)
	}
	events := b.events(ids[0])
	started := payloadsOf(events, "run.started")[0]
	if diff := cmp.Diff(started["inputs"], any(map[string]any{"seed": "hello\n\nthere"})); diff != "" || started["transport"] != "rest" {
		t.Error(diff, started)
	}
	for i, p := range payloadsOf(events, "node.started") {
		if want := []string{"a", "b"}[i%2]; p["nodeId"] != want || p["agent"].(map[string]any)["agentId"] != "host:"+want {
			t.Errorf("%d: %v", i, p)
		}
	}
	if last := events[len(events)-1]; last["type"] != "run.completed" {
		t.Error(last)
	}
	if status, _ := b.do("bob", http.MethodGet, "/v1/runs/"+ids[0], ""); status != http.StatusNotFound {
		t.Error("bob reads it:", status)
	}
	if _, out := b.do("alice", http.MethodGet, "/v1/runs?workflowId=talk", ""); len(out["runs"].([]any)) != 2 {
		t.Error(out)
	}
	for body, want := range map[string]int{`{"workflowId":"talk"}`: 400, `{"workflowId":"none","inputs":{"seed":"x"}}`: 404, `{"workflowId":"talk","inputs":{"seed":[{"url":"x"}]}}`: 400} {
		if status, out := b.do("alice", http.MethodPost, "/v1/runs", body); status != want {
			t.Error(body, status, out)
		}
	}
}

// P1: the turns of a run are called in the trace that it was asked for in; a trace
// context that is malformed is none.
func TestWireContinuesTraces(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk)
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for i, parent := range []string{"00-" + id + "-" + span + "-01", "00-" + id + "-" + span} {
		status, out := b.do("alice", http.MethodPost, "/v1/runs", `{"workflowId":"talk","inputs":{"seed":"x"}}`, "Traceparent", parent, "Tracestate", "v=1")
		if status != http.StatusCreated {
			t.Fatal(status, out)
		}
		b.stands(out["runId"].(string), "completed")
		for _, r := range b.Requests("a")[2*i:] {
			got, state := r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
			if continued := strings.HasPrefix(got, "00-"+id+"-") && !strings.Contains(got, span) && state == "v=1"; continued != (i == 0) {
				t.Errorf("%s, %q: %s, %q", parent, "v=1", got, state)
			}
		}
	}
}

// E51, E52: a replay of a conversation tells what it told, byte by byte, and calls
// nobody; a branch keeps the turns that had ended and asks for the others.
func TestWireForksConversations(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk)
	run := b.began(`{"workflowId":"talk","inputs":{"seed":"hello"}}`)
	source := b.stands(run, "completed")
	events, asked := b.events(run), len(b.Requests("a"))
	status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"replay"}`)
	if status != http.StatusCreated {
		t.Fatal(status, out)
	}
	again := out["runId"].(string)
	fork := b.stands(again, "completed")
	told := b.events(again)
	if len(told) != len(events) || len(b.Requests("a")) != asked {
		t.Fatalf("%d events, not %d; %d calls", len(told), len(events), len(b.Requests("a")))
	}
	for i := range events {
		was, is := events[i], told[i]
		x, _ := json.Marshal(was["payload"])
		y, _ := json.Marshal(is["payload"])
		if x = bytes.ReplaceAll(x, []byte(run), []byte(again)); was["type"] != is["type"] || was["nodeId"] != is["nodeId"] || was["turnId"] != is["turnId"] || !bytes.Equal(x, y) {
			t.Errorf("%d: %s is told as %s", i, x, y)
		}
	}
	if diff := cmp.Diff(source["channels"], fork["channels"]); diff != "" {
		t.Error(diff)
	}
	at := 0
	for i, e := range events {
		if e["type"] == "node.completed" && e["nodeId"] == "b" {
			at = i + 1
			break
		}
	}
	body, _ := json.Marshal(map[string]any{"mode": "branch", "fromSeq": at})
	status, out = b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", string(body))
	if status != http.StatusCreated {
		t.Fatal(status, out)
	}
	branch := out["runId"].(string)
	b.stands(branch, "completed")
	if n := len(b.Requests("a")); n != asked+1 {
		t.Errorf("a was asked %d times more", n-asked)
	}
	was, is := payloadsOf(events, "conversation.opened")[0], payloadsOf(b.events(branch), "conversation.opened")[0]
	if was["conversationId"] != is["conversationId"] { // E45
		t.Error(was, is)
	}
}

// E51, R19: a replay of a conversation that was cut wherever its driver died is told to its
// end by whoever takes it up, and is not over before; where its source is gone by then it fails.
func TestWireTellsOnWhereAReplayWasCut(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk)
	run := b.began(`{"workflowId":"talk","inputs":{"seed":"hello"}}`)
	b.stands(run, "completed")
	_, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"replay"}`)
	again := out["runId"].(string)
	b.stands(again, "completed")
	whole := b.events(again)
	cut := func(after int) (id string, goes func()) {
		store, e := b.Server().Store(), stored(t, b.Server(), agentbus.RunID(again))
		id = string(agentbus.NewRunID())
		began, err := store.Open(t.Context(), agentbus.Execution{
			ID: agentbus.ExecutionID(id), Run: agentbus.RunID(id), Conversation: e.Conversation, Definition: e.Definition, Payer: e.Payer, Spec: e.Spec, Began: time.Now(),
		}, agentbus.Claim{Owner: "another", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range store.Events(t.Context(), agentbus.ExecutionID(again), -1) {
			if err != nil {
				t.Fatal(err)
			}
			if int(e.Position) < after {
				e.Execution, e.Run, e.Data = began.ID, began.Run, bytes.ReplaceAll(e.Data, []byte(again), []byte(id))
				_, err = store.AppendEvents(t.Context(), began.Lease, e)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if after < len(whole) {
			b.stands(id, map[bool]string{true: "pending", false: "running"}[after == 0])
		}
		return id, func() {
			if _, err := store.Open(t.Context(), began, agentbus.Claim{TakeOver: began.Lease.Epoch}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, after := range []int{0, 1, len(whole) / 2, len(whole) - 1, len(whole)} {
		id, goes := cut(after)
		goes()
		soon(t, "its end", func() bool { return stored(t, b.Server(), agentbus.RunID(id)).State == agentbus.RunDone })
		told := b.events(id)
		for i := range min(len(told), len(whole)) {
			x, _ := json.Marshal(whole[i]["payload"])
			y, _ := json.Marshal(told[i]["payload"])
			if !bytes.Equal(bytes.ReplaceAll(x, []byte(again), []byte(id)), y) || whole[i]["type"] != told[i]["type"] {
				t.Errorf("cut after %d, %d is told as %s %s", after, i, told[i]["type"], y)
			}
		}
		if len(told) != len(whole) {
			t.Errorf("cut after %d, it has %d events, not %d", after, len(told), len(whole))
		}
	}
	begun := map[string]func(){}
	for _, after := range []int{0, 3} {
		id, goes := cut(after)
		begun[id] = goes
	}
	told, ends := cut(len(whole)) // but for its halt
	if _, err := b.Server().Store().ForgetEvents(t.Context(), time.Now().Add(time.Hour), 1000); err != nil {
		t.Fatal(err)
	}
	ends()
	soon(t, "its end", func() bool { return stored(t, b.Server(), agentbus.RunID(told)).State == agentbus.RunDone })
	if n := len(b.events(told)); n != len(whole) {
		t.Errorf("told to its end, it has %d events", n)
	}
	for id, goes := range begun {
		goes()
		if snap := b.stands(id, "failed"); snap["error"].(map[string]any)["code"] != string(agentbus.CodeReplyExpired) {
			t.Error(snap)
		}
	}
}

// E52: a replay of a conversation has halted as its source has, for those too who
// read runs and not events.
func TestWireReplaysHaltAsTheirSource(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}, "broken": {Answers: []agentbustest.Answer{{Status: http.StatusBadRequest}}}}, talk+`
  fails: {participants: [{agent: a}, {agent: broken}], max_turns: 2}
`)
	for workflow, status := range map[string]string{"talk": "completed", "fails": "failed"} {
		run := b.began(`{"workflowId":"` + workflow + `","inputs":{"seed":"hello"}}`)
		b.stands(run, status)
		code, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"replay"}`)
		if code != http.StatusCreated {
			t.Fatal(code, out)
		}
		again := out["runId"].(string)
		b.stands(again, status)
		was, is := stored(t, b.Server(), agentbus.RunID(run)), stored(t, b.Server(), agentbus.RunID(again))
		x, _ := json.Marshal(was.Halt)
		y, _ := json.Marshal(is.Halt)
		if was.State != is.State || !bytes.Equal(x, y) {
			t.Errorf("%s %s is replayed as %s %s", was.State, x, is.State, y)
		}
	}
}

// E36, E37, E57: what a turn waits for is decided over the wire, on the credential
// of who decides, once; the run goes on by itself.
func TestWireDecidesForConversations(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk+gated)
	run := b.began(`{"workflowId":"gated","inputs":{"seed":"hello"}}`)
	snap := b.stands(run, "waiting-approval")
	if snap["currentNodeId"] != "b" {
		t.Error(snap)
	}
	path := "/v1/runs/" + run + "/interrupts/"
	for _, step := range []struct {
		node, body string
		want       int
	}{
		{"a", `{"resumeValue":{"action":"accept"}}`, http.StatusNotFound},
		{"b", `{"resumeValue":{"action":"dance"}}`, http.StatusUnprocessableEntity},
		{"b", `{"resumeValue":{"action":"accept"}}`, http.StatusOK},
	} {
		if status, out := b.do("alice", http.MethodPost, path+step.node, step.body); status != step.want {
			t.Error(step, status, out)
		}
	}
	b.stands(run, "completed")
	if s := payloadsOf(b.events(run), "node.suspended"); len(s) != 1 || s[0]["key"] != "b:0" || s[0]["interruptId"] != "b:0" {
		t.Error(s)
	}
	if status, _ := b.do("alice", http.MethodPost, path+"b", `{"resumeValue":{"action":"accept"}}`); status != http.StatusConflict {
		t.Error("again:", status)
	}
	run = b.began(`{"workflowId":"gated","inputs":{"seed":"no"}}`)
	b.stands(run, "waiting-approval")
	if status, out := b.do("alice", http.MethodPost, path[:len("/v1/runs/")]+run+"/interrupts/b", `{"resumeValue":{"action":"reject","reason":"no"}}`); status != http.StatusOK {
		t.Error(status, out)
	}
	if e, _ := b.stands(run, "failed")["error"].(map[string]any); e["code"] != "forbidden" { // E58: fail is the default here
		t.Error(e)
	}
}

// E57, R18: a run that lost the credential of its payer asks for it where it would go
// on, once, and goes on with the one that the answer comes with.
func TestWireAsksForCredentials(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, talk+gated)
	lost := func() string {
		run := b.began(`{"workflowId":"gated","inputs":{"seed":"hello"}}`)
		b.stands(run, "waiting-approval")
		i := waiting(b.T, b.Server())
		if _, err := b.Server().Resolve(b.Context(), i[len(i)-1].ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, By: "zoë"}); err != nil {
			b.Fatal(err) // without a credential, and none is sealed
		}
		if snap := b.stands(run, "waiting-input"); snap["currentNodeId"] != "b" {
			t.Error(snap)
		}
		return run
	}
	run := lost()
	asked := payloadsOf(b.events(run), "interrupt.requested")
	if data, _ := asked[len(asked)-1]["data"].(map[string]any); len(asked) != 2 || data["customKind"] != "auth-required" || asked[0]["key"] == asked[1]["key"] {
		t.Error(asked)
	}
	path := "/v1/runs/" + run + "/interrupts/b"
	if status, out := b.do("alice", http.MethodGet, "/v1/interrupts/"+run+":"+asked[1]["key"].(string), ""); status != http.StatusOK || out["token"] == "" {
		t.Error(status, out)
	}
	for _, step := range []struct {
		who, body string
		want      int
	}{{"bob", `{"resumeValue":{}}`, 404}, {"alice", `{}`, 400}, {"alice", `{"resumeValue":{}}`, 200}} {
		if status, out := b.do(step.who, http.MethodPost, path, step.body); status != step.want {
			t.Error(step, status, out)
		}
	}
	b.stands(run, "completed")
	if status, out := b.do("alice", http.MethodPost, path, `{"resumeValue":{}}`); status != http.StatusConflict {
		t.Error(status, out)
	}
	if resolved := payloadsOf(b.events(run), "interrupt.resolved"); len(resolved) != 2 || resolved[0]["interruptId"] != asked[1]["key"] {
		t.Error(resolved)
	}
	run = lost()
	if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/interrupts/b", `{"resumeValue":{"action":"reject"}}`); status != http.StatusOK {
		t.Error(status, out)
	}
	b.stands(run, "cancelled")
}

// E35: a run whose time is up tells the limit that it was given.
func TestWireTellsTheTimeout(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {Answers: []agentbustest.Answer{{Hang: true}}}, "b": {}},
		"conversations: {slow: {participants: [{agent: a}, {agent: b}], max_turns: 2}}\n")
	run := b.began(`{"workflowId":"slow","inputs":{"seed":"hello"},"configurable":{"runTimeoutMs":50}}`)
	b.stands(run, "failed")
	if got := payloadsOf(b.events(run), "cap.breached"); len(got) != 1 || got[0]["limit"] != 50.0 || got[0]["observed"].(float64) <= 50 {
		t.Errorf("%v", got)
	}
}

// E4, E55: a run is cancelled in the middle of a turn, and where it waits; its end
// says so, and comes once.
func TestWireCancelsConversations(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {Answers: []agentbustest.Answer{{Hang: true}}}, "b": {}}, `
conversations:
  slow: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  gated: {participants: [{agent: b, approval: true}, {agent: a}], max_turns: 2}
`)
	for workflow, waits := range map[string]string{"slow": "running", "gated": "waiting-approval"} {
		run := b.began(`{"workflowId":"` + workflow + `","inputs":{"seed":"hello"}}`)
		b.stands(run, waits)
		began := time.Now()
		if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/cancel", `{"reason":"enough"}`); status != http.StatusOK {
			t.Error(workflow, status, out)
		}
		b.stands(run, "cancelled")
		t.Log(workflow, time.Since(began))
		types := []string{}
		for _, e := range b.events(run) {
			types = append(types, e["type"].(string))
		}
		if got := strings.Join(types, " "); strings.Contains(got, "node.started") && workflow == "slow" && !strings.Contains(got, "node.cancelled") || !strings.HasSuffix(got, "run.cancelled") {
			t.Error(workflow, got)
		}
		if end := payloadsOf(b.events(run), "run.cancelled")[0]; end["reason"] != "enough" {
			t.Error(workflow, end)
		}
		if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/cancel", ""); status != http.StatusOK || out["status"] != "cancelled" {
			t.Error("again:", status, out)
		}
	}
}

// E4, R17, G14: a run is cancelled, or stopped, although the process that drives it says
// nothing: that one is fenced, and the run ends here.
func TestWireCancelsWhatASilentProcessDrives(t *testing.T) {
	t.Parallel()
	for how, ends := range map[string]func(b *wireBus, run string) error{
		"enough": func(b *wireBus, run string) error {
			status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/cancel", `{"reason":"enough"}`)
			if status != http.StatusOK {
				return fmt.Errorf("%d %v", status, out)
			}
			return nil
		},
		"stopped by its operator": func(b *wireBus, run string) error {
			_, err := b.Server().Stop(t.Context(), agentbus.RunID(run), "ops")
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, "conversations:\n"+gated)
			run := b.began(`{"workflowId":"gated","inputs":{"seed":"hello"}}`)
			b.stands(run, "waiting-approval")
			store := b.Server().Store()
			e, _, err := store.Execution(t.Context(), agentbus.ExecutionID(run))
			if err == nil {
				e, err = store.Open(t.Context(), e, agentbus.Claim{Owner: "another", TTL: time.Hour})
			}
			if err == nil {
				err = ends(b, run)
			}
			if err != nil {
				t.Fatal(err)
			}
			b.stands(run, "cancelled")
			if _, err := store.AppendEvents(t.Context(), e.Lease, agentbus.Event{Type: "agentbus.late"}); agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
				t.Errorf("the other process writes: %v", err)
			}
			if end := payloadsOf(b.events(run), "run.cancelled"); len(end) != 1 || end[0]["reason"] != how {
				t.Error(end)
			}
		})
	}
}

// E32, E40: any JSON is put in the place of a held decision, and of a moderator's one
// that names one of the others, or ends it; what is neither leaves it waiting.
func TestWireReplacesDecisions(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{
		"a":   {Answers: []agentbustest.Answer{{Text: `{"decision":true,"confidence":0.1}`}}},
		"mod": {Answers: []agentbustest.Answer{{Text: `{"next":"b","confidence":0.1}`}, {Text: "done"}}}, "b": {}, "c": {},
	}, `
conversations:
  judged: {participants: [{agent: a, decides: true}, {agent: b}], max_turns: 1}
  led: {participants: [{agent: mod}, {agent: b}, {agent: c}], plan: moderator, moderator: mod}
`)
	answers := func(run, node, decision string) int {
		status, _ := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/interrupts/"+node, `{"resumeValue":{"decision":`+decision+`}}`)
		return status
	}
	for _, decision := range []string{"false", "0", `"no"`, "[]"} {
		run := b.began(`{"workflowId":"judged","inputs":{"seed":"x"}}`)
		b.stands(run, "waiting-approval")
		if status := answers(run, "a", decision); status != http.StatusOK {
			t.Error(decision, status)
		}
		b.stands(run, "completed")
		decided := payloadsOf(b.events(run), "agent.decided")
		if got, _ := json.Marshal(decided[len(decided)-1]["decision"]); len(decided) != 2 || string(got) != decision {
			t.Errorf("%s: %v", decision, decided)
		}
	}
	run := b.began(`{"workflowId":"led","inputs":{"seed":"x"}}`)
	b.stands(run, "waiting-approval")
	for _, none := range []string{
		`5`, `null`, `{"kind":"x"}`, `{"kind":"ask-user","prompt":"x"}`, `{"kind":"next-worker","nextWorkerIds":["nobody"]}`,
		`{"kind":"next-worker","nextWorkerIds":["mod"]}`, `{"kind":"next-worker","nextWorkerIds":["b","c"]}`,
	} {
		if status := answers(run, "mod", none); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", none, status)
		}
	}
	if status := answers(run, "mod", `{"kind":"next-worker","nextWorkerIds":["c"]}`); status != http.StatusOK {
		t.Error(status)
	}
	b.stands(run, "completed")
	if n := [2]int{len(b.Requests("b")), len(b.Requests("c"))}; n != [2]int{0, 1} {
		t.Errorf("b and c were asked %d times", n)
	}
}

// E7, E30, E32: the threshold of a run is that of who began it; a decision below it
// waits, and another one may be put in its place.
func TestWireRatifiesDecisions(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {Answers: []agentbustest.Answer{{Text: `{"decision":"ship","confidence":0.6}`}}}, "b": {}}, `
conversations: {judged: {participants: [{agent: a, decides: true}, {agent: b}], max_turns: 2}}
`)
	run := b.began(`{"workflowId":"judged","inputs":{"seed":"x"},"configurable":{"escalationThreshold":0.5}}`)
	b.stands(run, "completed")
	run = b.began(`{"workflowId":"judged","inputs":{"seed":"x"}}`)
	b.stands(run, "waiting-approval")
	if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+"/interrupts/a", `{"resumeValue":{"decision":"hold"}}`); status != http.StatusOK {
		t.Fatal(status, out)
	}
	b.stands(run, "completed")
	events := b.events(run)
	decided := payloadsOf(events, "agent.decided")
	if len(decided) != 2 || decided[0]["confidence"] != 0.6 || decided[1]["decision"] != "hold" || decided[1]["confidence"] != nil {
		t.Error(decided)
	}
	if s := payloadsOf(events, "node.suspended"); len(s) != 1 || s[0]["threshold"] != 0.7 || s[0]["observed"] != 0.6 {
		t.Error(s)
	}
	if n := len(b.Requests("a")); n != 2 {
		t.Errorf("a was asked %d times", n)
	}
	status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"replay"}`)
	if status != http.StatusCreated {
		t.Fatal(status, out)
	}
	again := out["runId"].(string)
	b.stands(again, "completed")
	if payloadsOf(b.events(again), "replay.diverged") != nil {
		t.Error("the replay diverges")
	}
}
