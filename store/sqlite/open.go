package sqlite

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	codes "modernc.org/sqlite/lib"
)

// applicationID marks our files; see the first migration.
const applicationID = 0x61676273

// busyTimeout is how long a statement waits for other connections.
const busyTimeout = "busy_timeout(10000)"

// creating keeps two stores of this process from creating a file at once. A
// process that closes any descriptor of a file loses all its POSIX locks on
// it, so no file is opened here that SQLite may have open already.
var creating sync.Mutex

// open makes the store ready: file, schema, install key, clock, writer and
// readers.
func (s *Store) open(ctx context.Context, path string, wall func() time.Time) error {
	synchronous := "FULL"
	if path == ":memory:" {
		dir, err := os.MkdirTemp("", "agentbus-")
		if err != nil {
			return fmt.Errorf("make a directory for a store in memory: %w", err)
		}
		s.scratch, path, synchronous = dir, filepath.Join(dir, "bus.db"), "OFF"
	}
	path, err := create(path)
	if err != nil {
		return err
	}
	// 8 MiB of cache hold the index pages of some 100,000 calls; folding the log
	// into the file every 16 MiB writes a page once that changed often. What is
	// erased is overwritten in the pages that are written anyway.
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String() +
		"?mode=rw&_error_rc=1&_dqs=0&_txlock=immediate&_pragma=" + busyTimeout + "&_pragma=cache_size(-8192)" +
		"&_pragma=wal_autocheckpoint(4000)&_pragma=secure_delete(fast)&_pragma=synchronous(" + synchronous + ")"
	if s.scratch == "" {
		if s.file, err = named(path); err != nil {
			return unusable(path, err)
		}
	}
	if err := patiently(ctx, func() error { return s.prepare(ctx, path, dsn, wall) }); err != nil {
		return unusable(path, err)
	}
	if s.asker, err = openAsker(dsn); err != nil {
		return unusable(path, err)
	}
	s.readers, err = openReaders(dsn)
	return err
}

// create makes an empty file that its owner alone can read, unless there is a
// file, and returns its absolute path.
func create(path string) (string, error) {
	if path == "" {
		return "", errors.New("the store has no path; name a file, such as agentbus.db")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the store %s: %w", path, err)
	}
	path = abs
	creating.Lock()
	defer creating.Unlock()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", fmt.Errorf("the store %s is a directory; name a file in it, such as %s", path, filepath.Join(path, "agentbus.db"))
	}
	if err := orphaned(path); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // the operator names the file
	switch {
	case err == nil:
		return path, f.Close()
	case errors.Is(err, fs.ErrExist):
		return path, nil
	}
	dir := filepath.Dir(path)
	if _, statErr := os.Stat(dir); errors.Is(statErr, fs.ErrNotExist) {
		return "", fmt.Errorf("the directory %s, where the store is to be, does not exist; create it: %w", dir, err)
	}
	return "", fmt.Errorf("the store %s cannot be created; let the process write to its directory, or name another file: %w", path, err)
}

// orphaned fails where a log stands beside an empty file, or none: SQLite would
// remove the log, and with it writes that were acknowledged (I2). A new file has a page
// before it has a log, so the log is looked at first: another process may make one.
func orphaned(path string) error {
	if file, err := filepath.EvalSymlinks(path); err == nil && runtime.GOOS != "windows" { // beside which SQLite has the log
		path = file
	}
	wal := path + "-wal"
	if info, err := os.Stat(wal); err != nil || info.Size() == 0 {
		return nil //nolint:nilerr // what else stat may say is for whoever opens it
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("there is a log of the store, %s, and nothing in %s that it belongs to: put the file back that was moved or emptied, "+
		"or remove the log and restore a copy, or remove the log to begin anew", wal, path)
}

// A file is one that was opened; the zero value is none that anybody names. It is
// for the writer.
type file struct {
	path   string
	info   fs.FileInfo
	looked time.Time
	moved  error // what was seen then
}

func named(path string) (f file, err error) {
	f.path = path
	f.info, err = os.Stat(path)
	return f, err
}

// errMoved is why nothing is written to a file that nobody would find again, and
// errEmptied why nothing is to one whose pages are gone.
var (
	errMoved   = errors.New("the file of the store is not where it was opened")
	errEmptied = errors.New("the file of the store was emptied")
)

// lookEvery is how often the file is looked for: with every commit it would be 2 %
// of what one takes.
const lookEvery = 100 * time.Millisecond

// there fails soon after the file was moved, removed, replaced or emptied: it has
// had a page since it was opened. What is written then is gone with the process:
// nobody is to be told for hours that it is kept (I2).
func (f *file) there() error {
	now := time.Now()
	if f.path == "" || now.Sub(f.looked) < lookEvery {
		return f.moved
	}
	info, err := os.Stat(f.path)
	f.looked, f.moved = now, nil
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(info, f.info):
		f.moved = errMoved
	case err == nil && info.Size() == 0:
		f.moved = errEmptied
	}
	return f.moved // what else stat may say is for whoever writes
}

// unusable says why the file cannot be a store and what to do.
func unusable(path string, err error) error {
	switch code := sqliteCode(err); {
	case code == 0, errors.Is(err, errInUse):
		return fmt.Errorf("the store %s: %w", path, err)
	case code == codes.SQLITE_NOTADB:
		return fmt.Errorf("%s is not a SQLite database and was left as it is; name another file: %w", path, err)
	}
	return fmt.Errorf("the store %s cannot be opened: %s: %w", path, advice(err), err)
}

// openWithin is how long a file that another process writes to is waited for: one
// that stands still in the middle of a write never lets go.
const openWithin = 30 * time.Second

// patiently runs f until it succeeds, fails for another reason than that another
// process opens the same file at this moment, or openWithin is over. Switching to
// write-ahead logging answers SQLITE_BUSY at once, whatever the busy timeout.
func patiently(ctx context.Context, f func() error) error {
	for late := time.Now().Add(openWithin); ; {
		err := f()
		if code := sqliteCode(err); code != codes.SQLITE_BUSY && code != codes.SQLITE_LOCKED || time.Now().After(late) {
			return err
		}
		wait := 10 * time.Millisecond
		if errors.Is(err, errInUse) { // by one that waits for the same, perhaps: let one of them look alone
			wait += rand.N(200 * time.Millisecond) //nolint:gosec // no secret depends on it
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// prepare brings the file up to date. It may be repeated.
func (s *Store) prepare(ctx context.Context, path, dsn string, wall func() time.Time) (err error) {
	if s.writer == nil {
		if s.writer, err = dial(dsn); err != nil {
			return err
		}
	}
	version, err := s.identify()
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("it was written by a newer agentbus (schema %d; this one knows %d); run the newer version, or name another file", version, schemaVersion)
	}
	mode, _, err := s.writer.first("PRAGMA journal_mode = WAL")
	if err != nil {
		return err
	}
	if m := mode.text(); m != "wal" {
		return fmt.Errorf("its file system cannot hold a write-ahead log (journal mode %q); put it on a local disk", m)
	}
	switch {
	case version == 0: // nobody can be at work there
		err = s.migrate(ctx, dsn)
	case version < schemaVersion:
		if err = s.migrateAlone(ctx, dsn); err == nil {
			s.writer, err = dial(dsn)
		}
	}
	if err != nil {
		return err
	}
	if version < schemaVersion {
		s.log.InfoContext(ctx, "store is up to date", "path", path, "schema", schemaVersion)
	}
	if err := s.loadInstallKey(); err != nil {
		return err
	}
	if err := s.loadClock(wall); err != nil || s.scratch != "" { // what is in memory is never synced
		return err
	}
	return s.writer.hold()
}

// identify returns the schema version of the file: 0 when it is empty. It
// fails when the file belongs to another program, before anything is changed.
func (s *Store) identify() (version int64, err error) {
	r, _, err := s.writer.first(`SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id),
		(SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'goose\_%' ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\')`)
	if err != nil {
		return 0, err
	}
	version, app, tables := r.int64(), r.int64(), r.int64()
	if app != applicationID && (app != 0 || version != 0 || tables != 0) {
		return 0, errors.New("it is the database of another program and was left as it is; name another file")
	}
	return version, nil
}

// loadInstallKey reads the install key, made when the store is new (P19). Two
// processes that make it at once end up with the same one.
func (s *Store) loadInstallKey() error {
	const query = "SELECT value FROM meta WHERE name = 'install_key'"
	r, found, err := s.writer.first(query)
	if err == nil && !found {
		key := make([]byte, 32)
		_, _ = crand.Read(key) // never fails since Go 1.24
		if _, err = s.writer.exec("INSERT INTO meta (name, value) VALUES ('install_key', ?1) ON CONFLICT (name) DO NOTHING", key); err == nil {
			r, _, err = s.writer.first(query)
		}
	} else if err == nil {
		// A file that can be read may still be closed to writing: say so now. BEGIN
		// IMMEDIATE would not: of such a file it begins to read.
		_, err = s.writer.exec("DELETE FROM meta WHERE false")
	}
	if err != nil {
		return err
	}
	s.installKey = r.blob()
	return nil
}
