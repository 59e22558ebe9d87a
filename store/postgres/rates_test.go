package postgres_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus/store/postgres"
)

// TestRatesAreShared: G8, processes at once get no more than the burst between
// them, what was taken comes again with time and not above the burst, and each
// caller has a bucket of its own.
func TestRatesAreShared(t *testing.T) {
	t.Parallel()
	url := stores.Database(t)
	stores := []*postgres.Store{opened(t, url), opened(t, url), opened(t, url)}
	var got atomic.Int64
	var wg sync.WaitGroup
	for i, s := range stores {
		t.Cleanup(func() { _ = s.Close() })
		for range 4 {
			wg.Go(func() {
				for range 5 {
					n, _, err := s.TakeRate(t.Context(), "alice", 1e-6, 10, 1+i)
					if err != nil {
						t.Error(err)
					}
					got.Add(int64(n))
				}
			})
		}
	}
	wg.Wait()
	if got.Load() != 10 {
		t.Errorf("%d were taken of 10", got.Load())
	}
	s := stores[0]
	if n, wait, err := s.TakeRate(t.Context(), "alice", 100, 10, 1); err != nil || n == 0 && (wait <= 0 || wait > 10*time.Millisecond) {
		t.Errorf("at once: %d, %v, %v", n, wait, err)
	}
	for taken := 0; taken < 3; { // it fills
		n, wait, err := s.TakeRate(t.Context(), "alice", 1000, 10, 1)
		if err != nil {
			t.Fatal(err)
		}
		taken += n
		<-time.After(wait)
	}
	for i := range 3 {
		if n, _, err := s.TakeRate(t.Context(), "caller-"+strconv.Itoa(i), 1e-6, 10.5, 100); err != nil || n != 10 {
			t.Errorf("another: %d, %v", n, err)
		}
	}
}
