package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// A calmLog is a JSON log that writes many lines at once: a line for each call
// is a write to the system for each call otherwise. What is a warning or worse,
// and all before it, is written at once.
type calmLog struct {
	slog.Handler

	out *lines
}

const (
	logBuffer = 64 << 10
	logDelay  = 100 * time.Millisecond // at most, until a line is written
)

// newCalmLog returns a log to w. stop writes what is left, and waits.
func newCalmLog(ctx context.Context, w io.Writer, level slog.Level) (l calmLog, stop func()) {
	out := &lines{w: bufio.NewWriterSize(w, logBuffer)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is logged while the bus drains is written too
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		out.tick(ctx)
	}()
	return calmLog{slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}), out}, func() {
		cancel()
		<-ended
	}
}

// Handle writes a record.
func (l calmLog) Handle(ctx context.Context, r slog.Record) error {
	err := l.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		l.out.flush()
	}
	return err
}

// WithAttrs returns a log to the same place.
func (l calmLog) WithAttrs(as []slog.Attr) slog.Handler {
	return calmLog{l.Handler.WithAttrs(as), l.out}
}

// WithGroup returns a log to the same place.
func (l calmLog) WithGroup(name string) slog.Handler {
	return calmLog{l.Handler.WithGroup(name), l.out}
}

// lines holds lines back for a moment.
type lines struct {
	mu sync.Mutex // guards w
	w  *bufio.Writer
}

// Write takes a line. One that does not fit makes those before it be written.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.w.Available() {
		if err := l.w.Flush(); err != nil {
			return 0, err
		}
	}
	return l.w.Write(p)
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.w.Flush() // a log that cannot be written has nobody to tell
}

// tick writes what waits, every so often, and once more when ctx ends.
func (l *lines) tick(ctx context.Context) {
	t := time.NewTicker(logDelay)
	defer t.Stop()
	defer l.flush()
	for {
		select {
		case <-t.C:
			l.flush()
		case <-ctx.Done():
			return
		}
	}
}
