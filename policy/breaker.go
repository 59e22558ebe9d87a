package policy

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/agentbus/agentbus"
)

// A BreakerConfig configures [NewBreaker].
type BreakerConfig struct {
	Name     string        // of whom it guards, for people
	Failures int           // in a row, after which it opens; 0: 5
	Cooldown time.Duration // how long it stays open before one call finds out; 0: 30 s
	// Changed is told each new state: open, half-open or closed. It must not
	// call the breaker. nil: nobody is told.
	Changed func(state string)
}

// A Breaker stops calls to a backend that keeps failing: closed, it lets them
// pass; open, it refuses them with CodeCircuitOpen; after the cooldown, half
// open, it lets one pass to find out (R12). It is shared by all calls of one
// participant and is safe for concurrent use.
type Breaker struct {
	name     string
	cooldown time.Duration
	circuit  *gobreaker.TwoStepCircuitBreaker[struct{}]

	doubted atomic.Bool // one failure is enough, until a call succeeds

	mu     sync.Mutex
	opened time.Time // last
}

// NewBreaker returns a closed breaker. What c leaves out has its default.
func NewBreaker(c BreakerConfig) *Breaker {
	if c.Failures <= 0 {
		c.Failures = 5
	}
	if c.Cooldown <= 0 {
		c.Cooldown = 30 * time.Second
	}
	b := &Breaker{name: c.Name, cooldown: c.Cooldown}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     c.Cooldown - 1, // it is over when the time has come, not after
		ReadyToTrip: func(n gobreaker.Counts) bool { return int(n.ConsecutiveFailures) >= c.Failures || b.doubted.Load() },
		IsExcluded:  func(err error) bool { return err != nil && !failed(err) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.mu.Lock()
				b.opened = time.Now()
				b.mu.Unlock()
			}
			if c.Changed != nil {
				c.Changed(to.String())
			}
		},
	})
	return b
}

// failed reports whether an error tells that the backend does not work. A
// refusal by policy, or a caller that left, tells nothing of it.
func failed(err error) bool {
	e, ours := errors.AsType[*agentbus.Error](err)
	switch {
	case !ours:
		return !errors.Is(err, context.Canceled)
	case e.Code == agentbus.CodeAgentUnavailable, e.Code == agentbus.CodeDeadlineExceeded, e.Code == agentbus.CodeInternal, e.Code == agentbus.CodeAgentRedirected:
		return e.Status == 0 || Retryable(e) || e.Code == agentbus.CodeAgentRedirected
	}
	return false
}

// State returns "closed", "open" or "half-open", as it stands now.
func (b *Breaker) State() string { return b.circuit.State().String() }

// Doubt takes note that the breaker of another process opened: here one failure
// is enough for that, until a call succeeds (R12). What another saw may be its
// own network.
func (b *Breaker) Doubt() { b.doubted.Store(true) }

// Wrap is the [agentbus.Middleware].
func (b *Breaker) Wrap(next agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			done, err := b.circuit.Allow()
			if err != nil {
				yield(agentbus.Chunk{}, b.open())
				return
			}
			outcome := errLeft
			defer func() { done(outcome) }() // also when the reader panics
			for chunk, err := range next.Call(ctx, c) {
				if !yield(chunk, err) || err != nil {
					if err != nil {
						outcome = told(ctx, err)
					}
					return
				}
			}
			outcome = nil
			b.doubted.Store(false)
		}
	})
}

// errLeft is the outcome of a call whose reader left before its end.
var errLeft = context.Canceled

// told is what an error tells of the backend. When the call was ended from
// outside it tells nothing, unless that was since the time of its turn was up
// ([Deadline]): a backend that hangs must not count as well.
func told(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if e, ours := errors.AsType[*agentbus.Error](context.Cause(ctx)); ours && e.Code == agentbus.CodeDeadlineExceeded {
		return e
	}
	return errLeft
}

// open says that the breaker is open, and when it will let a call pass.
func (b *Breaker) open() error {
	b.mu.Lock()
	left := max(b.cooldown-time.Since(b.opened), 0)
	b.mu.Unlock()
	return &agentbus.Error{
		Code: agentbus.CodeCircuitOpen, Message: "calls to " + b.name + " are suspended, since it kept failing", RetryAfter: left,
		Explain: &agentbus.Explain{Rule: "R12", Observed: b.State(), Next: "try again after the given time"},
	}
}
