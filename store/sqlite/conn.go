package sqlite

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"

	"github.com/agentbus/agentbus"
)

// conn is one connection to the database. It works on SQLite itself, below its
// driver for database/sql: the locks, copies and conversions that the driver needs
// to share connections would be paid for nothing, as the committer is its only user
// (decision 136). It is not safe for concurrent use.
type conn struct {
	*handle

	stmts map[string]*prepared // by their text, each prepared once
	wrote int64                // rows changed so far: tells whether a task wrote something

	// links are the ends of payers' chains as this connection knows them, attempts
	// what is executing. They hold as long as nobody else writes, which version
	// tells, and what was written is committed.
	links    map[agentbus.Payer]link
	attempts map[int64]attempt // by call
	version  int64
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

// dial opens a connection to a file, and runs the _pragma of dsn on it, as the
// driver does that reads the same dsn.
func dial(dsn string) (*conn, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	h, err := openHandle(dsn)
	if err != nil {
		return nil, err
	}
	c := &conn{handle: h, stmts: make(map[string]*prepared), links: make(map[agentbus.Payer]link), attempts: make(map[int64]attempt)}
	for _, pragma := range u.Query()["_pragma"] {
		if err := c.control("PRAGMA " + pragma); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// close ends the connection.
func (c *conn) close() error {
	for _, st := range c.stmts {
		c.finalize(st.statement)
	}
	return c.handle.close()
}

// prepare returns the statement of query, with args bound.
func (c *conn) prepare(query string, args []any) (*prepared, error) {
	st, ok := c.stmts[query]
	if !ok {
		plain, takes := unnumbered(query)
		made, err := c.handle.prepare(plain)
		if err != nil {
			return nil, err
		}
		st = &prepared{made, takes}
		c.stmts[query] = st
	}
	return st, c.bind(st.statement, st.takes, args)
}

// run runs query to its end.
func (c *conn) run(query string, args []any) error {
	st, err := c.prepare(query, args)
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		more, err = c.step(st.statement)
	}
	c.reset(st.statement)
	return err
}

// control runs a statement that changes no rows, such as BEGIN.
func (c *conn) control(query string) error { return c.run(query, nil) }

// insert runs query and returns the id of the row it inserted last, and how
// many it changed.
func (c *conn) insert(query string, args ...any) (id, changed int64, err error) {
	if err := c.run(query, args); err != nil {
		return 0, 0, err
	}
	changed = c.changes()
	c.wrote += changed
	return c.lastID(), changed, nil
}

// exec runs query and returns how many rows it changed.
func (c *conn) exec(query string, args ...any) (changed int64, err error) {
	_, changed, err = c.insert(query, args...)
	return changed, err
}

// hold makes a commit write its pages to the log at once.
func (c *conn) hold() error {
	if err := c.control("PRAGMA cache_spill = OFF"); err != nil {
		return err
	}
	return c.holdLog()
}

// begin begins a transaction that may write.
func (c *conn) begin() error {
	c.dropHeld()
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
	if found, err = c.step(st.statement); found {
		r = c.row(st.statement)
	}
	c.reset(st.statement)
	return r, found, err
}
