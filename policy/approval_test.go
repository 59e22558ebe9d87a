package policy_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

// R22: nobody is called before the approval; what the participant asks itself,
// and is told, passes.
func TestApproval(t *testing.T) {
	t.Parallel()
	calls := 0
	var told *agentbus.Resolution
	b := policy.Approval{Who: "coder", Timeout: time.Hour}.Wrap(agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		calls++
		told = c.Resolution
		return agentbus.Chunk{Text: "done"}, nil
	}))
	call := &agentbus.Call{Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "rm -rf"}}}
	_, err := agentbus.Collect(b.Call(t.Context(), call))
	e := agentbus.AsError(err)
	if calls != 0 || e == nil || e.Code != agentbus.CodeInputRequired || e.Ask == nil || e.Ask.Kind != agentbus.AskApproval || e.Ask.Prompt != "rm -rf" || e.Ask.Timeout != time.Hour {
		t.Fatalf("%d calls: %+v", calls, e)
	}
	for name, c := range map[string]struct {
		r     agentbus.Resolution
		calls int
		told  bool
	}{
		"approved":         {agentbus.Resolution{Decision: agentbus.DecisionGranted, Resume: e.Ask.Resume}, 1, false},
		"denied":           {agentbus.Resolution{Decision: agentbus.DecisionDenied, Resume: e.Ask.Resume}, 0, false},
		"its own question": {agentbus.Resolution{Decision: agentbus.DecisionGranted, Resume: json.RawMessage(`{"task":1}`)}, 1, true},
		"somebody below":   {agentbus.Resolution{Decision: agentbus.DecisionDenied}, 1, true},
	} {
		calls, told = 0, nil
		call := *call
		call.Resolution = &c.r
		_, err := agentbus.Collect(b.Call(t.Context(), &call))
		if calls != c.calls || (told != nil) != c.told || (err == nil) != (c.calls == 1) {
			t.Errorf("%s: %d calls, told %v: %v", name, calls, told, err)
		}
	}
}

// R11, R12: what an agent asks is neither retried nor counted as its failure.
func TestAskIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, code := range []agentbus.Code{agentbus.CodeInputRequired, agentbus.CodePaymentRequired} {
		for _, status := range []int{0, code.Status()} {
			calls := 0
			breaker := policy.NewBreaker(policy.BreakerConfig{Failures: 1})
			asks := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
				calls++
				return agentbus.Chunk{}, &agentbus.Error{Code: code, Status: status, Ask: &agentbus.Ask{Kind: agentbus.AskApproval}}
			})
			p := policy.Policy{Retry: &policy.Retry{Attempts: 3, Base: time.Nanosecond}, Breaker: breaker}
			_, err := agentbus.Collect(p.Wrap(asks).Call(t.Context(), &agentbus.Call{}))
			if calls != 1 || agentbus.AsError(err).Ask == nil || breaker.State() != "closed" {
				t.Errorf("%s, status %d: %d calls, %s: %v", code, status, calls, breaker.State(), err)
			}
		}
	}
}
