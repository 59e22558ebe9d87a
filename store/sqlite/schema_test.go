package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentbus/agentbus/store/sqlite"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	if _, _, err := sqlite.Schema(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
	for text, fails := range map[string]bool{"": false, "SQLite": true, string(make([]byte, 4096)): true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if version, _, err := sqlite.Schema(path); version != 0 || (err != nil) != fails {
			t.Errorf("of %d bytes: %d, %v", len(text), version, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if version, newest, err := sqlite.Schema(path); err != nil || version != newest || newest == 0 {
		t.Errorf("of a new store: %d of %d, %v", version, newest, err)
	}
}
