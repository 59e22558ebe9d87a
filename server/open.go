package server

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/sqlite"
)

// opened is a store with what is asked about it beside.
type opened struct {
	Store

	Queued func() int // writes that wait
	bells
}

// bells ring for what other processes do on the store. One may be nil: nobody
// rings, and who waits looks by itself.
type bells struct {
	WatchCall  func(key agentbus.Digest) (rung <-chan struct{}, release func()) // the end of a call (G22)
	WatchStops func() (rung <-chan struct{}, release func())                    // runs that are stopped (G14)
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
	s.alive = store.Alive
	if err := store.Join(ctx, s.owner); err != nil {
		return opened{}, errors.Join(err, store.Close())
	}
	return opened{store, store.Queued, bells{store.WatchCall, store.WatchStops}}, nil
}
