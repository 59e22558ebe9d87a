//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/woptest"
	"github.com/agentbus/agentbus/openwop"
)

// A stage is a Starter whose conversations are written by the test.
type stage struct {
	diverged *openwop.Divergence
	cancels  func() // what becomes of a run that is cancelled; nil: nothing
}

func (s *stage) Workflow(string) *openwop.Workflow          { return nil }
func (s *stage) Start(context.Context, openwop.Start) error { return nil }
func (s *stage) Cancel(context.Context, agentbus.RunID, string, string) error {
	if s.cancels != nil {
		s.cancels()
	}
	return nil
}

func (s *stage) Overtake(context.Context, agentbus.RunID) error { return nil }

func (s *stage) Replay(context.Context, agentbus.ExecutionID) (*openwop.Divergence, error) {
	return s.diverged, nil
}

func (s *stage) Resume(context.Context, agentbus.RunID, agentbus.Credential) error { return nil }

func (s *stage) Resolve(context.Context, agentbus.InterruptID, agentbus.Resolution, agentbus.Credential) error {
	return nil
}

// A refusing Starter takes nothing up: a run that is being begun is left to who does,
// as a bus leaves it, and refused once all who ask for it have its key.
type refusing struct {
	stage

	begun sync.Map
	asked chan struct{} // closed when all have it
}

// A countedStore tells when so many keys were claimed.
type countedStore struct {
	openwop.Store

	keys  atomic.Int32
	asked chan struct{}
}

const twins = 8

func (r *countedStore) ClaimRunKey(ctx context.Context, k agentbus.RunKey, at time.Time) (agentbus.RunKey, bool, error) {
	known, claimed, err := r.Store.ClaimRunKey(ctx, k, at)
	if r.keys.Add(1) == twins {
		close(r.asked)
	}
	return known, claimed, err
}

func (r *refusing) Workflow(name string) *openwop.Workflow { return &openwop.Workflow{ID: name} }

func (r *refusing) Start(_ context.Context, st openwop.Start) error {
	if _, twin := r.begun.LoadOrStore(st.Run, true); twin {
		return nil
	}
	defer r.begun.Delete(st.Run)
	<-r.asked
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "no"}
}

// E6: twins of a run that is refused are refused with it, and its key is free.
func TestTwinsOfARefusedRun(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	b := newBus(t, func(c *openwop.Config) {
		c.Store, c.Conversations = &countedStore{Store: c.Store, asked: asked}, &refusing{asked: asked}
	})
	begin := func(seed string) (int, object) {
		status, out, _ := b.do(http.MethodPost, "/v1/runs", object{"workflowId": "talk", "inputs": object{"seed": seed}}, "Idempotency-Key", "k")
		return status, out
	}
	var asking sync.WaitGroup
	for range twins {
		asking.Go(func() {
			if status, out := begin("hello"); status != http.StatusBadRequest {
				t.Errorf("a twin: %d %v", status, out)
			}
		})
	}
	asking.Wait()
	if status, out := begin("mended"); status != http.StatusBadRequest {
		t.Errorf("another body under its key: %d %v", status, out)
	}
}

// spoken writes a conversation of alice's that has ended.
func (b *bus) spoken(events ...agentbus.Event) string {
	b.Helper()
	e := b.speaking()
	b.falls(e, events...)
	return string(e.ID)
}

// speaking begins a conversation of alice's.
func (b *bus) speaking() agentbus.Execution {
	b.Helper()
	id := agentbus.ExecutionID(agentbus.NewRunID())
	e, err := b.store.Open(b.Context(), agentbus.Execution{ID: id, Run: agentbus.RunID(id), Conversation: "talk", Payer: "alice", Began: time.Now()}, agentbus.Claim{Owner: "o", TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// falls ends a conversation, with the events that it has had.
func (b *bus) falls(e agentbus.Execution, events ...agentbus.Event) {
	b.Helper()
	for i := range events {
		events[i].Execution, events[i].Run, events[i].At = e.ID, e.Run, time.Now()
	}
	if err := b.store.Halt(b.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltDone}, events...); err != nil {
		b.Fatal(err)
	}
}

// E4: who cancels a run that ends by itself in that moment reads that it has ended, and
// not that this was done.
func TestCancelAsItEnds(t *testing.T) {
	t.Parallel()
	s := &stage{}
	b := newBus(t, func(c *openwop.Config) { c.Conversations = s })
	e := b.speaking()
	s.cancels = func() { b.falls(e, spokenEvents()...) }
	status, out, _ := b.do(http.MethodPost, "/v1/runs/"+string(e.ID)+"/cancel", nil)
	b.refused("as it ends", http.StatusConflict, "run_already_terminal", status, out)
}

// spokenEvents are those of a turn with reasoning and a tool.
func spokenEvents() []agentbus.Event {
	node := func(kind, data string) agentbus.Event {
		return agentbus.Event{Type: kind, Node: "a", Data: json.RawMessage(data)}
	}
	returned := node(agentbus.EventAgentToolReturned, `{"agentId":"host:a","toolName":"a:x","callId":"1","toolId":"a:x","outcome":{},"result":{},"durationMs":7,"status":"ok"}`)
	returned.CauseBack = 1
	return []agentbus.Event{
		{Type: agentbus.EventRunStarted, Data: json.RawMessage(`{"workflowId":"talk"}`)},
		node(agentbus.EventNodeStarted, `{"nodeId":"a","typeId":"vendor.agentbus.participant","attempt":0}`),
		node(agentbus.EventAgentReasoned, `{"agentId":"host:a","reasoning":"so  <é>"}`),
		node(agentbus.EventAgentToolCalled, `{"agentId":"host:a","toolName":"a:x","callId":"1","toolId":"a:x","inputs":{"b":1.0,"a":[]},"arguments":{"b":1.0,"a":[]}}`),
		returned,
		node(agentbus.EventNodeCompleted, `{"nodeId":"a","outputs":{}}`),
		{Type: agentbus.EventRunCompleted, Data: json.RawMessage(`{"durationMs":9,"outputs":{}}`)},
	}
}

// E51, E53: a conversation is told again byte by byte, reasoning and inputs of tools
// too; where driving it again came to something else, that is told in its place, and
// the rest follows.
func TestConversationIsToldAgain(t *testing.T) {
	t.Parallel()
	for name, diverged := range map[string]*openwop.Divergence{
		"the same": nil, "otherwise": {At: 3, Kind: "output"}, "more than there was": {At: 99, Kind: "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBus(t, func(c *openwop.Config) { c.Conversations = &stage{diverged: diverged} })
			s, run := woptest.Load(t), b.spoken(spokenEvents()...)
			status, out, _ := b.do(http.MethodPost, "/v1/runs/"+run+":fork", object{"mode": "replay"})
			if status != http.StatusCreated {
				t.Fatal(status, out)
			}
			again := out["runId"].(string)
			b.settle(again)
			was, is := b.events(run), b.events(again)
			s.Events(t, is)
			if diverged == nil != !slices.Contains(typesOf(is, ""), "replay.diverged") {
				t.Error(typesOf(is, ""))
			}
			for i, e := range is {
				if e["type"] != "replay.diverged" {
					continue
				}
				if at := min(int(diverged.At), len(was)-1); i != at || e["payload"].(object)["divergenceKind"] != diverged.Kind || e["payload"].(object)["sourceRunId"] != run {
					t.Errorf("event %d: %v", i, e)
				}
				is = slices.Delete(is, i, i+1)
				break
			}
			if len(was) != len(is) {
				t.Fatalf("%d events are told as %d", len(was), len(is))
			}
			for i := range was {
				x, _ := json.Marshal(was[i]["payload"])
				y, _ := json.Marshal(is[i]["payload"])
				if string(x) != string(y) || was[i]["type"] != is[i]["type"] {
					t.Errorf("%d: %s is told as %s", i, x, y)
				}
			}
		})
	}
}

// E4: what is claimed is true: without the conformance profile there are no fixtures
// and none of the nodes that only they have.
func TestDiscoveryIsTrue(t *testing.T) {
	t.Parallel()
	b, s := newBus(t, func(c *openwop.Config) { c.Conformance, c.Conversations = false, &stage{} }), woptest.Load(t)
	_, doc, head := b.do(http.MethodGet, "/.well-known/openwop", nil, "Authorization", "")
	s.Check(t, "capabilities.schema.json", any(doc))
	for _, member := range []string{"fixtures", "conformance", "multiAgent"} {
		if doc[member] != nil {
			t.Errorf("%s is claimed: %v", member, doc[member])
		}
	}
	agents := doc["agents"].(object)
	wrapped := doc["capabilities"].(object)
	for _, member := range []string{"limits", "conversationPrimitive", "replay", "multiAgent"} { // where older clients look
		if !cmp.Equal(wrapped[member], doc[member]) {
			t.Errorf("capabilities.%s is %v, and %v at the root", member, wrapped[member], doc[member])
		}
	}
	seed := wrapped["agents"].(object) // where clients of RFC 0002 look (E1)
	for _, flag := range []string{"supported", "reasoningEvents", "toolEvents", "handoffEvents", "decisionEvents"} {
		if seed[flag] != true {
			t.Errorf("capabilities.agents.%s: %v", flag, seed[flag])
		}
	}
	if seed["memoryBackends"] != nil || agents["dispatch"] != nil || agents["manifestRuntime"] != nil || agents["supported"] != true || head.Get("Cache-Control") != "public, max-age=300" {
		t.Error(agents, head)
	}
}

// E11: what the wire has no word for is called agentbus.*, and no name of ours is
// one that the wire keeps for itself.
func TestVendorNames(t *testing.T) {
	t.Parallel()
	vendor, kept := regexp.MustCompile(`^[a-z][\w-]*(\.[\w-]+)+$`), regexp.MustCompile(`^(openwop|core|community|vendor|private|local)\.`)
	for _, name := range []string{agentbus.EventEscalationSuppressed, agentbus.EventJoined, agentbus.EventMentionRefused, agentbus.EventRunWaiting} {
		if !vendor.MatchString(name) || kept.MatchString(name) || name[:9] != "agentbus." {
			t.Error(name)
		}
	}
	f := openwop.NewFold("run_a", "w")
	before, _ := f.Snapshot()
	f.Add(agentbus.Event{Position: 0, Type: "acme.future", Data: json.RawMessage(`{"nodeId":"a"}`)}) // a reader ignores it
	if after, _ := f.Snapshot(); string(after) != string(before) {
		t.Errorf("%s became %s", before, after)
	}
}

// E71: supervisors and mock agents that none is pinned to are the host's; a
// supervisor without a plan has one worker work, and ends.
func TestNodeTypes(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-dispatch-loop")
	snap := b.settle(run)
	events := b.events(run)
	if snap["runOrchestrator"].(object)["agentId"] != "host:supervisor:orchestrator" {
		t.Error(snap["runOrchestrator"])
	}
	var kinds []string
	for _, e := range events {
		if e["type"] == "runOrchestrator.decided" {
			kinds = append(kinds, e["payload"].(object)["decision"].(object)["kind"].(string))
		}
	}
	if !slices.Equal(kinds, []string{"next-worker", "terminate"}) {
		t.Error(kinds)
	}
	b = newBus(t)
	if err := b.host.AddMockAgent("conformance-mock", `{"mockReasoning":{"summary":"so"},"mockDecision":{"decision":{},"confidence":1}}`); err != nil {
		t.Fatal(err)
	}
	run = b.start("conformance-mock")
	b.settle(run)
	if p := first(b.events(run), "agent.reasoned"); p["agentId"] != "host:mock-agent:mock" {
		t.Errorf("%v", p)
	}
	run = b.start("conformance-message-reducer")
	b.settle(run)
	var written []string
	for _, e := range b.events(run) {
		if e["type"] == "channel.written" {
			written = append(written, e["payload"].(object)["value"].(object)["messageId"].(string))
		}
	}
	if !slices.Equal(written, []string{"m1", "m1", "m2"}) {
		t.Error(written)
	}
}
