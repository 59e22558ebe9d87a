package measure

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	entry    = 1 << 10 // bytes of one write
	mostSync = 1 << 20 // that are counted, so that a disk that does nothing fills no memory
)

// Syncs writes 1 KiB to the end of a file of its own in dir, has the disk keep
// it, and so on for d or until ctx ends. It returns the seconds that each took,
// one at least, and leaves nothing behind.
func Syncs(ctx context.Context, dir string, d time.Duration) (took Series, err error) {
	f, err := os.CreateTemp(dir, ".measure-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Clean(f.Name())) //nolint:errcheck // it holds nothing
	defer f.Close()                           //nolint:errcheck // every write was checked
	b, end := make([]byte, entry), time.Now().Add(d)
	for began := time.Now(); len(took) == 0 || began.Before(end) && len(took) < mostSync && ctx.Err() == nil; {
		if _, err := f.Write(b); err != nil {
			return nil, err
		}
		if err := fdatasync(f); err != nil {
			return nil, err
		}
		now := time.Now()
		took = append(took, now.Sub(began).Seconds())
		began = now
	}
	return took, nil
}

// Rate returns how many a second there were of what took s, one after another.
func (s Series) Rate() float64 {
	sum := 0.0
	for _, f := range s {
		sum += f
	}
	if sum == 0 {
		return 0
	}
	return float64(len(s)) / sum
}
