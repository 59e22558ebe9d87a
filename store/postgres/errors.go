package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agentbus/agentbus"
)

// errClosed is the cause of every answer after Close.
var errClosed = errors.New("the store is closed")

// errUnknown is why a store is broken whose last transaction may or may not have
// been committed.
var errUnknown = errors.New("the outcome of a transaction could not be found out")

// sqlState returns the five characters by which the server names its errors, or
// "".
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// passing reports whether the same transaction may succeed on another try, soon:
// the connection was lost, the server starts or stops, or two transactions were
// in each other's way.
func passing(err error) bool {
	code := sqlState(err)
	switch {
	case err == nil:
		return false
	case code == "":
		_, verdict := errors.AsType[*agentbus.Error](err)
		return !verdict && !isRow(err) && !errors.Is(err, errClosed)
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "40"):
		return true
	}
	switch code {
	case "25006", "25P03", "53300", "55P03": // read only, after a fail-over; idle in a transaction; too many connections; a lock
		return true
	}
	return false
}

// A rowError is something stored that cannot be read.
type rowError struct{ error }

// Unwrap returns what is wrong with it.
func (b *rowError) Unwrap() error { return b.error }

func isRow(err error) bool {
	_, is := errors.AsType[*rowError](err)
	return is
}

// damaged reports whether the server says that its files are.
func damaged(err error) bool {
	code := sqlState(err)
	return code == "XX001" || code == "XX002"
}

// unavailable wraps the failure of a read or write for callers. A verdict of
// the store, which is an *agentbus.Error already, and the end of the caller's
// own context stay as they are.
func unavailable(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if cerr := ctx.Err(); cerr != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return cerr
	}
	if e, ok := errors.AsType[*agentbus.Error](err); ok {
		return e
	}
	return &agentbus.Error{
		Code:    agentbus.CodeStoreUnavailable,
		Message: "the store could not " + what + ": " + advice(err),
		Err:     fmt.Errorf("%s: %w", what, err),
	}
}

// advice says in words what failed and what to do.
func advice(err error) string {
	code := sqlState(err)
	switch {
	case errors.Is(err, errClosed):
		return "it is closed; the process is stopping"
	case errors.Is(err, errUnknown):
		return "the database does not say what became of a transaction; restart the process once it answers"
	case isRow(err):
		return "what it holds, or is to hold, is not as it should be; its operator finds the cause in the log"
	case code == "" || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P"):
		return "its database does not answer; see that it runs and can be reached"
	case strings.HasPrefix(code, "53"):
		return "its database has no room: disk, memory or connections; make some, then retry"
	case code == "25006":
		return "its database takes no writes; let store.url lead to the primary"
	case strings.HasPrefix(code, "28") || code == "42501":
		return "its database refuses this user; see to its password and rights"
	case damaged(err):
		return "its database is damaged; stop the process and restore a copy"
	}
	return "its operator finds the cause in the log"
}

// refusal is a verdict: the store works, and says no.
func refusal(code agentbus.Code, message string) error {
	return &agentbus.Error{Code: code, Message: message}
}
