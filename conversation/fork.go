package conversation

import (
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
	load := sync.OnceValues(func() ([]agentbus.Turn, error) { return s.read() })
	participants := make([]Participant, len(c.Participants))
	for i, p := range c.Participants {
		p.Backend = copies{Backend: p.Backend, speaker: p.Name, source: s, load: load}
		participants[i] = p
	}
	c.Participants = participants
	return c
}

// read returns the turns that are copied, as far as the journal has them.
func (s *Source) read() (turns []agentbus.Turn, err error) {
	// They are read for all calls to come, not for the one that asks first.
	for t, err := range s.Journal.Turns(context.Background(), s.Execution) {
		if err != nil {
			return nil, fmt.Errorf("read the turns of run %s: %w", s.Execution, err)
		}
		if len(turns) == s.Turns {
			break
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// copies answers the first turns from another run.
type copies struct {
	agentbus.Backend

	speaker agentbus.Speaker
	source  Source
	load    func() ([]agentbus.Turn, error)
}

// Call copies the answer, or asks for it.
func (f copies) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	e, at := enclosingOf(ctx), c.Lineage.Turn.Index(c.Lineage.Run)
	if at < 0 || at >= f.source.Turns || !e.serves(&c.Lineage) {
		return f.Backend.Call(ctx, c)
	}
	return func(yield func(agentbus.Chunk, error) bool) {
		r, err := f.reply(at, e.asked)
		if err != nil {
			yield(agentbus.Chunk{}, err)
			return
		}
		for i := range r.ToolCalls {
			if !yield(agentbus.Chunk{ToolCall: &r.ToolCalls[i]}, nil) {
				return
			}
		}
		yield(agentbus.Chunk{Text: r.Text, Reasoning: r.Reasoning, Model: r.Model, Finish: r.Finish, Replayed: true}, nil)
	}
}

// reply returns what was answered at a turn, if that was asked the same.
func (f copies) reply(at int, asked agentbus.Digest) (r agentbus.Reply, err error) {
	turns, err := f.load()
	if err != nil {
		return r, err
	}
	what := ""
	switch {
	case at >= len(turns) || turns[at].State != agentbus.TurnDone:
		what = "is not done"
	case turns[at].Speaker != f.speaker:
		what = fmt.Sprintf("was spoken by %q, and here it is the turn of %q", turns[at].Speaker, f.speaker)
	case turns[at].Digest != asked:
		what = "was asked something else"
	default:
		return turns[at].Reply, nil
	}
	return r, &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: fmt.Sprintf("turn %d of run %s cannot be copied: it %s", at, f.source.Execution, what),
		Explain: &agentbus.Explain{Rule: "R23", Next: "fork at an earlier turn, or with the definition that run was begun with"},
	}
}
