package sqlite

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A logFile stands between SQLite and its write-ahead log, on the connection that
// writes. SQLite writes each page of a commit in two pieces, one behind the other;
// they are held here and written at once, when SQLite syncs, which it does before it
// tells anybody that they are there (decision 158).
//
// That holds for whole commits alone: a connection with a logFile has synchronous=FULL
// and spills no pages before. What a commit that failed leaves is dropped before the
// next begins, and before the file is closed, which folds the log into the database and
// syncs it first: another process may have written in its place by then.
//
// It is memory outside of Go's heap, and SQLite finds it by its first field.
type logFile struct {
	methods lib.Tsqlite3_io_methods // of the file from now on
	below   lib.Tsqlite3_io_methods // of the file as SQLite opened it

	at   int64 // where in the file what is held belongs
	held int32 // bytes
	room [maxHeld]byte
}

// maxHeld is less than what one write of SQLite's may have on Unix, 128 KiB.
const maxHeld = 96 << 10

type (
	writing = func(tls *libc.TLS, file, p uintptr, n int32, at int64) (rc int32) // xWrite
	syncing = func(tls *libc.TLS, file uintptr, flags int32) (rc int32)          // xSync
)

// holdLog puts a logFile on the write-ahead log, which is open.
func (h *handle) holdLog() error {
	at, err := h.room.take(h.tls, unsafe.Sizeof(uintptr(0)))
	if err != nil {
		return err
	}
	if err := h.failed(lib.Xsqlite3_file_control(h.tls, h.db, 0, lib.SQLITE_FCNTL_JOURNAL_POINTER, at)); err != nil {
		return err
	}
	file := pointer(at)
	methods := pointer(file)
	if h.log = lib.Xsqlite3_malloc64(h.tls, uint64(unsafe.Sizeof(logFile{}))); h.log == 0 {
		return errNoMemory
	}
	l := logAt(h.log)
	l.below = **(**lib.Tsqlite3_io_methods)(unsafe.Pointer(&methods)) //nolint:gosec // SQLite gave the address
	l.methods, l.held = l.below, 0
	l.methods.FxWrite, l.methods.FxSync = address(writeLog), address(syncLog)
	**(**uintptr)(unsafe.Pointer(&file)) = h.log //nolint:gosec // as above
	return nil
}

// dropHeld forgets what a commit that failed has left.
func (h *handle) dropHeld() {
	if h.log != 0 {
		logAt(h.log).held = 0
	}
}

func logAt(at uintptr) *logFile {
	return *(**logFile)(unsafe.Pointer(&at)) //nolint:gosec // handle.log, or the methods of a file that has one
}

// address returns what SQLite calls a function by, which must be one of the package.
func address(function any) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&function))[1] //nolint:gosec // the second word of an interface that holds a function
}

// writeBelow calls xWrite of the file as SQLite opened it.
func writeBelow(method uintptr, tls *libc.TLS, file, p uintptr, n int32, at int64) int32 {
	return (*(*writing)(unsafe.Pointer(&struct{ uintptr }{method})))(tls, file, p, n, at) //nolint:gosec // SQLite gave it
}

func writeLog(tls *libc.TLS, file, p uintptr, n int32, at int64) int32 {
	l := logAt(pointer(file))
	if l.held > 0 && at != l.at+int64(l.held) || l.held+n > maxHeld {
		if rc := l.write(tls, file); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if n > maxHeld {
		return writeBelow(l.below.FxWrite, tls, file, p, n, at)
	}
	if l.held == 0 {
		l.at = at
	}
	copy(l.room[l.held:], memory(p, int(n)))
	l.held += n
	return lib.SQLITE_OK
}

func syncLog(tls *libc.TLS, file uintptr, flags int32) int32 {
	l := logAt(pointer(file))
	if rc := l.write(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return (*(*syncing)(unsafe.Pointer(&struct{ uintptr }{l.below.FxSync})))(tls, file, flags) //nolint:gosec // SQLite gave it
}

// write writes what is held. What cannot be written is not held any more: SQLite
// gives the commit up.
func (l *logFile) write(tls *libc.TLS, file uintptr) int32 {
	n := l.held
	if l.held = 0; n == 0 {
		return lib.SQLITE_OK
	}
	return writeBelow(l.below.FxWrite, tls, file, uintptr(unsafe.Pointer(&l.room)), n, l.at) //nolint:gosec // not of Go's heap
}
