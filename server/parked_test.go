package server_test

import (
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
	before, began := runtime.NumGoroutine(), time.Now()
	each(runs, func(int) {
		if _, err := s.Submit(t.Context(), server.Start{Conversation: "gated", Seed: "go"}); err != nil {
			t.Error(err)
		}
	})
	soon(t, "the park", func() bool {
		waiting, err := s.Store().Orphans(t.Context(), 1, func(string) bool { return true }, func(agentbus.ExecutionID) bool { return false })
		return err == nil && len(waiting) == 0 && s.Driving() == 0
	})
	parked, after := time.Since(began), runtime.NumGoroutine()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
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
	began = time.Now()
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
	resolved := time.Since(began)
	if len(all) != runs || winners.Load() != int64(runs) || len(everyWaiting(t, s)) != 0 {
		t.Errorf("%d waited, %d were decided, %d wait", len(all), winners.Load(), len(everyWaiting(t, s)))
	}
	began = time.Now()
	stop = serve(t, s)
	soon(t, "the end of all", func() bool {
		waiting, err := s.Store().Orphans(t.Context(), 1, func(string) bool { return true }, func(agentbus.ExecutionID) bool { return false })
		return err == nil && len(waiting) == 0 && s.Driving() == 0
	})
	stop()
	if !allDone(t, s, runs) {
		t.Error("a run did not finish")
	}
	t.Logf("%d runs parked in %v, then %d MiB of heap, %d goroutines more; each decided once of two resolvers in %v; all ended in %v",
		runs, parked.Round(time.Millisecond), m.HeapAlloc>>20, after-before, resolved.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
