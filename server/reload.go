package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus/server/config"
)

// reloading is how the configuration is read again.
type reloading struct {
	mu   sync.Mutex // one at a time
	last atomic.Pointer[Reloaded]
	read stampOf // the file that was read; the watching goroutine's own, once there is one
}

// A Reloaded is how the last attempt to read the configuration again ended.
type Reloaded struct {
	At time.Time
	// Err says why nothing changed: a fault of the file. nil: what it says is in
	// force, but for Waiting.
	Err     error
	Waiting []string // keys whose change waits for a restart
}

// LastReload returns how the last attempt to read the configuration again ended;
// there may have been none.
func (s *Server) LastReload() (r Reloaded, tried bool) {
	if last := s.reloading.last.Load(); last != nil {
		return *last, true
	}
	return r, false
}

// Reload reads the configuration again, whole, and puts it in force for what
// comes from now on; calls and conversations that are under way end as they began
// (G30). A configuration with a fault changes nothing. Of a right one, what
// cannot change while the bus serves waits for a restart, and the rest is in
// force.
func (s *Server) Reload(ctx context.Context) error {
	if s.cfg.Load == nil {
		return errors.New("this bus was not told how to read its configuration again")
	}
	s.reloading.mu.Lock()
	defer s.reloading.mu.Unlock()
	waiting, err := s.reload(ctx)
	s.reloading.last.Store(&Reloaded{At: time.Now().UTC(), Err: err, Waiting: waiting})
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "configuration not reloaded: the one before stays in force", slog.Any("error", err))
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "configuration reloaded", slog.Int("agents", len(s.now().cfg.Agents)))
	if len(waiting) > 0 {
		s.log.LogAttrs(ctx, slog.LevelWarn, "a part of the configuration waits for a restart", slog.Any("keys", waiting))
	}
	return nil
}

func (s *Server) reload(ctx context.Context) (waiting []string, err error) {
	next, warnings, err := s.cfg.Load()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		s.log.LogAttrs(ctx, slog.LevelWarn, "configuration", slog.String("warning", w.String()))
	}
	c := s.cfg
	c.Config = next
	w, err := s.wire(c)
	if err != nil {
		return nil, err
	}
	before := s.current.Swap(w)
	s.say(w)
	s.endPrograms(before, w)
	return config.WaitsForRestart(s.cfg.Config, next), nil
}

// Degraded says what of the configuration is not in force, for /readyz: the bus
// serves all the same. It names keys and counts faults; what a file holds is for
// its operator, in the log.
func (s *Server) Degraded() (why []string) {
	if apart := s.apart(); apart != "" {
		why = append(why, apart)
	}
	last, tried := s.LastReload()
	if !tried {
		return why
	}
	if last.Err != nil {
		what := "a fault"
		if faulty, ok := errors.AsType[*config.Error](last.Err); ok && len(faulty.Faults) > 1 {
			what = strconv.Itoa(len(faulty.Faults)) + " faults"
		}
		why = append(why, "the configuration was read again at "+last.At.UTC().Format(time.RFC3339)+" and has "+what+
			": the one before stays in force; agentbus config check names them")
	}
	if len(last.Waiting) > 0 {
		why = append(why, "these changes wait for a restart: "+strings.Join(last.Waiting, ", "))
	}
	return why
}

// watching reloads until ctx ends: when the process is told to, and when the file
// has changed. The function it returns stops it, and waits.
func (s *Server) watching(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		if s.cfg.Load != nil {
			s.watch(ctx)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// watchEvery is how often the file is looked at. A change is read once it has
// stood still for as long: an editor may write a file in pieces.
const watchEvery = time.Second

func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	seen := s.reloading.read
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Hangup:
			seen = stamp(s.now().cfg.Path)
		case <-tick.C:
			is := stamp(s.now().cfg.Path)
			if still := is.same(seen); !still || is.same(s.reloading.read) {
				seen = is
				continue
			}
		}
		s.reloading.read = seen
		_ = s.Reload(ctx) // which has told the log, and tells /readyz
	}
}

// A stampOf tells one content of a file from another, as far as its directory
// does.
type stampOf struct{ info os.FileInfo }

// stamp looks at a file; "", and one that is not there, have the zero stamp.
func stamp(path string) stampOf {
	if path == "" {
		return stampOf{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return stampOf{}
	}
	return stampOf{info}
}

func (a stampOf) same(b stampOf) bool {
	if a.info == nil || b.info == nil {
		return a.info == b.info
	}
	return os.SameFile(a.info, b.info) && a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime())
}
