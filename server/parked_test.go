package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/store/sqlite"
)

// each calls f with every number below n, several at once.
func each(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}

// everyWaiting returns everything that waits, page by page.
func everyWaiting(t *testing.T, s *server.Server) (all []agentbus.InterruptID) {
	t.Helper()
	for q := (agentbus.InterruptQuery{Limit: 1000}); ; q.After = all[len(all)-1] {
		page, err := s.Store().Interrupts(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			all = append(all, i.ID)
		}
		if len(page) < q.Limit {
			return all
		}
	}
}

// R19, R22, I6: parked runs cost no goroutine, survive a restart, and each is
// decided once by racing resolvers over two handles of one store; then all end.
// AGENTBUS_SOAK says how many; make soak has 100,000, docs/runs.md what was
// measured.
func TestSoakParked(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it drives five hundred runs")
	}
	runs := 500
	if v := os.Getenv("AGENTBUS_SOAK"); v != "" {
		runs, _ = strconv.Atoi(v)
	}
	const yaml = `
agents: {echo: {kind: builtin, builtin: echo}}
conversations: {gated: {participants: [{agent: echo, approval: true}, {agent: echo, slug: e2}], max_turns: 1}}
`
	path := filepath.Join(t.TempDir(), "bus.db")
	s := openAt(t, path, yaml)
	stop := serve(t, s)
	goroutines, heap, w := runtime.NumGoroutine(), inUse(), watch(runs)
	each(runs, func(int) {
		if _, err := s.Submit(t.Context(), server.Start{Conversation: "gated", Seed: "go"}); err != nil {
			t.Error(err)
		}
	})
	soon(t, "the park", func() bool { return idle(t, s) })
	parked := w.lap()
	goroutines, heap = runtime.NumGoroutine()-goroutines, inUse()-heap
	if n := len(everyWaiting(t, s)); n != runs {
		t.Fatalf("%d wait", n)
	}
	stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, yaml)
	other, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	all := everyWaiting(t, s)
	var winners atomic.Int64
	w = watch(runs)
	each(2*len(all), func(i int) {
		resolve := s.Resolve
		if i%2 == 1 {
			resolve = other.Resolve
		}
		r := grant
		r.At = time.Now()
		switch _, err := resolve(t.Context(), all[i/2], r); agentbus.CodeOf(err) {
		case "":
			winners.Add(1)
		case agentbus.CodeRunConflict:
		default:
			t.Error(err)
		}
	})
	resolved := w.lap()
	if len(all) != runs || winners.Load() != int64(runs) || len(everyWaiting(t, s)) != 0 {
		t.Errorf("%d waited, %d were decided, %d wait", len(all), winners.Load(), len(everyWaiting(t, s)))
	}
	w = watch(runs)
	stop = serve(t, s)
	soon(t, "the end of all", func() bool { return idle(t, s) })
	ended := w.lap()
	stop()
	if !allDone(t, s, runs) {
		t.Error("a run did not finish")
	}
	perRun := heap / int64(runs)
	if alone := os.Getenv("AGENTBUS_SOAK") != ""; alone && (perRun > 4<<10 || goroutines > 16) { // promises.md
		t.Errorf("a parked run has %d bytes, and all %d goroutines", perRun, goroutines)
	}
	t.Logf("%d runs: parked in %s; while they wait %d bytes of heap a run, %d goroutines more in all", runs, parked, perRun, goroutines)
	t.Logf("after a restart: each decided once by one of two resolvers in %s; all ended in %s", resolved, ended)
}

// idle reports whether nothing is left to be driven.
func idle(t *testing.T, s *server.Server) bool {
	t.Helper()
	orphans, err := s.Store().Orphans(t.Context(), agentbus.Claim{}, 1, func(string) bool { return true }, func(agentbus.ExecutionID) bool { return false })
	return err == nil && len(orphans) == 0 && s.Driving() == 0
}

// inUse returns how many bytes of the heap are in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A stopwatch measures what something costs for each run, by the wall clock and in
// time of the processor: the one depends on who else is at work.
type stopwatch struct {
	runs  int
	began time.Time
	cpu   time.Duration
}

func watch(runs int) stopwatch { return stopwatch{runs, time.Now(), processorTime()} }

func (w stopwatch) lap() string {
	wall, n := time.Since(w.began), time.Duration(w.runs)
	return fmt.Sprintf("%v (%.0f a second; %v of processor time each)", wall.Round(time.Millisecond),
		float64(w.runs)/wall.Seconds(), ((processorTime() - w.cpu) / n).Round(time.Microsecond))
}
