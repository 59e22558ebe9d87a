package sqlite

import (
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A handle is an open database of SQLite, by the calls of its C interface. It is not
// safe for concurrent use: SQLite's own lock on it, which some fifty calls would take
// for one call of an agent, is off.
type handle struct {
	tls  *libc.TLS
	db   uintptr
	room room    // what the arguments of a statement stand in while it runs
	log  uintptr // where its logFile is; 0: it has none
}

// A statement is prepared. Its handle closes it.
type statement struct {
	at      uintptr
	columns int // of each row
}

// A failure is what SQLite says of a call that failed.
type failure struct {
	code int // extended
	text string
}

func (f *failure) Error() string { return f.text }

// openHandle opens the file that a URI names.
func openHandle(uri string) (*handle, error) {
	h := &handle{tls: libc.NewTLS()}
	name, err := libc.CString(uri)
	if err != nil {
		h.tls.Close()
		return nil, err
	}
	defer libc.Xfree(h.tls, name)
	db, err := h.room.take(h.tls, unsafe.Sizeof(h.db))
	if err == nil {
		const flags = lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_CREATE | lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_URI
		rc := lib.Xsqlite3_open_v2(h.tls, name, db, flags, 0)
		h.db = pointer(db) // also of one that could not be opened: it knows why
		err = h.failed(rc)
	}
	if err == nil {
		lib.Xsqlite3_extended_result_codes(h.tls, h.db, 1)
		return h, nil
	}
	_ = h.close() // what failed first is told
	return nil, err
}

// close closes the database. Its statements are finalized.
func (h *handle) close() error {
	h.dropHeld()
	err := h.failed(lib.Xsqlite3_close_v2(h.tls, h.db))
	h.room.free(h.tls)
	lib.Xsqlite3_free(h.tls, h.log)
	h.tls.Close()
	return err
}

// failed returns what a result code that is no success stands for.
func (h *handle) failed(rc int32) error {
	if rc == lib.SQLITE_OK {
		return nil
	}
	text := libc.GoString(lib.Xsqlite3_errstr(h.tls, rc))
	if h.db != 0 && lib.Xsqlite3_extended_errcode(h.tls, h.db)&0xff == rc&0xff {
		if more := libc.GoString(lib.Xsqlite3_errmsg(h.tls, h.db)); more != text {
			text += ": " + more
		}
	}
	return &failure{int(rc), fmt.Sprintf("%s (%d)", text, rc)}
}

// prepare prepares one statement.
func (h *handle) prepare(query string) (st statement, err error) {
	text, err := libc.CString(query)
	if err != nil {
		return st, err
	}
	defer libc.Xfree(h.tls, text)
	at, err := h.room.take(h.tls, unsafe.Sizeof(st.at))
	if err != nil {
		return st, err
	}
	if err := h.failed(lib.Xsqlite3_prepare_v3(h.tls, h.db, text, -1, lib.SQLITE_PREPARE_PERSISTENT, at, 0)); err != nil {
		return st, err
	}
	st.at = pointer(at)
	st.columns = int(lib.Xsqlite3_column_count(h.tls, st.at))
	return st, nil
}

func (h *handle) finalize(st statement) { lib.Xsqlite3_finalize(h.tls, st.at) }

// bind gives each parameter of a statement the argument that it takes: an int64, a
// string, a []byte or nil. Texts and bytes are copied once, and hold until the next bind.
func (h *handle) bind(st statement, takes []int, args []any) error {
	size := uintptr(0)
	for _, n := range takes {
		size += uintptr(sizeOf(args[n]))
	}
	at, err := h.room.take(h.tls, size)
	if err != nil {
		return err
	}
	for i, n := range takes {
		if err := h.failed(h.bindOne(st, int32(i+1), args[n], at)); err != nil {
			return err
		}
		at += uintptr(sizeOf(args[n]))
	}
	return nil
}

// sizeOf is the room that an argument takes.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}

// bindOne binds one argument, whose text or bytes go to at.
func (h *handle) bindOne(st statement, parameter int32, v any, at uintptr) int32 {
	const static = 0 // SQLite needs no copy
	switch v := v.(type) {
	case int64:
		return lib.Xsqlite3_bind_int64(h.tls, st.at, parameter, v)
	case string:
		n := copy(memory(at, len(v)), v)
		return lib.Xsqlite3_bind_text(h.tls, st.at, parameter, at, int32(n), static) //nolint:gosec // SQLite refuses a text of 1 GB
	case []byte:
		if v == nil {
			break
		}
		n := copy(memory(at, len(v)), v)
		return lib.Xsqlite3_bind_blob(h.tls, st.at, parameter, at, int32(n), static) //nolint:gosec // as above
	case nil:
	default:
		return lib.SQLITE_MISUSE
	}
	return lib.Xsqlite3_bind_null(h.tls, st.at, parameter)
}

// step runs a statement up to its next row, and reports whether there is one.
func (h *handle) step(st statement) (found bool, err error) {
	switch rc := lib.Xsqlite3_step(h.tls, st.at); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, h.failed(rc)
	}
}

// reset ends a run of a statement. What it returns, step has returned.
func (h *handle) reset(st statement) { lib.Xsqlite3_reset(h.tls, st.at) }

// row returns the row that a statement stands at: int64, string, []byte, or nil.
func (h *handle) row(st statement) *row {
	r := &row{values: make([]any, st.columns)}
	for i := range r.values {
		r.values[i] = h.column(st, int32(i))
	}
	return r
}

func (h *handle) column(st statement, i int32) any {
	switch lib.Xsqlite3_column_type(h.tls, st.at, i) {
	case lib.SQLITE_INTEGER:
		return lib.Xsqlite3_column_int64(h.tls, st.at, i)
	case lib.SQLITE_TEXT:
		at := lib.Xsqlite3_column_text(h.tls, st.at, i) // before its length
		return string(memory(at, int(lib.Xsqlite3_column_bytes(h.tls, st.at, i))))
	case lib.SQLITE_BLOB:
		at := lib.Xsqlite3_column_blob(h.tls, st.at, i)
		return append([]byte(nil), memory(at, int(lib.Xsqlite3_column_bytes(h.tls, st.at, i)))...)
	}
	return nil // the schema is strict, and has no other kinds
}

// changes returns how many rows the last statement that changes rows has changed.
func (h *handle) changes() int64 { return lib.Xsqlite3_changes64(h.tls, h.db) }

// lastID returns the id of the row that was inserted last.
func (h *handle) lastID() int64 { return lib.Xsqlite3_last_insert_rowid(h.tls, h.db) }

// room is memory outside of Go's heap, which SQLite can read while it runs.
type room struct {
	at   uintptr
	size uintptr
}

// maxRoom is what is kept of it for the next statement.
const maxRoom = 1 << 20

var errNoMemory = errors.New("there is no memory left")

// take returns so many bytes, in place of those that it returned before.
func (r *room) take(tls *libc.TLS, size uintptr) (at uintptr, err error) {
	if size <= r.size && (r.size <= maxRoom || size > maxRoom) {
		return r.at, nil
	}
	r.free(tls)
	size = max(size, 4<<10)
	if r.at = lib.Xsqlite3_malloc64(tls, uint64(size)); r.at == 0 {
		return 0, errNoMemory
	}
	r.size = size
	return r.at, nil
}

func (r *room) free(tls *libc.TLS) {
	lib.Xsqlite3_free(tls, r.at)
	r.at, r.size = 0, 0
}

// memory returns n bytes of memory outside of Go's heap.
func memory(at uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n) //nolint:gosec // SQLite or room gave the address
}

// pointer reads the pointer that stands at an address outside of Go's heap.
func pointer(at uintptr) uintptr {
	return **(**uintptr)(unsafe.Pointer(&at)) //nolint:gosec // as above
}
