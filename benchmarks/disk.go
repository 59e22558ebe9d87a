package main

import (
	"os"
	"path/filepath"
	"time"
)

const entry = 1 << 10 // bytes of one write of the bare loop

// bareSyncs returns how many times a second this disk takes 1 KiB at the end of
// a file for good: a loop of write and fdatasync that goes on for d.
func bareSyncs(dir string, d time.Duration) (float64, error) {
	f, err := os.CreateTemp(dir, "bare-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(filepath.Clean(f.Name())) //nolint:errcheck // the folder goes too
	defer f.Close()                           //nolint:errcheck // every write was checked
	b, n, began := make([]byte, entry), 0, time.Now()
	for time.Since(began) < d {
		if _, err := f.Write(b); err != nil {
			return 0, err
		}
		if err := fdatasync(f); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
