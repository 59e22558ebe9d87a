package postgres

import (
	"context"
	"maps"
	"sync"
	"time"
)

// owners are the processes that use the store, as this one knows them. One is
// dead when its row has expired by the server's clock: who shares no machine
// with it has nothing else to go by.
type owners struct {
	mu     sync.Mutex
	says   [2]string      // this one: which configuration it has in force, and its version
	others map[string]int // how many of the others have which configuration
	living map[string]bool
	read   time.Time            // when the last reading of living began
	asked  map[string]time.Time // who is not among them, and when that was asked first
}

// The beat of a process.
const (
	beatEvery  = 5 * time.Second
	beatLasts  = 15 * time.Second // without another: then it is dead
	aliveEvery = time.Second      // between two readings of who lives
)

// Join makes this process known as owner until the store is closed, and keeps
// saying that it lives: others see it die a quarter of a minute after it stopped
// saying so. It is called once, before owner is named in a call or a lease.
func (s *Store) Join(ctx context.Context, owner string) error {
	const what = "make this process known"
	if err := s.enter(); err != nil {
		return unavailable(ctx, what, err)
	}
	defer s.writes.Done()
	s.owners.living, s.owners.asked = map[string]bool{}, map[string]time.Time{}
	if err := s.beat(ctx, owner); err != nil {
		return unavailable(ctx, what, err)
	}
	if err := s.meet(ctx, owner); err != nil {
		return unavailable(ctx, what, err)
	}
	s.bells.rings.Go(func() { s.stay(s.bells.ctx, owner) })
	return nil
}

// Say lets the other processes know which configuration this one has in force,
// and its version: with the next beat.
func (s *Store) Say(config, version string) {
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	s.owners.says = [2]string{config, version}
}

// Others returns how many of the other processes have which configuration in
// force, as far as they said. It does not use the store.
func (s *Store) Others() map[string]int {
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	return maps.Clone(s.owners.others)
}

// stay beats and looks who lives until ctx ends.
func (s *Store) stay(ctx context.Context, owner string) {
	beat, look := time.NewTicker(beatEvery), time.NewTicker(aliveEvery)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case <-beat.C:
			_ = s.beat(ctx, owner) // the next one comes before this one is missed
		case <-look.C:
			_ = s.meet(ctx, owner) // what was known holds until the next
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = s.writers.Exec(ctx, "DELETE FROM owners WHERE owner = $1", storable(owner)) // it expires otherwise
			return
		}
	}
}

// beat says that owner lives, and forgets who died long ago.
func (s *Store) beat(ctx context.Context, owner string) error {
	s.owners.mu.Lock()
	says := s.owners.says
	s.owners.mu.Unlock()
	_, err := s.writers.Exec(ctx, `INSERT INTO owners (owner, expires, config, version) VALUES ($1, `+nowMicros+` + $2, $3, $4)
			ON CONFLICT (owner) DO UPDATE SET expires = excluded.expires, config = excluded.config, version = excluded.version`,
		storable(owner), beatLasts.Microseconds(), storable(says[0]), storable(says[1]))
	if err == nil {
		_, err = s.writers.Exec(ctx, "DELETE FROM owners WHERE expires < "+nowMicros+" - 86400000000")
	}
	if err == nil {
		_, err = s.writers.Exec(ctx, "DELETE FROM hints WHERE at < "+nowMicros+" - 60000000")
	}
	return err
}

// meet reads who lives.
func (s *Store) meet(ctx context.Context, owner string) error {
	began, living, others := time.Now(), map[string]bool{}, map[string]int{}
	err := s.each(ctx, "see which processes live", func(r *row) bool {
		who := r.text()
		living[who] = true
		if config := r.text(); who != owner && config != "" {
			others[config]++
		}
		return true
	}, "SELECT owner, config FROM owners WHERE expires > "+nowMicros)
	if err != nil {
		return err
	}
	o := &s.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	o.living, o.others, o.read = living, others, began
	for owner, at := range o.asked {
		if living[owner] || began.Sub(at) > time.Hour {
			delete(o.asked, owner)
		}
	}
	return nil
}

// Alive reports whether the process that owner names may still run. It says no
// only when a reading of the store that began after it was first asked does not
// have it: a process that came a moment ago is not taken for dead, and neither
// is anybody while the server is away. It does not use the store.
func (s *Store) Alive(owner string) bool {
	o := &s.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.living[owner] {
		return true
	}
	at, asked := o.asked[owner]
	if !asked {
		o.asked[owner] = time.Now()
		return true
	}
	return !o.read.After(at)
}
