package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// whims are backends that answer as a seed tells, turn by turn and try by try:
// after void attempts, with tools, with text that is no UTF-8, with errors, with
// silence, or by aborting the run.
type whims struct {
	seed uint64

	mu    sync.Mutex // guards all below
	abort context.CancelFunc
	tries map[agentbus.TurnID]uint64
}

func (w *whims) random(id agentbus.TurnID) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[id]++
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(id)) // never fails
	return rand.New(rand.NewPCG(w.seed, sum.Sum64()+w.tries[id]))
}

func (w *whims) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		r := w.random(c.Lineage.Turn)
		usage := func() *agentbus.Usage {
			return &agentbus.Usage{InputTokens: 3, Cost: agentbus.Micros(r.IntN(7) - 1)}
		}
		for range r.IntN(3) {
			if !yield(agentbus.Chunk{Text: "lost", Usage: usage()}, nil) || !yield(agentbus.Chunk{Void: true}, nil) {
				return
			}
		}
		switch r.IntN(13) {
		case 0:
			yield(agentbus.Chunk{Text: "par", Usage: usage()}, nil)
			yield(agentbus.Chunk{}, &agentbus.Error{
				Code: agentbus.CodeRateLimited, Message: "slow \xff down", RetryAfter: time.Second, Status: 429, Explain: &agentbus.Explain{Rule: "G1", Observed: 12, Limit: 1.5},
			})
		case 1:
			yield(agentbus.Chunk{Text: " "}, nil)
		case 2:
			w.abort()
		case 3:
			yield(agentbus.Chunk{ToolCall: &agentbus.ToolCall{ID: "1", Name: "f\xfe", Arguments: "{}"}, Replayed: true, Finish: "tool"}, nil)
		case 4:
			yield(agentbus.Chunk{Text: "late", Usage: usage()}, nil)
			runtime.Gosched()
			yield(agentbus.Chunk{Text: "r"}, ctx.Err())
		default:
			text := []string{"yes", "no <&>", "\xffbroken\u2028", "STOP", "say it again", "what says @bob?", "you, @ann."}[r.IntN(7)]
			yield(agentbus.Chunk{Text: text, Reasoning: "why", Usage: usage(), Model: "m"}, nil)
		}
	}
}

// How many plans aTalk draws from: those behind plansOfOne ask several at once.
const plansOfOne, allPlans = 5, 8

// aTalk is any conversation of whims.
func aTalk(rt *rapid.T, w *whims, plans int) conversation.Conversation {
	c := talk(rapid.IntRange(1, 7).Draw(rt, "turns"))
	n := rapid.IntRange(2, 4).Draw(rt, "participants")
	var names conversation.RoundRobin
	for i := range n {
		p := conversation.Participant{Name: agentbus.Speaker([]string{"Ann", "bob", "Čar", "d d"}[i]), Backend: w}
		p.MaxCost = agentbus.Micros(rapid.SampledFrom([]int{0, 5, 9}).Draw(rt, "worst"))
		p.MaxTokens = rapid.SampledFrom([]int{0, 4, 7}).Draw(rt, "worst tokens")
		if rapid.Bool().Draw(rt, "owned") {
			p.Auth = conversation.AuthAgentOwned
		}
		c.Participants, names = append(c.Participants, p), append(names, p.Name)
	}
	join := rapid.SampledFrom([]conversation.Join{"", conversation.JoinAny, conversation.JoinQuorum(2), conversation.JoinBestEffort}).Draw(rt, "join")
	switch rapid.IntRange(0, plans-1).Draw(rt, "plan") {
	case 0: // the default
	case 1:
		c.Plan = slices.Concat(names, names[:1])
	case 2:
		c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
			return conversation.Step{Speaker: names[len(done)*3%n], Say: fmt.Sprint("say ", len(done)), Done: len(done) == 4, Reason: "four"}, nil
		})
	case 3:
		c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
			if len(done) == 3 {
				return conversation.Step{}, reset
			}
			return conversation.Step{Speaker: names[0]}, nil
		})
	case 4:
		var relay conversation.Relay
		for _, name := range names {
			relay = append(relay, conversation.Peer{Speaker: name})
		}
		c.Plan = relay
	case 5:
		c.Plan, c.MaxTurns = conversation.FanOut{Ask: names, Join: join}, 9
	case 6:
		c.Plan, c.MaxTurns = conversation.FanOut{Ask: names[1:], Join: conversation.JoinBestEffort, Synthesizer: names[0]}, 9
	case 7:
		c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
			if len(done)%3 == 1 {
				return conversation.Step{Together: names[:2], Join: join, Say: "both"}, nil
			}
			return conversation.Step{Speaker: names[len(done)%n]}, nil
		})
	}
	c.RecursionLimit = rapid.SampledFrom([]int{0, 0, 0, 2, 5}).Draw(rt, "recursion")
	c.TokenBudget = int64(rapid.SampledFrom([]int{0, 0, 0, 6, 13}).Draw(rt, "tokens"))
	switch rapid.IntRange(0, 2).Draw(rt, "halt") {
	case 0:
		c.HaltContains = "STOP"
	case 1:
		c.HaltWhen = func(turns []agentbus.Turn) (string, bool) {
			return "again", strings.Contains(turns[len(turns)-1].Reply.Text, "again")
		}
	}
	return c
}

// aRun drives a conversation of whims, cutting and resuming it, and returns its
// record.
func aRun(rt *rapid.T, plans int) (conversation.Conversation, conversation.Record) {
	w := &whims{seed: rapid.Uint64().Draw(rt, "seed"), tries: map[agentbus.TurnID]uint64{}}
	c, m := aTalk(rt, w, plans), newRecorder()
	o := conversation.Options{Run: "r", Seed: "s\xff", Owner: "one", Payer: "p"}
	id := agentbus.ExecutionID("r")
	if rapid.Bool().Draw(rt, "nested") {
		o.Run, o.Lineage = "", agentbus.Lineage{Run: "r", Turn: "r.t4.x", Parent: "r.t1.y", Path: "0123456789abcdef", Depth: 2}
		id = agentbus.ExecutionOf("p", o.Lineage, c.Name)
	}
	for range rapid.IntRange(1, 5).Draw(rt, "drives") {
		o.MaxHops = rapid.IntRange(1, 4).Draw(rt, "hops")
		ctx, cancel := context.WithCancel(context.Background())
		w.abort, o.Journal, o.Runs, c.Budget, o.Budget, o.Deadline = cancel, m, m, nil, nil, time.Time{}
		switch rapid.IntRange(0, 8).Draw(rt, "drive") {
		case 0, 1, 2:
			j := &crashing{recorder: m, at: rapid.IntRange(1, 6).Draw(rt, "crash"), after: rapid.Bool().Draw(rt, "after")}
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
		}
		_, _ = conversation.Run(ctx, c, o) // whatever becomes of it is replayed
		cancel()
	}
	rec := m.record(id)
	if o.Lineage.Parent != "" {
		rec.Above = &o.Lineage.Parent
	}
	return c, rec
}

// R23: any run, however it was cut, ended and resumed, is replayed as it was:
// turn for turn, and the events byte for byte.
func TestReplayOfAnyRun(t *testing.T) {
	t.Parallel()
	for name, plans := range map[string]int{"one at a time": plansOfOne, "several at once": allPlans} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				c, rec := aRun(rt, plans)
				if rec.Execution.ID == "" {
					return
				}
				if err := errors.Join(wireFault(rec.Events), ended(rec), replays(c, rec)); err != nil {
					rt.Fatalf("%v\n%s", err, asText(rec.Turns, rec.Events))
				}
			})
		})
	}
}

// R23: what was changed in a record is found at its very turn.
func TestReplayFindsWhatWasChanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c, rec := aRun(rt, plansOfOne)
		if len(rec.Turns) == 0 {
			return
		}
		rec.Turns, rec.Events = slices.Clone(rec.Turns), slices.Clone(rec.Events)
		turn := &rec.Turns[rapid.IntRange(0, len(rec.Turns)-1).Draw(rt, "turn")]
		changes := []func(){
			func() { turn.Speaker += "x" },
			func() { turn.Digest[3]++ },
			func() { turn.ID += "x" },
			func() { turn.Path = "fedcba9876543210" },
			func() { turn.Agent = "other" },
		}
		if turn.State == agentbus.TurnDone {
			changes = append(changes,
				func() { turn.Reply.Text += "x" },
				func() { turn.Reply.Usage.OutputTokens++ },
				func() { turn.Cost++ },
				func() { turn.Attempts++ },
			)
		}
		for i := range rec.Events {
			if e := &rec.Events[i]; e.Turn == turn.ID && bytes.Contains(e.Data, []byte(`"depth":`)) {
				changes = append(changes, func() { e.Data = bytes.Replace(e.Data, []byte(`"depth":`), []byte(`"depth":1`), 1) })
			}
		}
		changes[rapid.IntRange(0, len(changes)-1).Draw(rt, "change")]()
		got, err := conversation.Replay(context.Background(), c, rec)
		if err != nil || got.Divergence == nil || got.Divergence.Turn != turn.Index {
			rt.Errorf("found %+v, %v, want turn %d", got.Divergence, err, turn.Index)
		}
	})
}

// R23: a divergence says what was recorded and what the driver did.
func TestDivergence(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("x"), "b", a.says("y"))
	c.Plan = conversation.PlanFunc(conversation.Alternate{"a", "b"}.Next)
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	calls := len(a.calls)
	for _, x := range []struct {
		change func(*conversation.Conversation, *conversation.Record)
		want   string
	}{
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Execution.Seed = "t" }, "turn 0 of execution r: messages: recorded is "},
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Turns = r.Turns[:1] }, `turn 1 of execution r: turn: recorded is none, the driver did r.t1.b`},
		{func(_ *conversation.Conversation, r *conversation.Record) { r.Events = r.Events[:12] }, "turn 1 of execution r: event: recorded is none, the driver did agent.invocation.completed of r.t1.b"},
		{func(_ *conversation.Conversation, r *conversation.Record) {
			r.Events[9], r.Events[17] = r.Events[17], r.Events[9]
		}, `turn 1 of execution r: event of: recorded is "r.t1.b", the driver did "r.t0.a"`},
		{func(_ *conversation.Conversation, r *conversation.Record) {
			last := &r.Events[len(r.Events)-1]
			last.Data = bytes.Replace(last.Data, []byte(`{"halt":{"kind":"max_turns"`), []byte(`{"halt":{"kind":"done"`), 1)
		}, `event 27 of execution r: kind of the event: recorded is "done", the driver did "max_turns"`},
		{func(c *conversation.Conversation, _ *conversation.Record) {
			c.Plan = conversation.PlanFunc(conversation.Alternate{"b", "a"}.Next)
		}, `turn 0 of execution r: speaker: recorded is "a", the driver did "b"`},
		{func(c *conversation.Conversation, _ *conversation.Record) {
			c.HaltWhen = func(turns []agentbus.Turn) (string, bool) { return "enough", len(turns) == 2 }
		}, `turn 2 of execution r: event: recorded is "node.started", the driver did "conversation.closed"`},
	} {
		changed, rec := c, m.record("r")
		x.change(&changed, &rec)
		got, err := conversation.Replay(t.Context(), changed, rec)
		if err != nil || got.Divergence == nil || !strings.HasPrefix(got.Divergence.String(), x.want) {
			t.Errorf("got %v, %v, want %q", got.Divergence, err, x.want)
		}
	}
	if len(a.calls) != calls {
		t.Errorf("a replay called somebody: %v", a.turns())
	}
}

// R15, R23: another definition is named as such, and nothing is replayed.
func TestReplayOfAnotherDefinition(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("x"), "b", a.says("y"))
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	c.MaxTurns = 4
	_, err := conversation.Replay(t.Context(), c, m.record("r"))
	if agentbus.CodeOf(err) != agentbus.CodeRunConflict || !strings.Contains(err.Error(), "another definition") {
		t.Errorf("got %v", err)
	}
	c.MaxTurns = 0
	if _, err := conversation.Replay(t.Context(), c, m.record("r")); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("got %v", err)
	}
	c.MaxTurns = 3
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conversation.Replay(ctx, c, m.record("r")); err != context.Canceled { //nolint:errorlint // it is the cause itself
		t.Errorf("got %v", err)
	}
}
