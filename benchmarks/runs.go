//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	bus "github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

const (
	weighed = 2000   // runs that wait for their agents at once
	resumed = 10_000 // turns of the run that is resumed
)

// measureRuns measures what a run weighs while its agent thinks, and how long a
// long one takes to go on after a halt.
func measureRuns(ctx context.Context, dir string, r *report) error {
	for round := range 3 {
		say("weight and resumption of runs, round %d of 3", round+1)
		for _, m := range []struct {
			name string
			do   func(context.Context, *server.Server, *report) error
		}{{"weight", weigh}, {"resume", resume}} {
			s, err := openBus(ctx, filepath.Join(dir, m.name+strconv.Itoa(round)+".db"))
			if err != nil {
				return err
			}
			if err = errors.Join(m.do(ctx, s, r), s.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// weigh has many runs wait for their agents at once, and weighs them.
func weigh(ctx context.Context, s *server.Server, r *report) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	thinking := make(chan struct{}, weighed)
	slow := bus.Answer(func(ctx context.Context, _ *bus.Call) (bus.Chunk, error) {
		thinking <- struct{}{}
		<-ctx.Done()
		return bus.Chunk{}, ctx.Err()
	})
	c := conversation.Conversation{
		Name: "weight", MaxTurns: 10,
		Participants: []conversation.Participant{{Name: "researcher", Backend: slow}, {Name: "critic", Backend: slow}},
	}
	o := conversation.Options{Seed: "go", Payer: "bench", Journal: s.Store(), Runs: s.Runs(), Owner: s.Owner()}
	before, goroutines := inUse(), runtime.NumGoroutine()
	faults := make([]error, weighed)
	var runs sync.WaitGroup
	for i := range faults {
		runs.Go(func() { _, faults[i] = conversation.Run(ctx, c, o) })
	}
	for range weighed {
		<-thinking
	}
	r.add("memory of a run whose agent thinks", "KiB", float64(inUse()-before)/1024/weighed)
	r.add("memory of a run whose agent thinks", "goroutines", float64(runtime.NumGoroutine()-goroutines)/weighed)
	began := time.Now()
	leave()
	runs.Wait()
	r.add(strconv.Itoa(weighed)+" runs are left: until all have halted", "seconds", time.Since(began).Seconds())
	return errors.Join(faults...)
}

// inUse returns the bytes that are in use after a collection, stacks included.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // no machine has more
}

// resume has a long run halt for its agent, and measures how long it takes from
// its resumption until the agent is asked again.
func resume(ctx context.Context, s *server.Server, r *report) error {
	var turns int
	var asked time.Time
	fails := bus.Answer(func(context.Context, *bus.Call) (bus.Chunk, error) {
		if turns++; turns > resumed {
			asked = time.Now()
			return bus.Chunk{}, &bus.Error{Code: bus.CodeAgentUnavailable, Message: "not now"}
		}
		return bus.Chunk{Text: said, Usage: &bus.Usage{InputTokens: 12, OutputTokens: 11}}, nil
	})
	c := conversation.Conversation{
		Name: "resume", MaxTurns: 2 * resumed,
		Participants: []conversation.Participant{{Name: "researcher", Backend: fails}, {Name: "critic", Backend: fails}},
	}
	o := conversation.Options{Run: bus.NewRunID(), Seed: "go", Payer: "bench", Journal: s.Store(), Runs: s.Runs(), Owner: s.Owner()}
	var began time.Time
	for range 2 {
		began = time.Now()
		got, err := conversation.Run(ctx, c, o)
		if err != nil {
			return err
		}
		if len(got.Turns) != resumed || got.Halt.Kind != bus.HaltParticipantError {
			return fmt.Errorf("a run halted after %d turns: %s", len(got.Turns), got.Halt.Kind)
		}
	}
	r.add("resume of a run of 10,000 turns: until its agent is asked", "ms", asked.Sub(began).Seconds()*1e3)
	return nil
}
