package gateway

import (
	"bytes"
	"cmp"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

// An Eject says when one of the URLs of an agent is left out, and for how long
// (G13). When that is over, one request finds out whether the URL is back. An
// agent is never left without a URL: with all of them left out, the one that is
// to be asked again first is called all the same.
type Eject struct {
	Failures int           // in a row, after which it is left out; 0: 5
	For      time.Duration // how long the first time, and twice as long with each request that finds it still bad; 0: 10 s
	AtMost   time.Duration // the longest it is left out at a time; 0: 2 min
}

// after returns for how long a URL is left out the nth time in a row.
func (e Eject) after(n int) time.Duration {
	d := e.For
	for range n - 1 {
		if d > e.AtMost/2 {
			return e.AtMost
		}
		d *= 2
	}
	return min(d, e.AtMost)
}

// An UpstreamState is how one URL of an agent does, for people.
type UpstreamState struct {
	URL          string
	InFlight     int       // requests that it has not answered to the end
	Failures     int       // in a row
	EjectedUntil time.Time // the zero time: it is not left out; a past one: the next request finds out
	Probing      bool      // one request is finding out whether it is back
}

// Upstreams returns how each URL of t does, in the order of the configuration.
// It is safe for concurrent use.
func (t *Target) Upstreams() []UpstreamState {
	p := t.upstreams()
	states := make([]UpstreamState, len(p.list))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, u := range p.list {
		states[i] = UpstreamState{
			URL: u.name, InFlight: int(u.inFlight.Load()), Failures: int(u.failures.Load()), EjectedUntil: u.until, Probing: u.probing,
		}
	}
	return states
}

// Doubt takes note that another process leaves a URL of t out: here one more
// failure is enough for that (G13). It is safe for concurrent use.
func (t *Target) Doubt(address string) {
	p := t.upstreams()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.list {
		if u.name == address && u.until.IsZero() {
			u.failures.Store(max(u.failures.Load(), int64(p.eject.Failures)-1))
		}
	}
}

// Inherit gives the agents of t what is known of the URLs that those of the same
// name have in last: an agent whose configuration changes keeps the URLs it
// leaves out, and knows of the calls that are still under way. It must return
// before t routes anything.
func (t *Table) Inherit(last *Table) {
	for _, a := range t.targets {
		if before, ok := last.byName[a.Name]; ok && before.Name == a.Name {
			a.inherit(before)
		}
	}
}

func (t *Target) inherit(from *Target) {
	last, next := from.upstreams(), newPool(t)
	next.mu = last.mu // it guards what both now have
	next.mu.Lock()
	defer next.mu.Unlock()
	next.turns = last.turns
	for i, u := range next.list {
		for _, known := range last.list {
			if known.name == u.name {
				next.list[i] = known
			}
		}
	}
	t.pool.Store(next)
}

// upstreams returns the URLs of t with their state.
func (t *Target) upstreams() *pool {
	if p := t.pool.Load(); p != nil {
		return p
	}
	t.pool.CompareAndSwap(nil, newPool(t))
	return t.pool.Load()
}

// An upstream is one URL of an agent.
type upstream struct {
	base     *url.URL
	name     string // the base as text, which it is known by
	inFlight atomic.Int64
	failures atomic.Int64 // in a row; changed under pool.mu
	card     heldCard     // of an A2A agent
	last     atomic.Pointer[namedURL]
	era      atomic.Int64 // counts ejections, ever; likewise

	// Guarded by pool.mu:
	until     time.Time // left out until then; after that, until a request has found out
	ejections int       // in a row
	probing   bool
	turn      int // of the pool, when it was last chosen: equals take turns
}

// at returns the URL of path below the agent's base. A path that repeats the
// path of the base is taken from the host's root, so that both
// /agents/x/chat/completions and /agents/x/v1/chat/completions reach an agent
// at http://host/v1.
func (u *upstream) at(path, rawQuery string) *url.URL {
	to := *u.base
	base := strings.TrimSuffix(to.EscapedPath(), "/")
	if path != base && !strings.HasPrefix(path, base+"/") {
		path = base + path
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		to.Path, to.RawPath = decoded, path
	}
	to.RawQuery = rawQuery
	return &to
}

// A pool are the URLs of one agent. With one URL it decides nothing, and takes
// no lock.
type pool struct {
	agent    string
	list     []*upstream
	eject    Eject
	affinity bool
	legacy   bool // the parent context of a caller that tells no root is its root (K2)
	key      []byte
	now      func() time.Time
	mu       *sync.Mutex // shared with the pools that Inherit made of this one
	turns    int         // begun so far; guarded by mu
}

func newPool(t *Target) *pool {
	p := &pool{agent: t.Name, affinity: t.Affinity, legacy: !t.NoLegacyParent, key: t.AffinityKey, mu: &sync.Mutex{}, now: t.now}
	if p.now == nil {
		p.now = time.Now
	}
	p.eject = Eject{or(t.Eject.Failures, 5), or(t.Eject.For, 10*time.Second), or(t.Eject.AtMost, 2*time.Minute)}
	bases := t.URLs
	if len(bases) == 0 {
		bases = []*url.URL{t.URL}
	}
	for _, base := range bases {
		p.list = append(p.list, &upstream{base: base, name: base.String()})
	}
	return p
}

// begin chooses the URL of one try, not among those tried as long as there are
// others. The try must be ended.
func (p *pool) begin(x *exchange, tried uint64) try {
	if at := p.only(x); at >= 0 {
		u := p.list[at]
		u.inFlight.Add(1)
		return try{pool: p, to: u, bit: 1 << at, era: u.era.Load()}
	}
	var order []agentbus.Digest
	if p.affinity {
		_, root := x.lineage.Contexts(x.lineage.Session(), p.legacy)
		order = p.order(x.payer, root)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	at := p.choose(now, order, tried)
	if at < 0 {
		at = p.choose(now, order, 0)
	}
	u := p.list[at]
	u.inFlight.Add(1)
	p.turns++
	u.turn = p.turns
	t := try{pool: p, to: u, bit: 1 << at, era: u.era.Load(), probe: u.due(now)}
	u.probing = u.probing || t.probe
	return t
}

// only returns which URL a request must go to, or -1: the one that there is, or
// the one that has the task it is about (A12).
func (p *pool) only(x *exchange) int {
	if len(p.list) == 1 {
		return 0
	}
	for at, u := range p.list {
		if x.pinned != "" && u.name == x.pinned {
			return at
		}
	}
	return -1
}

// order draws a number for each URL, by which the least is the one of a
// conversation of a payer: a URL that goes or comes changes nothing between the
// others (rendezvous hashing). Every process with the same install key draws the
// same; nobody else can say which conversations meet (K10).
func (p *pool) order(payer agentbus.Payer, conversation string) []agentbus.Digest {
	drawn := make([]agentbus.Digest, len(p.list))
	for i, u := range p.list {
		drawn[i] = agentbus.Keyed(p.key, "affinity", string(payer), p.agent, conversation, u.name)
	}
	return drawn
}

// due reports whether the next request to u is to find out whether it is back.
func (u *upstream) due(now time.Time) bool {
	return !u.until.IsZero() && !u.probing && !now.Before(u.until)
}

// choose returns the index of the best URL that is not among those tried, or -1.
func (p *pool) choose(now time.Time, order []agentbus.Digest, tried uint64) int {
	best, of := -1, rank{}
	for at, u := range p.list {
		if tried>>at&1 == 1 {
			continue
		}
		r := u.rank(now)
		if order != nil && r.state != ejected {
			r = rank{state: healthy, drawn: order[at]}
		}
		if best < 0 || r.before(of) {
			best, of = at, r
		}
	}
	return best
}

// States of a URL, the best to call first.
const (
	due     = iota // left out long enough: one request finds out
	healthy        // as far as we know
	ejected        // left out, or being found out about
)

// A rank orders the URLs of an agent: by state, then by what was drawn for the
// conversation, then by what they have to do or when they are due, then by whose turn it is.
type rank struct {
	state int
	drawn agentbus.Digest
	load  int64
	turn  int
}

func (u *upstream) rank(now time.Time) rank {
	switch {
	case u.until.IsZero():
		return rank{state: healthy, load: u.inFlight.Load(), turn: u.turn}
	case u.due(now):
		return rank{state: due, turn: u.turn}
	}
	return rank{state: ejected, load: int64(u.until.Sub(now)), turn: u.turn}
}

func (r rank) before(s rank) bool {
	return cmp.Or(cmp.Compare(r.state, s.state), bytes.Compare(r.drawn[:], s.drawn[:]), cmp.Compare(r.load, s.load), cmp.Compare(r.turn, s.turn)) < 0
}
