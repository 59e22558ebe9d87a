package config_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/server/config"
)

const policies = `
agents:
  a: {kind: builtin, builtin: echo}
  b: {kind: builtin, builtin: eliza}
  panel: {kind: conversation, conversation: plain}
conversations:
  plain: {participants: [{agent: a}, {agent: b}]}
  nested: {participants: [{agent: a}, {agent: panel}]}
  insists: {participants: [{agent: a}, {agent: panel}], call_policy: {retries: 5}}
  own:
    participants:
      - {agent: a, call_policy: {attempt_timeout: 0s, retries: 0, backoff: {base: 10ms}, breaker: {failures: 1}}}
      - {agent: b}
    call_policy: {attempt_timeout: 60s, turn_timeout: 3m, retries: 4, backoff: {base: 1s, max: 10s}, breaker: {failures: 5, cooldown: 15s}}
`

// R13: a participant's policy overrides the conversation's field by field.
func TestCallPolicy(t *testing.T) {
	t.Parallel()
	c, warnings := parse(t, policies, source(nil))
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	policy := func(attempt, turn time.Duration, retries int, base, most time.Duration, failures int, cooldown time.Duration) config.CallPolicy {
		return config.CallPolicy{
			AttemptTimeout: &attempt, TurnTimeout: &turn, Retries: &retries,
			Backoff: config.Backoff{Base: &base, Max: &most}, Breaker: config.CallBreaker{Failures: &failures, Cooldown: &cooldown},
		}
	}
	plain := config.DefaultCallPolicy()
	for _, tt := range []struct {
		name, conversation string
		participant        int
		want               config.CallPolicy
	}{
		{"nothing is said", "plain", 0, plain},
		{"beside a conversation", "nested", 0, plain},
		{"a conversation retries its own turns", "nested", 1, policy(0, 0, 0, 250*time.Millisecond, 30*time.Second, 0, 30*time.Second)},
		{"unless somebody says otherwise", "insists", 1, policy(0, 0, 5, 250*time.Millisecond, 30*time.Second, 0, 30*time.Second)},
		{"over the conversation's", "own", 0, policy(0, 3*time.Minute, 0, 10*time.Millisecond, 10*time.Second, 1, 15*time.Second)},
		{"the conversation's", "own", 1, policy(time.Minute, 3*time.Minute, 4, time.Second, 10*time.Second, 5, 15*time.Second)},
	} {
		def := c.Conversations[tt.conversation]
		if diff := cmp.Diff(tt.want, def.PolicyOf(tt.participant)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What a policy cannot mean is refused, where it stands.
func TestCallPolicyFaults(t *testing.T) {
	t.Parallel()
	const text = `
agents: {a: {kind: builtin, builtin: echo}, b: {kind: builtin, builtin: echo}}
conversations:
  c:
    participants:
      - {agent: a, call_policy: {backoff: {max: 100ms}}}
      - {agent: b, call_policy: {breaker: {failures: 0, cooldown: 1s}}}
    call_policy: {attempt_timeout: -1s, retries: 101, backoff: {base: 1m}, breaker: {cooldown: 1s}}
`
	_, _, err := config.Parse("f", []byte(text), source(nil))
	faulty, ok := errors.AsType[*config.Error](err)
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, f := range faulty.Faults {
		got = append(got, f.Key)
	}
	want := []string{
		"conversations.c.participants[0].call_policy.backoff.max", "conversations.c.participants[1].call_policy.breaker.cooldown",
		"conversations.c.call_policy.attempt_timeout", "conversations.c.call_policy.retries",
		"conversations.c.call_policy.backoff.max", "conversations.c.call_policy.breaker.cooldown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
