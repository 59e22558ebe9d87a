package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/policy"
)

// delays are the waits of the reference for one random number, by attempt.
type delays struct {
	Random   float64
	Attempts map[string]float64 // milliseconds
}

// A step is what happens to a breaker of the reference, and what becomes of it.
type step struct {
	Op    string // fail, success, or preflight: may a call pass?
	At    int    // milliseconds
	Error *struct{ Message string }
}

// reference holds the figures of the reference runtime, as testdata/reference.json
// has them.
type reference struct {
	DefaultIsRetryable []struct {
		Error     string
		Retryable bool
	}
	ComputeBackoff struct {
		Default   []delays
		Constants []struct {
			Spec     any
			Attempt1 any
			Attempt7 any
		}
	}
	OpenAIBackend      map[string]struct{ Attempts int }
	OpenAIBackendRetry struct {
		Defaults struct {
			MaxAttempts, InitialBackoffMs, MaxBackoffMs int
			RetryStatuses                               []int
		}
		Delays []delays
	}
	CircuitBreaker []struct {
		Config *struct{ FailuresToOpen, CooldownMs int }
		Steps  []step
	}
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// R11: the bound of a wait is that of computeBackoff without its jitter, and of
// openAIBackendRetry in the middle of its jitter. On purpose it differs in three
// ways: the whole wait is random (full jitter), so that callers that failed
// together do not return together; it has a cap; and no jitter exceeds the cap.
func TestBackoffOfTheReference(t *testing.T) {
	t.Parallel()
	r := readReference(t)
	defaults := r.OpenAIBackendRetry.Defaults
	for name, tt := range map[string]struct {
		retry  policy.Retry
		bounds delays
	}{
		"computeBackoff":     {policy.Retry{}, r.ComputeBackoff.Default[0]},
		"openAIBackendRetry": {policy.Retry{Base: millis(defaults.InitialBackoffMs), Max: millis(defaults.MaxBackoffMs)}, r.OpenAIBackendRetry.Delays[1]},
	} {
		const most = 30 * time.Second // Max, of both
		for attempt, bound := range tt.bounds.Attempts {
			n, err := strconv.Atoi(attempt)
			if err != nil {
				t.Fatal(err)
			}
			longest := min(time.Duration(bound)*time.Millisecond, most)
			for _, random := range []float64{0, 0.5, 1} {
				if got, want := policy.Backoff(tt.retry, n, random), time.Duration(random*float64(longest)); got != want {
					t.Errorf("%s: after attempt %d, at %v of it: %s, want %s", name, n, random, got, want)
				}
			}
		}
	}
}

// R11: with the wildest jitter of the reference a wait is still one that ours can
// have, but for those beyond its cap: full jitter is between 0 and the bound.
func TestJitterOfTheReference(t *testing.T) {
	t.Parallel()
	r := readReference(t)
	for _, d := range slices.Concat(r.ComputeBackoff.Default, r.OpenAIBackendRetry.Delays) {
		for attempt, waited := range d.Attempts {
			n, err := strconv.Atoi(attempt)
			if err != nil {
				t.Fatal(err)
			}
			// One doubling more bounds what is added to the reference's waits.
			most := policy.Backoff(policy.Retry{Base: 2 * time.Second}, n+1, 1)
			if capped := min(time.Duration(waited)*time.Millisecond, 30*time.Second); capped > most {
				t.Errorf("the reference waits %s after attempt %d, and ours %s at most", capped, n, most)
			}
		}
	}
}

// R11: a constant wait is a Base that is its own Max, and the bound of a random
// one. What is no wait at all is the default, since a wait of 0 would ask an agent
// that is down again and again at once; there are no functions.
func TestConstantWaitsOfTheReference(t *testing.T) {
	t.Parallel()
	for _, c := range readReference(t).ComputeBackoff.Constants {
		spec, number := c.Spec.(float64)
		if !number {
			continue // NaN: a Duration has none
		}
		d := time.Duration(spec * float64(time.Millisecond))
		want := 250 * time.Millisecond
		if d > 0 {
			want = d
			if c.Attempt1 != spec || c.Attempt7 != spec {
				t.Errorf("the reference waits %v, %v for %v", c.Attempt1, c.Attempt7, spec)
			}
		}
		if got := policy.Backoff(policy.Retry{Base: d, Max: d}, 1, 1); got != want {
			t.Errorf("%v: %s, want %s", spec, got, want)
		}
		if got := policy.Backoff(policy.Retry{Base: d, Max: d}, 7, 1); d > 0 && got != want {
			t.Errorf("%v, after attempt 7: %s, want %s", spec, got, want)
		}
	}
}

// R11, P13: the retries of the reference's OpenAI backend, with its five attempts.
// Ours differs on purpose where why says so.
func TestRetriesOfTheReference(t *testing.T) {
	t.Parallel()
	busy := func(n int, code agentbus.Code, after time.Duration) error {
		return &agentbus.Error{Code: code, Status: n, RetryAfter: after}
	}
	rated := busy(http.StatusTooManyRequests, agentbus.CodeAgentUnavailable, 0)
	ours := map[string]struct {
		outcomes []error
		attempts int
		least    time.Duration
		why      string
	}{
		"status429ThenOk":                       {outcomes: []error{rated, rated, nil}, attempts: 3},
		"depthRefusal429IsRetriedLikeRateLimit": {outcomes: []error{busy(http.StatusTooManyRequests, agentbus.CodeDepthExceeded, 0)}, attempts: 1, why: "a refusal is final, whatever its status (P13)"},
		"retryAfter3sHonoured":                  {outcomes: []error{busy(http.StatusServiceUnavailable, agentbus.CodeAgentUnavailable, 3*time.Second), nil}, attempts: 2, least: 3 * time.Second},
		"connectionRefused":                     {outcomes: []error{unavailable}, attempts: 5, why: "the reference counts answers; all five of its attempts had none"},
	}
	for name, ref := range readReference(t).OpenAIBackend {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, listed := ours[name]
			if !listed {
				t.Fatal("it is not compared")
			}
			if (o.attempts != ref.Attempts) != (o.why != "") {
				t.Errorf("%d attempts, of the reference %d; differs because %q", o.attempts, ref.Attempts, o.why)
			}
			synctest.Test(t, func(t *testing.T) {
				calls, began := 0, time.Now()
				_, _ = call(t.Context(), policy.Retry{Attempts: 5}.Wrap(script(&calls, o.outcomes...)))
				if calls != o.attempts || time.Since(began) < o.least {
					t.Errorf("%d attempts in %s", calls, time.Since(began))
				}
			})
		})
	}
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// R11: the statuses that are tried again are those of the reference's backend,
// and no others.
func TestStatusesOfTheReference(t *testing.T) {
	t.Parallel()
	var got []int
	for status := 100; status < 600; status++ {
		if policy.Retryable(&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: status}) {
			got = append(got, status)
		}
	}
	if diff := cmp.Diff(readReference(t).OpenAIBackendRetry.Defaults.RetryStatuses, got); diff != "" {
		t.Error(diff)
	}
}

// R11: what is retryable. The reference reads the text of an error; here its code
// and status decide, which every backend of ours gives. So an error with the same
// text counts otherwise where why says so.
func TestRetryableOfTheReference(t *testing.T) {
	t.Parallel()
	const (
		connection = "a connection that failed has a code, whatever the system calls it"
		unknown    = "an error without a code is nobody's word that it may pass"
		status     = "the status says that it may pass"
	)
	answered := func(n int) error { return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: n} }
	ours := map[string]struct {
		err error
		why string // it differs; "": it does not
	}{
		"DeadlineExceededError(100)":                                   {err: &agentbus.Error{Code: agentbus.CodeDeadlineExceeded}},
		"CircuitOpenError":                                             {err: &agentbus.Error{Code: agentbus.CodeCircuitOpen}},
		"Error name=TimeoutError":                                      {err: &agentbus.Error{Code: agentbus.CodeDeadlineExceeded}},
		"DOMException TimeoutError":                                    {err: &agentbus.Error{Code: agentbus.CodeDeadlineExceeded}},
		`Error("ECONNRESET")`:                                          {err: unavailable},
		`Error("connect ETIMEDOUT 1.2.3.4")`:                           {err: unavailable},
		`Error("socket hang up")`:                                      {err: unavailable},
		`Error("Socket Hang Up")`:                                      {err: unavailable},
		`Error("fetch failed")`:                                        {err: unavailable},
		`Error("TypeError: fetch failed")`:                             {err: unavailable},
		`Error("EAI_AGAIN")`:                                           {unavailable, connection},
		`Error("other side closed")`:                                   {unavailable, connection},
		`Error("terminated")`:                                          {unavailable, connection},
		"Error code=ECONNRESET message=read":                           {unavailable, connection},
		"Error(outer) cause ECONNRESET":                                {fmt.Errorf("outer: %w", unavailable), connection},
		`Error("timeout")`:                                             {&agentbus.Error{Code: agentbus.CodeDeadlineExceeded}, connection},
		`Error("429 Too Many Requests")`:                               {answered(http.StatusTooManyRequests), status},
		`Error("rate limit exceeded")`:                                 {&agentbus.Error{Code: agentbus.CodeRateLimited}, status},
		`Error("model refused: 400 bad request")`:                      {err: answered(http.StatusBadRequest)},
		`Error("Network policy violation: 403 forbidden")`:             {&agentbus.Error{Code: agentbus.CodeForbidden}, "a refusal by policy is final, though its text has the word network"},
		"BackendTransportError status=500 'chat backend returned 500'": {answered(http.StatusInternalServerError), status},
		"BackendTransportError status=503 'chat backend returned 503'": {answered(http.StatusServiceUnavailable), status},
		"BackendTransportError status=504 'chat backend returned 504'": {answered(http.StatusGatewayTimeout), status},
		"BackendTransportError status=401 'chat backend returned 401'": {err: answered(http.StatusUnauthorized)},
		"BackendTransportError 'chat backend unreachable after 5 attempts: fetch failed'": {err: unavailable},
		`BackendTransportError "backend 'x' completed without text"`:                      {err: errors.New("the driver says so, above the policies")},
		"undefined":                      {err: nil},
		"plain object {message}":         {err: errors.New(unknown)},
		"plain object {name:AbortError}": {err: context.Canceled},
	}
	for _, tt := range readReference(t).DefaultIsRetryable {
		o, listed := ours[tt.Error]
		if !listed {
			t.Errorf("%s is not compared", tt.Error)
			continue
		}
		if got := policy.Retryable(o.err); got != (tt.Retryable != (o.why != "")) {
			t.Errorf("%s: retryable is %v, of the reference %v; differs because %q", tt.Error, got, tt.Retryable, o.why)
		}
	}
}

// R11, P13: a refusal that says it is final is not tried again, whatever its code
// and status.
func TestFinalIsNotRetryable(t *testing.T) {
	t.Parallel()
	for _, e := range []agentbus.Error{{Code: agentbus.CodeAgentUnavailable, Status: http.StatusServiceUnavailable}, {Code: agentbus.CodeOverloaded}} {
		final := e
		final.Final = true
		if !policy.Retryable(&e) || policy.Retryable(&final) {
			t.Errorf("%+v", e)
		}
	}
}

// A circuit is a breaker that the steps of the reference are done to.
type circuit struct {
	t       *testing.T
	breaker *policy.Breaker
}

// do does a step and returns how it ended: "ok", or for how long the breaker is
// open still. A preflight is a call whose caller leaves: it tells nothing.
func (c circuit) do(op string) string {
	c.t.Helper()
	var outcome error
	switch op {
	case "fail":
		outcome = unavailable
	case "preflight":
		outcome = context.Canceled
	case "success":
	default:
		c.t.Fatalf("what is %q?", op)
	}
	calls := 0
	_, err := call(c.t.Context(), policy.Policy{Breaker: c.breaker}.Wrap(script(&calls, outcome)))
	if agentbus.CodeOf(err) == agentbus.CodeCircuitOpen {
		return agentbus.AsError(err).RetryAfter.String() + " remaining"
	}
	return "ok"
}

// R12: the sequences of the reference's circuitBreaker, but for what differs on
// purpose.
func TestBreakerOfTheReference(t *testing.T) {
	t.Parallel()
	const (
		probe = "half open, one failed probe opens it again; the reference counts from 0, so that three calls must fail each time"
		late  = "a call that began before it opened says nothing new when it fails; in the reference it prolongs the cooldown"
		zero  = "0 is the default here; a breaker is left out by having none"
	)
	differs := map[string]struct{ got, why string }{
		"1/8": {"99ms remaining", probe}, "1/9": {"98ms remaining", probe}, "1/10": {"97ms remaining", probe}, "1/11": {"96ms remaining", probe},
		"2/5": {"54ms remaining", late}, "2/6": {"ok", late},
		"3/2": {"ok", zero}, "4/1": {"30s remaining", zero},
	}
	for i, sequence := range readReference(t).CircuitBreaker {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := circuit{t: t}
				if sequence.Config != nil {
					c.breaker = policy.NewBreaker(policy.BreakerConfig{Failures: sequence.Config.FailuresToOpen, Cooldown: millis(sequence.Config.CooldownMs)})
				}
				began := time.Now()
				for n, s := range sequence.Steps {
					<-time.After(time.Until(began.Add(millis(s.At))))
					want, why := "ok", ""
					if s.Error != nil { // "circuit open for participant 'p'; 10ms remaining before retry allowed"
						_, want, _ = strings.Cut(s.Error.Message, "; ")
						want = strings.TrimSuffix(want, " before retry allowed")
					}
					if d, ours := differs[fmt.Sprintf("%d/%d", i, n)]; ours {
						want, why = d.got, d.why
					}
					if got := c.do(s.Op); got != want {
						t.Errorf("step %d, %s at %d ms: %s, want %s %s", n, s.Op, s.At, got, want, why)
					}
				}
			})
		})
	}
}

// R12: a call that began before the breaker opened, and fails after, does not
// keep it open for longer.
func TestBreakerIgnoresLateFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := policy.NewBreaker(policy.BreakerConfig{Failures: 1, Cooldown: 100 * time.Millisecond})
		slow := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			<-time.After(50 * time.Millisecond)
			return agentbus.Chunk{}, unavailable
		})
		failed := make(chan error)
		go func() {
			_, err := call(t.Context(), b.Wrap(slow))
			failed <- err
		}()
		synctest.Wait()
		c := circuit{t, b}
		c.do("fail")
		if err := <-failed; agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
			t.Error(err)
		}
		<-time.After(50 * time.Millisecond)
		if got := c.do("success"); got != "ok" || b.State() != "closed" {
			t.Errorf("after its cooldown: %s, %s", got, b.State())
		}
	})
}

// R12: who operates is told of each change.
func TestBreakerTellsItsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var states []string
		b := policy.NewBreaker(policy.BreakerConfig{Failures: 1, Cooldown: time.Second, Changed: func(s string) { states = append(states, s) }})
		c := circuit{t, b}
		c.do("fail")
		<-time.After(time.Second)
		c.do("success")
		if diff := cmp.Diff([]string{"open", "half-open", "closed"}, states); diff != "" {
			t.Error(diff)
		}
	})
}
