package a2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// An executor is an agent of a2a-go's as a function.
type executor func(ctx context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool)

func (e executor) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		e(ctx, x, func(event sdk.Event) bool { return yield(event, nil) })
	}
}

func (e executor) Cancel(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		yield(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCanceled, nil), nil)
	}
}

// peer serves e as an A2A agent whose card names both bindings, the given one
// first, and returns its base.
func peer(t *testing.T, e executor, first sdk.TransportProtocol, streaming bool) string {
	t.Helper()
	h := a2asrv.NewHandler(e)
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	interfaces := []*sdk.AgentInterface{
		sdk.NewAgentInterface(srv.URL+"/rpc", sdk.TransportProtocolJSONRPC), sdk.NewAgentInterface(srv.URL+"/rest", sdk.TransportProtocolHTTPJSON),
	}
	if first == sdk.TransportProtocolHTTPJSON {
		interfaces[0], interfaces[1] = interfaces[1], interfaces[0]
	}
	card := &sdk.AgentCard{Name: "peer", SupportedInterfaces: interfaces, Capabilities: sdk.AgentCapabilities{Streaming: streaming}}
	if first == sdk.TransportProtocolHTTPJSON { // the other one is dead
		mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(h)))
	} else {
		mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(h))
	}
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	return srv.URL
}

// newBackend returns a backend of c, whose connections end with the test.
func newBackend(t *testing.T, c a2a.BackendConfig) *a2a.Backend {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	if c.Name == "" {
		c.Name = "peer"
	}
	if c.Transport == nil {
		c.Transport = transport
	}
	b, err := a2a.NewBackend(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func call(text string) *agentbus.Call {
	return &agentbus.Call{
		Lineage:  agentbus.Lineage{Run: "run_1", Turn: "run_1.t0.peer", Depth: 1, Speaker: "peer"},
		Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}},
	}
}

func collect(t *testing.T, b agentbus.Backend, c *agentbus.Call) (agentbus.Reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return agentbus.Collect(b.Call(ctx, c))
}

// said is the text of a message.
func said(m *sdk.Message) string {
	var s []string
	for _, p := range m.Parts {
		s = append(s, p.Text())
	}
	return strings.Join(s, "|")
}

// echo answers in three pieces of one artifact, and a task at the end that holds
// all of it.
func echo(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
	first := sdk.NewArtifactEvent(x, sdk.NewTextPart("you "))
	rest := sdk.NewArtifactUpdateEvent(x, first.Artifact.ID, sdk.NewTextPart("said: "))
	last := sdk.NewArtifactUpdateEvent(x, first.Artifact.ID, sdk.NewTextPart(said(x.Message)))
	last.LastChunk = true
	done := sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, nil)
	done.SetMeta("usage", map[string]any{"prompt_tokens": 3, "completion_tokens": 5})
	for _, e := range []sdk.Event{
		sdk.NewSubmittedTask(x, x.Message), sdk.NewStatusUpdateEvent(x, sdk.TaskStateWorking, sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("thinking"))),
		first, rest, last, done,
	} {
		if !emit(e) {
			return
		}
	}
}

// A38: whatever the binding, and whether the agent streams, the answer is the
// same, each piece once. A37: the first interface of the card is called.
func TestBackendOfSDKServer(t *testing.T) {
	t.Parallel()
	for _, binding := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON} {
		for name, streaming := range map[string]bool{"streaming": true, "unary": false} {
			t.Run(string(binding)+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t, a2a.BackendConfig{URL: peer(t, echo, binding, streaming)})
				got, err := collect(t, b, call("hello"))
				if err != nil {
					t.Fatal(err)
				}
				if got.Text != "you said: hello" || got.Finish != "stop" {
					t.Errorf("got %q, finish %q", got.Text, got.Finish)
				}
				if streaming && (got.Usage.InputTokens != 3 || got.Usage.OutputTokens != 5 || got.Reasoning != "thinking\n") {
					t.Errorf("got %+v", got)
				}
			})
		}
	}
}

// A37: an agent that serves 0.3 alone is not called as a model; the refusal says why.
func TestBackendOfOldAgent(t *testing.T) {
	t.Parallel()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"old","protocolVersion":"0.3.0","url":"http://`+r.Host+`/","preferredTransport":"JSONRPC","capabilities":{}}`)
	}))
	t.Cleanup(old.Close)
	_, err := collect(t, newBackend(t, a2a.BackendConfig{URL: old.URL}), call("hello"))
	got, ok := errors.AsType[*agentbus.Error](err)
	if !ok || got.Code != agentbus.CodeUnsupportedVersion || got.Explain.Observed != "a card without supportedInterfaces" || got.Explain.Next == "" {
		t.Errorf("got %v, %+v", err, got)
	}
}

// A38: an answer by a message alone, and one that stands in the last status only.
func TestBackendOfMessages(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]executor{
		"message": func(_ context.Context, _ *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
			emit(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("hi")))
		},
		"status": func(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
			emit(sdk.NewSubmittedTask(x, x.Message))
			emit(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("hi"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: peer(t, e, sdk.TransportProtocolJSONRPC, true)}), call("hello"))
			if err != nil || got.Text != "hi" {
				t.Errorf("got %q, %v", got.Text, err)
			}
		})
	}
}

// A38: data and links are carried, a file is refused by its name.
func TestBackendParts(t *testing.T) {
	t.Parallel()
	data := sdk.NewDataPart(map[string]any{"n": 1})
	file := sdk.NewRawPart([]byte{0xff, 0xd8})
	file.Filename, file.MediaType = "cat.jpg", "image/jpeg"
	for name, tt := range map[string]struct {
		part *sdk.Part
		want string
		code agentbus.Code
	}{
		"data": {part: data, want: `{"n":1}`},
		"link": {part: sdk.NewFileURLPart("https://a.example/x.pdf", "application/pdf"), want: "https://a.example/x.pdf"},
		"file": {part: file, code: agentbus.CodeUnsupportedContent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := executor(func(_ context.Context, _ *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
				emit(sdk.NewMessage(sdk.MessageRoleAgent, tt.part))
			})
			got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: peer(t, e, sdk.TransportProtocolJSONRPC, true)}), call("hello"))
			if got.Text != tt.want || agentbus.CodeOf(err) != tt.code {
				t.Fatalf("got %q, %v", got.Text, err)
			}
			if tt.code != "" && !strings.Contains(err.Error(), "cat.jpg") {
				t.Errorf("the file is not named: %v", err)
			}
		})
	}
}

// memory keeps sessions as a store would.
type memory struct {
	mu   sync.Mutex
	kept map[agentbus.Digest][]byte
}

func (m *memory) Session(_ context.Context, key agentbus.Digest) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, found := m.kept[key]
	return state, found, nil
}

func (m *memory) KeepSession(_ context.Context, key agentbus.Digest, state []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[agentbus.Digest][]byte{}
	}
	m.kept[key] = state
	return nil
}

// heard is an agent that answers, and remembers what it was sent.
type heard struct {
	mu       sync.Mutex
	messages []*sdk.Message
}

func (h *heard) execute(ctx context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
	h.mu.Lock()
	m := *x.Message
	m.ContextID = x.ContextID
	h.messages = append(h.messages, &m)
	h.mu.Unlock()
	echo(ctx, x, emit)
}

// A24: the second call of a participant goes to the context of the first, with
// what is new; K8: unless sessions are isolated. A13: another run has its own.
func TestBackendSessions(t *testing.T) {
	t.Parallel()
	for name, isolate := range map[string]bool{"kept": false, "isolated": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &heard{}
			b := newBackend(t, a2a.BackendConfig{URL: peer(t, h.execute, sdk.TransportProtocolJSONRPC, true), Sessions: &memory{}, IsolateSessions: isolate})
			c := call("one")
			if _, err := collect(t, b, c); err != nil {
				t.Fatal(err)
			}
			next := *c
			next.Lineage.Turn = "run_1.t2.peer"
			next.Messages = append(append([]agentbus.Message{}, c.Messages...), agentbus.Message{Role: agentbus.RoleAssistant, Content: "you said: one"}, agentbus.Message{Role: agentbus.RoleUser, Content: "two"})
			if _, err := collect(t, b, &next); err != nil {
				t.Fatal(err)
			}
			elsewhere := *call("three")
			elsewhere.Lineage.Run, elsewhere.Lineage.Turn = "run_2", "run_2.t0.peer"
			if _, err := collect(t, b, &elsewhere); err != nil {
				t.Fatal(err)
			}
			first, second, third := h.messages[0], h.messages[1], h.messages[2]
			if first.ContextID == third.ContextID {
				t.Error("two runs share a context")
			}
			if got := second.ContextID == first.ContextID; got == isolate {
				t.Errorf("the second message is in the context of the first: %v", got)
			}
			want := "two"
			if isolate {
				want = "one|[assistant] you said: one|two"
			}
			if got := said(second); got != want {
				t.Errorf("the second message says %q, want %q", got, want)
			}
			if !isolate && len(second.ReferenceTasks) != 1 {
				t.Errorf("the second message names no task before it")
			}
		})
	}
}

// A21: the id of the message is the same on every try of a turn, and another for
// another turn or agent. A36: lineage stands in its metadata, without a credential.
func TestBackendMessageIDs(t *testing.T) {
	t.Parallel()
	h := &heard{}
	url := peer(t, h.execute, sdk.TransportProtocolJSONRPC, true)
	b, other := newBackend(t, a2a.BackendConfig{URL: url}), newBackend(t, a2a.BackendConfig{URL: url, Name: "other"})
	c := call("hello")
	c.Lineage.Auth = agentbus.NewCredential("Bearer sk-secret-of-the-user")
	turn := *c
	turn.Lineage.Turn = "run_1.t1.peer"
	for _, one := range []struct {
		b *a2a.Backend
		c *agentbus.Call
	}{{b, c}, {b, c}, {b, &turn}, {other, c}} {
		if _, err := collect(t, one.b, one.c); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]int{}
	for _, m := range h.messages {
		ids[m.ID]++
	}
	if len(ids) != 3 || ids[h.messages[0].ID] != 2 {
		t.Errorf("got %v", ids)
	}
	meta, err := json.Marshal(h.messages[0].Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(meta), `"x-tangle-turnid":"run_1.t0.peer"`) || strings.Contains(string(meta), "sk-secret") {
		t.Errorf("metadata: %s", meta)
	}
}

// R22, C19, C28, C30 to C32: a task that waits is an Ask, and its resolution goes to
// the same task: in the words of x402 what pays, in those of Mentionable the rest.
func TestBackendAsks(t *testing.T) {
	t.Parallel()
	part := map[string]any{"mentionable": map[string]any{"policy": map[string]any{
		"kind": "payment_required", "message": "pay 5", "state": "s3cret", "data": map[string]any{"com.example.amount": 5},
	}}}
	x402 := map[string]any{"x402.payment.status": "payment-required", "x402.payment.required": map[string]any{"x402Version": 2}}
	const paid = `"x402.payment.payload":{"signature":"0x1"}`
	for name, tt := range map[string]struct {
		state  sdk.TaskState
		meta   map[string]any
		code   agentbus.Code
		kind   agentbus.AskKind
		answer string // what was said in the words of policy parts; "": a decision and a text
		told   string // the agent, but for when it was decided
	}{
		"clarification": {state: sdk.TaskStateInputRequired, code: agentbus.CodeInputRequired, kind: agentbus.AskClarification, told: "{}"},
		"auth":          {state: sdk.TaskStateAuthRequired, code: agentbus.CodeInputRequired, kind: agentbus.AskAuth},
		"payment": {
			state: sdk.TaskStateInputRequired, meta: part, code: agentbus.CodePaymentRequired, kind: agentbus.AskPolicy,
			told: `{"mentionable":{"policy_resolution":{"in_reply_to_state":"s3cret","outcome":"granted"}}}`,
		},
		"payment, answered": {
			state: sdk.TaskStateInputRequired, meta: part, code: agentbus.CodePaymentRequired, kind: agentbus.AskPolicy,
			answer: `{"in_reply_to_state":"s3cret","outcome":"granted","evidence":[1]}`,
			told:   `{"mentionable":{"policy_resolution":{"evidence":[1],"in_reply_to_state":"s3cret","outcome":"granted"}}}`,
		},
		"payment, paid by x402": {
			state: sdk.TaskStateInputRequired, meta: part, code: agentbus.CodePaymentRequired, kind: agentbus.AskPolicy,
			answer: `{"in_reply_to_state":"s3cret","outcome":"granted",` + paid + `}`,
			told:   `{"mentionable":{"policy_resolution":{"in_reply_to_state":"s3cret","outcome":"granted"}},` + paid + `}`,
		},
		"x402": {
			state: sdk.TaskStateInputRequired, meta: x402, code: agentbus.CodePaymentRequired, kind: agentbus.AskPolicy,
			answer: `{"outcome":"granted",` + paid + `}`, told: `{` + paid + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan map[string]any, 1)
			waits := executor(func(_ context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
				if x.StoredTask != nil {
					told <- x.Message.Metadata
					emit(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("thanks for "+said(x.Message)))))
					return
				}
				m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("which colour?"))
				m.Metadata = tt.meta
				emit(sdk.NewSubmittedTask(x, x.Message))
				emit(sdk.NewStatusUpdateEvent(x, tt.state, m))
			})
			b := newBackend(t, a2a.BackendConfig{URL: peer(t, waits, sdk.TransportProtocolJSONRPC, true), Sessions: &memory{}})
			c := call("paint")
			_, err := collect(t, b, c)
			e, ok := errors.AsType[*agentbus.Error](err)
			if !ok || e.Code != tt.code || e.Ask == nil || e.Ask.Kind != tt.kind {
				t.Fatalf("got %v", err)
			}
			if name == "payment" {
				var got any
				if json.Unmarshal(e.Ask.Policy, &got) != nil || !cmp.Equal(got, any(map[string]any{"kind": "payment_required", "message": "pay 5", "state": "s3cret", "data": map[string]any{"com.example.amount": 5.0}})) {
					t.Errorf("the policy part is %s", e.Ask.Policy)
				}
			}
			if tt.kind == agentbus.AskAuth {
				return // the SDK goes on with such a task by itself
			}
			again := *c
			again.Resolution = &agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: "blue", At: time.Now(), Resume: e.Ask.Resume, Policy: json.RawMessage(tt.answer)}
			got, err := collect(t, b, &again)
			if err != nil || got.Text != "thanks for blue" {
				t.Fatalf("got %q, %v", got.Text, err)
			}
			meta := <-told
			delete(meta, a2a.MetadataKey)
			if r, ok := meta["mentionable"].(map[string]any); ok {
				if p, ok := r["policy_resolution"].(map[string]any); ok {
					delete(p, "resolved_at")
				}
			}
			if meta == nil {
				meta = map[string]any{}
			}
			if raw, err := json.Marshal(meta); err != nil || string(raw) != tt.told {
				t.Errorf("the agent was told %s, want %s", raw, tt.told)
			}
		})
	}
}

// C17: a call that nobody wants any more for good cancels the task; G14, A11: any
// other end of a call leaves it.
func TestBackendLeaves(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause error
		early bool // before the agent has named its task
	}{"for good": {cause: agentbus.ErrForGood}, "for good, early": {agentbus.ErrForGood, true}, "for now": {cause: errors.New("the caller left")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			working, ended, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
			slow := executor(func(ctx context.Context, x *a2asrv.ExecutorContext, emit func(sdk.Event) bool) {
				defer close(ended)
				if tt.early {
					close(working)
					<-left
				}
				emit(sdk.NewSubmittedTask(x, x.Message))
				if !tt.early {
					close(working)
				}
				if tt.cause == agentbus.ErrForGood { //nolint:errorlint // it is the very one
					<-ctx.Done() // it is cancelled
					return
				}
				<-left
				emit(sdk.NewStatusUpdateEvent(x, sdk.TaskStateCompleted, nil))
			})
			b := newBackend(t, a2a.BackendConfig{URL: peer(t, slow, sdk.TransportProtocolJSONRPC, true)})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-working
				cancel(tt.cause)
				close(left)
			}()
			if _, err := agentbus.Collect(b.Call(ctx, call("work"))); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			<-ended
		})
	}
}
