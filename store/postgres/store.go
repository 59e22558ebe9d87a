// Package postgres keeps the bus's durable state in a PostgreSQL database, for
// buses of several processes on several machines: the gateway's ledger, the
// drivers' journal and leases, events, refusals and API keys.
//
// Calls go through a few committers, by their payer, and turns by their
// execution. A committer puts whatever waits into one transaction: it locks the
// payers and accounts, or the executions, reads what the writes are about,
// decides each of them in memory, and writes all of it, a statement a table
// (decision 0067). It acknowledges after COMMIT: what a method acknowledged is
// there after any crash (I2). One bad write is refused without an error of SQL,
// and never fails the others.
package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentbus/agentbus"
)

// Config says where the store is.
type Config struct {
	// URL of the database, as libpq reads it, without the password:
	// postgres://user@host/name?sslmode=verify-full.
	URL string
	// Password of its user; none: what the server asks for comes by PGPASSWORD or
	// a password file, or it asks for nothing.
	Password agentbus.Credential
	// Logger hears of failed commits and migrations; nil: nobody does.
	Logger *slog.Logger
	// Committed is told how long each transaction took, to its COMMIT or its
	// end (G33). It is called by the committers, which wait for it; nil: nobody
	// is told.
	Committed func(took time.Duration)
	// MostInterrupts is how many interrupts may wait (R22); 0: 100,000. Several
	// that are raised at once may pass it by as many.
	MostInterrupts int
}

// A Store is an open store. Its methods are safe for concurrent use.
//
// A write that was queued is committed even when its caller's context ends
// while it waits; the caller then gets the context's error. Every failure of
// the store itself is an *agentbus.Error with CodeStoreUnavailable. A
// transaction that was certainly not committed, because the connection or the
// server went away, is tried again for a quarter of a minute. One of which the
// server does not say for a minute whether it was committed breaks the store: it
// writes nothing more until it is opened again.
type Store struct {
	log        *slog.Logger
	readers    *pgxpool.Pool
	writers    *pgxpool.Pool
	seats      chan *seat // free ones, of those who are no committers
	installKey []byte
	timed      func(time.Duration) // Config.Committed; not nil

	ledger  []*committer[*ledgerPage]  // by payer
	journal []*committer[*journalPage] // by execution
	places  places
	owners  owners
	bells   bells

	mostInterrupts int64 // Config.MostInterrupts

	broken  breakage               // why nothing is written any more
	failing atomic.Pointer[string] // why the last transaction was not committed
	swept   atomic.Int64           // the last call that Sweep looked at
	forgot  atomic.Int64           // the last execution that ForgetEvents looked at
	entries sync.RWMutex           // held for reading while a write is let in, for writing to let no more in
	closed  bool                   // guarded by entries
	writes  sync.WaitGroup
	closing chan struct{} // closed when nobody is waited for any more
	ended   sync.WaitGroup
	close   func() error // once
}

// A breakage is why a store writes nothing any more, once something is.
type breakage struct {
	atomic.Pointer[error]

	signal chan struct{} // closed with the first reason
}

// CompareAndSwap stores the first reason and tells those who wait for it.
func (b *breakage) CompareAndSwap(old, reason *error) bool {
	first := b.Pointer.CompareAndSwap(old, reason)
	if first {
		close(b.signal)
	}
	return first
}

// Broken returns a channel that is closed once the store is broken: the server
// does not say what became of a transaction, or its files are damaged. Nothing
// is written any more (I2). The process ends then; what starts next reads what
// the database holds.
func (s *Store) Broken() <-chan struct{} { return s.broken.signal }

// Failing says in words why the last transaction was not committed; "": it was.
func (s *Store) Failing() string {
	if why := s.failing.Load(); why != nil {
		return *why
	}
	return ""
}

// Limits of the committers.
const (
	committers  = 2                     // of the ledger, and as many of the journal
	otherSeats  = 2                     // for writes that are rare
	maxReaders  = 8                     // reads at once; others wait
	noteDelay   = 10 * time.Millisecond // that notes wait for a task to be committed with
	maxQueue    = 1024                  // tasks that wait; above, writers wait for room
	maxBatch    = 256                   // tasks in one transaction, which bounds how long the first of them waits
	maxNotes    = 4096                  // distinct refusals and replayed calls that wait
	maxRemember = 50_000                // calls whose payer is remembered
)

// Close commits what is queued, waits for the committers and closes the
// connections. Writes that come later answer CodeStoreUnavailable.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.entries.Lock()
	s.closed = true
	s.entries.Unlock()
	patience := time.AfterFunc(time.Second, sync.OnceFunc(func() { close(s.closing) }))
	defer patience.Stop()
	for _, c := range s.ledger {
		close(c.queue)
	}
	for _, c := range s.journal {
		close(c.queue)
	}
	s.writes.Wait()
	s.bells.stop()
	s.ended.Wait()
	s.leaveSeats()
	s.release()
	return nil
}

// release closes what Open opened.
func (s *Store) release() {
	if s.readers != nil {
		s.readers.Close()
	}
	if s.writers != nil {
		s.writers.Close()
	}
}

// enter lets a write in that is no task of a committer: Close waits for it.
func (s *Store) enter() error {
	s.entries.RLock()
	defer s.entries.RUnlock()
	if err := s.writable(); err != nil {
		return err
	}
	s.writes.Add(1)
	return nil
}

// writable returns why nothing can be written. The caller holds entries.
func (s *Store) writable() error {
	if s.closed {
		return errClosed
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Queued returns how many writes wait for the committers (G33).
func (s *Store) Queued() (n int) {
	for _, c := range s.ledger {
		n += len(c.queue)
	}
	for _, c := range s.journal {
		n += len(c.queue)
	}
	return n
}

// InstallKey returns the 32 random bytes that were made with the store (P19).
// The caller does not change them.
func (s *Store) InstallKey() []byte { return s.installKey }

// Check reports whether the store can be written, by writing to it.
func (s *Store) Check(ctx context.Context) error {
	const what = "write"
	if err := s.settled(ctx, what); err != nil {
		return err
	}
	_, err := write(ctx, s, what, func(c *conn) (struct{}, error) {
		_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('checked', decode(md5(random()::text), 'hex'))
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`)
		return struct{}{}, err
	})
	return err
}

// settled waits until the ledger has committed everything that this process
// queued before.
func (s *Store) settled(ctx context.Context, what string) error {
	for _, c := range s.ledger {
		if err := c.do(ctx, s, what, nil, func(*ledgerPage) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
