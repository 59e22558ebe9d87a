package policy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

// R12: closed, open, and half open with one probe. The sequence is that of
// circuitBreaker in the vectors, but for what differs on purpose: after the
// cooldown one failure opens it again at once, where the reference starts to
// count anew.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const cooldown = 100 * time.Millisecond
		b := policy.NewBreaker(policy.BreakerConfig{Name: "p", Failures: 3, Cooldown: cooldown})
		calls := 0
		try := func(outcome, want error) {
			t.Helper()
			_, err := call(t.Context(), b.Wrap(script(&calls, outcome)))
			if agentbus.CodeOf(err) != agentbus.CodeOf(want) {
				t.Errorf("after %d calls, %s: %v, want %v", calls, b.State(), err, want)
			}
			calls = 0
		}
		open := &agentbus.Error{Code: agentbus.CodeCircuitOpen}
		try(unavailable, unavailable)
		try(unavailable, unavailable)
		try(nil, nil) // which starts the count anew
		try(unavailable, unavailable)
		try(unavailable, unavailable)
		try(unavailable, unavailable)
		try(nil, open)
		<-time.After(cooldown - time.Millisecond)
		_, err := call(t.Context(), b.Wrap(script(&calls, nil)))
		if e := agentbus.AsError(err); e == nil || e.RetryAfter != time.Millisecond {
			t.Errorf("a millisecond before the cooldown is over: %v", err)
		}
		<-time.After(2 * time.Millisecond)
		try(unavailable, unavailable) // the probe
		try(nil, open)
		<-time.After(cooldown + time.Millisecond)
		try(nil, nil)
		if b.State() != "closed" {
			t.Error(b.State())
		}
	})
}

// R12: one probe at a time, and a probe whose caller leaves lets the next call
// probe.
func TestBreakerProbesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := policy.NewBreaker(policy.BreakerConfig{Failures: 1, Cooldown: time.Second})
		calls := 0
		_, _ = call(t.Context(), b.Wrap(script(&calls, unavailable)))
		<-time.After(2 * time.Second)
		slow := agentbus.Answer(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
			<-ctx.Done()
			return agentbus.Chunk{}, ctx.Err()
		})
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := call(ctx, b.Wrap(slow))
			left <- err
		}()
		synctest.Wait()
		if _, err := call(t.Context(), b.Wrap(script(&calls, nil))); agentbus.CodeOf(err) != agentbus.CodeCircuitOpen {
			t.Errorf("beside the probe: %v", err)
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := call(t.Context(), b.Wrap(script(&calls, nil))); err != nil || b.State() != "closed" {
			t.Errorf("after the probe was left: %v, %s", err, b.State())
		}
	})
}

// R10, R12: an agent that hangs until the time of its turn is up has failed,
// though nothing bounds its attempts; one whose caller leaves has not.
func TestBreakerCountsTheDeadlineOfATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := agentbus.Answer(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
			<-ctx.Done()
			return agentbus.Chunk{}, ctx.Err()
		})
		b := policy.NewBreaker(policy.BreakerConfig{Failures: 1})
		p := policy.Policy{TurnTimeout: time.Minute, Breaker: b}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := call(ctx, p.Wrap(hangs)); err == nil || b.State() != "closed" {
			t.Errorf("its caller left: %v, %s", err, b.State())
		}
		if _, err := call(t.Context(), p.Wrap(hangs)); agentbus.CodeOf(err) != agentbus.CodeDeadlineExceeded || b.State() != "open" {
			t.Errorf("its time was up: %v, %s", err, b.State())
		}
	})
}

// R12: a refusal by policy says nothing of the backend.
func TestBreakerIgnoresRefusals(t *testing.T) {
	t.Parallel()
	b := policy.NewBreaker(policy.BreakerConfig{Failures: 1})
	for _, code := range []agentbus.Code{
		agentbus.CodeDepthExceeded, agentbus.CodeBudgetExceeded, agentbus.CodeForbidden, agentbus.CodeRateLimited, agentbus.CodeTurnMismatch,
		agentbus.CodeCycleRefused, agentbus.CodeUnauthenticated,
	} {
		calls := 0
		if _, err := call(t.Context(), b.Wrap(script(&calls, &agentbus.Error{Code: code}))); agentbus.CodeOf(err) != code || b.State() != "closed" {
			t.Errorf("%s: %v, %s", code, err, b.State())
		}
	}
}

// TestBreakerInDoubt: R12, where another process found that somebody fails one
// failure opens the breaker, until a call succeeds.
func TestBreakerInDoubt(t *testing.T) {
	t.Parallel()
	b, calls := policy.NewBreaker(policy.BreakerConfig{Failures: 3}), 0
	try := func(outcome error, want string) {
		t.Helper()
		_, _ = call(t.Context(), b.Wrap(script(&calls, outcome)))
		if b.State() != want {
			t.Errorf("after %v it is %s, want %s", outcome, b.State(), want)
		}
		calls = 0
	}
	b.Doubt()
	try(nil, "closed")
	try(unavailable, "closed")
	b.Doubt()
	try(unavailable, "open")
}
