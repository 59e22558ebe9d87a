package main

import (
	"bufio"
	"context"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// A calmLog is a JSON log that writes many lines at once: a line for each call
// is a write to the system for each call otherwise. What is a warning or worse,
// and all before it, is written at once.
type calmLog struct {
	slog.Handler

	out  *lines
	more bool // it adds something to each line
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
	return calmLog{slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}), out, false}, func() {
		cancel()
		<-ended
	}
}

// Handle writes a record, with its time in UTC as all times in JSON.
func (l calmLog) Handle(ctx context.Context, r slog.Record) error {
	return l.HandleLine(ctx, r, func(func(slog.Attr) bool) {})
}

// HandleLine writes a record with attrs behind its own, in one line.
func (l calmLog) HandleLine(ctx context.Context, r slog.Record, attrs iter.Seq[slog.Attr]) error {
	r.Time = r.Time.UTC()
	if !l.more && l.out.plain(r, attrs) {
		return nil
	}
	r = r.Clone()
	for a := range attrs {
		r.AddAttrs(a)
	}
	err := l.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		l.out.flush()
	}
	return err
}

// WithAttrs returns a log to the same place.
func (l calmLog) WithAttrs(as []slog.Attr) slog.Handler {
	return calmLog{l.Handler.WithAttrs(as), l.out, true}
}

// WithGroup returns a log to the same place.
func (l calmLog) WithGroup(name string) slog.Handler {
	return calmLog{l.Handler.WithGroup(name), l.out, true}
}

// lines holds lines back for a moment.
type lines struct {
	mu sync.Mutex // guards w
	w  *bufio.Writer
}

// Write takes a line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.add(p)
}

// add takes a line while mu is held. One that does not fit makes those before it
// be written.
func (l *lines) add(p []byte) (int, error) {
	if len(p) > l.w.Available() {
		if err := l.w.Flush(); err != nil {
			return 0, err
		}
	}
	return l.w.Write(p)
}

// plain takes the line of a record that is no warning and plain, which that of a
// call is, and reports whether it did. It is the line that the JSON handler would
// write.
func (l *lines) plain(r slog.Record, attrs iter.Seq[slog.Attr]) bool {
	if r.Level >= slog.LevelWarn {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line, plain := appendLine(l.w.AvailableBuffer(), r, attrs) // one that does not fit has moved out of the buffer
	if plain {
		_, _ = l.add(line) // a log that cannot be written has nobody to tell
	}
	return plain
}

// appendLine appends the line of a record, with attrs behind its own, as the JSON
// handler writes it, and reports whether all of it is plain.
func appendLine(b []byte, r slog.Record, attrs iter.Seq[slog.Attr]) (line []byte, plain bool) {
	p := rawjson.NewPlain(b)
	if at := r.Time.Round(0); !at.IsZero() {
		var room [len(time.RFC3339Nano)]byte
		p.Text(slog.TimeKey, string(at.AppendFormat(room[:0], time.RFC3339Nano)))
	}
	p.Text(slog.LevelKey, r.Level.String())
	p.Text(slog.MessageKey, r.Message)
	add := func(a slog.Attr) bool { return addAttr(&p, a) }
	r.Attrs(add)
	attrs(add)
	p.Close()
	line, plain = p.Bytes()
	return append(line, '\n'), plain
}

// addAttr adds an attribute, and reports whether p is plain still.
func addAttr(p *rawjson.Plain, a slog.Attr) bool {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		p.Text(a.Key, v.String())
	case slog.KindInt64:
		p.Int(a.Key, v.Int64())
	case slog.KindDuration:
		p.Int(a.Key, int64(v.Duration()))
	case slog.KindBool:
		p.Bool(a.Key, v.Bool())
	case slog.KindGroup:
		for _, within := range v.Group() {
			if a.Key != "" || !addAttr(p, within) {
				p.Odd()
				return false
			}
		}
	default:
		if !a.Equal(slog.Attr{}) { // which the handler leaves out
			p.Odd()
			return false
		}
	}
	return true
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
