package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	bus "github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/internal/measure"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

const (
	runTurns  = 2000 // of the one run
	manyRuns  = 256
	manyTurns = 40 // of each of them
	ledgered  = 8000
	early     = 100    // the turn whose cost is compared
	late      = 10_000 // with that of this one
	window    = 400    // turns from each on
)

// measureDurable measures the journal and the ledger next to the disk they
// stand on. No gateway is asked.
func measureDurable(ctx context.Context, o options, dir string, r *report) error {
	for round := range o.rounds {
		say("durable turns and calls, round %d of %d", round+1, o.rounds)
		for _, m := range []struct {
			figure string
			do     func(context.Context, *server.Server) (float64, error)
		}{
			{"one run", oneRun},
			{strconv.Itoa(manyRuns) + " runs at once", runsAtOnce},
			{"ledger, 64 callers", reservations},
		} {
			s, err := openBus(ctx, filepath.Join(dir, "durable-"+strconv.Itoa(round)+m.figure[:3]+".db"))
			if err != nil {
				return err
			}
			before, err := bareSyncs(ctx, dir, o.each/2) // around what is measured: the disk's own rate drifts
			var rate, after float64
			if err == nil {
				rate, err = m.do(ctx, s)
			}
			if err == nil {
				after, err = bareSyncs(ctx, dir, o.each/2)
			}
			if err = errors.Join(err, s.Close()); err != nil {
				return err
			}
			r.add(m.figure, "against fdatasync", rate/((before+after)/2))
			r.add(m.figure, "a second", rate)
			r.add("fdatasync loop", "a second", (before+after)/2)
		}
		if round < 3 {
			if err := aging(ctx, filepath.Join(dir, "aging-"+strconv.Itoa(round)+".db"), r); err != nil {
				return err
			}
		}
	}
	return nil
}

// openBus opens a bus that does not serve, with all defaults, on a file.
func openBus(ctx context.Context, store string) (*server.Server, error) {
	return openBusOn(ctx, "sqlite:"+store)
}

// openBusOn is openBus on the store at a URL.
func openBusOn(ctx context.Context, url string) (*server.Server, error) {
	c, _, err := config.Parse("", nil, config.Source{Env: func(name string) (string, bool) {
		if name == "AGENTBUS_STORE_URL" {
			return url, true
		}
		return "", false
	}})
	if err != nil {
		return nil, err
	}
	return server.New(ctx, server.Config{Config: c})
}

// said is what the participants answer, whatever they are sent: what is
// measured is ours alone.
var said = strings.Repeat("no objection ", 24)

var echo = bus.Answer(func(context.Context, *bus.Call) (bus.Chunk, error) {
	return bus.Chunk{Text: said, Finish: "stop", Usage: &bus.Usage{InputTokens: 12, OutputTokens: 11}}, nil
})

func drive(ctx context.Context, s *server.Server, turns int, follow func(conversation.Event)) error {
	c := conversation.Conversation{
		Name: "bench", MaxTurns: turns,
		Participants: []conversation.Participant{{Name: "researcher", Backend: echo}, {Name: "critic", Backend: echo}},
	}
	o := conversation.Options{Seed: "go", Payer: "bench", Journal: s.Store(), Runs: s.Runs(), Owner: s.Owner()}
	for e, err := range conversation.Stream(ctx, c, o) {
		if err != nil {
			return err
		}
		if e.Result != nil && (e.Result.Halt.Kind != bus.HaltMaxTurns || len(e.Result.Turns) != turns) {
			return fmt.Errorf("a run of %d turns halted after %d: %s %s", turns, len(e.Result.Turns), e.Result.Halt.Kind, e.Result.Halt.Reason)
		}
		if follow != nil {
			follow(e)
		}
	}
	return nil
}

// oneRun returns the turns a second of one run.
func oneRun(ctx context.Context, s *server.Server) (float64, error) {
	began := time.Now()
	err := drive(ctx, s, runTurns, nil)
	return runTurns / time.Since(began).Seconds(), err
}

// runsAtOnce returns the turns a second of many runs together.
func runsAtOnce(ctx context.Context, s *server.Server) (float64, error) {
	faults := make([]error, manyRuns)
	var runs sync.WaitGroup
	began := time.Now()
	for i := range faults {
		runs.Go(func() { faults[i] = drive(ctx, s, manyTurns, nil) })
	}
	runs.Wait()
	return manyRuns * manyTurns / time.Since(began).Seconds(), errors.Join(faults...)
}

// reservations returns the calls a second that 64 callers reserve and settle.
func reservations(ctx context.Context, s *server.Server) (float64, error) {
	return reserveMany(ctx, s, 64, ledgered)
}

// reserveMany has callers reserve and settle calls, and returns how many a
// second.
func reserveMany(ctx context.Context, s *server.Server, callers, calls int) (float64, error) {
	faults := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range faults {
		wg.Go(func() {
			for n := range calls / callers {
				if faults[i] = reserveAndSettle(ctx, s, "bench", bus.RunID("bench.w"+strconv.Itoa(i)+"."+strconv.Itoa(n))); faults[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(calls) / time.Since(began).Seconds(), errors.Join(faults...)
}

func reserveAndSettle(ctx context.Context, s *server.Server, payer bus.Payer, run bus.RunID) error {
	key := bus.TurnKey{Payer: payer, Agent: "gpt-4o-mini", Run: run, ID: run.Turn(0, "researcher")}
	got, err := s.Store().Reserve(ctx, bus.Reservation{Key: key.Hash(), Call: bus.CallRecord{
		TurnKey: key, RequestID: "req_0123456789abcdef01234567", Caller: "bench", Depth: 1, Digest: sha256.Sum256([]byte(run)),
		Owner: s.Owner(), Began: time.Now(),
	}})
	if err != nil {
		return err
	}
	return s.Store().Settle(ctx, bus.Settlement{
		ID: got.Call.ID, Attempt: got.Call.Attempts, Ended: time.Now(), Cost: 10, Usage: bus.Usage{InputTokens: 12, OutputTokens: 11},
		Reply: bus.StoredReply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(said)},
	})
}

// aging compares what a turn costs late in a run with what it cost early.
func aging(ctx context.Context, store string, r *report) (err error) {
	s, err := openBus(ctx, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var turns int
	var took [2]measure.Series
	var cpu [2]time.Duration
	last := time.Now()
	err = drive(ctx, s, late+window, func(e conversation.Event) {
		if e.Type != conversation.EventTurnDone {
			return
		}
		turns++
		now := time.Now()
		for i, from := range [...]int{early, late} {
			if turns == from || turns == from+window {
				used, _ := cpuTime() // it cannot fail for this process
				cpu[i] = used - cpu[i]
			}
			if turns > from && turns <= from+window {
				took[i] = append(took[i], now.Sub(last).Seconds())
			}
		}
		last = now
	})
	if err != nil {
		return err
	}
	r.add("a turn at 10,000 against one at 100", "CPU", cpu[1].Seconds()/cpu[0].Seconds())
	r.add("a turn at 10,000 against one at 100", "time", took[1].Median()/took[0].Median())
	return nil
}
