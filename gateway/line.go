package gateway

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A line is who an agent serves and who waits for it: first come, first served.
type line struct {
	mu      sync.Mutex
	limit   int // calls at once, as who asked last, or the newest configuration, has it
	serving int
	waiting list.List     // of *inLine
	took    time.Duration // a call took lately
}

// An inLine is a call that waits.
type inLine struct {
	ready chan struct{} // closed when it has a place
	at    *list.Element // nil then
}

// enter takes a place when one is free and nobody waits.
func (l *line) enter(limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit = limit; l.serving >= limit || l.waiting.Len() > 0 {
		return false
	}
	l.serving++
	return true
}

// wait stands in line behind at most most others.
func (l *line) wait(limit, most int) (turn *inLine, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit = limit; l.waiting.Len() >= most && l.serving >= limit {
		return nil, true
	}
	turn = &inLine{ready: make(chan struct{})}
	turn.at = l.waiting.PushBack(turn)
	l.next() // a place may have become free since enter
	return turn, false
}

// quit gives up a turn, and the place if it came meanwhile.
func (l *line) quit(turn *inLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if turn.at != nil {
		l.waiting.Remove(turn.at)
		return
	}
	l.serving--
	l.next()
}

// leave frees a place that was held for that long.
func (l *line) leave(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving--
	if l.took == 0 {
		l.took = took
	}
	l.took += (took - l.took) / 8
	l.next()
}

// next gives free places to those who wait longest.
func (l *line) next() {
	for l.serving < l.limit && l.waiting.Len() > 0 {
		turn, _ := l.waiting.Remove(l.waiting.Front()).(*inLine) // nothing else stands there
		turn.at = nil
		l.serving++
		close(turn.ready)
	}
}

// until is how long a call that came now would wait, by how long calls took
// lately.
func (l *line) until() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took == 0 {
		return time.Second
	}
	ahead := time.Duration(l.waiting.Len()+1) * l.took / time.Duration(max(l.limit, 1))
	return min(max(ahead, 10*time.Millisecond), time.Minute)
}

// widen takes the limit of another configuration, with places for those who wait.
func (l *line) widen(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	l.next()
}

// lines are the lines of agents by name: as many as agents were configured with
// a bound.
type lines struct {
	mu     sync.Mutex
	byName map[string]*line
}

func (ls *lines) of(agent string) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.byName[agent]
	if !ok {
		if ls.byName == nil {
			ls.byName = map[string]*line{}
		}
		l = &line{}
		ls.byName[agent] = l
	}
	return l
}

// reconfigure gives the lines the limits that their agents have from now on; those
// who wait in one that has no limit any more wait no longer (G30).
func (ls *lines) reconfigure(r Router) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for name, l := range ls.byName {
		if t, ok := r.Route(name); ok && t.Concurrency > 0 {
			l.widen(t.Concurrency)
		} else if ok {
			l.widen(math.MaxInt)
		}
	}
}

// maxBuckets is how many callers' rates are kept. One beyond it takes the place
// of a caller that has not called lately, where there is one.
const maxBuckets = 10_000

// rates are token buckets by caller (G8).
type rates struct {
	mu       sync.Mutex
	byCaller map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time // when there were that many
	rate   float64
	burst  float64
}

// burstOf is how many tokens a bucket has when it is full.
func burstOf(g *agentbus.Grants) float64 {
	if g.Burst <= 0 {
		return math.Ceil(g.PerSecond)
	}
	return float64(g.Burst)
}

// take takes a token of a caller, or says when there will be one.
func (rs *rates) take(caller string, g *agentbus.Grants, now time.Time) (wait time.Duration, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	b, known := rs.byCaller[caller]
	if !known {
		rs.makeRoom(now)
		b = &bucket{tokens: math.MaxFloat64, at: now}
		rs.byCaller[caller] = b
	}
	b.rate, b.burst = g.PerSecond, burstOf(g)
	b.fill(now)
	if b.tokens >= 1 {
		b.tokens--
		return 0, true
	}
	seconds := min((1-b.tokens)/b.rate, time.Hour.Seconds())
	return time.Duration(math.Ceil(seconds * float64(time.Second))), false
}

// giveBack returns a token that was not used.
func (rs *rates) giveBack(caller string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if b, ok := rs.byCaller[caller]; ok {
		b.tokens = min(b.tokens+1, b.burst)
	}
}

// fill adds what has come since.
func (b *bucket) fill(now time.Time) {
	if past := now.Sub(b.at).Seconds(); past > 0 {
		b.tokens += past * b.rate
		b.at = now
	}
	b.tokens = min(b.tokens, b.burst)
}

// makeRoom makes room for one more bucket: of a few it forgets those that are
// full again, which are as new, or else one.
func (rs *rates) makeRoom(now time.Time) {
	if rs.byCaller == nil {
		rs.byCaller = map[string]*bucket{}
	}
	if len(rs.byCaller) < maxBuckets {
		return
	}
	looked, last := 0, ""
	for caller, b := range rs.byCaller { // begins anywhere
		if b.fill(now); b.tokens >= b.burst {
			delete(rs.byCaller, caller)
		}
		if looked, last = looked+1, caller; looked == 64 {
			break
		}
	}
	if len(rs.byCaller) >= maxBuckets {
		delete(rs.byCaller, last)
	}
}
