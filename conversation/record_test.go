package conversation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// A recorder is a journal in memory that keeps events too.
type recorder struct {
	*conversation.Memory

	mu     sync.Mutex // guards events
	events map[agentbus.ExecutionID][]agentbus.Event
	held   map[agentbus.ExecutionID][]agentbus.Event
}

func newRecorder() *recorder {
	return &recorder{Memory: conversation.NewMemory(), events: map[agentbus.ExecutionID][]agentbus.Event{}, held: map[agentbus.ExecutionID][]agentbus.Event{}}
}

func (r *recorder) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	return r.keep(r.Memory.Finish(ctx, done, next), events)
}

func (r *recorder) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	return r.keep(r.Memory.Halt(ctx, l, h), events)
}

func (r *recorder) keep(err error, events []agentbus.Event) error {
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		id := e.Execution
		if r.held[id] = append(r.held[id], e); e.Hold > 0 {
			continue
		}
		slices.SortStableFunc(r.held[id][:len(r.held[id])-1], func(a, b agentbus.Event) int { return a.Hold - b.Hold })
		for _, e := range r.held[id] {
			e.Position, e.Hold = agentbus.Position(len(r.events[id])), 0
			r.events[id] = append(r.events[id], e)
		}
		r.held[id] = nil
	}
	return nil
}

// kept finds the recorder that a journal is made around.
func (r *recorder) kept() *recorder { return r }

// record returns what is known of an execution.
func (r *recorder) record(id agentbus.ExecutionID) (rec conversation.Record) {
	rec.Execution, _ = r.Execution(id)
	for t, err := range r.Turns(context.Background(), id) {
		if err != nil {
			panic(err) // a journal in memory does not fail
		}
		rec.Turns = append(rec.Turns, t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Events = slices.Clone(r.events[id])
	return rec
}

// replays returns how a record and its replay differ, by what Replay says and
// byte by byte, or nil. No backend is there to be called.
func replays(c conversation.Conversation, rec conversation.Record) error {
	c.Participants = slices.Clone(c.Participants)
	for i := range c.Participants {
		c.Participants[i].Backend = nil
	}
	got, err := conversation.Replay(context.Background(), c, rec)
	if err != nil {
		return err
	}
	if got.Divergence != nil {
		return errors.New(got.Divergence.String())
	}
	if diff := cmp.Diff(asText(rec.Turns, rec.Events), asText(got.Turns, got.Events)); diff != "" {
		return fmt.Errorf("no divergence was found, but (-recorded +replayed)\n%s", diff)
	}
	return nil
}

func asText(turns []agentbus.Turn, events []agentbus.Event) string {
	raw, _ := json.MarshalIndent(struct {
		Turns  []agentbus.Turn
		Events []agentbus.Event
	}{turns, events}, "", " ")
	return string(raw)
}

// ran is conversation.Run of which the record is replayed afterwards, whatever
// became of it (R23).
func ran(ctx context.Context, c conversation.Conversation, o conversation.Options) (conversation.Result, error) {
	o = recorded(o)
	r, err := conversation.Run(ctx, c, o)
	checkReplay(c, o, r.Execution)
	return r, err
}

// recorded returns o with a journal that keeps events, unless it has another.
func recorded(o conversation.Options) conversation.Options {
	if o.Journal == nil && o.Runs == nil {
		r := newRecorder()
		o.Journal, o.Runs = r, r
	}
	return o
}

func checkReplay(c conversation.Conversation, o conversation.Options, id agentbus.ExecutionID) {
	j, ok := o.Journal.(interface{ kept() *recorder })
	if id == "" {
		id = agentbus.ExecutionID(o.Run)
	}
	if !ok {
		return
	}
	rec := j.kept().record(id)
	if o.Lineage.Turn != "" {
		rec.Above = &o.Lineage.Parent
	}
	if rec.Execution.ID == "" || len(rec.Events) == 0 && len(rec.Turns) == 0 {
		return
	}
	err := replays(c, rec)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict { // resumed with another definition: a replay says so
		return
	}
	if err != nil {
		panic(fmt.Sprintf("the run is not replayed as it was: %v\n%s", err, asText(rec.Turns, rec.Events)))
	}
}
