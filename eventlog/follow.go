package eventlog

import (
	"context"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
)

// A Source is where events are read. The store is one.
type Source interface {
	// Events yields the events past a position, in order; -1: all.
	Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error]
	// Appended returns how many there are.
	Appended(ctx context.Context, id agentbus.ExecutionID) (agentbus.Position, error)
	// Watch returns a channel that is closed with the next events that this
	// process appends, until release.
	Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func())
}

// Config configures a [Follower].
type Config struct {
	Source    Source               // required
	Execution agentbus.ExecutionID // required
	// After is the position that was read last; -1: none.
	After agentbus.Position
	// Poll is how often it is looked for events that another process appended;
	// 0: DefaultPoll.
	Poll time.Duration
	// Page is how many events are read at once; 0: DefaultPage.
	Page int
}

// The defaults of a Config.
const (
	DefaultPoll = time.Second
	DefaultPage = 256
)

// A Follower reads an execution's events to its last one, and waits for those
// that are to come. It keeps no more than a page in memory. It is not safe for
// concurrent use.
type Follower struct {
	c     Config
	known bool // the event that ends the run, if there is one, is behind c.After
	ended bool // the last event was read
}

// NewFollower returns a follower behind c.After.
func NewFollower(c Config) *Follower {
	if c.Poll <= 0 {
		c.Poll = DefaultPoll
	}
	if c.Page <= 0 {
		c.Page = DefaultPage
	}
	return &Follower{c: c}
}

// Ended reports whether the event that ends the run was read: nothing comes
// behind it (E10).
func (f *Follower) Ended() bool { return f.ended }

// After is the position that was read last.
func (f *Follower) After() agentbus.Position { return f.c.After }

// Next returns the next events, at once when there are any, else when some come.
// It returns none when atMost has passed, or when the run has ended; 0 does not
// wait.
func (f *Follower) Next(ctx context.Context, atMost time.Duration) ([]agentbus.Event, error) {
	var timeout <-chan time.Time
	for !f.ended {
		rung, release := f.c.Source.Watch(f.c.Execution)
		page, err := f.page(ctx)
		if err == nil && len(page) == 0 && !f.known {
			err = f.look(ctx)
		}
		if err != nil || len(page) > 0 || f.ended || atMost <= 0 {
			release()
			return page, err
		}
		if timeout == nil {
			timer := time.NewTimer(atMost)
			defer timer.Stop()
			timeout = timer.C
		}
		poll := time.NewTimer(f.c.Poll)
		select {
		case <-rung:
		case <-poll.C:
		case <-timeout:
			atMost = 0 // one last look
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		poll.Stop()
		release()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// page reads what is there, up to a page.
func (f *Follower) page(ctx context.Context) (page []agentbus.Event, err error) {
	for e, err := range f.c.Source.Events(ctx, f.c.Execution, f.c.After) {
		if err != nil {
			return page, err
		}
		page = append(page, e)
		f.c.After = e.Position
		if f.ended = agentbus.Terminal(e.Type); f.ended || len(page) == f.c.Page {
			break
		}
	}
	return page, nil
}

// look finds out whether the run had ended at or before where this one begins. One
// that begins behind all events there are is not told of those that come before
// it, so it looks again with every wait.
func (f *Follower) look(ctx context.Context) error {
	n, err := f.c.Source.Appended(ctx, f.c.Execution)
	if err != nil {
		return err
	}
	f.known = f.c.After < n
	if n == 0 || f.c.After < n-1 {
		return nil
	}
	for e, err := range f.c.Source.Events(ctx, f.c.Execution, n-2) {
		if err != nil {
			return err
		}
		if e.Position > f.c.After {
			break // it came meanwhile
		}
		f.ended = agentbus.Terminal(e.Type)
	}
	return nil
}

// Follow yields the events of an execution behind c.After, then those to come. It
// ends with the run, with ctx, which is no error, or with the first error.
func Follow(ctx context.Context, c Config) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) {
		for f := NewFollower(c); ; {
			page, err := f.Next(ctx, time.Hour)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(agentbus.Event{}, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if f.Ended() {
				return
			}
		}
	}
}
