package sqlite_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// actAsNobody has the files that this goroutine opens from now on opened as nobody
// would, who owns dir. The thread it runs on ends with it.
func actAsNobody(t *testing.T, dir string) {
	t.Helper()
	const nobody = 65534
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for nobody to pass
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setfsuid(0) }) // to remove what there is
}
