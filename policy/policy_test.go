package policy_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var unavailable = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "not reached"}

// script answers the n-th call with the n-th outcome, and the last one again and
// again: nil is an answer of two chunks.
func script(calls *int, outcomes ...error) agentbus.Backend {
	return agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			err := outcomes[min(*calls, len(outcomes)-1)]
			*calls++
			if !yield(agentbus.Chunk{Text: "begun "}, nil) {
				return
			}
			if err != nil {
				yield(agentbus.Chunk{}, err)
				return
			}
			yield(agentbus.Chunk{Text: "and done"}, nil)
		}
	})
}

func call(ctx context.Context, b agentbus.Backend) (agentbus.Reply, error) {
	return agentbus.Collect(b.Call(ctx, &agentbus.Call{}))
}

// R10: a deadline ends a call of a backend that does not listen to its context.
func TestDeadlineIsEnforced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deaf := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			<-time.After(time.Hour)
			return agentbus.Chunk{Text: "too late"}, nil
		})
		began := time.Now()
		reply, err := call(t.Context(), policy.Deadline(10*time.Second)(deaf))
		if took := time.Since(began); took > 11*time.Second || agentbus.CodeOf(err) != agentbus.CodeDeadlineExceeded || reply.Text != "" {
			t.Errorf("after %s: %q, %v", took, reply.Text, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := call(ctx, policy.Deadline(time.Minute)(deaf)); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller left: %v", err)
		}
		<-time.After(2 * time.Hour) // until the deaf ones have returned
	})
}

// R11: what may pass is tried again, and nothing else; what a failed attempt
// said is void.
func TestRetry(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: n} }
	for name, tt := range map[string]struct {
		err   error
		calls int
	}{
		"no connection":      {unavailable, 3},
		"a deadline":         {&agentbus.Error{Code: agentbus.CodeDeadlineExceeded}, 3},
		"408":                {status(http.StatusRequestTimeout), 3},
		"425":                {status(http.StatusTooEarly), 3},
		"429":                {status(http.StatusTooManyRequests), 3},
		"500":                {status(http.StatusInternalServerError), 3},
		"502":                {status(http.StatusBadGateway), 3},
		"503":                {status(http.StatusServiceUnavailable), 3},
		"504":                {status(http.StatusGatewayTimeout), 3},
		"400":                {status(http.StatusBadRequest), 1},
		"401":                {status(http.StatusUnauthorized), 1},
		"404":                {status(http.StatusNotFound), 1},
		"409":                {status(http.StatusConflict), 1},
		"501":                {status(http.StatusNotImplemented), 1},
		"depth, 429 (P13)":   {&agentbus.Error{Code: agentbus.CodeDepthExceeded, Status: http.StatusTooManyRequests}, 1},
		"depth, 413 (P11)":   {&agentbus.Error{Code: agentbus.CodeDepthExceeded, Status: http.StatusRequestEntityTooLarge}, 1},
		"a budget":           {&agentbus.Error{Code: agentbus.CodeBudgetExceeded, Status: http.StatusPaymentRequired}, 1},
		"a rate, of the bus": {&agentbus.Error{Code: agentbus.CodeRateLimited, Status: http.StatusTooManyRequests}, 3},
		"an open circuit":    {&agentbus.Error{Code: agentbus.CodeCircuitOpen}, 1},
		"not ours":           {errors.New("ECONNRESET"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				_, err := call(t.Context(), policy.Retry{}.Wrap(script(&calls, tt.err)))
				if calls != tt.calls || !errors.Is(err, tt.err) {
					t.Errorf("%d calls, want %d: %v", calls, tt.calls, err)
				}
				calls = 0
				if reply, err := call(t.Context(), policy.Retry{}.Wrap(script(&calls, tt.err, nil))); tt.calls > 1 && (err != nil || reply.Text != "begun and done" || calls != 2) {
					t.Errorf("%d calls: %q, %v", calls, reply.Text, err)
				}
			})
		})
	}
}

// R11: the wait before the n-th attempt is random up to a bound that doubles
// until its cap; the reference's has no cap (computeBackoff of the vectors).
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var began []time.Time
		b := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			began = append(began, time.Now())
			return agentbus.Chunk{}, unavailable
		})
		_, _ = call(t.Context(), policy.Retry{Attempts: 12, Base: time.Second, Max: 8 * time.Second}.Wrap(b))
		most := time.Second
		for i := 1; i < len(began); i++ {
			if waited := began[i].Sub(began[i-1]); waited > most {
				t.Errorf("%s before attempt %d, at most %s", waited, i+1, most)
			}
			most = min(2*most, 8*time.Second)
		}
		if len(began) != 12 {
			t.Errorf("%d attempts", len(began))
		}
	})
}

// R11: Retry-After is honoured, and ends the retries where it asks for too much
// or the deadline comes first; a caller that leaves is not waited for.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked, deadline, leaves, patience time.Duration
		calls                             int
		took                              time.Duration
	}{
		"honoured":             {asked: 20 * time.Second, calls: 3, took: 40 * time.Second},
		"too long":             {asked: time.Hour, calls: 1},
		"beyond the deadline":  {asked: 20 * time.Second, deadline: 30 * time.Second, calls: 2, took: 20 * time.Second},
		"the caller leaves":    {asked: 20 * time.Second, leaves: 5 * time.Second, calls: 1, took: 5 * time.Second},
		"deadline before that": {asked: 20 * time.Second, deadline: time.Second, calls: 1},
		"little patience":      {asked: 20 * time.Second, patience: 10 * time.Second, calls: 1},
		"patience enough":      {asked: 20 * time.Second, patience: 20 * time.Second, calls: 3, took: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.leaves > 0 {
					time.AfterFunc(tt.leaves, cancel)
				}
				calls, began := 0, time.Now()
				later := &agentbus.Error{Code: agentbus.CodeRateLimited, RetryAfter: tt.asked}
				_, err := call(ctx, policy.Retry{Patience: tt.patience}.Wrap(script(&calls, later)))
				if took := time.Since(began); calls != tt.calls || took != tt.took || !errors.Is(err, later) {
					t.Errorf("%d calls in %s, want %d in %s: %v", calls, took, tt.calls, tt.took, err)
				}
			})
		})
	}
}

// R11: a reader that cannot take back what it read gets no second attempt once
// it has read something; others read that it is void.
func TestRetryVoids(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		if _, err := call(t.Context(), policy.Retry{Unvoidable: true}.Wrap(script(&calls, unavailable, nil))); calls != 1 || err == nil {
			t.Errorf("%d calls: %v", calls, err)
		}
		calls = 0
		var got []agentbus.Chunk
		for c, err := range (policy.Retry{}).Wrap(script(&calls, unavailable, nil)).Call(t.Context(), &agentbus.Call{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, c)
		}
		want := []agentbus.Chunk{{Text: "begun "}, {Void: true}, {Text: "begun "}, {Text: "and done"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// R13: a participant's policy overrides the conversation's field by field.
func TestPolicyOver(t *testing.T) {
	t.Parallel()
	base := policy.Policy{TurnTimeout: time.Minute, AttemptTimeout: time.Second, Retry: &policy.Retry{Attempts: 5}}
	got := policy.Policy{AttemptTimeout: 2 * time.Second}.Over(base)
	want := policy.Policy{TurnTimeout: time.Minute, AttemptTimeout: 2 * time.Second, Retry: base.Retry}
	if got != want {
		t.Errorf("%+v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p := policy.Policy{TurnTimeout: time.Minute, AttemptTimeout: time.Second, Retry: &policy.Retry{}, Breaker: policy.NewBreaker(policy.BreakerConfig{Failures: 2})}
		if _, err := call(t.Context(), p.Wrap(script(&calls, unavailable))); calls != 2 || agentbus.CodeOf(err) != agentbus.CodeCircuitOpen {
			t.Errorf("%d calls: %v", calls, err) // the breaker opens in the middle of the retries
		}
	})
}
