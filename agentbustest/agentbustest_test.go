package agentbustest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pair = `
agents: {b: {price: {call: 0.01}}}
conversations:
  pair: {participants: [{agent: a}, {agent: b}], max_turns: 2, call_policy: {retries: 2, attempt_timeout: 1s, backoff: {base: 100ms}}}
`

// script is a bus whose agent b answers so.
func script(t *testing.T, answers ...agentbustest.Answer) *agentbustest.Bus {
	t.Helper()
	b := agentbustest.New(t, agentbustest.Config{
		YAML:   pair,
		Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: answers}},
	})
	t.Cleanup(func() { agentbustest.Replay(t, b.Server()) }) // R23
	return b
}

// Each way to fail is one that the bus meets: the turn is tried again, under the
// same id, and charged once (R11, G20).
func TestAnswers(t *testing.T) {
	t.Parallel()
	fine := agentbustest.Answer{Text: "all is fine"}
	for name, tt := range map[string]struct {
		answers []agentbustest.Answer
		asked   int
		code    agentbus.Code // of the halt; "": b said that all is fine
	}{
		"says":            {[]agentbustest.Answer{fine}, 1, ""},
		"thinks":          {[]agentbustest.Answer{{After: time.Millisecond, Text: "all is fine"}}, 1, ""},
		"thinks too long": {[]agentbustest.Answer{{After: time.Hour}, fine}, 2, ""},
		"fails":           {[]agentbustest.Answer{{Status: http.StatusServiceUnavailable, Text: "busy"}, fine}, 2, ""},
		"is cut":          {[]agentbustest.Answer{{Text: "all is", Cut: true}, fine}, 2, ""},
		"hangs":           {[]agentbustest.Answer{{Text: "all", Hang: true}, {Hang: true}, fine}, 3, ""},
		"fails for good":  {[]agentbustest.Answer{{Status: http.StatusBadRequest, Text: "what?"}, fine}, 1, agentbus.CodeAgentUnavailable},
		"fails too often": {[]agentbustest.Answer{{Cut: true}}, 3, agentbus.CodeAgentUnavailable},
		"hangs for ever":  {[]agentbustest.Answer{{Hang: true}}, 3, agentbus.CodeDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus := script(t, tt.answers...)
			result := bus.Run("pair", "hello")
			got := bus.Requests("b")
			met := tt.code == agentbus.CodeDeadlineExceeded && len(got) > 0 && len(got) < tt.asked // on a slow machine an attempt may meet the one before
			if len(got) != tt.asked && !met {
				t.Errorf("b was asked %d times, want %d", len(got), tt.asked)
			}
			for _, r := range got {
				if r.Lineage.Turn != result.Run.Turn(1, "b") || !strings.HasSuffix(r.Messages[len(r.Messages)-1].Content, "[a] ok") {
					t.Errorf("b was sent %s, %v", r.Lineage.Turn, r.Messages)
				}
			}
			if tt.code != "" {
				if result.Halt.Error == nil || result.Halt.Error.Code != tt.code || bus.Charged(agentbustest.User) != 0 {
					t.Errorf("halt %+v, charged %d", result.Halt, bus.Charged(agentbustest.User))
				}
				return
			}
			if len(result.Turns) != 2 || result.Turns[1].Reply.Text != "all is fine" || result.Turns[1].Attempts < tt.asked {
				t.Fatalf("%+v", result) // a slow machine may take the turn for one in flight, and try once more
			}
			calls := bus.Calls(result.Run)
			if len(calls) != 2 || calls[1].Attempts != tt.asked || calls[1].Cost != 10_000 || bus.Charged(agentbustest.User) != 10_000 {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

// An agent may be a Backend or a handler of the test's own.
func TestAgentsOfTheTest(t *testing.T) {
	t.Parallel()
	bus := agentbustest.New(t, agentbustest.Config{Agents: map[string]agentbustest.Agent{
		"backend": {Backend: agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
			return agentbus.Chunk{Text: "you said " + c.Messages[0].Content}, nil
		})},
		"handler": {Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(body), "hello") {
				t.Errorf("%s", body)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"handled"},"finish_reason":"stop"}]}`)
		})},
	}})
	for agent, want := range map[string]string{"backend": "you said hello", "handler": "handled"} {
		if reply, err := bus.Ask(t.Context(), agent, "hello"); err != nil || reply.Text != want {
			t.Errorf("%s: %q, %v", agent, reply.Text, err)
		}
	}
	if _, err := bus.Ask(t.Context(), "nobody", "hello"); agentbus.CodeOf(err) != agentbus.CodeAgentNotFound {
		t.Errorf("nobody: %v", err)
	}
}

// The socket and the memory lead to one bus, and keys to their principals.
func TestCallers(t *testing.T) {
	t.Parallel()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents:     map[string]agentbustest.Agent{"a": {}},
		Principals: []agentbus.Principal{{ID: "other"}},
		YAML:       "agents: {a: {price: {call: 0.5}}}",
	})
	const body = `{"model":"a","messages":[{"role":"user","content":"hello"}]}`
	socket := &http.Transport{DisableKeepAlives: true}
	for name, transport := range map[string]http.RoundTripper{agentbustest.User: socket, "other": bus.Transport()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, bus.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", bus.Key(name).Reveal())
		r.Header.Set(agentbus.HeaderRunID, "run_"+name)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"ok"`) {
			t.Errorf("%s: %d %s, %v", name, resp.StatusCode, answer, err)
		}
		if calls := bus.Calls(agentbus.RunID("run_" + name)); len(calls) != 1 || calls[0].Payer != agentbus.Payer(name) {
			t.Errorf("%s: %+v", name, calls)
		}
		if got := bus.Charged(agentbus.Payer(name)); got != 500_000 {
			t.Errorf("%s was charged %d", name, got)
		}
	}
	if !bus.Key("nobody").IsZero() {
		t.Error("nobody has a key")
	}
}

// A conversation in Go, over agents of the bus, on the journal of the bus; and one
// of the configuration that halted goes on.
func TestConversations(t *testing.T) {
	t.Parallel()
	busy := agentbustest.Answer{Status: http.StatusServiceUnavailable}
	bus := script(t, busy, busy, busy, agentbustest.Answer{Text: "now"})
	halted := bus.Run("pair", "hello")
	if halted.Halt.Kind != agentbus.HaltParticipantError {
		t.Fatalf("%+v", halted.Halt)
	}
	done, err := bus.Drive(t.Context(), server.Start{Run: halted.Run, Resume: true})
	if err != nil || len(done.Turns) != 2 || len(bus.Requests("a")) != 1 {
		t.Errorf("resumed: %+v, %v", done, err)
	}
	store := bus.Server().Store()
	result, err := conversation.Run(t.Context(), conversation.Conversation{
		Name: "in Go", MaxTurns: 2,
		Participants: []conversation.Participant{{Name: "a", Backend: bus.Backend("a", agentbustest.User)}, {Name: "b", Backend: bus.Backend("b", agentbustest.User)}},
	}, conversation.Options{Run: "run_go", Journal: store, Runs: store})
	if err != nil || len(result.Turns) != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
	var turns []agentbus.TurnID
	for _, c := range bus.Calls("run_go") {
		turns = append(turns, c.TurnKey.ID)
	}
	if diff := cmp.Diff([]agentbus.TurnID{"run_go.t0.a", "run_go.t1.b"}, turns); diff != "" {
		t.Error(diff)
	}
}

// failing is a test that fails: what it says is told, and it ends.
type failing struct {
	*testing.T
	said *string
}

func (f failing) Fatalf(format string, args ...any) {
	*f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// What is wrong with a bus ends its test, and says what to do.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		yaml, want string
		more       func(*agentbustest.Bus)
	}{
		"not YAML":             {yaml: "a: [", want: "read Config.YAML"},
		"agents are no table":  {yaml: "agents: 3", want: "agents: keys and values must stand here"},
		"an agent is no table": {yaml: "agents: {a: 3}", want: "agents: a: keys and values must stand here"},
		"a wrong key":          {yaml: "agents: {a: {prize: {}}}", want: "did you mean price?"},
		"no such conversation": {want: "there is no conversation talk", more: func(b *agentbustest.Bus) { b.Run("talk", "") }},
		"no such agent":        {want: "there is no agent c in Config.Agents", more: func(b *agentbustest.Bus) { b.Requests("c") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said string
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				bus := agentbustest.New(failing{t, &said}, agentbustest.Config{Agents: map[string]agentbustest.Agent{"a": {}}, YAML: tt.yaml})
				if tt.more != nil {
					tt.more(bus)
				}
			}()
			if <-ended; !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}
