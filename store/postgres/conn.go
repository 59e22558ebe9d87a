package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// conn is a connection inside a transaction that writes. It is not safe for
// concurrent use.
type conn struct {
	ctx   context.Context //nolint:containedctx // of the transaction, whoever has stopped waiting for it
	raw   *pgx.Conn
	wrote bool
}

// arguments returns args as the server takes them.
func arguments(args []any) []any {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = storable(s)
		}
	}
	return args
}

// exec runs query and returns how many rows it changed.
func (c *conn) exec(query string, args ...any) (changed int64, err error) {
	c.wrote = true
	tag, err := c.raw.Exec(c.ctx, query, arguments(args)...)
	return tag.RowsAffected(), err
}

// each calls f with every row of query.
func (c *conn) each(f func(*row), query string, args ...any) error {
	found, err := c.raw.Query(c.ctx, query, arguments(args)...)
	if err != nil {
		return err
	}
	return scan(found, func(r *row) bool { f(r); return true })
}

// first returns the first row of query, and whether there is one.
func (c *conn) first(query string, args ...any) (r *row, found bool, err error) {
	err = c.each(func(got *row) {
		if r == nil {
			r = got
		}
	}, query, args...)
	return r, r != nil && err == nil, err
}

// scan calls f with every row until it answers false, and closes found.
func scan(found pgx.Rows, f func(*row) bool) error {
	defer found.Close()
	for found.Next() {
		values, err := found.Values()
		if err != nil {
			return err
		}
		r := &row{values: values}
		more := f(r)
		if r.err != nil {
			return &rowError{r.err}
		}
		if !more {
			return nil
		}
	}
	return found.Err()
}

// A load is what several queries ask for in one round trip.
type load struct {
	batch pgx.Batch
	reads []func(*row)
}

// ask adds a query whose rows f reads.
func (l *load) ask(f func(*row), query string, args ...any) {
	l.batch.Queue(query, args...)
	l.reads = append(l.reads, f)
}

// run asks for everything.
func (l *load) run(c *conn) (err error) {
	if len(l.reads) == 0 {
		return nil
	}
	answers := c.raw.SendBatch(c.ctx, &l.batch)
	for _, read := range l.reads {
		found, qerr := answers.Query()
		if qerr == nil {
			qerr = scan(found, func(r *row) bool { read(r); return true })
		}
		if err == nil {
			err = qerr
		}
	}
	if cerr := answers.Close(); err == nil {
		err = cerr
	}
	return err
}

// send runs what b holds, which writes.
func (c *conn) send(b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	c.wrote = true
	return c.raw.SendBatch(c.ctx, b).Close()
}
