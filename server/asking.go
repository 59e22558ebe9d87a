package server

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"

	"github.com/agentbus/agentbus"
)

// asking takes what an agent of this process asks to the driver that called it,
// and what was decided to the agent, past the gateway between them: the form of
// the gateway's dialects has no place for either, and neither may be seen there
// (R22). So it does with the policy part by which one refused (C19), and with what
// became of those that one asked at once (C18), and with the receipts of what it was
// paid (C32). It belongs to one call.
type asking struct {
	turn       agentbus.TurnKey // that is called
	resolution *agentbus.Resolution

	mu       sync.Mutex // guards the rest: a driver may have left a backend that still speaks
	asked    *agentbus.Error
	children []agentbus.Child
	receipts []json.RawMessage
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
		return passing(b.Call(context.WithValue(ctx, askingKey{}, a), c), func(chunk *agentbus.Chunk, err error) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if chunk.Finish != "" {
				chunk.Children, chunk.Receipts = a.children, a.receipts
			}
			if err != nil && a.asked != nil {
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
		return passing(b.Call(ctx, &told), func(chunk *agentbus.Chunk, err error) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if chunk.Children != nil {
				a.children = chunk.Children
			}
			if chunk.Receipts != nil {
				a.receipts = chunk.Receipts
			}
			if e, ours := errors.AsType[*agentbus.Error](err); ours && (e.Ask != nil || e.Policy != nil || e.Children != nil) {
				a.asked = e
			}
			return err
		})
	})
}

// passing is an answer whose chunks and error f has seen, and may change.
func passing(answer iter.Seq2[agentbus.Chunk, error], f func(*agentbus.Chunk, error) error) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		for chunk, err := range answer {
			err = f(&chunk, err)
			if !yield(chunk, err) {
				return
			}
		}
	}
}
