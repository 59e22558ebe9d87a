package gateway

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// Rates are the buckets of callers that all processes of a bus share (G8). It is
// safe for concurrent use.
type Rates interface {
	// TakeRate takes up to most tokens from the bucket of a caller, which fills at
	// perSecond up to burst. got 0: wait says when there will be one.
	TakeRate(ctx context.Context, caller string, perSecond, burst float64, most int) (got int, wait time.Duration, err error)
}

// portions are what this process took from shared buckets and has not used yet:
// at most what comes in a tenth of a second, so that a caller with a high rate
// costs no journey to the store with each call. It is worth nothing after a
// second: another process may have given away the same since.
type portions struct {
	mu       sync.Mutex // guards byCaller
	byCaller map[string]*portion
}

const (
	portionOf    = 100 * time.Millisecond // of a rate is taken at once
	portionLasts = time.Second
)

type portion struct {
	mu    sync.Mutex // held while the bucket is asked
	left  int
	until time.Time // when left is worth nothing any more
	empty time.Time // until when the bucket has nothing
}

// of returns the portion of a caller.
func (ps *portions) of(caller string, now time.Time) *portion {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byCaller[caller]
	if p != nil {
		return p
	}
	if ps.byCaller == nil || len(ps.byCaller) >= maxBuckets {
		ps.forget(now)
	}
	p = &portion{}
	ps.byCaller[caller] = p
	return p
}

// forget makes room: it forgets what is worth nothing, or else everything.
func (ps *portions) forget(now time.Time) {
	before := ps.byCaller
	ps.byCaller = map[string]*portion{}
	for caller, p := range before {
		if p.mu.TryLock() {
			if (now.Before(p.until) || now.Before(p.empty)) && len(ps.byCaller) < maxBuckets/2 {
				ps.byCaller[caller] = p
			}
			p.mu.Unlock()
		}
	}
}

// take takes a token of a caller, or says when there will be one.
func (ps *portions) take(ctx context.Context, from Rates, caller string, g *agentbus.Grants, now time.Time) (wait time.Duration, ok bool, err error) {
	p := ps.of(caller, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.left > 0 && now.Before(p.until):
		p.left--
		return 0, true, nil
	case now.Before(p.empty):
		return p.empty.Sub(now), false, nil
	}
	burst := burstOf(g)
	most := min(max(g.PerSecond*portionOf.Seconds(), 1), burst)
	got, wait, err := from.TakeRate(ctx, caller, g.PerSecond, burst, int(math.Ceil(most)))
	if err != nil || got == 0 {
		p.left, p.empty = 0, now.Add(wait)
		return wait, false, err
	}
	p.left, p.until = got-1, now.Add(portionLasts)
	return 0, true, nil
}

// giveBack returns a token that was not used.
func (ps *portions) giveBack(caller string, now time.Time) {
	p := ps.of(caller, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.until) {
		p.left = 0
	}
	p.left, p.until, p.empty = p.left+1, now.Add(portionLasts), time.Time{}
}
