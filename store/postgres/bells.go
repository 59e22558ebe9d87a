package postgres

import (
	"context"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// bells tell the processes of a bus of what something was committed: events of
// an execution, the end of a call, a stop. A message goes out behind the
// transaction, because one inside it makes transactions wait for each other; it
// may be lost, so whoever waits looks by itself too: the followers of events
// every quarter of a second.
type bells struct {
	config *pgx.ConnConfig
	rope   chan struct{}   // holds one value when somebody is to be told
	ctx    context.Context //nolint:containedctx // of everything that goes on beside the committers until Close
	cancel context.CancelFunc
	rings  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	rooms map[room]*bell
	rung  map[room]struct{} // since the last message
}

// A room is what somebody waits for, by a number that others may share: who is
// rung for nothing looks, and waits again.
type room uint32

// A bell rings in one room, for however many wait there.
type bell struct {
	rung  chan struct{} // closed with the next ring
	users int
	polls bool // it rings every quarter of a second, too
}

// The doorbell.
const (
	channel   = "agentbus"
	ringEvery = 5 * time.Millisecond // at most: what is committed in between shares a message
	lookEvery = 250 * time.Millisecond
	mostRooms = 1000 // in a message, which the server bounds at 8,000 bytes; one without any is for all
)

// stopsRoom is where those wait who want to know which runs are stopped.
var stopsRoom = roomOf("stops")

func roomOf[T ~string](name T) room {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return room(h.Sum32())
}

// start sends and hears until stop.
func (b *bells) start(ctx context.Context, s *Store) {
	b.rope, b.rooms, b.rung = make(chan struct{}, 1), map[room]*bell{}, map[room]struct{}{}
	ctx, b.cancel = context.WithCancel(ctx)
	b.ctx = ctx
	b.rings.Go(func() { b.send(ctx, s) })
	b.rings.Go(func() { b.hear(ctx) })
	b.rings.Go(func() { b.look(ctx) })
}

func (b *bells) stop() {
	b.cancel()
	b.rings.Wait()
}

// watch waits in a room.
func (b *bells) watch(r room, polls bool) (rung <-chan struct{}, release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.rooms[r]
	if at == nil {
		at = &bell{rung: make(chan struct{})}
		b.rooms[r] = at
	}
	at.users++
	at.polls = at.polls || polls
	return at.rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if at.users--; at.users == 0 && b.rooms[r] == at {
			delete(b.rooms, r)
		}
	}
}

// ring tells those who wait in rooms: here at once, elsewhere soon.
func (b *bells) ring(rooms ...room) {
	if len(rooms) == 0 {
		return
	}
	b.wake(rooms)
	b.mu.Lock()
	for _, r := range rooms {
		b.rung[r] = struct{}{}
	}
	b.mu.Unlock()
	select {
	case b.rope <- struct{}{}:
	default:
	}
}

// wake tells those of this process.
func (b *bells) wake(rooms []room) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rooms {
		if at := b.rooms[r]; at != nil {
			close(at.rung)
			delete(b.rooms, r)
		}
	}
}

// wakeAll tells everybody of this process, or those who want to look.
func (b *bells) wakeAll(onlyPolls bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, at := range b.rooms {
		if at.polls || !onlyPolls {
			close(at.rung)
			delete(b.rooms, r)
		}
	}
}

// message says for whom was rung since the last one; "" is for everybody.
func (b *bells) message() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer clear(b.rung)
	if len(b.rung) > mostRooms {
		return ""
	}
	var text strings.Builder
	for r := range b.rung {
		text.WriteString(strconv.FormatUint(uint64(r), 36) + " ")
	}
	return text.String()
}

// send sends a message for all that was rung since the last one.
func (b *bells) send(ctx context.Context, s *Store) {
	pause := time.NewTicker(ringEvery)
	defer pause.Stop()
	for {
		select {
		case <-b.rope:
		case <-ctx.Done():
			return
		}
		_, _ = s.readers.Exec(ctx, "SELECT pg_notify($1, $2)", channel, b.message()) // who waits looks by itself
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// hear listens, over a connection of its own. What was said before it listened
// may be for anybody.
func (b *bells) hear(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := pgx.ConnectConfig(ctx, b.config)
		if err == nil {
			if _, err = c.Exec(ctx, "LISTEN "+channel); err == nil {
				b.wakeAll(false)
			}
			for err == nil {
				err = b.heard(ctx, c)
			}
			_ = c.Close(context.WithoutCancel(ctx)) // it heard what there was to hear
		}
		pause := time.NewTimer(pauseMost)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// heard waits for a message and passes it on.
func (b *bells) heard(ctx context.Context, c *pgx.Conn) error {
	n, err := c.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	var rooms []room
	for number := range strings.FieldsSeq(n.Payload) {
		if r, err := strconv.ParseUint(number, 36, 32); err == nil {
			rooms = append(rooms, room(r))
		}
	}
	if b.wake(rooms); len(rooms) == 0 {
		b.wakeAll(false)
	}
	return nil
}

// look wakes the followers of events, message or not.
func (b *bells) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.wakeAll(true)
		case <-ctx.Done():
			return
		}
	}
}

// Watch returns a channel that is closed when events of an execution may have
// been appended since, by any process: at once after those of this one, soon
// after those of others, and every quarter of a second in any case. Look then,
// and watch again. Call release when it is not waited for any more.
func (s *Store) Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func()) {
	return s.bells.watch(roomOf(id), true)
}

// WatchCall returns a channel that is closed soon after the call of a key ended,
// in whatever process (G22). It may be closed for nothing, and a message may be
// lost: look from time to time as well. Call release when it is not waited for
// any more.
func (s *Store) WatchCall(key agentbus.Digest) (rung <-chan struct{}, release func()) {
	return s.bells.watch(roomOf(string(key[:])), false)
}

// WatchStops returns a channel that is closed soon after a run was stopped, in
// whatever process (G14), under the terms of [Store.WatchCall].
func (s *Store) WatchStops() (rung <-chan struct{}, release func()) {
	return s.bells.watch(stopsRoom, false)
}
