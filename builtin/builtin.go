// Package builtin has agents that need no network and no key: to try the bus
// with, and to test it. They answer in words and report their usage, a token a
// word.
package builtin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

// The built-in agents, by the name the configuration calls them.
const (
	Echo  = "echo"  // says what it was told last
	Eliza = "eliza" // asks back
	Loop  = "loop"  // calls itself through the bus, until the bus refuses
	Flaky = "flaky" // fails every other time
	Slow  = "slow"  // says a word every 200 ms
	Pay   = "pay"   // asks to be paid before it says what it was told last
)

// Names returns the names of the built-in agents, sorted.
func Names() []string { return []string{Echo, Eliza, Flaky, Loop, Pay, Slow} }

// Config configures [New].
type Config struct {
	// Bus is how an agent calls agents; only loop needs it. The bus's own agent
	// of the same name must answer there.
	Bus agentbus.Backend
	// Pause is between the words of slow; 0: 200 ms.
	Pause time.Duration
	// States keeps what pay has asked; nil: this agent does, until it ends.
	States States
	// Payer tells pay on whose bill it is called; nil: it does not matter.
	Payer func(context.Context) agentbus.Payer
}

// New returns the built-in agent of that name. It fails for a name it does not
// know, and for loop without a bus.
func New(name string, c Config) (agentbus.Backend, error) {
	switch name {
	case Echo:
		return says(last, 0), nil
	case Eliza:
		return says(func(c *agentbus.Call) string { return reflect(last(c), len(c.Messages)) }, 0), nil
	case Slow:
		return says(last, pause(c.Pause)), nil
	case Flaky:
		return flaky(), nil
	case Pay:
		return newPay(&c), nil
	case Loop:
		if c.Bus == nil {
			return nil, fmt.Errorf("built-in agent %q needs a bus to call itself through", name)
		}
		return loop(c.Bus), nil
	}
	return nil, fmt.Errorf("there is no built-in agent %q; there are %s", name, strings.Join(Names(), ", "))
}

func pause(d time.Duration) time.Duration {
	if d == 0 {
		return 200 * time.Millisecond
	}
	return d
}

// last returns the last thing the agent was told, without the "[speaker]" that
// a conversation puts before it.
func last(c *agentbus.Call) string {
	for _, m := range slices.Backward(c.Messages) {
		if m.Role == agentbus.RoleUser && strings.TrimSpace(m.Content) != "" {
			if rest, ok := strings.CutPrefix(m.Content, "["); ok {
				if _, text, ok := strings.Cut(rest, "] "); ok {
					return text
				}
			}
			return m.Content
		}
	}
	return "Hello."
}

// says makes an agent of a function, that speaks word by word.
func says(f func(*agentbus.Call) string, pause time.Duration) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			text := f(c)
			for i, word := range strings.SplitAfter(text, " ") {
				if i > 0 && !wait(ctx, pause) {
					yield(agentbus.Chunk{}, ctx.Err())
					return
				}
				if !yield(agentbus.Chunk{Text: word}, nil) {
					return
				}
			}
			yield(agentbus.Chunk{Usage: usage(c, text), Model: "builtin", Finish: "stop"}, nil)
		}
	})
}

func wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func usage(c *agentbus.Call, text string) *agentbus.Usage {
	in := 0
	for _, m := range c.Messages {
		in += len(strings.Fields(m.Content))
	}
	return &agentbus.Usage{InputTokens: int64(in), OutputTokens: int64(len(strings.Fields(text)))}
}

// flaky fails the first, third, fifth … time it is called.
func flaky() agentbus.Backend {
	var calls atomic.Int64
	steady := says(last, 0)
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		if calls.Add(1)%2 == 0 {
			return steady.Call(ctx, c)
		}
		return func(yield func(agentbus.Chunk, error) bool) {
			yield(agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "flaky fails every other time, and this was one"})
		}
	})
}

// loop calls itself through the bus with a text that changes, one turn inside
// the other, until something refuses. It answers with how deep it came and what
// stopped it.
func loop(bus agentbus.Backend) agentbus.Backend {
	return agentbus.Answer(func(ctx context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		text := last(c) + " again"
		l, err := c.Lineage.Next(c.Lineage.Run.Turn(0, Loop), Loop)
		if err != nil {
			return agentbus.Chunk{}, err
		}
		inner := &agentbus.Call{Lineage: l, Agent: Loop, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}}
		reply, err := agentbus.Collect(bus.Call(ctx, inner))
		if err != nil {
			e := agentbus.AsError(err)
			if e.Code.Retryable() || e.Code == agentbus.CodeInternal {
				return agentbus.Chunk{}, err
			}
			reply.Text = "I was stopped below depth " + strconv.Itoa(c.Lineage.Depth) + " with " + string(e.Code)
		}
		return agentbus.Chunk{Text: reply.Text, Usage: usage(c, reply.Text), Model: "builtin", Finish: "stop"}, nil
	})
}
