package main

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// file is a writer that counts its writes.
type file struct {
	sync.Mutex
	bytes.Buffer
	writes int
}

func (f *file) Write(p []byte) (int, error) {
	f.Lock()
	defer f.Unlock()
	f.writes++
	return f.Buffer.Write(p)
}

// TestCalmLog: G32, every line is written, in order, many at a time; a warning
// and what came before it at once.
func TestCalmLog(t *testing.T) {
	t.Parallel()
	f := &file{}
	h, stop := newCalmLog(t.Context(), f, slog.LevelInfo)
	log := slog.New(h).With("bus", 1)
	const calls = 2000
	for i := range calls {
		log.Info("call", "n", i)
	}
	log.Warn("odd")
	f.Lock()
	if got := strings.Count(f.String(), "\n"); got != calls+1 || !strings.HasSuffix(f.String(), `"msg":"odd","bus":1}`+"\n") {
		t.Errorf("%d lines are written after a warning", got)
	}
	if f.writes > calls/10 {
		t.Errorf("%d writes for %d lines", f.writes, calls)
	}
	f.Unlock()
	log.Info("last")
	stop()
	if !strings.HasSuffix(f.String(), `"msg":"last","bus":1}`+"\n") {
		t.Error("what was logged last is lost")
	}
}
