package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
	"github.com/agentbus/agentbus/server"
)

// R10 to R13: what bounds the turns of a configured conversation is its
// call_policy, and that of the participant over it.
func TestCallPolicies(t *testing.T) {
	t.Parallel()
	fails, hangs := agentbustest.Answer{Status: 503}, agentbustest.Answer{Hang: true}
	for name, tt := range map[string]struct {
		answer                    agentbustest.Answer
		conversation, participant string // their call_policy
		asked                     int
		code                      agentbus.Code
	}{
		"R11: two retries, where nothing is said": {fails, `{backoff: {base: 1ms}}`, `{}`, 3, agentbus.CodeAgentUnavailable},
		"R11: none":                        {fails, `{retries: 0}`, `{}`, 1, agentbus.CodeAgentUnavailable},
		"R13: the participant's":           {fails, `{retries: 0, backoff: {base: 1ms}}`, `{retries: 1}`, 2, agentbus.CodeAgentUnavailable},
		"R12: the breaker ends them":       {fails, `{retries: 9, backoff: {base: 1ms}, breaker: {failures: 4}}`, `{}`, 4, agentbus.CodeCircuitOpen},
		"R13: the participant's, alone":    {fails, `{retries: 3, backoff: {base: 1ms}, breaker: {failures: 1}}`, `{breaker: {failures: 2}}`, 2, agentbus.CodeCircuitOpen},
		"R13: the participant has none":    {fails, `{backoff: {base: 1ms}, breaker: {failures: 1}}`, `{breaker: {failures: 0}}`, 3, agentbus.CodeAgentUnavailable},
		"R10: the deadline of a turn":      {hangs, `{turn_timeout: 5s}`, `{}`, 1, agentbus.CodeDeadlineExceeded},
		"R10: the deadline of an attempt":  {hangs, `{attempt_timeout: 5s, retries: 0}`, `{}`, 1, agentbus.CodeDeadlineExceeded},
		"R11: patience has an end":         {agentbustest.Answer{Status: 429, RetryAfter: time.Hour}, `{}`, `{}`, 1, agentbus.CodeAgentUnavailable},
		"R11: what will not pass is final": {agentbustest.Answer{Status: 404}, `{}`, `{}`, 1, agentbus.CodeAgentUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus := agentbustest.New(t, agentbustest.Config{
				Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: []agentbustest.Answer{tt.answer}}},
				YAML: fmt.Sprintf(`
conversations:
  talk: {participants: [{agent: a}, {agent: b, call_policy: %s}], max_turns: 2, call_policy: %s}
`, tt.participant, tt.conversation),
			})
			result := bus.Run("talk", "hello")
			if result.Halt.Error == nil || result.Halt.Error.Code != tt.code {
				t.Errorf("halt %+v", result.Halt)
			}
			if n := len(bus.Requests("b")); n != tt.asked {
				t.Errorf("b was asked %d times, want %d", n, tt.asked)
			}
			if n := len(bus.Requests("a")); n != 1 {
				t.Errorf("a was asked %d times", n)
			}
		})
	}
}

// R11: a conversation inside another one retries its own turns; that the turn
// around it is tried again too, somebody must say.
func TestRetriesDoNotMultiply(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{`{backoff: {base: 1ms}}`: 3, `{retries: 1, backoff: {base: 1ms}}`: 6} {
		bus := agentbustest.New(t, agentbustest.Config{
			Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: []agentbustest.Answer{{Status: 503}}}},
			YAML: `
agents: {inner: {kind: conversation, conversation: inner}}
conversations:
  inner: {participants: [{agent: a}, {agent: b}], max_turns: 2, call_policy: {backoff: {base: 1ms}}}
  outer: {participants: [{agent: a}, {agent: inner}], max_turns: 2, call_policy: ` + policy + `}
`,
		})
		if result := bus.Run("outer", "hello"); result.Halt.Kind != agentbus.HaltParticipantError {
			t.Errorf("halt %+v", result.Halt)
		}
		if n := len(bus.Requests("b")); n != want {
			t.Errorf("%s: b was asked %d times, want %d", policy, n, want)
		}
	}
}

// R12: the breaker of a participant is that of all runs of the process, and
// outlasts a reload, unless its own settings change.
func TestBreakerIsSharedAndOutlastsAReload(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	text := func(failures, turns int) string {
		return fmt.Sprintf(`
agents: {a: {kind: openai, url: %q}, dead: {kind: openai, url: "http://127.0.0.1:1/v1"}}
conversations:
  talk: {participants: [{agent: a}, {agent: dead}], max_turns: %d, call_policy: {retries: 1, backoff: {base: 1ms}, breaker: {failures: %d, cooldown: 1h}}}
  other: {participants: [{agent: a}, {agent: dead}], max_turns: 2, call_policy: {retries: 0, breaker: {failures: 2}}}
`, a.URL+"/v1", turns, failures)
	}
	b := serveFile(t, text(2, 2))
	for _, step := range []struct {
		reload, talk string
		want         agentbus.Code
	}{
		{"", "talk", agentbus.CodeAgentUnavailable}, // twice: it opens
		{"", "talk", agentbus.CodeCircuitOpen},
		{"", "other", agentbus.CodeAgentUnavailable}, // another participant
		{text(2, 4), "talk", agentbus.CodeCircuitOpen},
		{text(3, 4), "talk", agentbus.CodeAgentUnavailable},
		{"", "talk", agentbus.CodeCircuitOpen}, // after one more
	} {
		if step.reload != "" {
			b.write(step.reload)
			if err := b.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		result := converse(t, b.Server, server.Start{Conversation: step.talk})
		if result.Halt.Error == nil || result.Halt.Error.Code != step.want {
			t.Errorf("%s: halt %+v, want %s", step.talk, result.Halt, step.want)
		}
	}
}

// R9: who aborts a run does not wait for the retries.
func TestAbortEndsTheRetries(t *testing.T) {
	t.Parallel()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: []agentbustest.Answer{{Status: 503, RetryAfter: 30 * time.Second}}}},
		YAML:   `conversations: {talk: {participants: [{agent: a}, {agent: b}], max_turns: 2}}`,
	})
	ctx, abort := context.WithCancel(t.Context())
	defer abort()
	go func() {
		for len(bus.Requests("b")) == 0 {
			<-time.After(time.Millisecond)
		}
		abort()
	}()
	began := time.Now()
	result, err := bus.Drive(ctx, server.Start{Conversation: "talk", Seed: "hello"})
	if err != nil || result.Halt.Kind != agentbus.HaltAbort || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %+v, %v", time.Since(began), result, err)
	}
}

// R11, R20: each branch of a fan-out is retried by itself.
func TestBranchesAreRetried(t *testing.T) {
	t.Parallel()
	busy := agentbustest.Answer{Status: 503}
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: []agentbustest.Answer{busy, {Text: "now"}}}, "c": {Answers: []agentbustest.Answer{busy, busy, {Text: "at last"}}}},
		YAML:   `conversations: {fan: {participants: [{agent: a}, {agent: b}, {agent: c}], plan: fan-out, join: all, max_turns: 3, call_policy: {backoff: {base: 1ms}}}}`,
	})
	result := bus.Run("fan", "hello")
	if len(result.Turns) != 3 {
		t.Fatalf("%+v", result)
	}
	for i, want := range []int{1, 2, 3} {
		if got := result.Turns[i].Attempts; got != want {
			t.Errorf("%s had %d attempts, want %d", result.Turns[i].Speaker, got, want)
		}
	}
}

// R11: between attempts lies what call_policy says, or what the agent asks for; not
// the second that the bus asks of callers that have no backoff.
func TestBackoffIsTheDriversOwn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  agentbustest.Answer
		retries int
		held    func(took time.Duration) bool
	}{
		"the driver's": {agentbustest.Answer{Cut: true}, 20, func(took time.Duration) bool { return took < 20*time.Second }},
		"the agent's":  {agentbustest.Answer{Status: 503, RetryAfter: time.Second}, 1, func(took time.Duration) bool { return took >= time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus := agentbustest.New(t, agentbustest.Config{
				Agents: map[string]agentbustest.Agent{"a": {}, "b": {Answers: []agentbustest.Answer{tt.answer}}},
				YAML: fmt.Sprintf(`
conversations:
  talk: {participants: [{agent: a}, {agent: b}], max_turns: 2, call_policy: {retries: %d, backoff: {base: 1ms, max: 1ms}}}
`, tt.retries),
			})
			began := time.Now()
			result := bus.Run("talk", "hello")
			if n, took := len(bus.Requests("b")), time.Since(began); n != 1+tt.retries || !tt.held(took) {
				t.Errorf("b was asked %d times in %s", n, took)
			}
			calls, attempts := bus.Calls(result.Run), 0
			for e, err := range bus.Server().Store().Events(t.Context(), result.Execution, -1) {
				var told struct {
					Bus struct{ Attempts int } `json:"agentbus"`
				}
				if err != nil || e.Type == agentbus.EventNodeFailed && json.Unmarshal(e.Data, &told) != nil {
					t.Fatal(err, string(e.Data))
				}
				attempts = max(attempts, told.Bus.Attempts)
			}
			if len(calls) != 2 || calls[1].Attempts != 1+tt.retries || attempts != 1+tt.retries {
				t.Errorf("the event tells of %d attempts, the ledger of %+v", attempts, calls)
			}
		})
	}
}
