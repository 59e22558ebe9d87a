package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// bells tell the processes of a bus that something was committed. A message
// goes out behind the transaction, because one inside it makes transactions wait
// for each other; it may be lost, so whoever waits looks by itself too, every
// quarter of a second.
type bells struct {
	config *pgx.ConnConfig
	rope   chan struct{}   // holds one value when somebody is to be told
	ctx    context.Context //nolint:containedctx // of everything that goes on beside the committers until Close
	cancel context.CancelFunc
	rings  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed by the next ring that is heard
}

// The doorbell.
const (
	channel   = "agentbus"
	ringEvery = 5 * time.Millisecond // at most: what is committed in between shares a message
	lookEvery = 250 * time.Millisecond
)

// start sends and hears until stop.
func (b *bells) start(ctx context.Context, s *Store) {
	b.rope, b.changed = make(chan struct{}, 1), make(chan struct{})
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

// ring tells everybody, soon.
func (b *bells) ring() {
	b.wake()
	select {
	case b.rope <- struct{}{}:
	default:
	}
}

// wake tells those of this process.
func (b *bells) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
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
		_, _ = s.readers.Exec(ctx, "SELECT pg_notify($1, '')", channel) // who waits looks by itself
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// hear listens, over a connection of its own.
func (b *bells) hear(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := pgx.ConnectConfig(ctx, b.config)
		if err == nil {
			_, err = c.Exec(ctx, "LISTEN "+channel)
			for err == nil {
				b.wake()
				_, err = c.WaitForNotification(ctx)
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

// look wakes those who wait, message or not.
func (b *bells) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.wake()
		case <-ctx.Done():
			return
		}
	}
}

// Changed returns a channel that is closed when something may have been
// committed since, by any process of the bus: after a commit at once, and every
// quarter of a second in any case.
func (s *Store) Changed() <-chan struct{} {
	s.bells.mu.Lock()
	defer s.bells.mu.Unlock()
	return s.bells.changed
}
