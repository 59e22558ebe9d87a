package conversation_test

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/eventlog"
)

// played is a run to be replayed.
type played struct {
	conversation conversation.Conversation
	record       conversation.Record
	older        bool
}

// aRun drives a conversation of whims, cutting and resuming it, and perhaps a fork of
// it. It returns the runs that there are: that one, those nested in it, and the fork.
func aRun(rt *rapid.T, plans int, calm bool) []played {
	w := &whims{seed: rapid.Uint64().Draw(rt, "seed"), calm: calm, m: newRecorder(), tries: map[agentbus.TurnKey]uint64{}}
	c := aTalk(rt, w, plans, "talk")
	o := conversation.Options{Run: "r", Seed: "s\xff " + secretWord, Owner: "one", Payer: "p"}
	id := agentbus.ExecutionID("r")
	if rapid.Bool().Draw(rt, "nested") {
		o.Run, o.Lineage = "", agentbus.Lineage{Run: "r", Turn: "r.t4.x", Parent: "r.t1.y", Path: "0123456789abcdef", Depth: 2}
		id = agentbus.ExecutionOf("p", o.Lineage, c.Name)
	}
	if !calm && rapid.Bool().Draw(rt, "redacts") {
		o.Redact = redactor
	}
	w.drives(rt, c, o)
	all := w.played(c, nestedIn(c), id, &o)
	if !calm && o.Run != "" && rapid.Bool().Draw(rt, "forks") {
		f := conversation.Fork(c, conversation.Source{Execution: id, Turns: rapid.IntRange(0, 4).Draw(rt, "fork at"), Journal: w.m})
		o.Run = "f"
		w.drives(rt, f, o)
		all = append(all, w.played(f, nestedIn(c), "f", &o)...)
	}
	if w.broken != nil {
		rt.Fatal(w.broken)
	}
	return all
}

// played returns what a run has come to, and those nested in it.
func (w *whims) played(c conversation.Conversation, inner map[agentbus.Digest]conversation.Conversation, id agentbus.ExecutionID, o *conversation.Options) []played {
	rec := w.m.record(id)
	if o.Lineage.Parent != "" {
		rec.Above = &o.Lineage.Parent
	}
	all := []played{{c, rec, w.older}}
	for _, e := range w.m.Executions() {
		if def, known := inner[e.Definition]; known && e.ID != id && e.Run == rec.Execution.Run {
			rec := w.m.record(e.ID)
			rec.Above = w.m.above(&e)
			all = append(all, played{def, rec, w.older})
		}
	}
	return all
}

// drives drives a run several times, each under other limits and with another end.
func (w *whims) drives(rt *rapid.T, c conversation.Conversation, o conversation.Options) {
	w.above = o.Lineage.Depth
	for range rapid.IntRange(1, 5).Draw(rt, "drives") {
		ctx, cancel := context.WithCancelCause(context.Background())
		c, o := c, o
		w.end, o.Journal, o.Runs, o.MaxHops = cancel, w.m, w.m, rapid.IntRange(1, 4).Draw(rt, "hops")
		if o.Events = w.m.told; rapid.IntRange(0, 7).Draw(rt, "older") == 0 {
			o.Events, w.older = nil, true
		}
		most := 8
		if !w.calm {
			most = 12
			o.MaxDepth = o.Lineage.Depth + rapid.IntRange(1, 5).Draw(rt, "depth")
			w.deepest = max(w.deepest, o.MaxDepth) // what was begun goes on under a lower limit
			o.NoEscalation = rapid.IntRange(0, 3).Draw(rt, "escalates") == 0
			o.Reasoning = rapid.SampledFrom([]string{"", conversation.ReasoningFull, conversation.ReasoningOff}).Draw(rt, "reasoning")
		}
		switch rapid.IntRange(0, most).Draw(rt, "drive") {
		case 0, 1, 2:
			j := &crashing{recorder: w.m, at: rapid.IntRange(1, 6).Draw(rt, "crash"), after: rapid.Bool().Draw(rt, "after")}
			o.Journal, o.Runs = j, j
		case 3:
			c.Budget = new(agentbus.Micros(rapid.IntRange(0, 20).Draw(rt, "budget")))
		case 4:
			o.Budget = conversation.NewBudget(agentbus.Micros(rapid.IntRange(0, 20).Draw(rt, "shared")))
			if _, err := conversation.Run(ctx, talk(3, "x", costs(3), "y", costs(3)), conversation.Options{Budget: o.Budget}); err != nil {
				rt.Fatal(err)
			}
		case 5:
			o.Deadline = time.Now()
		case 9:
			o.Deadline = time.Now().Add(time.Millisecond)
		case 10:
			o.Halt = given[rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(rt, "given")] // mostly one that it can go on from
		case 11:
			j := &crowded{recorder: w.m, room: rapid.IntRange(0, 2).Draw(rt, "room")}
			o.Journal, o.Runs = j, j
		case 12:
			w.endsAt(rapid.IntRange(1, 12).Draw(rt, "moment"), rapid.SampledFrom(causes).Draw(rt, "cause"))
			j := leaving{w.m, w}
			o.Journal, o.Runs = j, j
		}
		_, _ = conversation.Run(ctx, c, o) // whatever becomes of it is replayed
		cancel(nil)
		w.m.decide(rt)
	}
}

// crowded is a journal with room for so many interrupts.
type crowded struct {
	*recorder

	mu   sync.Mutex // guards room
	room int
}

func (j *crowded) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	raised := 0
	if h.Wait != nil {
		for i := range h.Wait.Asked {
			if h.Wait.Asked[i].Interrupt != nil {
				raised++
			}
		}
	}
	if raised > j.room {
		return &agentbus.Error{Code: agentbus.CodeOverloaded, Message: "too many wait"}
	}
	j.room -= raised
	return j.recorder.Halt(ctx, l, h, events...)
}

// leaving is a journal whose drive is ended while it is read or written.
type leaving struct {
	*recorder
	w *whims
}

func (j leaving) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	j.w.moment()
	return j.recorder.Open(ctx, e, claim)
}

func (j leaving) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	j.w.moment()
	return j.recorder.Turns(ctx, id)
}

func (j leaving) Interrupt(ctx context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	j.w.moment()
	return j.recorder.Interrupt(ctx, id)
}

func (j leaving) Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error) {
	j.w.moment()
	return j.recorder.Begin(ctx, turns, events...)
}

func (j leaving) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	j.w.moment()
	return j.recorder.Finish(ctx, done, next, events...)
}

func (j leaving) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	j.w.moment()
	return j.recorder.Halt(ctx, l, h, events...)
}

var redactor = eventlog.NewRedactor(eventlog.Secret{ID: "keys.alice", Value: agentbus.NewCredential(secretWord)})

// given are halts that a driver is given.
var given = []*agentbus.Halt{
	{Kind: agentbus.HaltWaitingAuth, Reason: "why"},
	{Kind: agentbus.HaltDeadline, Reason: "its time was up while it waited"},
	{Kind: agentbus.HaltAbort, Reason: "its time was up before anybody took it up"},
	{Kind: agentbus.HaltAbort, Reason: "stopped by its operator", Error: stopped},
}

// decide decides some of what waits.
func (r *recorder) decide(rt *rapid.T) {
	waiting := r.Waiting()
	slices.SortFunc(waiting, func(a, b agentbus.Interrupt) int { return cmp.Compare(a.ID, b.ID) })
	for _, i := range waiting {
		switch rapid.IntRange(0, 5).Draw(rt, "decision") {
		case 0, 1:
			said := rapid.SampledFrom([]string{"", "fine", `{"n":3}`, `{"kind":"terminate"}`}).Draw(rt, "said")
			r.Resolve(i.ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, By: "zoë", Text: said, At: decidedAt})
		case 2:
			r.Resolve(i.ID, agentbus.Resolution{Decision: agentbus.DecisionDenied, Text: "no"})
		case 3:
			r.Resolve(i.ID, agentbus.Resolution{Decision: agentbus.DecisionExpired})
		}
	}
}
