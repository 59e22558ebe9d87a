//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	bus "github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// replicaOf is the variable that makes this program a replica on the database that
// it names.
const replicaOf = "AGENTBUS_BENCH_REPLICA"

// A replica is a bus in a process of its own, which does its share of what is
// measured when it is told.
type replica struct {
	run *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startReplica starts a replica and waits until it is open.
func startReplica(ctx context.Context, db string) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &replica{run: exec.CommandContext(ctx, self)}
	r.run.Env, r.run.Stderr = append(os.Environ(), replicaOf+"="+db), os.Stderr
	if r.in, err = r.run.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.run.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if err := r.run.Start(); err != nil {
		return nil, err
	}
	if _, err := r.told(); err != nil {
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// startReplicas starts n of them.
func startReplicas(ctx context.Context, db string, n int) (all []*replica, err error) {
	for range n {
		r, err := startReplica(ctx, db)
		if err != nil {
			return nil, errors.Join(err, endReplicas(all))
		}
		all = append(all, r)
	}
	return all, nil
}

func endReplicas(all []*replica) (err error) {
	for _, r := range all {
		err = errors.Join(err, r.end())
	}
	return err
}

// end lets the replica close its bus, and waits for it.
func (r *replica) end() error { return errors.Join(r.in.Close(), r.run.Wait()) }

// told returns the number that the replica says next.
func (r *replica) told() (n int64, err error) {
	if !r.out.Scan() {
		return 0, errors.Join(errors.New("a replica ended"), r.out.Err())
	}
	if _, err := fmt.Sscan(r.out.Text(), &n); err != nil {
		return 0, fmt.Errorf("a replica failed: %s", r.out.Text())
	}
	return n, nil
}

// tell has the replica do something.
func (r *replica) tell(what string, share, of int) error {
	_, err := fmt.Fprintln(r.in, what, share, of)
	return err
}

// together has all replicas do their share of something, and returns how many
// things a second that were, and the sum of what they say.
func together(all []*replica, what string, things int) (rate float64, sum int64, err error) {
	said := make([]int64, len(all))
	rate, err = timed(len(all), things, func(i int) (err error) {
		if err = all[i].tell(what, i, len(all)); err == nil {
			said[i], err = all[i].told()
		}
		return err
	})
	for _, n := range said {
		sum += n
	}
	return rate, sum, err
}

// beReplica does what it is told on standard input, until that ends.
func beReplica(ctx context.Context, db string) (err error) {
	s, err := openBusOn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	say("0")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var what string
		var share, of int
		if _, err := fmt.Sscan(lines.Text(), &what, &share, &of); err != nil {
			return err
		}
		n, err := does[what](ctx, s, share, of)
		if err != nil {
			say("%s", strings.ReplaceAll(err.Error(), "\n", " "))
			return err
		}
		say("%d", n)
	}
	return nil
}

// does is what a replica can be told to do its share of.
var does = map[string]func(ctx context.Context, s *server.Server, share, of int) (int64, error){
	"calls": sharedCalls, "turns": sharedTurns, "claims": sharedClaims, "follow": follow,
}

// sharedCalls has 64 callers of 16 payers reserve and settle calls.
func sharedCalls(ctx context.Context, s *server.Server, share, of int) (int64, error) {
	return 0, eachOf(sharedCallers, share, of, func(i int) error {
		payer := bus.Payer(fmt.Sprintf("payer-%d", i%16))
		for n := range sharedRuns / sharedCallers {
			if err := reserveAndSettle(ctx, s, payer, bus.RunID(fmt.Sprintf("bench.w%d.%d", i, n))); err != nil {
				return err
			}
		}
		return nil
	})
}

// sharedTurns drives many runs.
func sharedTurns(ctx context.Context, s *server.Server, share, of int) (int64, error) {
	return 0, eachOf(manyRuns, share, of, func(int) error { return drive(ctx, s, manyTurns, nil) })
}

// sharedClaims claims runs that wait for a driver until there are none, and says
// how many.
func sharedClaims(ctx context.Context, s *server.Server, _, _ int) (claimed int64, err error) {
	alive, none := func(string) bool { return true }, func(bus.ExecutionID) bool { return false }
	for {
		got, err := s.Store().Orphans(ctx, bus.Claim{Owner: s.Owner(), TTL: time.Hour}, 16, alive, none)
		if err != nil || len(got) == 0 {
			return claimed, err
		}
		claimed += int64(len(got))
	}
}

// eachOf does what is this replica's share of n things, all at once.
func eachOf(n, share, of int, do func(i int) error) error {
	_, err := timed(n, n, func(i int) error {
		if i%of != share {
			return nil
		}
		return do(i)
	})
	return err
}

// follow follows an execution, and says when each of its events was seen, in
// nanoseconds since 1970.
func follow(ctx context.Context, s *server.Server, _, _ int) (int64, error) {
	after := bus.Position(-1)
	for seen := 0; seen < tailed; {
		rung, release := s.Store().Watch(tailedRun)
		found := false
		for e, err := range s.Store().Events(ctx, tailedRun, after) {
			if err != nil {
				release()
				return 0, err
			}
			after, found, seen = e.Position, true, seen+1
			say("%d", time.Now().UnixNano())
		}
		if !found {
			select {
			case <-rung:
			case <-ctx.Done():
				release()
				return 0, ctx.Err()
			}
		}
		release()
	}
	return 0, nil
}
