package main

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// reasons are a log that a verb which drives a conversation reads itself: it
// keeps why the last attempt of a call failed, which the bus logs and does not
// send. Warnings go no further, so that --json prints JSON only; errors do.
type reasons struct {
	slog.Handler

	last *atomic.Pointer[string]
}

// newReasons returns reasons whose errors go to h.
func newReasons(h slog.Handler) reasons { return reasons{h, new(atomic.Pointer[string])} }

// Enabled reports whether a record of that level is read.
func (reasons) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle keeps the cause of a warning, and passes an error on.
func (r reasons) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelError {
		return r.Handler.Handle(ctx, record)
	}
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "cause" && a.Value.String() != "" {
			why := a.Value.String()
			r.last.Store(&why)
		}
		return true
	})
	return nil
}

// WithAttrs returns reasons that share what they keep with r.
func (r reasons) WithAttrs(as []slog.Attr) slog.Handler {
	return reasons{r.Handler.WithAttrs(as), r.last}
}

// WithGroup returns reasons that share what they keep with r.
func (r reasons) WithGroup(name string) slog.Handler {
	return reasons{r.Handler.WithGroup(name), r.last}
}

// why returns the last reason, or "".
func (r reasons) why() string {
	if s := r.last.Load(); s != nil {
		return *s
	}
	return ""
}
