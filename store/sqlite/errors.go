package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/agentbus/agentbus"
)

// errClosed is the cause of every answer after Close.
var errClosed = errors.New("the store is closed")

// sqliteCode returns the primary result code of SQLite in err, or 0.
func sqliteCode(err error) int {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code & 0xff
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok { // of the readers, who share their connections
		return e.Code() & 0xff
	}
	return 0
}

// fatal reports whether err leaves it open what reached the disk, or says that
// the file is damaged. After it nothing is written any more (I2): a failed
// fsync must not be retried, because the kernel may forget the pages that
// failed and let the next fsync succeed.
func fatal(err error) bool {
	switch sqliteCode(err) {
	case codes.SQLITE_IOERR, codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return true
	}
	return false
}

// transient reports whether the same write may succeed later.
func transient(err error) bool {
	switch sqliteCode(err) {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_FULL:
		return true
	}
	return errors.Is(err, errMoved)
}

// unavailable wraps the failure of a read or write for callers. A verdict of
// the store, which is an *agentbus.Error already, and the end of the caller's
// own context stay as they are.
func unavailable(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
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
	switch sqliteCode(err) {
	case codes.SQLITE_FULL:
		return "its disk is full; free some space, then retry"
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return "another process holds its write lock; retry, or stop that process"
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_PERM:
		return "its file cannot be written; let the process write to it and to its directory"
	case codes.SQLITE_IOERR:
		return "its disk failed; check the disk, then restart the process"
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return "its file is damaged; stop the process and restore a copy"
	}
	if errors.Is(err, errMoved) {
		return "its file is not where it was opened; put it back, or stop the process before another one takes its place"
	}
	if errors.Is(err, errEmptied) {
		return "its file was emptied; stop the process and restore a copy"
	}
	if errors.Is(err, errClosed) {
		return "it is closed; the process is stopping"
	}
	return "its operator finds the cause in the log"
}

// refusal is a verdict: the store works, and says no.
func refusal(code agentbus.Code, message string) error {
	return &agentbus.Error{Code: code, Message: message}
}
