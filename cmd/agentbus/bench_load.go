package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/measure"
)

// A load is what is sent to a target in a round: so many calls, or as many as
// are answered in that time, whichever is less.
type load struct {
	clients, calls int
	each           time.Duration
	text           string
}

// A target is what is measured, and what was. It is used by one round at a time.
type target struct {
	Name    string                `json:"name"`
	Calls   int                   `json:"calls"` // that were answered
	Failed  map[agentbus.Code]int `json:"failed,omitempty"`
	PerSec  measure.Series        `json:"calls_per_second"` // a figure a round
	P50     float64               `json:"p50_ms"`
	P90     float64               `json:"p90_ms"`
	P99     float64               `json:"p99_ms"`
	Max     float64               `json:"max_ms"`
	Memory  int                   `json:"from_memory"` // answers that nobody was asked for again
	backend agentbus.Backend
	repeat  bool // all calls of a round are the same turn

	mu    sync.Mutex     // guards what follows while a round goes on
	all   measure.Series // seconds of every answer
	last  measure.Series // of the last round
	rates measure.Series
}

// load sends a round, and waits until all of it is answered.
func (t *target) load(ctx context.Context, l load) {
	var left atomic.Int64
	left.Store(int64(l.calls))
	t.last = nil
	began := time.Now()
	end := began.Add(l.each)
	same := agentbus.Lineage{}
	if t.repeat {
		run := agentbus.NewRunID()
		same = agentbus.Lineage{Run: run, Turn: run.Turn(0, "bench"), Speaker: "bench"}
		t.call(ctx, l.text, same) // the one that executes
		t.last = nil
	}
	var clients sync.WaitGroup
	for range l.clients {
		clients.Go(func() {
			for left.Add(-1) >= 0 && time.Now().Before(end) && ctx.Err() == nil {
				t.call(ctx, l.text, same)
			}
		})
	}
	clients.Wait()
	t.rates = append(t.rates, float64(len(t.last))/time.Since(began).Seconds())
	t.all = append(t.all, t.last...)
}

// patienceOfBench is how long one call may take.
const patienceOfBench = time.Minute

func (t *target) call(ctx context.Context, text string, lineage agentbus.Lineage) {
	ctx, cancel := context.WithTimeout(ctx, patienceOfBench)
	defer cancel()
	began := time.Now()
	reply, err := agentbus.Collect(t.backend.Call(ctx, &agentbus.Call{Lineage: lineage, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}}))
	took := time.Since(began).Seconds()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case ctx.Err() != nil && err != nil && time.Since(began) < patienceOfBench: // the user has had enough
	case err != nil:
		if t.Failed == nil {
			t.Failed = make(map[agentbus.Code]int)
		}
		t.Failed[agentbus.CodeOf(err)]++
	default:
		t.last = append(t.last, took)
		if reply.Replayed {
			t.Memory++
		}
	}
}

// sum works out what all rounds came to.
func (t *target) sum() {
	q := t.all.Quantiles(0.5, 0.9, 0.99, 1)
	for i, into := range []*float64{&t.P50, &t.P90, &t.P99, &t.Max} {
		*into = q[i] * 1e3
	}
	t.Calls, t.PerSec = len(t.all), t.rates
}

// text is what was measured as people read it.
func (b *benched) text() string {
	rows := [][]string{{"", "CALLS", "FAILED", "A SECOND", "P50", "P90", "P99", "MAX"}}
	names := map[string]string{"agent": "agent itself", "bus": "through the bus", "duplicates": "duplicates at the bus"}
	for _, t := range b.Targets {
		failed := 0
		for _, n := range t.Failed {
			failed += n
		}
		row := []string{names[t.Name], strconv.Itoa(t.Calls), strconv.Itoa(failed), fmt.Sprintf("%.0f", t.PerSec.Median())}
		for _, ms := range []float64{t.P50, t.P90, t.P99, t.Max} {
			row = append(row, seconds(ms/1e3))
		}
		rows = append(rows, row)
	}
	var s strings.Builder
	s.WriteString(table(rows))
	if len(b.Rate) > 0 {
		fmt.Fprintf(&s, "\ncalls a second through the bus, of those of the agent itself: %s\nadded by the bus at p50: %s ms\n", b.Rate, b.Added)
	}
	if len(b.Syncs) > 0 {
		fmt.Fprintf(&s, "which is, in fsyncs of this disk: %s; a call waits for two\n", b.Syncs)
	}
	fmt.Fprintf(&s, "\n%s at once, %d rounds, %.1fs; medians of the rounds (smallest–largest)\n", plural(b.Clients, "caller"), b.Rounds, b.Took)
	for _, t := range b.Targets {
		for _, code := range slices.Sorted(maps.Keys(t.Failed)) {
			fmt.Fprintf(&s, "%s: %s failed with %s\n", names[t.Name], plural(t.Failed[code], "call"), code)
		}
	}
	return s.String()
}
