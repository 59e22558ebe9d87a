// Package sqlitetest gives tests a new store of SQLite quickly: the schema is
// made once a test binary and copied from then on.
package sqlitetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agentbus/agentbus/store/sqlite"
)

// empty is a store as it is before anything is written to it. All copies have
// the same install key.
var empty = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "sqlitetest")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "bus.db")
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path) //nolint:gosec // it was made above
})

// Prepare writes an empty store to path, unless there is a file already, and
// returns path. The file appears whole: another store of this process may open it at
// once, and would lose its locks were a descriptor of it closed here.
func Prepare(tb testing.TB, path string) string {
	tb.Helper()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	file, err := empty()
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "empty") // its owner alone can read it
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.Write(file)
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		tb.Fatal(err)
	}
	return path
}
