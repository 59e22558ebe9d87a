package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentbus/agentbus"
)

// Open opens the store in the database at cfg.URL and brings an older schema up
// to date, one process after the other. It fails when the database cannot be
// reached or written, is older than version 15, or holds another program's
// tables or a newer schema. The caller closes the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{log: cfg.Logger, timed: cfg.Committed, closing: make(chan struct{}), seats: make(chan *seat, otherSeats)}
	if s.timed == nil {
		s.timed = func(time.Duration) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.mostInterrupts = int64(cmp.Or(cfg.MostInterrupts, defaultMostInterrupts))
	s.broken.signal = make(chan struct{})
	s.places.payers, s.places.rows = make(map[int64]agentbus.Payer), make(map[string]bool)
	s.close = sync.OnceValue(s.shut)
	if err := s.open(ctx, cfg); err != nil {
		s.release()
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // the committers end when shut closes their queues
	for _, c := range s.ledger {
		s.ended.Go(func() { c.run(ctx, s) })
	}
	for _, c := range s.journal {
		s.ended.Go(func() { c.run(ctx, s) })
	}
	s.bells.start(ctx, s)
	return s, nil
}

// open connects, migrates, and makes the committers.
func (s *Store) open(ctx context.Context, cfg Config) error {
	config, err := poolConfig(cfg)
	if err != nil {
		return err
	}
	if err := prepare(ctx, config.ConnConfig, s.log); err != nil {
		return err
	}
	readers := config.Copy()
	readers.MaxConns = maxReaders
	if s.readers, err = pgxpool.NewWithConfig(ctx, readers); err != nil {
		return err
	}
	config.MaxConns = 2*committers + otherSeats + 2 // the last two find out what became of others
	config.AfterConnect = intoTransactions
	if s.writers, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	s.bells.config = config.ConnConfig.Copy()
	if err := s.takeSeats(ctx); err != nil {
		return err
	}
	return s.loadInstallKey(ctx)
}

// poolConfig reads where the database is, and how it is reached.
func poolConfig(cfg Config) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the store cannot be read: %w", err) // pgx leaves a password out
	}
	if !cfg.Password.IsZero() {
		config.ConnConfig.Password = cfg.Password.Reveal() //nolint:forbidigo // the server is shown it
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "agentbus"
	}
	return config, nil
}

// intoTransactions makes a connection ready to commit. A transaction whose
// process is gone, or stopped, holds its locks no longer than it may; and
// statements that find rows by their keys use the keys, whatever the server
// knows of tables that were empty a moment ago.
func intoTransactions(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', '15s', false), set_config('lock_timeout', '10s', false),
			set_config('default_transaction_isolation', 'read committed', false), set_config('plan_cache_mode', 'force_generic_plan', false),
			set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
			set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)`)
	return err
}

// takeSeats makes the committers, and a seat for each and for others.
func (s *Store) takeSeats(ctx context.Context) error {
	me := rand.Text()
	var ids []string
	next := func() *seat {
		at := &seat{id: fmt.Sprintf("%s/%d", me, len(ids))}
		ids = append(ids, at.id)
		return at
	}
	for range committers {
		s.ledger = append(s.ledger, newCommitter(next(), func() *ledgerPage { return newLedgerPage(&s.places) }))
		s.journal = append(s.journal, newCommitter(next(), newJournalPage))
	}
	for _, c := range s.ledger {
		c.notes = newNotes(maxNotes)
	}
	for range otherSeats {
		s.seats <- next()
	}
	_, err := s.writers.Exec(ctx, "INSERT INTO seats (id) SELECT unnest($1::text[])", ids)
	if err == nil { // those of processes that were killed
		_, err = s.writers.Exec(ctx, "DELETE FROM seats WHERE made < now() - interval '30 days' AND split_part(id, '/', 1) <> $1", me)
	}
	return err
}

// leaveSeats removes the seats of a store that is closed. What is left of one
// that could not is small.
func (s *Store) leaveSeats() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, at := range s.ledger {
		_, _ = s.writers.Exec(ctx, "DELETE FROM seats WHERE split_part(id, '/', 1) = split_part($1, '/', 1)", at.seat.id) // see above
		break
	}
}

// loadInstallKey reads the install key, made when the store is new (P19). Two
// processes that make it at once end up with the same one.
func (s *Store) loadInstallKey(ctx context.Context) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails since Go 1.24
	_, err := s.writers.Exec(ctx, "INSERT INTO meta (name, value) VALUES ('install_key', $1) ON CONFLICT (name) DO NOTHING", key)
	if err == nil {
		err = s.writers.QueryRow(ctx, "SELECT value FROM meta WHERE name = 'install_key'").Scan(&s.installKey)
	}
	if err == nil && len(s.installKey) != len(key) {
		err = errors.New("the store has no install key of 32 bytes")
	}
	return err
}
