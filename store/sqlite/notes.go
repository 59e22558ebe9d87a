package sqlite

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
	replays  map[int64]int64 // by call

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
		refusals: make(map[agentbus.Digest]*refusalNote), replays: make(map[int64]int64),
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

// A page of notes is what one commit writes of them.
type page struct {
	refusals map[agentbus.Digest]*refusalNote
	replays  map[int64]int64
}

// waiting reports whether there are any.
func (n *notes) waiting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.refusals)+len(n.replays) > 0
}

// take empties the notes; nil when there are none. The page takes their room
// until it is released or put back.
func (n *notes) take() *page {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.refusals)+len(n.replays) == 0 {
		return nil
	}
	p := &page{refusals: n.refusals, replays: n.replays}
	n.refusals, n.replays = make(map[agentbus.Digest]*refusalNote, len(p.refusals)), make(map[int64]int64) // in a storm, the next one is like this one
	return p
}

// release frees the room of a page that was written, or cannot be.
func (n *notes) release(p *page) {
	for range len(p.refusals) + len(p.replays) {
		<-n.room
	}
}

// putBack keeps a page for the next commit.
func (n *notes) putBack(p *page) {
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

// write is the task of a page.
func (p *page) write(c *conn) error {
	inOrder := slices.SortedFunc(maps.Values(p.refusals), func(a, b *refusalNote) int { return a.record.Began.Compare(b.record.Began) })
	for _, r := range inOrder { // as they came, in the order of ids and of the indexes by time
		if err := insertRefusal(c, r); err != nil {
			return err
		}
	}
	for id, n := range p.replays {
		if _, err := c.exec("UPDATE calls SET replays = replays + ?2 WHERE id = ?1", id, n); err != nil {
			return err
		}
	}
	return nil
}

// Record stores a hop that executed nothing: c.State is CallRefused or
// CallPassed. The same key again adds one to Repeats and moves Ended (P12). It
// returns once the record is queued; the next commit writes it, and a crash may
// lose the last ones. It waits, until ctx ends, only when the queue is full.
func (s *Store) Record(ctx context.Context, key agentbus.Digest, c agentbus.CallRecord) error {
	return s.note(ctx, "record a call", func() bool {
		r, known := s.notes.refusals[key]
		if known {
			r.repeats++
			r.record.Ended = c.Ended
		}
		return known
	}, func() { s.notes.refusals[key] = &refusalNote{key: key, record: c} })
}

// Replayed counts a duplicate of the call that was answered without executing.
// It is as durable as [Store.Record].
func (s *Store) Replayed(ctx context.Context, id int64) error {
	return s.note(ctx, "count a replay", func() bool {
		_, known := s.notes.replays[id]
		if known {
			s.notes.replays[id]++
		}
		return known
	}, func() { s.notes.replays[id] = 1 })
}

func (s *Store) note(ctx context.Context, what string, repeat func() bool, create func()) error {
	s.entries.RLock()
	defer s.entries.RUnlock()
	if err := s.writable(); err != nil {
		return unavailable(what, err)
	}
	return unavailable(what, s.notes.add(ctx, repeat, create))
}
