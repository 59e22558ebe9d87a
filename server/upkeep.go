package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// errBroken ends a server whose store is broken.
var errBroken = &agentbus.Error{
	Code: agentbus.CodeStoreUnavailable, Message: "the store failed and writes nothing any more",
	Explain: &agentbus.Explain{Next: "see the log for the cause and check the disk, then start again: what was acknowledged is there"},
}

// sweepBatch is how many answers are swept in one transaction, which calls wait
// for.
const sweepBatch = 100

// keep does what the store needs while a bus serves, in a goroutine of its own,
// until the function it returns is called.
func (s *Server) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		every := s.sweepEvery()
		tick := time.NewTicker(every)
		defer tick.Stop()
		late := time.NewTicker(expireEvery)
		defer late.Stop()
		s.sweep(ctx)
		s.releaseDead(ctx)
		s.endPaused(ctx)
		for ctx.Err() == nil {
			s.expire(ctx)
			s.confer(ctx)
			s.now().gateway.VoidLate(ctx)
			if err := s.readDrained(ctx); err != nil && ctx.Err() == nil { // another bus may have drained one
				s.log.LogAttrs(ctx, slog.LevelWarn, "cannot see which agents are drained", slog.Any("error", err))
			}
			select {
			case <-tick.C:
				s.sweep(ctx)
				s.releaseDead(ctx)
				s.endPaused(ctx)
			case <-late.C:
				if now := s.sweepEvery(); now != every { // another configuration keeps answers for longer, or not as long
					every = now
					tick.Reset(every)
				}
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// telling tells other processes the streams that they follow (G22), in a goroutine
// of its own, until the function it returns is called: streams go on while the
// bus drains.
func (s *Server) telling(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.now().gateway.TellStreams(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// watchStops returns a channel that is closed when another bus stopped a run;
// nil: nobody rings.
func (s *Server) watchStops() (rung <-chan struct{}, release func()) {
	if s.common == nil {
		return nil, func() {}
	}
	return s.common.WatchStops()
}

// A heeding looks which runs other processes have stopped, for all in this one who need
// to know: while it serves, until it has drained, and while it drives a conversation.
type heeding struct {
	mu    sync.Mutex
	users int
	stop  func() // nil: nobody looks
}

// heed stops the runs that another process on this store stops (G14), in a goroutine of
// its own, until leave is called.
func (s *Server) heed(ctx context.Context) (leave func()) {
	h := &s.heeding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users++; h.users == 1 {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.stopTooUntil(ctx)
		}()
		h.stop = func() {
			cancel()
			<-ended
		}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.users--; h.users == 0 {
			h.stop()
		}
	}
}

// stopTooUntil looks as soon as somebody rings, and once a second, until ctx ends.
func (s *Server) stopTooUntil(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	known := make(map[agentbus.RunID]bool)
	for ctx.Err() == nil {
		rung, release := s.watchStops()
		s.stopToo(ctx, known)
		select {
		case <-rung:
		case <-tick.C:
		case <-ctx.Done():
		}
		release()
	}
}

// stopToo stops the runs that another bus on this store has stopped since. known are
// those that were stopped here already.
func (s *Server) stopToo(ctx context.Context, known map[agentbus.RunID]bool) {
	stopped, err := s.store.StoppedRuns(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot see which runs were stopped elsewhere", slog.Any("error", err))
	}
	for _, run := range stopped {
		if !known[run] {
			known[run] = true
			s.now().gateway.Stop(run)
		}
	}
}

// sweepEvery is how often the store is swept: ten times in as long as answers, and
// events, are kept.
func (s *Server) sweepEvery() time.Duration {
	keep := s.now().cfg.Retention
	return min(max(min(keep.Replies, keep.Events)/10, 100*time.Millisecond), 10*time.Minute)
}

// sweep removes the stored answers and the events that are older than the
// configuration keeps them (G25), and the tasks of A2A agents that nobody asked for in a week (A12).
func (s *Server) sweep(ctx context.Context) {
	keep := s.now().cfg.Retention
	s.sweepBy(ctx, "old answers", time.Now().Add(-keep.Replies), s.store.Sweep)
	s.sweepBy(ctx, "old recordings", time.Now().Add(-keep.Replies), s.store.ForgetRecordings)
	s.sweepBy(ctx, "old events", time.Now().Add(-keep.Events), s.store.ForgetEvents)
	s.sweepBy(ctx, "old tasks", time.Now().Add(-agentbus.RemoteTaskAge), s.store.ForgetRemoteTasks)
}

func (s *Server) sweepBy(ctx context.Context, what string, before time.Time, sweep func(context.Context, time.Time, int) (int, error)) {
	for ctx.Err() == nil {
		n, err := sweep(ctx, before, sweepBatch)
		if err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "cannot sweep", slog.String("what", what), slog.Any("error", err))
		}
		if err != nil || n == 0 {
			return
		}
	}
}

// endPaused ends the paused runs that were stopped by a process which died behind that:
// nobody takes them up (E55).
func (s *Server) endPaused(ctx context.Context) {
	stopped, err := s.store.StoppedPaused(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot see which stopped runs are paused", slog.Any("error", err))
	}
	for _, run := range stopped {
		if ctx.Err() == nil {
			s.endStopped(ctx, run)
		}
	}
}

// releaseDead gives back what calls hold whose process has ended: it must not
// stand in the way of a budget for ever (G27).
func (s *Server) releaseDead(ctx context.Context) {
	n, err := s.store.ReleaseDead(ctx, s.alive)
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot release what dead processes hold", slog.Any("error", err))
	case n > 0:
		s.log.LogAttrs(ctx, slog.LevelInfo, "released what calls of dead processes held", slog.Int("calls", n))
	}
}
