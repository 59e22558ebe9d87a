package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"modernc.org/sqlite"
)

// maxReaders is how many reads run at once; others wait. A read holds no lock
// that the writer needs.
const maxReaders = 4

func openReaders(dsn string) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn + "&_pragma=cache_size(-4096)&_query_only=1")
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(maxReaders)
	return db, nil
}

// statement returns query prepared, once for the life of the store.
func (s *Store) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.statements.Load(query); ok {
		return st.(*sql.Stmt), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	st, err := s.readers.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if other, raced := s.statements.LoadOrStore(query, st); raced {
		_ = st.Close()                //nolint:sqlclosecheck // it is not used
		return other.(*sql.Stmt), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	return st, nil
}

// each calls f with every row of query until f answers false. It fails with the
// first row that cannot be read.
func (s *Store) each(ctx context.Context, what string, f func(*row) bool, query string, args ...any) error {
	return unavailable(what, s.rows(ctx, f, query, args...))
}

func (s *Store) rows(ctx context.Context, f func(*row) bool, query string, args ...any) error {
	st, err := s.statement(ctx, query) //nolint:sqlclosecheck // it belongs to the store, whose pool closes it
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	return scan(rows, f)
}

// scan calls f with every row until it answers false, and closes rows.
func scan(rows *sql.Rows, f func(*row) bool) error {
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	dest := make([]any, len(columns))
	for rows.Next() {
		r := &row{values: make([]any, len(columns))}
		for i := range dest {
			dest[i] = &r.values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		more := f(r)
		if r.err != nil {
			return r.err
		}
		if !more {
			return nil
		}
	}
	return rows.Err()
}

// snapshot calls f with a function that does what each does, in one state of
// the store however long it takes.
func (s *Store) snapshot(ctx context.Context, what string, f func(each eachRow) error) (err error) {
	c, err := s.readers.Conn(ctx)
	if err != nil {
		return unavailable(what, err)
	}
	defer func() { _ = c.Close() }() // it goes back to the pool
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return unavailable(what, err)
	}
	defer func() {
		_, end := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		err = unavailable(what, errors.Join(err, end))
	}()
	return f(func(row func(*row) bool, query string, args ...any) error {
		rows, err := c.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		return scan(rows, row)
	})
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
