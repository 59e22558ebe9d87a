package conversation

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/agentbus/agentbus"
)

// A Source is what a run is forked from: the first turns of another one.
type Source struct {
	Execution agentbus.ExecutionID
	// Turns is how many are copied; the next one is the first to be asked.
	Turns int
	// Origin is the run that Execution was forked from itself, at the beginning of
	// the line: all of them are the same conversation on the event wire (E45). ""
	// is Execution.
	Origin agentbus.ExecutionID
	// Journal has them. It is read once, and only while there is one to copy.
	Journal Journal
}

// Fork returns c as it goes on from a turn of another run (R23): its first turns
// are copied from there, and agents are called only after them. A copied turn is
// a turn like any other, with an id of its run, but for its reply, which is
// marked as replayed, cost nothing and used nothing. It is copied when it is its
// turn, so that a run that was cut off in between goes on copying, given the
// same Fork of c again.
//
// A turn whose speaker or messages are not those of the turn it would be a copy
// of fails with CodeRunConflict: c asks other questions than were answered. The
// run must be a top-level one.
func Fork(c Conversation, s Source) Conversation {
	t := &tape{source: s}
	participants := make([]Participant, len(c.Participants))
	for i, p := range c.Participants {
		p.Backend = copies{Backend: p.Backend, speaker: p.Name, tape: t}
		participants[i] = p
	}
	c.Participants, c.origin = participants, cmp.Or(s.Origin, s.Execution)
	return c
}

// A tape is what a source has, once it was read.
type tape struct {
	source Source

	mu    sync.Mutex // guards all below
	read  bool
	turns []agentbus.Turn
}

// turn returns a turn of the source; nil when it has none there.
func (t *tape) turn(ctx context.Context, at int) (*agentbus.Turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.read {
		var turns []agentbus.Turn
		for turn, err := range t.source.Journal.Turns(ctx, t.source.Execution) {
			if err != nil {
				return nil, fmt.Errorf("read the turns of run %s: %w", t.source.Execution, err)
			}
			if len(turns) == t.source.Turns {
				break
			}
			turns = append(turns, turn)
		}
		t.read, t.turns = true, turns
	}
	if at >= len(t.turns) {
		return nil, nil //nolint:nilnil // a turn that is not there is no failure of reading
	}
	return &t.turns[at], nil
}

// copies answers the first turns from another run.
type copies struct {
	agentbus.Backend

	speaker agentbus.Speaker
	tape    *tape
}

// Call copies the answer, or asks for it.
func (f copies) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	e, at := enclosingOf(ctx), c.Lineage.Turn.Index(c.Lineage.Run)
	if at < 0 || at >= f.tape.source.Turns || !e.serves(&c.Lineage) {
		return f.Backend.Call(ctx, c)
	}
	return func(yield func(agentbus.Chunk, error) bool) {
		r, err := f.reply(ctx, at, e.asked)
		if err != nil {
			yield(agentbus.Chunk{}, err)
			return
		}
		r.Usage, r.Replayed = agentbus.Usage{}, true
		said(r)(yield)
	}
}

// reply returns what was answered at a turn, if that was asked the same.
func (f copies) reply(ctx context.Context, at int, asked agentbus.Digest) (r agentbus.Reply, err error) {
	t, err := f.tape.turn(ctx, at)
	if err != nil {
		return r, err
	}
	var what string
	switch {
	case t == nil || t.State != agentbus.TurnDone:
		what = "is not done"
	case t.Speaker != f.speaker:
		what = fmt.Sprintf("was spoken by %q, and here it is the turn of %q", t.Speaker, f.speaker)
	case t.Digest != asked:
		what = "was asked something else"
	default:
		return t.Reply, nil
	}
	return r, &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: fmt.Sprintf("turn %d of run %s cannot be copied: it %s", at, f.tape.source.Execution, what),
		Explain: &agentbus.Explain{Rule: "R23", Next: "fork at an earlier turn, or with the definition that run was begun with"},
	}
}
