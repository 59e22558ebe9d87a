package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// readPatience is how long a read is tried again while the server is away.
const readPatience = 10 * time.Second

// each calls f with every row of query until f answers false. It fails with the
// first row that cannot be read.
func (s *Store) each(ctx context.Context, what string, f func(*row) bool, query string, args ...any) error {
	s.entries.RLock()
	closed := s.closed
	s.entries.RUnlock()
	if closed {
		return unavailable(ctx, what, errClosed)
	}
	arguments(args)
	for began := time.Now(); ; {
		seen := false
		found, err := s.readers.Query(ctx, query, args...)
		if err == nil {
			err = scan(found, func(r *row) bool { seen = true; return f(r) })
		}
		if seen || !passing(err) || ctx.Err() != nil || time.Since(began) > readPatience || s.rests(retryPause) {
			return unavailable(ctx, what, err)
		}
	}
}

// snapshot calls f with a function that does what each does, in one state of
// the store however long it takes.
func (s *Store) snapshot(ctx context.Context, what string, f func(each eachRow) error) error {
	tx, err := s.readers.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return unavailable(ctx, what, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it wrote nothing
	return unavailable(ctx, what, f(func(row func(*row) bool, query string, args ...any) error {
		found, err := tx.Query(ctx, query, arguments(args)...)
		if err != nil {
			return err
		}
		return scan(found, row)
	}))
}

// eachRow calls f with every row of query until f answers false.
type eachRow func(f func(*row) bool, query string, args ...any) error

// list returns what read makes of every row of query.
func list[T any](ctx context.Context, s *Store, what string, read func(*row) T, query string, args ...any) ([]T, error) {
	var all []T
	err := s.each(ctx, what, func(r *row) bool {
		all = append(all, read(r))
		return true
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// only returns what read makes of the first row of query, and whether there is
// one.
func only[T any](ctx context.Context, s *Store, what string, read func(*row) T, query string, args ...any) (v T, found bool, err error) {
	err = s.each(ctx, what, func(r *row) bool {
		v, found = read(r), true
		return false
	}, query, args...)
	if err != nil {
		var none T
		return none, false, err
	}
	return v, found, nil
}
