//go:build !linux

package measure

import "os"

// fdatasync is more than that here.
func fdatasync(f *os.File) error { return f.Sync() }
