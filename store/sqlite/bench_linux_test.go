package sqlite_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// BenchmarkReserveSettle is the gateway's use: 64 callers, each of whose calls
// is reserved and settled, eight calls to a run.
func BenchmarkReserveSettle(b *testing.B) {
	dir := b.TempDir()
	before := bareSync(b, dir)
	s := opened(b, dir)
	defer closed(b, s)
	var n atomic.Int64
	body := make([]byte, 600)
	spread(b, 64, func() {
		i := n.Add(1)
		run := agentbus.RunID("run_0199c2f0-7a7b-7ccc-8ddd-" + strconv.FormatInt(1e11+i/8, 10))
		key := agentbus.TurnKey{Payer: "user:alice", Agent: "critic", Run: run, Parent: run.Turn(0, "root"), ID: run.Turn(int(i%8), "critic")}
		got, err := s.Reserve(b.Context(), agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{
			TurnKey: key, RequestID: "req_0199c2f0-7a7b-7ccc", Caller: "user:alice", Speaker: "critic", Depth: 1,
			Digest: key.Hash("digest"), Owner: "host:4711", Began: time.Now(),
		}})
		if err != nil || got.Outcome != agentbus.OutcomeExecute {
			b.Errorf("reserve: %v, %v", got.Outcome, err)
			return
		}
		err = s.Settle(b.Context(), agentbus.Settlement{
			ID: got.Call.ID, Attempt: 1, Cost: 400, Ended: time.Now(), Usage: agentbus.Usage{InputTokens: 100, OutputTokens: 50},
			Reply: agentbus.StoredReply{Status: 200, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: body},
		})
		if err != nil {
			b.Errorf("settle: %v", err)
		}
	})
	report(b, dir, before)
}

// BenchmarkFinish is a driver's use: one run, whose turns each commit their
// result, the next intent and an event.
func BenchmarkFinish(b *testing.B) { benchmarkFinish(b, 1) }

// BenchmarkFinish256 is BenchmarkFinish with 256 runs at once.
func BenchmarkFinish256(b *testing.B) { benchmarkFinish(b, 256) }

func benchmarkFinish(b *testing.B, runs int) {
	b.Helper()
	dir := b.TempDir()
	before := bareSync(b, dir)
	s := opened(b, dir)
	defer closed(b, s)
	text := strings.Repeat("no objection ", 50)
	next := make(chan agentbus.Turn, runs)
	for i := range runs {
		id := "run_0199c2f0-7a7b-7ccc-8ddd-" + strconv.Itoa(1e11+i)
		e, err := s.Open(b.Context(), agentbus.Execution{ID: agentbus.ExecutionID(id), Run: agentbus.RunID(id)}, agentbus.Claim{Owner: "x", TTL: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		begun, err := s.Begin(b.Context(), []agentbus.Turn{intent(e, 0)})
		if err != nil {
			b.Fatal(err)
		}
		next <- begun[0]
	}
	spread(b, runs, func() {
		t := <-next
		follows := intent(agentbus.Execution{ID: t.Execution, Run: t.Run, Lease: agentbus.Lease{Epoch: 1}}, t.Index+1)
		t.State, t.Reply.Text, t.Ended, t.Attempts = agentbus.TurnDone, text, time.Now(), 1
		event := agentbus.Event{At: time.Now(), Type: agentbus.EventNodeCompleted, Execution: t.Execution, Run: t.Run, Turn: t.ID, Data: []byte(`{"index":1,"cost":4000}`)}
		if err := s.Finish(b.Context(), t, &follows, event); err != nil {
			b.Error(err)
		}
		next <- follows
	})
	report(b, dir, before)
}

// BenchmarkRecord is a storm of refusals of 100 turns.
func BenchmarkRecord(b *testing.B) {
	s := opened(b, b.TempDir())
	defer closed(b, s)
	var n atomic.Int64
	spread(b, 64, func() {
		key := agentbus.TurnKey{Run: "run_a", ID: agentbus.TurnID(strconv.FormatInt(n.Add(1)%100, 10))}
		if err := s.Record(b.Context(), key.Hash(), agentbus.CallRecord{TurnKey: key, State: agentbus.CallRefused, Began: time.Now()}); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkOpen is the start of a process: of a new store, and of one that is
// there.
func BenchmarkOpen(b *testing.B) {
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			closed(b, opened(b, b.TempDir()))
		}
	})
	b.Run("again", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			closed(b, opened(b, dir))
		}
	})
}

// spread runs f b.N times by n goroutines, and reports the CPU time of each.
func spread(b *testing.B, n int, f func()) {
	b.Helper()
	b.ResetTimer()
	before := cpu(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report tells how many operations were done in the time of one bare
// fdatasync of 1 KiB in the same directory, measured before and after: disks
// shared with others change their pace.
func report(b *testing.B, dir string, before time.Duration) {
	b.Helper()
	b.StopTimer()
	rate := float64(b.N) / b.Elapsed().Seconds()
	bare := 2 / (before + bareSync(b, dir)).Seconds()
	b.ReportMetric(rate, "op/s")
	b.ReportMetric(bare, "fdatasync/s")
	b.ReportMetric(rate/bare, "×fdatasync")
}

// bareSync returns how long it takes to append 1 KiB to a file and sync it.
func bareSync(b *testing.B, dir string) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer closed(b, f)
	const n = 300
	block := make([]byte, 1024)
	start := time.Now()
	for range n {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / n
}
