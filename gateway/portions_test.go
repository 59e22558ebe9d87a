package gateway_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// shared is a bucket that does not fill, and how often it was asked.
type shared struct {
	mu    sync.Mutex
	left  int
	wait  time.Duration
	asked atomic.Int64
	err   error
}

func (s *shared) TakeRate(_ context.Context, _ string, _, _ float64, most int) (int, time.Duration, error) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	got := min(most, s.left)
	s.left -= got
	if got > 0 {
		return got, 0, s.err
	}
	return 0, s.wait, s.err
}

// TestSharedRate: G8, what the processes of a bus share is taken in portions, a
// bucket that was found empty is left alone until it says that it has some, and
// a duplicate gives back what it took.
func TestSharedRate(t *testing.T) {
	t.Parallel()
	a, s := newAgent(t, "critic", nil), &shared{left: 20, wait: time.Hour}
	b := newBus(t, func(c *gateway.Config) {
		grant(agentbus.Grants{PerSecond: 100, Burst: 20})(c)
		c.Rates = s
	}, a)
	began := time.Now()
	for i := range 30 {
		got := b.call("critic", turn("r"+strconv.Itoa(i), "t")...)
		if i >= 20 {
			refused(t, "over", got, http.StatusTooManyRequests, agentbus.CodeRateLimited)
		}
		if i == 5 {
			b.call("critic", turn("r0", "t")...) // from memory
		}
	}
	inTime := time.Since(began) < time.Second // what was taken is worth nothing after that
	if n := a.executions(); n > 20 || inTime && n < 20 || s.asked.Load() > 5 {
		t.Errorf("%d executions; the bucket was asked %d times", a.executions(), s.asked.Load())
	}
}

// TestSharedRateIsAway: G8, P12, without the store nobody is let in.
func TestSharedRateIsAway(t *testing.T) {
	t.Parallel()
	a, s := newAgent(t, "critic", nil), &shared{err: &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "away"}}
	b := newBus(t, func(c *gateway.Config) {
		grant(agentbus.Grants{PerSecond: 100})(c)
		c.Rates = s
	}, a)
	refused(t, "away", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeStoreUnavailable)
	if a.executions() != 0 {
		t.Errorf("%d executions", a.executions())
	}
}
