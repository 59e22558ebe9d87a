package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/store/sqlite"
)

// The driver and the libc it was generated for belong together, and older
// SQLite versions can corrupt a write-ahead log.
func TestDriverIsPinned(t *testing.T) {
	t.Parallel()
	mod := string(read(t, "../../go.mod"))
	for _, want := range []string{"\tmodernc.org/sqlite v1.60.1\n", "\tmodernc.org/libc v1.77.1\n"} {
		if !strings.Contains(mod, want) {
			t.Errorf("go.mod does not require %q", want)
		}
	}
	var version string
	db := beside(t, t.TempDir())
	defer closed(t, db)
	if err := db.QueryRowContext(t.Context(), "SELECT sqlite_version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	parts := [3]int{}
	for i, p := range strings.Split(version, ".") {
		parts[i], _ = strconv.Atoi(p)
	}
	if n := parts[0]*1e6 + parts[1]*1e3 + parts[2]; n < 3_051_003 {
		t.Errorf("SQLite is %s, want at least 3.51.3", version)
	}
}

func TestStoreIsReadableByItsOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a dir?with#odd%20name")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := opened(t, dir)
	defer closed(t, s)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 { // the file, its log and the log's index
		t.Errorf("files: %v, %v", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestStoreInMemoryIsGoneWithClose(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(t.Context(), request("run_a", 0, "x")); err != nil {
		t.Error(err)
	}
	if calls, err := s.Calls(t.Context(), "run_a"); err != nil || len(calls) != 1 {
		t.Errorf("%v, %v", calls, err)
	}
	closed(t, s)
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Each of these is refused with words that say what to do, and left as it is.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	foreign := func(query string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			execute(t, path, query)
		}
	}
	for name, c := range map[string]struct {
		path  string
		setup func(t *testing.T, path string)
		want  string
	}{
		"no path":                    {want: "name a file"},
		"a directory":                {path: ".", want: "is a directory; name a file in it"},
		"a missing directory":        {path: "no/such/bus.db", want: "such, where the store is to be, does not exist; create it"},
		"a file that is no database": {path: "x", setup: written(strings.Repeat("no database ", 100)), want: "is not a SQLite database"},
		"another program's tables":   {path: "x", setup: foreign("CREATE TABLE notes (x)"), want: "another program"},
		"another program's id":       {path: "x", setup: foreign("PRAGMA application_id = 7"), want: "another program"},
		"a newer schema":             {path: "x", setup: newer, want: "newer agentbus (schema 99"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.path
			if path != "" {
				path = filepath.Join(t.TempDir(), path)
			}
			var before []byte
			if c.setup != nil {
				c.setup(t, path)
				before = read(t, path)
			}
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err == nil {
				t.Fatal(s.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if c.setup != nil && !bytes.Equal(before, read(t, path)) {
				t.Errorf("the file was changed")
			}
		})
	}
}

func written(text string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func execute(t *testing.T, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, db)
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// newer makes a store whose schema this version does not know.
func newer(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	execute(t, path, "PRAGMA user_version = 99")
}

func TestOpenRefusesWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // who may write everywhere but where the kernel says no
		if dir = "/sys"; runtime.GOOS != "linux" {
			require.Missing(t, "a user that is not root")
		}
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "bus.db")})
	if err == nil || !strings.Contains(err.Error(), "let the process write to its directory") {
		t.Errorf("in a directory that is read-only: %v", err)
	}
	path := filepath.Join(t.TempDir(), "bus.db")
	closed(t, opened(t, filepath.Dir(path)))
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		actAsNobody(t, filepath.Dir(path)) // no mode of a file keeps root from writing it
	}
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("a file that is read-only: %v", err)
	}
}

// Whoever opens a new file at the same moment finds one store with one install
// key (P19).
func TestManyOpenANewFileAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := make([][]byte, 6)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "bus.db")})
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = s.InstallKey()
			closed(t, s)
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) {
			t.Errorf("install keys %x and %x", keys[0], k)
		}
	}
}

// A store that is up to date opens without migrating, and says nothing.
func TestOpenMigratesOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	var log bytes.Buffer
	for i, want := range []int{1, 1} {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		closed(t, s)
		if got := strings.Count(log.String(), "store is up to date"); got != want {
			t.Errorf("after %d opens the log says %d times: %s", i+1, got, log.String())
		}
	}
	newest, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := beside(t, filepath.Dir(path))
	defer closed(t, db)
	var version, migrated int
	err = db.QueryRowContext(t.Context(), "SELECT user_version, (SELECT max(version_id) FROM goose_db_version) FROM pragma_user_version").Scan(&version, &migrated)
	name := filepath.Base(newest[len(newest)-1])
	want, atoiErr := strconv.Atoi(name[:5])
	if err = errors.Join(err, atoiErr); err != nil || version != want || migrated != want {
		t.Errorf("user_version %d after %d of %d migrations: %v", version, migrated, want, err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(t.TempDir(), "bus.db")}); err == nil {
		t.Error(s.Close())
	}
}

// A damaged file is told from a healthy one, and nothing is made up (I2).
func TestADamagedFileIsNotGuessedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	for n := range 200 {
		got, err := s.Reserve(t.Context(), request("run_a", n, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), answer(got.Call, strings.Repeat("x", 500))); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, s)
	path := filepath.Join(dir, "bus.db")
	b := read(t, path)
	for i := 8192; i < len(b); i += 7 {
		b[i] ^= 0x5a
	}
	written(string(b))(t, path)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err == nil {
		_, err = s.Calls(t.Context(), "run_a")
		if cerr := s.Close(); cerr != nil {
			t.Log(cerr)
		}
		if agentbus.CodeOf(err) != agentbus.CodeStoreUnavailable {
			t.Errorf("reading a damaged file: %v", err)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "not a SQLite database") {
		t.Errorf("a damaged file: %v", err)
	}
}

// Who opens a store that a process holds in the middle of a write is told so in
// the end: that process may stand still.
func TestOpeningIsNotForEver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closed(t, opened(t, dir))
	defer hold(t, dir)()
	other, err := sql.Open("sqlite", filepath.Join(dir, "bus.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, other)
	_, busy := other.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := sqlite.Patiently(t.Context(), func() error { return busy }); !errors.Is(err, busy) || busy == nil {
			t.Errorf("%v, want %v", err, busy)
		}
		if took := time.Since(began); took < 10*time.Second || took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// I2: a log whose file was moved or emptied holds what was acknowledged. A store that is
// opened there leaves it as it is, until the file is back.
func TestLogWithoutItsFile(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(path string) error{
		"moved": func(path string) error { return os.Rename(path, path+".away") },
		"emptied": func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, nil, 0o600))
		},
		"emptied behind a link": func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, nil, 0o600), os.Symlink(path, path+".link"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "bus.db")
			s := opened(t, dir)
			if _, err := s.Reserve(t.Context(), request("run_a", 1, "x")); err != nil {
				t.Fatal(err)
			}
			if err := lose(path); err != nil {
				t.Fatal(err)
			}
			closed(t, s) // it cannot fold the log into a file that is not there
			asked := path
			if _, err := os.Lstat(path + ".link"); err == nil {
				asked = path + ".link"
			}
			if other, err := sqlite.Open(t.Context(), sqlite.Config{Path: asked}); err == nil || !strings.Contains(err.Error(), "put the file back") {
				t.Fatalf("%v, %v", other, err)
			}
			if _, _, err := sqlite.Schema(asked); err == nil || !strings.Contains(err.Error(), "put the file back") {
				t.Error(err)
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			s = opened(t, dir)
			defer closed(t, s)
			if calls, err := s.Calls(t.Context(), "run_a"); err != nil || len(calls) != 1 {
				t.Errorf("%+v, %v", calls, err)
			}
		})
	}
}
