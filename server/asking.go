package server

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/agentbus/agentbus"
)

// asking takes what an agent of this process asks to the driver that called it,
// and what was decided to the agent, past the gateway between them: the form of
// the gateway's dialects has no place for either, and neither may be seen there
// (R22). It belongs to one call.
type asking struct {
	turn       agentbus.TurnKey // that is called
	resolution *agentbus.Resolution

	mu    sync.Mutex // guards asked: a driver may have left a backend that still speaks
	asked *agentbus.Error
}

type askingKey struct{}

// turnOf names the turn of a call; whose it is does not matter here.
func turnOf(l *agentbus.Lineage) agentbus.TurnKey {
	return agentbus.TurnKey{Run: l.Run, Path: l.Path, Parent: l.Parent, ID: l.Turn}
}

// calling is around the way through the gateway, on the side of the driver.
func calling(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		a := &asking{turn: turnOf(&c.Lineage), resolution: c.Resolution}
		return failing(b.Call(context.WithValue(ctx, askingKey{}, a), c), func(err error) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.asked != nil {
				return a.asked
			}
			return err
		})
	})
}

// called is around an agent of this process.
func called(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		a, _ := ctx.Value(askingKey{}).(*asking)
		if a == nil || a.turn != turnOf(&c.Lineage) { // of a call further up
			return b.Call(ctx, c)
		}
		told := *c
		told.Resolution = a.resolution
		return failing(b.Call(ctx, &told), func(err error) error {
			if e, ours := errors.AsType[*agentbus.Error](err); ours && e.Ask != nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.asked = e
			}
			return err
		})
	})
}

// failing is an answer whose error is what f makes of it.
func failing(answer iter.Seq2[agentbus.Chunk, error], f func(error) error) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		for chunk, err := range answer {
			if err != nil {
				err = f(err)
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}
