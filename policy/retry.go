package policy

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// A Retry calls a backend again when an attempt failed in a way that may pass,
// with the same turn id each time, so that an agent that executed it answers
// from memory (R11). The zero Retry has the defaults named at its fields.
type Retry struct {
	Attempts int           // in all; 0: 3, 1: no retry
	Base     time.Duration // the longest wait before the second attempt, twice as long before each that follows; 0: 250 ms
	Max      time.Duration // the longest wait of its own; 0: 30 s
	// Patience is the longest wait that an agent may ask for by Retry-After; one
	// that asks for more has failed. 0: 1 min.
	Patience time.Duration
	// Unvoidable says that the reader of the answer cannot take back what it
	// read: there is no retry once a chunk has reached it.
	Unvoidable bool
}

// Wrap is the [agentbus.Middleware]. Each further attempt begins with a void
// chunk, which takes back what the one before said.
func (r Retry) Wrap(b agentbus.Backend) agentbus.Backend {
	r = r.defaults()
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) { r.call(ctx, b, c, yield) }
	})
}

func (r Retry) defaults() Retry {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	if r.Attempts <= 0 {
		r.Attempts = 3
	}
	set(&r.Base, 250*time.Millisecond)
	set(&r.Max, 30*time.Second)
	set(&r.Patience, time.Minute)
	return r
}

func (r Retry) call(ctx context.Context, b agentbus.Backend, c *agentbus.Call, yield func(agentbus.Chunk, error) bool) {
	for attempt := 1; ; attempt++ {
		told := false
		var failure error
		for chunk, err := range b.Call(ctx, c) {
			if failure = err; err != nil {
				break
			}
			told = true
			if !yield(chunk, nil) {
				return
			}
		}
		switch {
		case failure == nil:
			return
		case attempt == r.Attempts, told && r.Unvoidable, ctx.Err() != nil, !Retryable(failure), !r.wait(ctx, attempt, failure):
			yield(agentbus.Chunk{}, failure)
			return
		}
		if !yield(agentbus.Chunk{Void: true}, nil) {
			return
		}
	}
}

// wait waits before the attempt that follows. It reports false, at once, when
// that is not worth it: the agent asks for more patience than there is, or ctx
// will have ended by then.
func (r Retry) wait(ctx context.Context, attempt int, failure error) bool {
	d := r.backoff(attempt, rand.Float64())
	if asked := agentbus.AsError(failure).RetryAfter; asked > d {
		if d = asked; asked > r.Patience {
			return false
		}
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff returns the wait after the n-th attempt: random in [0, 1) of Base,
// doubled with each attempt up to Max (full jitter).
func (r Retry) backoff(n int, random float64) time.Duration {
	most := r.Base
	for range n - 1 {
		if most >= r.Max {
			break
		}
		most *= 2
	}
	return time.Duration(random * float64(min(most, r.Max)))
}

// Retryable reports whether a failure may pass: a connection that failed, a
// deadline, or an agent's answer of 408, 425, 429, 500, 502, 503 or 504; never a
// refusal that says it is final, whatever its status (R11, P13).
func Retryable(err error) bool {
	e, ours := errors.AsType[*agentbus.Error](err)
	switch {
	case !ours, e.Final, e.Code == agentbus.CodeCircuitOpen:
		return false
	case e.Status == 0, e.Code.Known() && e.Code != agentbus.CodeAgentUnavailable:
		return e.Code.Retryable()
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
