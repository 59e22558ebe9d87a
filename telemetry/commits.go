package telemetry

import (
	"slices"
	"sync/atomic"
	"time"
)

// recentCommits is how many of the last commits are remembered one by one.
const recentCommits = 256

// commits are how long the last commits took.
type commits struct {
	next atomic.Uint64
	took [recentCommits]atomic.Int64 // nanoseconds; 0: none yet
}

func (c *commits) add(took time.Duration) {
	c.took[(c.next.Add(1)-1)%recentCommits].Store(int64(max(took, 1)))
}

// CommitLatency returns how long the last commits of the store took, half and 99
// in 100 of them at most; 0 before the first. The histogram that Prometheus reads
// is of all since the start.
func (m *Metrics) CommitLatency() (p50, p99 time.Duration) {
	var took []time.Duration
	for i := range m.commits.took {
		if d := m.commits.took[i].Load(); d > 0 {
			took = append(took, time.Duration(d))
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[(len(took)-1)/2], took[(len(took)*99-1)/100]
}
