package conversation_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	gocmp "github.com/google/go-cmp/cmp"

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

func (r *recorder) Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error) {
	stored, err := r.Memory.Begin(ctx, turns)
	return stored, r.keep(err, events)
}

func (r *recorder) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	return r.keep(r.Memory.Finish(ctx, done, next), events)
}

func (r *recorder) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	return r.keep(r.Memory.Halt(ctx, l, h), events)
}

func (r *recorder) AppendEvents(_ context.Context, _ agentbus.Lease, events ...agentbus.Event) (agentbus.Position, error) {
	return 0, r.keep(nil, events)
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
			e.ID = agentbus.EventIDOf(id, e.Position)
			if e.CauseBack > 0 {
				e.Cause, e.CauseBack = agentbus.EventIDOf(id, e.Position-agentbus.Position(e.CauseBack)), 0
			}
			r.events[id] = append(r.events[id], e)
		}
		r.held[id] = nil
	}
	return nil
}

// told yields the events of an execution; see Options.
func (r *recorder) told(_ context.Context, id agentbus.ExecutionID, _ agentbus.Position) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) {
		for _, e := range r.record(id).Events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// kept finds the recorder that a journal is made around.
func (r *recorder) kept() *recorder { return r }

// record returns what is known of an execution.
func (r *recorder) record(id agentbus.ExecutionID) (rec conversation.Record) {
	all := r.Executions()
	if i := slices.IndexFunc(all, func(e agentbus.Execution) bool { return e.ID == id }); i >= 0 {
		rec.Execution = all[i]
	}
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

// above returns the parent of the turn that an execution serves, if that is here.
func (r *recorder) above(e *agentbus.Execution) *agentbus.TurnID {
	for _, other := range r.Executions() {
		for _, t := range r.record(other.ID).Turns {
			if t.ID == e.Parent && t.Path == e.Path && t.Run == e.Run {
				return &t.Parent
			}
		}
	}
	return nil
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
	if diff := gocmp.Diff(asText(rec.Turns, rec.Events), asText(got.Turns, got.Events)); diff != "" {
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

// streamed is conversation.Stream of which the record is replayed afterwards.
func streamed(ctx context.Context, c conversation.Conversation, o conversation.Options) iter.Seq2[conversation.Event, error] {
	o = recorded(o)
	return func(yield func(conversation.Event, error) bool) {
		var id agentbus.ExecutionID
		conversation.Stream(ctx, c, o)(func(e conversation.Event, err error) bool {
			id = cmp.Or(id, e.Execution)
			return yield(e, err)
		})
		checkReplay(c, o, id)
	}
}

// checkReplay replays an execution, and all that are nested in it.
func checkReplay(c conversation.Conversation, o conversation.Options, id agentbus.ExecutionID) {
	j, ok := o.Journal.(interface{ kept() *recorder })
	if !ok || j.kept() == nil {
		return
	}
	id = cmp.Or(id, agentbus.ExecutionID(o.Run))
	rec := j.kept().record(id)
	if o.Lineage.Turn != "" {
		rec.Above = &o.Lineage.Parent
	}
	mustReplay(c, rec)
	inner := nestedIn(c)
	for _, e := range j.kept().Executions() {
		if def, known := inner[e.Definition]; known && e.ID != id {
			rec := j.kept().record(e.ID)
			rec.Above = j.kept().above(&e)
			mustReplay(def, rec)
		}
	}
}

// nestedIn returns the conversations that take part in c, at any depth.
func nestedIn(c conversation.Conversation) map[agentbus.Digest]conversation.Conversation {
	all := map[agentbus.Digest]conversation.Conversation{}
	for _, p := range c.Participants {
		if inner, ok := conversation.Answering(p.Backend); ok {
			all[inner.Definition()] = inner
			maps.Copy(all, nestedIn(inner))
		}
	}
	return all
}

func mustReplay(c conversation.Conversation, rec conversation.Record) {
	if rec.Execution.ID == "" || len(rec.Events) == 0 && len(rec.Turns) == 0 {
		return
	}
	if err := errors.Join(wireFault(rec.Events), ended(rec)); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, asText(nil, rec.Events)))
	}
	err := replays(c, rec)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict { // resumed with another definition: a replay says so
		return
	}
	if err != nil {
		panic(fmt.Sprintf("the run is not replayed as it was: %v\n%s", err, asText(rec.Turns, rec.Events)))
	}
}
