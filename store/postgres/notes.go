package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/agentbus/agentbus"
)

// notes are the writes nobody waits for: refusals and replay counts. A crash
// may lose the last of them. What is repeated takes one place here, and one
// row, however often it is (P12).
type notes struct {
	mu       sync.Mutex
	refusals map[agentbus.Digest]*refusalNote
	replays  map[numbered]int64

	room chan struct{} // holds one value for each entry of the maps
	bell chan struct{} // holds one value when there is something
}

// A refusalNote is a hop that executed nothing, and how often.
type refusalNote struct {
	key     agentbus.Digest
	record  agentbus.CallRecord
	repeats int64
}

func newNotes(limit int) *notes {
	return &notes{
		refusals: make(map[agentbus.Digest]*refusalNote), replays: make(map[numbered]int64),
		room: make(chan struct{}, limit), bell: make(chan struct{}, 1),
	}
}

// add notes something: repeat adds to an entry that waits and reports whether
// there was one, create makes it. Both run under the lock. It waits, until ctx
// ends, while the notes are full.
func (n *notes) add(ctx context.Context, repeat func() bool, create func()) error {
	n.mu.Lock()
	known := repeat()
	n.mu.Unlock()
	if known {
		return nil
	}
	select {
	case n.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	n.mu.Lock()
	if repeat() {
		<-n.room
	} else {
		create()
	}
	n.mu.Unlock()
	select {
	case n.bell <- struct{}{}:
	default:
	}
	return nil
}

// A notePage is what one commit writes of them.
type notePage struct {
	refusals map[agentbus.Digest]*refusalNote
	replays  map[numbered]int64
}

// take empties the notes; nil when there are none. The page takes their room
// until it is released or put back.
func (n *notes) take() *notePage {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.refusals)+len(n.replays) == 0 {
		return nil
	}
	p := &notePage{refusals: n.refusals, replays: n.replays}
	n.refusals, n.replays = make(map[agentbus.Digest]*refusalNote), make(map[numbered]int64)
	return p
}

// release frees the room of a page that was written, or cannot be.
func (n *notes) release(p *notePage) {
	for range len(p.refusals) + len(p.replays) {
		<-n.room
	}
}

// putBack keeps a page for the next commit.
func (n *notes) putBack(p *notePage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, r := range p.refusals {
		if later := n.refusals[key]; later != nil {
			r.repeats += 1 + later.repeats
			r.record.Ended = later.record.Ended
			<-n.room
		}
		n.refusals[key] = r
	}
	for id, count := range p.replays {
		if n.replays[id] > 0 {
			<-n.room
		}
		n.replays[id] += count
	}
}

// task writes the notes.
func (p *notePage) task() *task[*ledgerPage] {
	return &task[*ledgerPage]{done: make(chan struct{}), want: func(l *ledgerPage) {
		for _, r := range p.refusals {
			l.wantKey(r.record.Payer, r.rowKey())
			l.wantsRuns[r.record.Run] = true
			l.fresh++
		}
		for k := range p.replays {
			l.wantCall(k.payer, k.id)
		}
	}, run: func(l *ledgerPage) error {
		inOrder := slices.SortedFunc(maps.Values(p.refusals), func(a, b *refusalNote) int { return a.record.Began.Compare(b.record.Began) })
		for _, r := range inOrder { // as they came
			l.refuse(r)
		}
		for k, n := range p.replays {
			if c := l.byID[k.id]; c != nil {
				c.Replays += int(n)
				c.changed = true
			}
		}
		return nil
	}}
}

// rowKey is the key of a refusal's row: apart from the keys of calls.
func (r *refusalNote) rowKey() []byte { return append([]byte{'r'}, r.key[:]...) }

// refuse puts a hop that executed nothing on the page, or counts its repetition.
func (p *ledgerPage) refuse(r *refusalNote) {
	key := r.rowKey()
	if k := p.byKey[keyed{r.record.Payer, string(key)}]; k != nil {
		k.Repeats += int(r.repeats) + 1
		k.Ended, k.changed = stored(r.record.Ended), true
		return
	}
	c := r.record
	c.Attempts, c.Replays, c.Repeats = 0, 0, int(r.repeats)
	c.Usage, c.Cost, c.Unbilled = agentbus.Usage{}, 0, 0
	p.insert(c, key)
}

// Record stores a hop that executed nothing: c.State is CallRefused or
// CallPassed. The same key again adds one to Repeats and moves Ended (P12). It
// returns once the record is queued; the next commit writes it, and a crash may
// lose the last ones. It waits, until ctx ends, only when the queue is full.
func (s *Store) Record(ctx context.Context, key agentbus.Digest, c agentbus.CallRecord) error {
	k := of(s.ledger, string(c.Payer))
	return s.note(ctx, k, "record a call", func() bool {
		r, known := k.notes.refusals[key]
		if known {
			r.repeats++
			r.record.Ended = c.Ended
		}
		return known
	}, func() { k.notes.refusals[key] = &refusalNote{key: key, record: c} })
}

// Replayed counts a duplicate of the call that was answered without executing.
// It is as durable as [Store.Record].
func (s *Store) Replayed(ctx context.Context, id int64) error {
	const what = "count a replay"
	payer, err := s.payerOf(ctx, what, id)
	if err != nil {
		return err
	}
	k, call := of(s.ledger, string(payer)), numbered{payer, id}
	return s.note(ctx, k, what, func() bool {
		_, known := k.notes.replays[call]
		if known {
			k.notes.replays[call]++
		}
		return known
	}, func() { k.notes.replays[call] = 1 })
}

func (s *Store) note(ctx context.Context, k *committer[*ledgerPage], what string, repeat func() bool, create func()) error {
	s.entries.RLock()
	defer s.entries.RUnlock()
	if err := s.writable(); err != nil {
		return unavailable(ctx, what, err)
	}
	return unavailable(ctx, what, k.notes.add(ctx, repeat, create))
}
