package main

import (
	"bytes"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
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

// TestFullLog: G32, a line that does not fit any more, or never would, is written
// whole, behind those before it.
func TestFullLog(t *testing.T) {
	t.Parallel()
	f := &file{}
	h, stop := newCalmLog(t.Context(), f, slog.LevelInfo)
	log, want := slog.New(h), []string{}
	for i := range 200 {
		path := strconv.Itoa(i) + strings.Repeat("/long", 200)
		if i == 150 {
			path = strings.Repeat("/longer", logBuffer/5)
		}
		log.Info("call", "path", path)
		want = append(want, path)
	}
	stop()
	var got []string
	for line := range strings.Lines(f.String()) {
		got = append(got, gjson.Get(line, "path").Str)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d lines of %d", len(got), len(want))
	}
	if f.writes > 10 {
		t.Errorf("%d writes", f.writes)
	}
}

// TestCallLine: the line of a call, which is written by hand, is the one that the
// JSON handler writes; what cannot be written so is left to it.
func TestCallLine(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 10, 0, 0, 120_000, time.FixedZone("", 3600))
	trace := slog.Group("", slog.String("trace_id", "0af7"), slog.String("span_id", "b7ad"))
	for name, c := range map[string]struct {
		attrs []slog.Attr
		plain bool
	}{
		"a call":       {[]slog.Attr{slog.String("run", "r-1"), slog.Int("depth", 2), slog.Int64("cost_micros", -7), slog.Duration("took", time.Second), trace}, true},
		"no attribute": {nil, true},
		"an empty one": {[]slog.Attr{slog.String("run", ""), {}}, true},
		"truth":        {[]slog.Attr{slog.Bool("live", true)}, true},
		"escapes":      {[]slog.Attr{slog.String("path", "/a\"b\\\n<é\x00>")}, false},
		"an error":     {[]slog.Attr{slog.Any("error", io.EOF)}, false},
		"a float":      {[]slog.Attr{slog.Float64("rate", 0.5)}, false},
		"a group":      {[]slog.Attr{slog.Group("g", slog.Int("n", 1))}, false},
		"odd within":   {[]slog.Attr{slog.Group("", slog.Float64("rate", 1))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := slog.NewRecord(began, slog.LevelInfo, "call", 0)
			r.AddAttrs(c.attrs...)
			var want bytes.Buffer
			if err := slog.NewJSONHandler(&want, nil).Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			none := slices.Values([]slog.Attr(nil))
			line, plain := appendLine(nil, r, none)
			if plain != c.plain || plain && string(line) != want.String() {
				t.Errorf("%s (plain: %t), the handler writes %s", line, plain, want.String())
			}
			for split := range len(c.attrs) + 1 { // some are in the record, the others come one by one
				r := slog.NewRecord(began, slog.LevelInfo, "call", 0)
				r.AddAttrs(c.attrs[:split]...)
				f := &file{}
				h, stop := newCalmLog(t.Context(), f, slog.LevelInfo)
				if err := h.HandleLine(t.Context(), r, slices.Values(c.attrs[split:])); err != nil {
					t.Fatal(err)
				}
				if err := h.Handle(t.Context(), r); err != nil || r.NumAttrs() > split {
					t.Fatal(err, r.NumAttrs())
				}
				stop()
				written, _, _ := strings.Cut(f.String(), "\n")
				if utc := strings.Replace(want.String(), "T10:00:00.00012+01:00", "T09:00:00.00012Z", 1); written+"\n" != utc {
					t.Errorf("written is %s, want %s", written, utc)
				}
			}
		})
	}
}
