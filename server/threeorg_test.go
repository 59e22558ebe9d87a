package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// A sibling is an agent of organisation C on the SDK of A2A. One with a price
// asks to be paid first, by a policy part and in the words of x402.
type sibling struct {
	name    string
	sells   bool
	hangs   bool
	refuses map[string]any // the policy part by which it does

	mu        sync.Mutex
	executed  int
	cancelled int
	metadata  []map[string]any // of the messages it was sent
	header    []http.Header
}

// asked is the policy part that it issues: what nobody on the way may edit.
func (s *sibling) asked() map[string]any {
	return map[string]any{
		"kind": "payment_required", "code": "x", "message": "10 cents & a <b>word</b>", "url": "https://pay.example/?a=1&b=2", "state": "state-of-" + s.name,
		"data": map[string]any{"org.example.offer": map[string]any{"n": 1.5, "list": []any{"é", true, nil}}}, "unknown": map[string]any{"z": 1.0, "a": 2.0},
	}
}

var offer = map[string]any{"x402Version": 1.0, "accepts": []any{map[string]any{"scheme": "exact", "maxAmountRequired": "100000", "resource": "https://pay.example/r"}}}

func (s *sibling) Execute(ctx context.Context, e *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		s.mu.Lock()
		s.executed++
		s.metadata = append(s.metadata, e.Message.Metadata)
		s.mu.Unlock()
		if e.StoredTask == nil && !yield(sdk.NewSubmittedTask(e, e.Message), nil) || !yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateWorking, nil), nil) {
			return
		}
		s.mu.Lock()
		hangs := s.hangs
		s.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return
		}
		said, _ := e.Message.Metadata["mentionable"].(map[string]any)
		resolution, _ := said["policy_resolution"].(map[string]any)
		if s.sells && (resolution["in_reply_to_state"] != "state-of-"+s.name || resolution["outcome"] != "granted") {
			m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("pay"))
			m.Metadata = map[string]any{"mentionable": map[string]any{"policy": s.asked()}, "x402.payment.status": "payment-required", "x402.payment.required": offer}
			yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateInputRequired, m), nil)
			return
		}
		if s.refuses != nil {
			m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("no"))
			m.Metadata = map[string]any{"mentionable": map[string]any{"policy": s.refuses}}
			yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateRejected, m), nil)
			return
		}
		if yield(sdk.NewArtifactEvent(e, sdk.NewTextPart("work of "+s.name)), nil) {
			yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateCompleted, s.paid()), nil)
		}
	}
}

// receipt is what an agent tells of a payment (C32).
func receipt(name string) any {
	return map[string]any{"success": true, "transaction": "0x" + name + "&<b>", "network": "base", "org.example": []any{1.5, nil}}
}

// paid is what s says when its task is done.
func (s *sibling) paid() *sdk.Message {
	if !s.sells {
		return nil
	}
	m := sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("thanks"))
	m.Metadata = map[string]any{"x402.payment.status": "payment-completed", "x402.payment.receipts": []any{receipt(s.name)}}
	return m
}

// checkReceipts fails t unless a finished task has the receipts of all payments, as
// they were written (C32).
func checkReceipts(t *testing.T, task gjson.Result, names ...string) {
	t.Helper()
	want := make([]any, len(names))
	for i, name := range names {
		want[i] = receipt(name)
	}
	meta := task.Get("status.message.metadata")
	if got := meta.Get("x402\\.payment\\.receipts").Value(); !cmp.Equal(any(want), got) || meta.Get("x402\\.payment\\.status").Str != "payment-completed" {
		t.Errorf("receipts %s", task.Get("status"))
	}
}

func (s *sibling) Cancel(_ context.Context, e *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		s.mu.Lock()
		s.cancelled++
		s.mu.Unlock()
		yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateCanceled, nil), nil)
	}
}

// serve serves s at a socket of its own.
func (s *sibling) serve(t *testing.T) (url string) {
	t.Helper()
	rpc := a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(s, a2asrv.WithLogger(slog.New(slog.DiscardHandler))))
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.HandleFunc("/rpc", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.header = append(s.header, r.Header.Clone())
		s.mu.Unlock()
		rpc.ServeHTTP(w, r)
	})
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&sdk.AgentCard{
		Name: s.name, Version: "1", Capabilities: sdk.AgentCapabilities{Streaming: true},
		SupportedInterfaces: []*sdk.AgentInterface{sdk.NewAgentInterface(srv.URL+"/rpc", sdk.TransportProtocolJSONRPC)},
	}))
	return srv.URL
}

// organisation starts the bus of one of them, with a store of its own.
func organisation(t *testing.T, yaml string, keys ...identity.StaticKey) (*server.Server, *httptest.Server) {
	t.Helper()
	yaml = fmt.Sprintf("store: {url: %q}\n", "sqlite:"+sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))) + yaml
	c, _, err := config.Parse("test", []byte(yaml), config.Source{Dev: true, Env: func(name string) (string, bool) { return "org-b-secret", name == "ORG_B" }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Version: "test", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	bus := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		bus.Close()
		closed(t, s)
	})
	return s, bus
}

// three is a chain of three organisations over sockets: a dispatcher without a bus
// (A), whose user asks the desk at B, which asks two agents at C at once.
type three struct {
	b, c     *server.Server
	at       *httptest.Server // B
	siblings []*sibling
	header   http.Header // of what is sent
	agent    string      // that it is sent to; "": desk
	url      string      // of the agents, where at is nil
	client   *http.Client
}

func newThree(t *testing.T, siblings ...*sibling) *three {
	t.Helper()
	user := identity.StaticKey{Principal: agentbus.Principal{ID: "user-123", Role: agentbus.PrincipalUser}, Secret: user}
	other := identity.StaticKey{Principal: agentbus.Principal{ID: "other", Role: agentbus.PrincipalUser}, Secret: agentbus.NewCredential("other-secret")}
	var ofC, ofB strings.Builder
	ofC.WriteString("agents:\n")
	for _, s := range siblings {
		fmt.Fprintf(&ofC, "  %s: {kind: a2a, url: %q, price: {call: 0.03}}\n", s.name, s.serve(t))
	}
	c, atC := organisation(t, ofC.String(), user, identity.StaticKey{Principal: agentbus.Principal{ID: "org-b", Role: agentbus.PrincipalUser, InterAgent: true}, Secret: agentbus.NewCredential("org-b-secret")})
	ofB.WriteString("agents:\n  desk: {kind: conversation, conversation: desk}\n")
	list := make([]string, len(siblings))
	for i, s := range siblings {
		fmt.Fprintf(&ofB, "  %s: {kind: a2a, url: %q, api_key_env: ORG_B, price: {call: 0.05}}\n", s.name, atC.URL+"/a2a/"+s.name)
		list[i] = "{agent: " + s.name + "}"
	}
	fmt.Fprintf(&ofB, "conversations:\n  desk: {plan: fan-out, max_turns: %d, participants: [%s]}\n", len(siblings), strings.Join(list, ", "))
	b, atB := organisation(t, ofB.String(), user, other)
	return &three{b: b, c: c, at: atB, siblings: siblings}
}

// send sends a message as the dispatcher does, and returns the answer as it came.
func (w *three) send(t *testing.T, key, id, task, metadata string) gjson.Result {
	t.Helper()
	return w.ask(t, key, id, task, "compare", metadata)
}

// ask is send with another text.
func (w *three) ask(t *testing.T, key, id, task, text, metadata string) gjson.Result {
	t.Helper()
	return w.post(t, key, fmt.Sprintf(`{"messageId":%q,"taskId":%q,"role":"ROLE_USER","parts":[{"text":%q}],"metadata":%s}`, id, task, text, metadata))
}

// in sends a text in a context.
func (w *three) in(t *testing.T, contextID, id, text string) gjson.Result {
	t.Helper()
	return w.post(t, "user-secret", fmt.Sprintf(`{"messageId":%q,"contextId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}`, id, contextID, text))
}

func (w *three) post(t *testing.T, key, message string) gjson.Result {
	t.Helper()
	agent := w.agent
	if agent == "" {
		agent = "desk"
	}
	return w.rpc(t, key, agent, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":%s}}`, message))
}

func (w *three) rpc(t *testing.T, key, agent, body string) gjson.Result {
	t.Helper()
	url, client := w.url, w.client
	if w.at != nil {
		url, client = w.at.URL+"/a2a/", w.at.Client()
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+agent, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, w.header)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("A2A-Version", "1.0")
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if e := resp.Body.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	return gjson.ParseBytes(raw)
}

// value is JSON as it is compared: what is equal has one digest.
func value(t *testing.T, raw string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

const fromSlack = `{"mentionable":{"agent_chain":{"hop":1,"max_hops":4},"recipient_capabilities":{"mention_relay":{"kind":"none"}},` +
	`"identity_evidence":[{"issuer":"https://slack.example","subject":"slack:T1/U1","proof":{"type":"signed-attestation","value":"secret-proof"}}]}}`

// charges returns what each agent was charged for in a run, and by whom.
func charges(t *testing.T, s *server.Server, run agentbus.RunID) map[string]row {
	t.Helper()
	calls, err := s.Store().Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	out, keys := map[string]row{}, map[agentbus.TurnKey]bool{}
	for _, c := range calls {
		if c.State != agentbus.CallSettled || c.Cost == 0 {
			continue
		}
		if keys[c.TurnKey] {
			t.Errorf("%s is charged twice for %s", c.Agent, c.TurnKey.ID)
		}
		keys[c.TurnKey] = true
		out[c.Agent] = row{c.Agent, c.Depth, c.Payer, c.Cost + out[c.Agent].Cost}
	}
	return out
}

const answerC2 = `{"mentionable":{"policy_resolution":{"in_reply_to_state":"state-of-c2","outcome":"granted","evidence":{"receipt":"r-1"}}},` +
	`"x402.payment.status":"payment-submitted","x402.payment.payload":{"x402Version":1,"signature":"0xabc"}}`

// C5 to C7, C19, C31, C32, R20, R21, X21, X22, X26: a chain of three
// organisations. The payment that one of two siblings asks for surfaces at the
// dispatcher as it was issued; its resolution goes to that sibling alone, once;
// the other's work is kept, every agent has its hop, and one user pays, once for
// each.
func TestThreeOrganisations(t *testing.T) {
	t.Parallel()
	w := newThree(t, &sibling{name: "c1"}, &sibling{name: "c2", sells: true})
	got := w.send(t, "user-secret", "m1", "", fromSlack)
	task := got.Get("result.task")
	meta := task.Get("status.message.metadata")
	if task.Get("status.state").Str != string(sdk.TaskStateInputRequired) {
		t.Fatal(got.Raw)
	}
	if diff := cmp.Diff(any(w.siblings[1].asked()), value(t, meta.Get("mentionable.policy").Raw)); diff != "" { // X21
		t.Errorf("the policy part (-issued +surfaced):\n%s", diff)
	}
	if diff := cmp.Diff(any(offer), value(t, meta.Get("x402\\.payment\\.required").Raw)); diff != "" || meta.Get("x402\\.payment\\.status").Str != "payment-required" { // C32
		t.Errorf("the offer (-issued +surfaced):\n%s", diff)
	}
	var issued bytes.Buffer
	enc := json.NewEncoder(&issued)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w.siblings[1].asked()); err != nil {
		t.Fatal(err)
	}
	if from := meta.Get("agentbus.surfaced.0"); from.Get("from").Str != "c2" || from.Get("digest").Str != fmt.Sprintf("sha-256:%x", sha256.Sum256(bytes.TrimSpace(issued.Bytes()))) { // C19, X21
		t.Errorf("surfaced %s", from)
	}
	if strings.Contains(got.Raw, "secret-proof") { // C20
		t.Error("the evidence is shown")
	}
	id := task.Get("id").Str
	for name, refused := range map[string]gjson.Result{
		"another state (C31)": w.send(t, "user-secret", "m2", id, strings.ReplaceAll(answerC2, "state-of-c2", "state-of-c1")),
		"another user (X22)":  w.send(t, "other-secret", "m3", id, answerC2),
	} {
		if !refused.Get("error").Exists() {
			t.Errorf("%s: %s", name, refused.Raw)
		}
	}
	var wins int
	var mu sync.Mutex
	var racing sync.WaitGroup
	for i := range 3 { // X22: one winner
		racing.Go(func() {
			done := w.send(t, "user-secret", fmt.Sprint("r", i), id, answerC2)
			mu.Lock()
			defer mu.Unlock()
			if text := done.Get("result.task.artifacts.0.parts.0.text").Str; strings.Contains(text, "work of c1") && strings.Contains(text, "work of c2") {
				wins++
				checkReceipts(t, done.Get("result.task"), "c2")
			} else if !done.Get("error").Exists() {
				t.Errorf("%s", done.Raw)
			}
		})
	}
	racing.Wait()
	if again := w.send(t, "user-secret", "m4", id, answerC2); wins != 1 || !again.Get("error").Exists() {
		t.Errorf("%d won; and later: %s", wins, again.Raw)
	}
	c1, c2 := w.siblings[0], w.siblings[1]
	if c1.executed != 1 || c2.executed != 2 { // X26
		t.Fatalf("executed %d and %d times", c1.executed, c2.executed)
	}
	for _, m := range slices.Concat(c1.metadata, c2.metadata) {
		said, _ := m["mentionable"].(map[string]any)
		if diff := cmp.Diff(any(map[string]any{"hop": 2.0, "max_hops": 4.0, "is_final": false}), said["agent_chain"]); diff != "" {
			t.Errorf("hop:\n%s", diff)
		}
	}
	last := c2.metadata[1]
	resolution, _ := last["mentionable"].(map[string]any)["policy_resolution"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"receipt": "r-1"}, resolution["evidence"]); diff != "" || last["x402.payment.status"] != "payment-submitted" ||
		!cmp.Equal(last["x402.payment.payload"], any(map[string]any{"x402Version": 1.0, "signature": "0xabc"})) {
		t.Errorf("C2 was told %v", last)
	}
	for _, h := range slices.Concat(c1.header, c2.header) {
		if h.Get("X-Tangle-Forwarded-Depth") != "3" {
			t.Errorf("depth %q", h.Values("X-Tangle-Forwarded-Depth"))
		}
	}
	run := agentbus.RunID(id)
	for name, want := range map[*server.Server]map[string]row{
		w.b: {"c1": {"c1", 2, "user-123", 50_000}, "c2": {"c2", 2, "user-123", 50_000}},
		w.c: {"c1": {"c1", 2, "user-123", 30_000}, "c2": {"c2", 2, "user-123", 60_000}}, // two messages
	} {
		if diff := cmp.Diff(want, charges(t, name, run)); diff != "" {
			t.Errorf("charges (-want +got):\n%s", diff)
		}
	}
}

// C19, C28, C31: what two siblings ask surfaces side by side, and each resolution
// goes to the one whose state it names; the other goes on waiting as it did.
func TestTwoSiblingsAsk(t *testing.T) {
	t.Parallel()
	w := newThree(t, &sibling{name: "c1", sells: true}, &sibling{name: "c2", sells: true})
	got := w.send(t, "user-secret", "m1", "", fromSlack).Get("result.task")
	states := func(task gjson.Result) (all []string) {
		meta := task.Get("status.message.metadata")
		for _, p := range append(meta.Get("mentionable.policy.#.state").Array(), meta.Get("mentionable.policy.state")) {
			if p.Exists() {
				all = append(all, p.Str)
			}
		}
		return all
	}
	if diff := cmp.Diff([]string{"state-of-c1", "state-of-c2"}, states(got)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	id := got.Get("id").Str
	second := w.send(t, "user-secret", "m2", id, answerC2).Get("result.task")
	if diff := cmp.Diff([]string{"state-of-c1"}, states(second)); diff != "" {
		t.Fatalf("%s\n(-want +got):\n%s", second, diff)
	}
	if used := w.send(t, "user-secret", "m3", id, answerC2); !used.Get("error").Exists() { // X22
		t.Errorf("again: %s", used)
	}
	third := w.send(t, "user-secret", "m4", id, strings.ReplaceAll(answerC2, "state-of-c2", "state-of-c1"))
	if text := third.Get("result.task.artifacts.0.parts.0.text").Str; !strings.Contains(text, "work of c1") || !strings.Contains(text, "work of c2") {
		t.Errorf("%s", third)
	}
	if a, b := w.siblings[0].executed, w.siblings[1].executed; a != 2 || b != 2 {
		t.Errorf("executed %d and %d times", a, b)
	}
	checkReceipts(t, third.Get("result.task"), "c1", "c2")
	read := w.rpc(t, "user-secret", "desk", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":%q}}`, id))
	checkReceipts(t, read.Get("result"), "c1", "c2")
	replays, err := w.b.Replay(t.Context(), agentbus.RunID(id)) // R23
	if err != nil || len(replays) != 1 || replays[0].Divergence != nil {
		t.Errorf("replay: %v %+v", err, replays)
	}
}

// hang starts a fan-out in which c2 works on and on, and returns what ends the
// wait of the one who asks, once c1 has answered.
func (w *three) hang(t *testing.T, ask func(context.Context)) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { ask(ctx) })
	soon(t, "both siblings at work", func() bool {
		for _, s := range w.siblings {
			s.mu.Lock()
			n := s.executed
			s.mu.Unlock()
			if n == 0 {
				return false
			}
		}
		calls, err := w.b.Store().Calls(t.Context(), "run_x")
		return err == nil && slices.ContainsFunc(calls, func(c agentbus.CallRecord) bool { return c.Agent == "c1" && c.State == agentbus.CallSettled })
	})
	return func() { cancel(); asking.Wait() }
}

// cancelled waits until c2 was told that nobody waits for it, and reports what the
// ledger of B has of it: it is no longer executed, and nothing settles after.
func (w *three) cancelled(t *testing.T) {
	t.Helper()
	c2 := w.siblings[1]
	soon(t, "the cancel of c2's task", func() bool { c2.mu.Lock(); defer c2.mu.Unlock(); return c2.cancelled == 1 })
	states := func() (all []agentbus.CallState) {
		calls, err := w.b.Store().Calls(t.Context(), "run_x")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			if c.Agent == "c2" {
				all = append(all, c.State)
			}
		}
		return all
	}
	soon(t, "the end of c2's call", func() bool { return !slices.Contains(states(), agentbus.CallExecuting) })
	if got := states(); len(got) != 1 || got[0] != agentbus.CallVoided && got[0] != agentbus.CallSettled {
		t.Errorf("c2's call is %v", got)
	}
}

// C17, X27: a caller that leaves in the middle of a fan-out ends it: the tasks of
// its branches are cancelled, and their calls are over. Whoever sends the same
// turn again has the finished branch kept and the other asked anew.
func TestX27ACallerLeavesAFanOut(t *testing.T) {
	t.Parallel()
	w := newThree(t, &sibling{name: "c1"}, &sibling{name: "c2", hangs: true})
	ask := func(ctx context.Context) (status int, body string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.at.URL+"/v1/chat/completions", strings.NewReader(`{"model":"desk","messages":[{"role":"user","content":"compare"}]}`))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		r.Header.Set("X-Tangle-RunId", "run_x")
		r.Header.Set("X-Tangle-TurnId", "run_x.t0.desk")
		resp, err := w.at.Client().Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	leave := w.hang(t, func(ctx context.Context) { ask(ctx) })
	leave()
	w.cancelled(t)
	c1, c2 := w.siblings[0], w.siblings[1]
	c2.mu.Lock()
	c2.hangs = false
	c2.mu.Unlock()
	soon(t, "the same turn again", func() bool {
		status, body := ask(t.Context())
		if status != http.StatusOK {
			t.Log(status, body)
		}
		return status == http.StatusOK && strings.Contains(body, "work of c1") && strings.Contains(body, "work of c2")
	})
	if c1.executed != 1 || c2.executed != 2 {
		t.Errorf("executed %d and %d times", c1.executed, c2.executed)
	}
}

// C17, R16: the deadline of a run does the same.
func TestX27TheDeadlineOfAFanOut(t *testing.T) {
	t.Parallel()
	w := newThree(t, &sibling{name: "c1"}, &sibling{name: "c2", hangs: true})
	leave := w.hang(t, func(context.Context) {
		got := converse(t, w.b, server.Start{Conversation: "desk", Seed: "compare", Run: "run_x", Timeout: 12 * time.Second, Authorization: agentbus.NewCredential("Bearer user-secret")})
		if got.Halt.Kind != agentbus.HaltDeadline {
			t.Errorf("halted with %+v", got.Halt)
		}
	})
	defer leave()
	w.cancelled(t)
}
