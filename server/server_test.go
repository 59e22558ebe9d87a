package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == superviseArg {
		os.Exit(execagent.Supervise(os.Args[2:]))
	}
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// An agent is an OpenAI-compatible server that remembers what it was sent.
type agent struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
}

// newAgent answers "<name> <n>" with a usage of 10 and 5 tokens.
func newAgent(t *testing.T, name string) *agent {
	t.Helper()
	a := &agent{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r.Header.Clone())
		n := len(a.seen)
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s %d"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, name, n)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *agent) headers() []http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]http.Header(nil), a.seen...)
}

var user = agentbus.NewCredential("user-secret")

// open builds a bus of a configuration, closed with the test.
func open(t *testing.T, yaml string) *server.Server {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "bus.db"), yaml)
}

// openAt is open with the store at path.
func openAt(t *testing.T, path, yaml string) *server.Server {
	t.Helper()
	yaml = fmt.Sprintf("store: {url: %q}\n", "sqlite:"+sqlitetest.Prepare(t, path)) + yaml
	c, _, err := config.Parse("test", []byte(yaml), config.Source{Dev: true, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Version: "test", Keys: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "user-123", Role: agentbus.PrincipalUser}, Secret: user},
		{Principal: agentbus.Principal{ID: "other", Role: agentbus.PrincipalUser}, Secret: agentbus.NewCredential("other-secret")},
		{Principal: agentbus.Principal{ID: "sandbox", Role: agentbus.PrincipalUser, InterAgent: true}, Secret: agentbus.NewCredential("sandbox-secret")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// closed closes a bus at the end of its test, once its runs have been replayed
// (R23). The test may have closed it before.
func closed(t *testing.T, s *server.Server) {
	t.Helper()
	if _, err := s.Store().StoppedRuns(context.WithoutCancel(t.Context())); err == nil {
		agentbustest.Replay(t, s)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

const twoAgents = `
agents:
  a: {kind: openai, url: %q, price: {call: 0.01}}
  b: {kind: openai, url: %q, price: {call: 0.02}}
  inner: {kind: conversation, conversation: inner}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  outer: {participants: [{agent: a}, {agent: inner}], max_turns: 2}
  owned: {participants: [{agent: a}, {agent: b, auth: agent-owned}], max_turns: 2}
  rich:  {participants: [{agent: a}, {agent: b}], max_turns: 4, budget_usd: 0.03}
`

// converse drives a conversation to its halt.
func converse(t *testing.T, s *server.Server, st server.Start) *conversation.Result {
	t.Helper()
	for e, err := range s.Converse(t.Context(), st, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Result != nil {
			return e.Result
		}
	}
	t.Fatal("no result")
	return nil
}

// row is what a test asks of a call.
type row struct {
	Agent string
	Depth int
	Payer agentbus.Payer
	Cost  agentbus.Micros
}

func rows(t *testing.T, s *server.Server, run agentbus.RunID) (out []row) {
	t.Helper()
	calls, err := s.Store().Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		out = append(out, row{c.Agent, c.Depth, c.Payer, c.Cost})
	}
	return out
}

// TestNestedConversation: R7, a conversation as an agent keeps the run, nests its
// turns, and the origin pays for every hop; P9, a driver in the bus counts once.
func TestNestedConversation(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"))
	r := converse(t, s, server.Start{Conversation: "outer", Seed: "go", Authorization: agentbus.NewCredential("Bearer user-secret")})
	want := []row{
		{"a", 1, "user-123", 10_000},
		{"inner", 1, "user-123", 0},
		{"a", 2, "user-123", 10_000},
		{"b", 2, "user-123", 20_000},
	}
	if diff := cmp.Diff(want, rows(t, s, r.Run)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	calls, err := s.Store().Calls(t.Context(), r.Run)
	if err != nil || calls[0].Usage.Estimated || calls[0].Usage.InputTokens != 10 {
		t.Errorf("the usage that the agent told: %+v, %v", calls[0].Usage, err)
	}
	if r.Spent != 40_000 {
		t.Errorf("the run spent %s, the ledger charged 0.040000", r.Spent.USD()) // R8: summed once
	}
	h := b.headers()[0]
	for name, want := range map[string]string{
		agentbus.HeaderForwardedDepth: "2", agentbus.HeaderRunID: string(r.Run), agentbus.HeaderTurnID: string(r.Run) + ".t1.b",
		agentbus.HeaderParentTurnID: string(r.Run) + ".t1.inner", agentbus.HeaderForwardedAuthorization: "Bearer user-secret", "Authorization": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	executions, err := s.Store().Executions(t.Context(), r.Run)
	if err != nil || len(executions) != 2 || executions[1].Parent != r.Run.Turn(1, "inner") {
		t.Errorf("executions %+v, %v", executions, err)
	}
}

// TestAgentOwned: P22, an agent that pays for itself gets no credential, and its
// calls are not on the origin's bill.
func TestAgentOwned(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"))
	r := converse(t, s, server.Start{Conversation: "owned", Seed: "go", Authorization: agentbus.NewCredential("Bearer user-secret")})
	want := []row{{"a", 1, "user-123", 10_000}, {"b", 1, "agent:b", 20_000}}
	if diff := cmp.Diff(want, rows(t, s, r.Run)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	calls, err := s.Store().Calls(t.Context(), r.Run)
	if err != nil || len(calls) != 2 || !slices.Contains(calls[1].Notes, "agent_owned") || slices.Contains(calls[0].Notes, "agent_owned") {
		t.Errorf("the record does not show it: %+v, %v", calls, err)
	}
	if got := b.headers()[0].Get(agentbus.HeaderForwardedAuthorization); got != "" {
		t.Errorf("the agent that pays for itself got %q", got)
	}
	if got := b.headers()[0].Get(agentbus.HeaderForwardedDepth); got != "1" {
		t.Errorf("depth %q, want 1: it still travels", got)
	}
}

// TestBudgetThenResume: R8 and R16, a run that halts at its budget is resumed
// with a larger one, and what is done stands.
func TestBudgetThenResume(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"))
	r := converse(t, s, server.Start{Conversation: "rich", Seed: "go"})
	if r.Halt.Kind != agentbus.HaltBudget || len(r.Turns) != 2 || r.Spent != 30_000 {
		t.Fatalf("halt %s after %d turns, spent %s", r.Halt, len(r.Turns), r.Spent.USD())
	}
	more := agentbus.Micros(1_000_000)
	r = converse(t, s, server.Start{Run: r.Run, Resume: true, Budget: &more})
	if r.Halt.Kind != agentbus.HaltMaxTurns || len(r.Turns) != 4 || r.Spent != 60_000 {
		t.Errorf("halt %s after %d turns, spent %s", r.Halt, len(r.Turns), r.Spent.USD())
	}
	if n := len(a.headers()) + len(b.headers()); n != 4 {
		t.Errorf("the agents executed %d turns, want 4", n)
	}
}

// TestResumeIsForThePayer: R18, a credential is not stored with a run, so who
// resumes it must bring it, or the run waits for it.
func TestResumeIsForThePayer(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"))
	r := converse(t, s, server.Start{Conversation: "rich", Seed: "go", Authorization: agentbus.NewCredential("Bearer user-secret")})
	if waits := converse(t, s, server.Start{Run: r.Run, Resume: true}); waits.Halt.Kind != agentbus.HaltWaitingAuth || len(waits.Turns) != len(r.Turns) {
		t.Errorf("resumed without a credential: %+v", waits.Halt)
	}
	for _, err := range s.Converse(t.Context(), server.Start{Run: r.Run, Resume: true, Authorization: agentbus.NewCredential("Bearer other-secret")}, nil) {
		if agentbus.CodeOf(err) != agentbus.CodeForbidden {
			t.Errorf("resumed by somebody else: %v", err)
		}
	}
	more := agentbus.Micros(1_000_000)
	if done := converse(t, s, server.Start{Run: r.Run, Resume: true, Budget: &more, Authorization: agentbus.NewCredential("Bearer user-secret")}); len(done.Turns) != 4 {
		t.Errorf("resumed with the credential: %+v", done.Halt)
	}
	for _, err := range s.Converse(t.Context(), server.Start{Run: r.Run, Resume: true}, nil) {
		if agentbus.CodeOf(err) != agentbus.CodeForbidden {
			t.Errorf("a run of somebody else that is over was shown: %v", err)
		}
	}
	for _, err := range s.Converse(t.Context(), server.Start{Run: "run_none", Resume: true}, nil) {
		if agentbus.CodeOf(err) != agentbus.CodeRunNotFound {
			t.Errorf("resumed from nowhere: %v", err)
		}
	}
	for _, err := range s.Converse(t.Context(), server.Start{Conversation: "none"}, nil) {
		if agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
			t.Errorf("an unknown conversation: %v", err)
		}
	}
}

// TestDrain: G31, a bus that is told to stop lets live calls end, takes no new
// ones, and returns when all is over.
func TestDrain(t *testing.T) {
	t.Parallel()
	entered, finish := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"done"}}]}`)
	}))
	t.Cleanup(slow.Close)
	s := open(t, fmt.Sprintf("agents: {slow: {kind: openai, url: %q}}\n", slow.URL+"/v1"))
	ctx, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() { answered <- ask(client, "http://"+l.Addr().String()) }()
	<-entered
	stop()
	for { // until the bus no longer listens
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the live call: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// G31: a caller who is still sending when the time to drain is over is left, and
// that is no failure.
func TestDrainLeavesWhoDoesNotEnd(t *testing.T) {
	t.Parallel()
	addr, stop := serveAt(t, open(t, "drain_timeout: 1ms\n"+echoAgent))
	c := dial(t, addr)
	_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
	if _, err := c.Read(make([]byte, 1)); err != nil { // of 100 Continue: the body is read
		t.Error(err)
	}
	stop()
}

// G3: a body has its time on every route, that of the runtime too.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		for _, path := range []string{"/v1/runs", "/v1/chat/completions"} {
			addr, stop := serveAt(t, open(t, fmt.Sprintf("limits: {read_body: 50ms}\nstrict_http: %t\n", strict)+echoAgent))
			c := dial(t, addr)
			_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer user-secret\r\nContent-Length: 99\r\n\r\n{")
			if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") {
				t.Errorf("%s, strict %t: %q, %v", path, strict, b, err)
			}
			stop()
		}
	}
}

const echoAgent = "agents: {echo: {kind: builtin, builtin: echo}}\n"

// dial connects to addr until the end of the test.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// sent sends r, and returns what came back.
func sent(t *testing.T, client *http.Client, r *http.Request) (status int, body string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if e := resp.Body.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	return resp.StatusCode, string(got)
}

func ask(client *http.Client, url string) error {
	r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"slow"}`))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer user-secret")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct{ Choices []any }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || len(body.Choices) != 1 || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("status %d, %d choices", resp.StatusCode, len(body.Choices)))
	}
	return nil
}

// TestSeveralURLs: G13, a configured agent is called at those of its URLs that
// answer, and a conversation stays with the one it began with.
func TestSeveralURLs(t *testing.T) {
	t.Parallel()
	down := newAgent(t, "down")
	down.Close()
	one, two := newAgent(t, "one"), newAgent(t, "two")
	s := open(t, fmt.Sprintf(`
agents:
  spread: {kind: openai, urls: [%[1]q, %[2]q, %[3]q], eject: {failures: 1, for: 1h, at_most: 1h}}
  bound:  {kind: openai, urls: [%[1]q, %[2]q, %[3]q], affinity: conversation}
conversations:
  both:  {participants: [{agent: spread}, {agent: spread, slug: again}], max_turns: 8}
  stays: {participants: [{agent: bound}, {agent: bound, slug: again}], max_turns: 8}
`, down.URL+"/v1", one.URL+"/v1", two.URL+"/v1"))
	converse(t, s, server.Start{Conversation: "both", Seed: "go"})
	if a, b := len(one.headers()), len(two.headers()); a != 4 || b != 4 {
		t.Errorf("8 calls were spread as %d and %d", a, b)
	}
	converse(t, s, server.Start{Conversation: "stays", Seed: "go"})
	if a, b := len(one.headers())-4, len(two.headers())-4; a+b != 8 || a*b != 0 {
		t.Errorf("one conversation went %d times to one URL, and %d to another", a, b)
	}
}

// TestUsageCost: G26, what an agent says it cost is charged only where the
// configuration says so.
func TestUsageCost(t *testing.T) {
	t.Parallel()
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"cost":0.0025}}`)
	}))
	t.Cleanup(a.Close)
	s := open(t, fmt.Sprintf(`
agents:
  asked:   {kind: openai, url: %[1]q, usage_cost: true}
  unasked: {kind: openai, url: %[1]q}
conversations: {both: {participants: [{agent: asked}, {agent: unasked}], max_turns: 2}}
`, a.URL+"/v1"))
	r := converse(t, s, server.Start{Conversation: "both", Seed: "go"})
	want := []row{{"asked", 1, "local", 2500}, {"unasked", 1, "local", 0}}
	if diff := cmp.Diff(want, rows(t, s, r.Run)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestUsageOfForms: G26, an answer is charged alike in each form that a caller may ask
// for: an agent of the bus tells its usage to who asked for none, and what an agent
// does not tell is estimated instead of free.
func TestUsageOfForms(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			_, _ = fmt.Fprintf(w, `{"name":"c","supportedInterfaces":[{"url":"http://%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{}}`, r.Host)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"1","result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"to say it in a few words: nothing is free of charge here, whoever asks"}]}}}`)
	}))
	t.Cleanup(silent.Close)
	s := open(t, fmt.Sprintf(`
agents:
  tells:  {kind: builtin, builtin: echo, price: {input: 100, output: 1000}}
  silent: {kind: a2a, url: %q, price: {input: 100, output: 1000}}
`, silent.URL))
	charged := func(agent, form string) agentbus.Micros {
		run := agentbus.NewRunID()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(
			`{"model":"`+agent+`",`+form+`"messages":[{"role":"user","content":"a rather long line of several words, to have a price"}]}`))
		r.Header.Set("Authorization", "Bearer user-secret")
		r.Header.Set("X-Tangle-Runid", string(run))
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		calls := rows(t, s, run)
		if w.Code != http.StatusOK || len(calls) != 1 {
			t.Fatalf("%s, %s: %d %s, calls %v", agent, form, w.Code, w.Body, calls)
		}
		return calls[0].Cost
	}
	want, whole := charged("tells", ""), charged("silent", "")
	for _, form := range []string{`"stream":true,`, `"stream":true,"stream_options":{"include_usage":true},`} {
		if got := charged("tells", form); got != want {
			t.Errorf("%s: charged %s, and %s whole", form, got.USD(), want.USD())
		}
		if got := charged("silent", form); got != whole {
			t.Errorf("%s: an agent that tells no usage is charged %s, and %s whole", form, got.USD(), whole.USD())
		}
	}
	if whole == 0 || want == 0 {
		t.Errorf("whole: charged %s and %s", whole.USD(), want.USD())
	}
}

// G27: a budget of the configuration bounds a run with every nested hop, whoever
// drives it, and an agent whose cost nobody knows is refused by name.
func TestG27ARunsBudgetCoversNestedConversations(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL, b.URL)+"budgets: [{period: run, usd: 0.03}]\n")
	// a, then inside the turn of inner: a again, which leaves 1 cent; b costs 2.
	r := converse(t, s, server.Start{Conversation: "outer", Seed: "hello"})
	if r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error == nil || r.Halt.Error.Code != agentbus.CodeBudgetExceeded {
		t.Fatalf("halted as %+v", r.Halt)
	}
	if want := "the budget of payer local for run " + string(r.Run) + " has $0.010000 left of $0.030000"; !strings.Contains(r.Halt.Error.Message, want) {
		t.Errorf("%s, want %s", r.Halt.Error.Message, want)
	}
	var spent agentbus.Micros
	for _, c := range rows(t, s, r.Run) {
		spent += c.Cost
	}
	if spent != 20_000 || len(a.headers()) != 2 || len(b.headers()) != 0 {
		t.Errorf("%d micros spent; a was called %d times, b %d", spent, len(a.headers()), len(b.headers()))
	}
}

// G27: an agent whose cost nobody knows is refused under a strict budget, by the
// name of the setting; price: {} says that it is free.
func TestG27UnknownCostNamesTheSetting(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	s := open(t, fmt.Sprintf("budgets: [{payer: user-123, period: day, usd: 5}]\nagents: {a: {kind: openai, url: %q}, free: {kind: openai, url: %q, price: {}}}\n", a.URL, a.URL))
	for model, want := range map[string]int{"a": http.StatusPaymentRequired, "free": http.StatusOK} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+model+`","messages":[]}`))
		r.Header.Set("Authorization", "Bearer user-secret")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != want || want != http.StatusOK && !strings.Contains(w.Body.String(), "set max_cost_usd on agent a") {
			t.Errorf("%s: %d %s", model, w.Code, w.Body)
		}
	}
}
