package server

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/sqlite"
)

// opened is a store with what is asked about it beside.
type opened struct {
	Store

	Queued func() int // writes that wait
	Common            // nil: nobody else
}

// A Common is what the buses on one store have in common beside what it keeps.
// A store of one machine has none.
type Common interface {
	gateway.Rates
	// WatchCall and WatchStops return channels that are closed when the call of a
	// key ended, and when a run was stopped, in another process; they may ring for
	// nothing, or not at all.
	WatchCall(key agentbus.Digest) (rung <-chan struct{}, release func())
	WatchStops() (rung <-chan struct{}, release func())
	// Say tells the others which configuration is in force here, and the version;
	// Others says how many of them have which.
	Say(config, version string)
	Others() map[string]int
	// Hint tells the others what was found out outside; Hints returns what the
	// others did after a number, and the last number there is.
	Hint(ctx context.Context, owner string, h agentbus.Hint) error
	Hints(ctx context.Context, owner string, after int64) (hints []agentbus.Hint, last int64, err error)
}

// open opens the store of the configuration, and finds out how the processes
// that share it know of each other's death: those of one file by the machine,
// those of one database by what each says of itself there.
func (s *Server) open(ctx context.Context) (opened, error) {
	c := &s.cfg
	if c.Store.SQLite != "" {
		s.alive = alive
		store, err := sqlite.Open(ctx, sqlite.Config{
			Path: c.Store.SQLite, Logger: s.log, Committed: s.metrics.Committed, MostInterrupts: c.Interrupts.Most,
		})
		if err != nil {
			return opened{}, err
		}
		return opened{Store: store, Queued: store.Queued}, nil
	}
	store, err := postgres.Open(ctx, postgres.Config{
		URL: c.Store.URL, Password: c.Store.Password, Logger: s.log, Committed: s.metrics.Committed, MostInterrupts: c.Interrupts.Most,
	})
	if err != nil {
		return opened{}, err
	}
	s.owner += "." + rand.Text()[:8] // two containers of one machine may count their processes alike
	s.alive = func(owner string) bool { return owner != "" && (!namesProcess(owner) || store.Alive(owner)) }
	if err := store.Join(ctx, s.owner); err != nil {
		return opened{}, errors.Join(err, store.Close())
	}
	return opened{store, store.Queued, store}, nil
}
