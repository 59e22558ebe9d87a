package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"modernc.org/sqlite"

	"github.com/agentbus/agentbus"
)

// conn is one connection to the database, below database/sql. The committer is
// its only user, so the locks and conversions by which database/sql shares
// connections would be paid for nothing: they took half of the CPU time of a
// call that is reserved and settled. It is not safe for concurrent use.
type conn struct {
	// ctx never ends: what is queued is committed, whoever has stopped waiting
	// for it, and a ctx that can end costs the driver a goroutine a statement.
	ctx   context.Context //nolint:containedctx // see above
	raw   driver.Conn
	stmts map[string]*prepared // by their text, each prepared once
	args  []driver.NamedValue  // reused by every statement
	wrote int64                // rows changed so far: tells whether a task wrote something

	// links are the ends of payers' chains as this connection knows them, attempts
	// what is executing. They hold as long as nobody else writes, which version
	// tells, and what was written is committed.
	links    map[agentbus.Payer]link
	attempts map[int64]attempt // by call
	version  int64
}

// statement is what the driver's prepared statements can do.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// prepared is a statement and the arguments that it takes, in the order of its
// parameters.
type prepared struct {
	statement

	takes []int
}

var numbered = regexp.MustCompile(`\?[0-9]+`)

// unnumbered returns query with its parameters ?1, ?2 … as plain ones, and which
// argument each of them takes. To the driver a number is a name, which it asks
// for, copies and looks up for each parameter at each run: half of what binding
// costs.
func unnumbered(query string) (plain string, takes []int) {
	plain = numbered.ReplaceAllStringFunc(query, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // digits
		takes = append(takes, n-1)
		return "?"
	})
	return plain, takes
}

// dial opens a connection. See driver.Open of modernc.org/sqlite for dsn.
func dial(ctx context.Context, dsn string) (*conn, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{
		ctx: context.WithoutCancel(ctx), raw: raw, stmts: make(map[string]*prepared),
		links: make(map[agentbus.Payer]link), attempts: make(map[int64]attempt),
	}, nil
}

// close ends the connection.
func (c *conn) close() error {
	var errs []error
	for _, st := range c.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

// prepare returns the statement of query, with args bound in c.args. Values are
// int64, string, []byte or nil: the driver takes them as they are.
func (c *conn) prepare(query string, args []any) (statement, error) {
	st, ok := c.stmts[query]
	if !ok {
		plain, takes := unnumbered(query)
		made, err := c.raw.Prepare(plain)
		if err != nil {
			return nil, err
		}
		known, ok := made.(statement)
		if !ok {
			return nil, fmt.Errorf("the driver's %T lacks a method", made)
		}
		st = &prepared{known, takes}
		c.stmts[query] = st
	}
	c.args = c.args[:0]
	for i, n := range st.takes {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: args[n]})
	}
	return st.statement, nil
}

// control runs a statement that changes no rows, such as BEGIN.
func (c *conn) control(query string) error {
	st, err := c.prepare(query, nil)
	if err != nil {
		return err
	}
	_, err = st.ExecContext(c.ctx, nil)
	return err
}

// insert runs query and returns the id of the row it inserted last, and how
// many it changed.
func (c *conn) insert(query string, args ...any) (id, changed int64, err error) {
	st, err := c.prepare(query, args)
	if err != nil {
		return 0, 0, err
	}
	res, err := st.ExecContext(c.ctx, c.args)
	if err != nil {
		return 0, 0, err
	}
	id, _ = res.LastInsertId()
	changed, _ = res.RowsAffected()
	c.wrote += changed
	return id, changed, nil
}

// exec runs query and returns how many rows it changed.
func (c *conn) exec(query string, args ...any) (changed int64, err error) {
	_, changed, err = c.insert(query, args...)
	return changed, err
}

// begin begins a transaction that may write.
func (c *conn) begin() error {
	if err := c.control("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	r, _, err := c.first("PRAGMA data_version") // differs after a commit of another connection
	if err != nil {
		return errors.Join(err, c.rollback())
	}
	if v := r.int64(); v != c.version {
		c.forget()
		c.version = v
	}
	return nil
}

// rollback undoes the transaction.
func (c *conn) rollback() error {
	c.forget()
	return c.control("ROLLBACK")
}

// forget drops what is remembered of the file, which may be otherwise by now.
func (c *conn) forget() {
	clear(c.links)
	clear(c.attempts)
}

// change is first for a statement that changes the row it returns.
func (c *conn) change(query string, args ...any) (r *row, found bool, err error) {
	if r, found, err = c.first(query, args...); found {
		c.wrote++
	}
	return r, found, err
}

// first returns the first row of query, and whether there is one.
func (c *conn) first(query string, args ...any) (r *row, found bool, err error) {
	st, err := c.prepare(query, args)
	if err != nil {
		return nil, false, err
	}
	rows, err := st.QueryContext(c.ctx, c.args)
	if err != nil {
		return nil, false, err
	}
	v := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(v)
	if cerr := rows.Close(); err == nil {
		err = cerr
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	r = &row{values: make([]any, len(v))}
	for i := range v {
		r.values[i] = v[i]
	}
	return r, true, nil
}
