package conversation_test

import (
	"context"
	"encoding/json"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R4: a backend that keeps a session is told what of the messages it has had.
// What a plan says to a participant is for that one only.
func TestSeenAndSay(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(5, "a", a.says("a1", "a2", "a3"), "b", a.says("b1", "b2"))
	c.Plan = conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
		return conversation.Step{Speaker: []agentbus.Speaker{"a", "b"}[len(turns)%2], Say: "turn " + strconv.Itoa(len(turns))}, nil
	})
	if _, err := ran(t.Context(), c, conversation.Options{Seed: "s"}); err != nil {
		t.Fatal(err)
	}
	var fresh [][]string
	for _, c := range a.calls {
		var said []string
		for _, m := range c.Messages[c.Seen:] {
			said = append(said, string(m.Role)+" "+m.Content)
		}
		fresh = append(fresh, said)
	}
	want := [][]string{
		{"user s", "user turn 0"},
		{"user s", "user [a] a1", "user turn 1"},
		{"user [b] b1", "user turn 2"},
		{"user [a] a2", "user turn 3"},
		{"user [b] b2", "user turn 4"},
	}
	if diff := cmp.Diff(want, fresh); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// R3: each way to be over.
func TestHalts(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(9, "a", a.says("so", "APPROVED"), "b", a.says("hm"))
	contains, predicate, done := c, c, c
	contains.HaltContains = "APPROVED"
	predicate.Participants = []conversation.Participant{{Name: "a", Backend: a.says("so")}, {Name: "b", Backend: a.says("hm")}}
	predicate.HaltWhen = func(turns []agentbus.Turn) (string, bool) { return "two are enough", len(turns) == 2 }
	done.Plan = conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
		return conversation.Step{Speaker: "b", Done: len(turns) == 1, Reason: "all said"}, nil
	})
	for want, c := range map[string]conversation.Conversation{
		`predicate: a said "APPROVED"`: contains, "predicate: two are enough": predicate, "done: all said": done,
	} {
		r, err := ran(t.Context(), c, conversation.Options{})
		if err != nil || r.Halt.String() != want || !r.Halt.Kind.Final() {
			t.Errorf("got %v, %v, want %s", r.Halt, err, want)
		}
	}
}

// A turn of tool calls alone is a turn; it adds nothing to what others hear.
func TestToolCallsAlone(t *testing.T) {
	t.Parallel()
	var a agents
	tool := agentbus.ToolCall{ID: "1", Name: "f", Arguments: "{}"}
	c := talk(3, "a", a.streams(nil, agentbus.Chunk{ToolCall: &tool}), "b", a.says("b"))
	seen := 0
	_, r, err := trace(t.Context(), c, conversation.Options{Seed: "s"}, func(e conversation.Event) {
		if e.Type == conversation.EventToolCall && *e.Chunk.ToolCall == tool {
			seen++
		}
	})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || seen != 2 || len(a.calls[1].Messages) != 1 || len(r.Turns[0].Reply.ToolCalls) != 1 {
		t.Errorf("%+v, %v, %d tool calls", r, err, seen)
	}
}

// What a backend was given stays as it was, however the run goes on.
func TestMessagesDoNotChange(t *testing.T) {
	t.Parallel()
	var given [][]agentbus.Message
	var copies [][]agentbus.Message
	b := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		given, copies = append(given, c.Messages), append(copies, slices.Clone(c.Messages))
		_ = append(c.Messages, agentbus.Message{Content: "scribbled"})
		return agentbus.Chunk{Text: "x"}, nil
	})
	if _, err := ran(t.Context(), talk(20, "a", b, "b", b), conversation.Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(copies, given); diff != "" {
		t.Errorf("(-then +now)\n%s", diff)
	}
}

// A mint is a run of its own.
func TestRunIsMinted(t *testing.T) {
	t.Parallel()
	var a agents
	r, err := ran(t.Context(), talk(1, "a", a.says("x"), "b", a.says("y")), conversation.Options{})
	if err != nil || !strings.HasPrefix(string(r.Run), "run_") || string(r.Execution) != string(r.Run) || a.calls[0].Headers[agentbus.HeaderForwardedDepth] != "1" {
		t.Errorf("%+v, %v, %v", r, err, a.calls)
	}
	served, err := ran(t.Context(), talk(1, "a", a.says("x"), "b", a.says("y")), conversation.Options{Payer: "p", Lineage: agentbus.Lineage{Run: r.Run, Turn: "t"}})
	if want := agentbus.ExecutionOf("p", agentbus.Lineage{Run: r.Run, Turn: "t"}, "talk"); err != nil || served.Execution != want {
		t.Errorf("%+v, %v, want execution %s", served, err, want)
	}
}

// counting is a journal that counts how often it is read.
type counting struct {
	*recorder
	reads int
}

func (c *counting) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	c.reads++
	return c.recorder.Turns(ctx, id)
}

// R4: a turn around the 10,000th costs what one around the 100th does: as many
// allocations, and the journal is not read again. BenchmarkTurn tells the time.
func TestTurnsCostTheSame(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	const window = 400
	var turns int
	var allocations [2]uint64
	count := func(i int) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		allocations[i] = m.Mallocs - allocations[i]
	}
	j := &counting{recorder: newRecorder()}
	c := talk(10_000, "a", still, "b", still, "c", still)
	for e, err := range conversation.Stream(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: j, Runs: j}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != conversation.EventTurnDone {
			continue
		}
		switch turns++; turns {
		case 100, 100 + window:
			count(0)
		case c.MaxTurns - window, c.MaxTurns:
			count(1)
		}
	}
	if early, late := allocations[0], allocations[1]; turns != c.MaxTurns || late > early+early/10 || j.reads != 1 {
		t.Errorf("%d turns: %d allocations early, %d late; the journal was read %d times", turns, early, late, j.reads)
	}
}

var still = agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
	return agentbus.Chunk{Text: "a few words of an answer"}, nil
})

// R4: the cost of a turn does not grow with the run: the median of turns around
// the 10,000th, over that of turns around the 100th, is reported as growth.
func BenchmarkTurn(b *testing.B) {
	b.ReportAllocs()
	const last = 10_100
	runs, growth := 0, 0.0
	for n := 0; n < b.N; {
		c := talk(min(last, b.N-n), "a", still, "b", still)
		took := make([]time.Duration, 0, c.MaxTurns)
		began := time.Now()
		for e, err := range conversation.Stream(b.Context(), c, conversation.Options{Seed: "s"}) {
			if err != nil {
				b.Fatal(err)
			}
			if e.Type == conversation.EventTurnDone {
				took = append(took, time.Since(began))
				began = time.Now()
			}
		}
		if len(took) == last {
			growth += float64(median(took[last-200:])) / float64(median(took[50:250]))
			runs++
		}
		n += c.MaxTurns
	}
	if runs > 0 {
		b.ReportMetric(growth/float64(runs), "growth")
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// A plan, a HaltWhen or an AuthWhen that panics ends the drive as one that fails does: the run is
// paused, its lease free, and what the panic says is in no message.
func TestPlanPanics(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*conversation.Conversation, func()){
		"plan": func(c *conversation.Conversation, now func()) {
			c.Plan = conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
				if len(turns) == 1 {
					now()
				}
				return conversation.Step{Speaker: []agentbus.Speaker{"a", "b"}[len(turns)%2]}, nil
			})
		},
		"HaltWhen": func(c *conversation.Conversation, now func()) {
			c.HaltWhen = func([]agentbus.Turn) (string, bool) { now(); return "", false }
		},
		"AuthWhen": func(c *conversation.Conversation, now func()) {
			c.Participants[1].AuthWhen = func([]agentbus.Turn) conversation.AuthMode { now(); return "" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a agents
			broken := true
			c := talk(2, "a", a.says("A"), "b", a.says("B"))
			breaks(&c, func() {
				if broken {
					panic("it holds a secret")
				}
			})
			m := newRecorder()
			o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
			r, err := ran(t.Context(), c, o)
			rec := m.record("r")
			e := rec.Execution
			if stored, _ := json.Marshal(rec); agentbus.CodeOf(err) != agentbus.CodeInternal || strings.Contains(agentbus.AsError(err).Message+string(stored), "secret") || r.Halt.Kind != agentbus.HaltAbort || e.State != agentbus.RunPaused || e.Lease.Owner != "" {
				t.Fatalf("%v: %+v, %+v", err, r.Halt, e)
			}
			broken = false
			if r, err := conversation.Run(t.Context(), c, o); err != nil || len(r.Turns) != 2 || r.Halt.Kind != agentbus.HaltMaxTurns {
				t.Errorf("resumed: %v, %+v", err, r.Halt)
			}
		})
	}
}
