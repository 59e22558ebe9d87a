// Package sqlite keeps the bus's durable state in one SQLite file: the
// gateway's ledger, the drivers' journal and leases, events, refusals and API
// keys.
//
// Every write goes through one committer, which puts whatever waits into one
// transaction and acknowledges all of it after COMMIT with synchronous=FULL:
// what a method acknowledged is there after any crash (I2). Readers stand
// beside it and see everything acknowledged before they started. Several
// processes may open the file at once.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where the store is.
type Config struct {
	// Path of the file; it is created, readable by its owner only, when there is
	// none, but its directory is not. ":memory:" is a store of its own that is
	// gone with Close; nothing of it survives a crash.
	Path string
	// Logger hears of failed commits and migrations; nil: nobody does.
	Logger *slog.Logger
	// Committed is told how long each transaction took, to its COMMIT or its
	// end (G33). It is called by the committer, which waits for it; nil: nobody
	// is told.
	Committed func(took time.Duration)
	// Wall is the wall clock; nil is time.Now. Leases go by it only where the
	// system has no better one.
	Wall func() time.Time
	// MostInterrupts is how many interrupts may wait (R22); 0: 100,000.
	MostInterrupts int
}

// A Store is an open store. Its methods are safe for concurrent use.
//
// A write that was queued is committed even when its caller's context ends
// while it waits; the caller then gets the context's error. Every failure of
// the store itself is an *agentbus.Error with CodeStoreUnavailable. After a
// failed sync the store is broken: it writes nothing more until it is opened
// again.
type Store struct {
	log        *slog.Logger
	readers    *sql.DB
	statements sync.Map // the readers' *sql.Stmt by their text
	installKey []byte
	clock      clock // what leases go by
	// mostInterrupts is Config.MostInterrupts.
	mostInterrupts int64
	scratch        string // directory to remove after Close; "" for a named store
	file           file   // that of a named store

	asker   *asker
	writer  *conn // used under writing, once the store is open
	writing sync.Mutex
	alone   atomic.Bool // the committer's last commit had one task at the most
	queue   chan *task
	notes   *notes
	bells   bells
	broken  breakage               // why nothing is written any more
	failing atomic.Pointer[string] // why the last transaction was not committed
	swept   atomic.Int64           // the last call that Sweep looked at
	forgot  atomic.Int64           // the last execution that ForgetEvents looked at
	entries sync.RWMutex           // held for reading while a task enters the queue, for writing to close it
	closed  bool                   // guarded by entries
	ended   chan struct{}          // closed by the committer as it ends
	timed   func(time.Duration)    // Config.Committed; not nil
	close   func() error           // once
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

// Broken returns a channel that is closed once the store is broken: a sync
// failed or the file is damaged. Nothing is written any more, and nothing that
// failed is tried again, because what the disk holds is not known (I2). The
// process ends then; what starts next recovers from the disk.
func (s *Store) Broken() <-chan struct{} { return s.broken.signal }

// Failing says in words why the last transaction was not committed; "": it was.
func (s *Store) Failing() string {
	if why := s.failing.Load(); why != nil {
		return *why
	}
	return ""
}

// Limits of the committer.
const (
	noteDelay = 10 * time.Millisecond // that notes wait for a task to be committed with
	patience  = 5 * time.Millisecond  // that parts of streams do
	maxQueue  = 1024                  // tasks that wait; above, writers wait for room
	maxBatch  = 256                   // tasks in one transaction, which bounds how long the first of them waits
	maxNotes  = 4096                  // distinct refusals and replayed calls that wait
)

// Open opens the store at cfg.Path, creates it when there is none, and brings
// an older schema up to date. It fails when the path cannot be written, is no
// store, or was written by a newer version. The caller closes the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{
		log:   cfg.Logger,
		queue: make(chan *task, maxQueue),
		notes: newNotes(maxNotes),
		ended: make(chan struct{}),
		timed: cfg.Committed,

		mostInterrupts: int64(cmp.Or(cfg.MostInterrupts, defaultMostInterrupts)),
	}
	if s.timed == nil {
		s.timed = func(time.Duration) {}
	}
	s.broken.signal = make(chan struct{})
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.close = sync.OnceValue(s.shut)
	wall := cfg.Wall
	if wall == nil {
		wall = time.Now
	}
	if err := s.open(ctx, cfg.Path, wall); err != nil {
		return nil, errors.Join(err, s.release())
	}
	go s.commit(context.WithoutCancel(ctx)) // ends when shut closes the queue
	return s, nil
}

// Close commits what is queued, waits for the committer and closes the file.
// Writes that come later answer CodeStoreUnavailable.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.entries.Lock()
	s.closed = true
	close(s.queue)
	s.entries.Unlock()
	<-s.ended
	return s.release()
}

// release closes what Open opened. The writer goes last: it folds the log into
// the file.
func (s *Store) release() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	if s.asker != nil {
		errs = append(errs, s.asker.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.scratch != "" {
		errs = append(errs, os.RemoveAll(s.scratch))
	}
	return errors.Join(errs...)
}

// Queued returns how many writes wait for the committer (G33).
func (s *Store) Queued() int { return len(s.queue) }

// InstallKey returns the 32 random bytes that were made with the store (P19).
// The caller does not change them.
func (s *Store) InstallKey() []byte { return s.installKey }

// Check reports whether the store can be written, by writing to it: something
// new each time, because SQLite leaves out a page that does not change.
func (s *Store) Check(ctx context.Context) error {
	_, err := write(ctx, s, "write", func(c *conn) (struct{}, error) {
		_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('checked', randomblob(8))
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`)
		return struct{}{}, err
	})
	return err
}
