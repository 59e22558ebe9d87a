package eventlog_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A log is a store with one execution that is written to.
type log struct {
	*sqlite.Store
	e agentbus.Execution
}

func newLog(t *testing.T) *log {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "log.db"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	e, err := s.Open(t.Context(), agentbus.Execution{ID: "run_a", Run: "run_a", Conversation: "w", Began: time.Now()}, agentbus.Claim{Owner: "x", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &log{s, e}
}

// write appends n events from one number on; the last one ends the run if last is
// set.
func (l *log) write(t *testing.T, from, n int, last bool) {
	t.Helper()
	events := make([]agentbus.Event, n)
	for i := range events {
		events[i] = agentbus.Event{At: time.Now(), Type: "kind." + strconv.Itoa(from+i), Execution: l.e.ID, Run: l.e.Run, Data: []byte(`{"n":1}`)}
	}
	if last {
		events[n-1].Type = agentbus.EventRunCompleted
	}
	if _, err := l.AppendEvents(context.WithoutCancel(t.Context()), l.e.Lease, events...); err != nil {
		t.Error(err)
	}
}

// follow reads all behind after and says what was wrong with it.
func (l *log) follow(ctx context.Context, after agentbus.Position, total int) error {
	next := int(after) + 1
	for e, err := range eventlog.Follow(ctx, eventlog.Config{Source: l, Execution: l.e.ID, After: after}) {
		if err != nil {
			return err
		}
		if int(e.Position) != next || next < total-1 && e.Type != "kind."+strconv.Itoa(next) {
			return fmt.Errorf("behind %d: event %d is %d, %s", after, next, e.Position, e.Type)
		}
		next++
	}
	if next != total {
		return fmt.Errorf("behind %d: it ended at %d of %d", after, next, total)
	}
	return nil
}

// A thousand followers of one run, who come at any time and from any id, read every
// event in order and no other.
func TestThousandFollowers(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	followers, total := 1000, 300
	if testing.Short() {
		followers = 100
	}
	var going sync.WaitGroup
	for i := range followers {
		going.Go(func() {
			if err := l.follow(t.Context(), agentbus.Position(i%(total-1)-1), total); err != nil {
				t.Error(err)
			}
		})
	}
	for from := 0; from < total; from += 10 {
		l.write(t, from, 10, from+10 == total)
	}
	going.Wait()
}

// Who begins behind events that are still to come is let go with the run, as who
// begins behind its last one is.
func TestFollowFromBehindTheEnd(t *testing.T) {
	t.Parallel() // E13: N at or after the terminal event
	l := newLog(t)
	l.write(t, 0, 2, false)
	f := eventlog.NewFollower(eventlog.Config{Source: l, Execution: l.e.ID, After: 100})
	if page, err := f.Next(t.Context(), 0); err != nil || len(page) != 0 || f.Ended() {
		t.Errorf("of a run that goes on: %v, %v, ended %t", page, err, f.Ended())
	}
	var going sync.WaitGroup
	for range 3 {
		going.Go(func() {
			for e, err := range eventlog.Follow(t.Context(), eventlog.Config{Source: l, Execution: l.e.ID, After: 100}) {
				t.Errorf("event %d, %v", e.Position, err)
			}
		})
	}
	l.write(t, 2, 3, false)
	l.write(t, 5, 1, true)
	going.Wait()
	if page, err := f.Next(t.Context(), 0); err != nil || len(page) != 0 || !f.Ended() {
		t.Errorf("of a run that is over: %v, %v, ended %t", page, err, f.Ended())
	}
}

// A run of a hundred thousand events is followed while it is written and
// afterwards, from any id, in the memory of some pages.
func TestHundredThousandEvents(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	if testing.Short() {
		t.Skip("it reads half a million events")
	}
	l := newLog(t)
	const total, each = 100_000, 500
	var going sync.WaitGroup
	for i := range 3 {
		going.Go(func() {
			if err := l.follow(t.Context(), agentbus.Position(i*20_000-1), total); err != nil {
				t.Error(err)
			}
		})
	}
	var most uint64
	for from := 0; from < total; from += each {
		l.write(t, from, each, from+each == total)
		if from%10_000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
		}
	}
	going.Wait()
	if most > 256<<20 {
		t.Errorf("%d MiB of heap in use", most>>20)
	}
	for _, after := range []agentbus.Position{total - 1, total - 2, 77_777, total / 2} {
		if err := l.follow(t.Context(), after, total); err != nil {
			t.Error(err)
		}
	}
}

// Another process's events come with the next poll.
func TestFollowerPolls(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	silent := quiet{l.Store}
	f := eventlog.NewFollower(eventlog.Config{Source: silent, Execution: l.e.ID, After: -1, Poll: 5 * time.Millisecond})
	if page, err := f.Next(t.Context(), 20*time.Millisecond); err != nil || page != nil || f.Ended() {
		t.Errorf("before: %v %v", page, err)
	}
	l.write(t, 0, 3, true)
	page, err := f.Next(t.Context(), time.Minute)
	if err != nil || len(page) != 3 || !f.Ended() || f.After() != 2 {
		t.Errorf("after: %d events, %v", len(page), err)
	}
	if page, err := f.Next(t.Context(), time.Minute); err != nil || page != nil {
		t.Errorf("behind the end: %v %v", page, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := eventlog.NewFollower(eventlog.Config{Source: silent, Execution: "run_x", After: -1})
	if _, err := other.Next(ctx, time.Minute); err == nil {
		t.Error("it waits although its context has ended")
	}
}

// A quiet source rings no bell.
type quiet struct{ *sqlite.Store }

func (quiet) Watch(agentbus.ExecutionID) (<-chan struct{}, func()) { return nil, func() {} }

// E13: an id is a number, or refused, and never anything else.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "0", "17", "-1", "1e3", "99999999999999999999", " 1", "१"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := eventlog.ParseID(s)
		switch {
		case err != nil:
			if agentbus.CodeOf(err) != agentbus.CodeInvalidRequest || got != -1 {
				t.Errorf("%q: %d, %v", s, got, err)
			}
		case s == "":
			if got != -1 {
				t.Errorf("none is %d", got)
			}
		default:
			if n, err := strconv.Atoi(s); err != nil || agentbus.Position(n) != got || n < 0 {
				t.Errorf("%q is %d", s, got)
			}
		}
	})
}
