package conversation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// after is a backend that answers, or fails, after a time, unless its call is
// cancelled before.
func (a *agents) after(d time.Duration, text string, failure error) agentbus.Backend {
	return a.does(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
		select {
		case <-time.After(d):
			return agentbus.Chunk{Text: text, Usage: &cent}, failure
		case <-ctx.Done():
			return agentbus.Chunk{}, ctx.Err()
		}
	})
}

// fans is a conversation that asks all of its participants at once, but the one
// called synth, who speaks at the end.
func fans(join conversation.Join, participants ...any) conversation.Conversation {
	c := talk(100, participants...)
	plan := conversation.FanOut{Join: join}
	for _, p := range c.Participants {
		if p.Name == "synth" {
			plan.Synthesizer = p.Name
		} else {
			plan.Ask = append(plan.Ask, p.Name)
		}
	}
	c.Plan = plan
	return c
}

// outcomes are turns as lines: who, state, text or code.
func outcomes(turns []agentbus.Turn) string {
	var lines []string
	for i := range turns {
		t := &turns[i]
		line := fmt.Sprintf("%d %s %s", t.Index, t.Speaker, t.State)
		if t.Reply.Text != "" {
			line += " " + t.Reply.Text
		}
		if t.Error != nil {
			line += " " + string(t.Error.Code)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "|")
}

const second = time.Second

// R20: each join needs what it says, keeps what is done, cancels and waits for
// the rest, and answers with one reply.
func TestJoins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		join  conversation.Join
		c     error // how c ends, after 1 s; a answers after 3 s, b after 2 s
		turns string
		reply string
		halt  agentbus.HaltKind
		took  time.Duration
	}{
		{"", nil, "0 a done A|1 b done B|2 c done C", "[a] A\n[b] B\n[c] C", agentbus.HaltDone, 3 * second},
		{conversation.JoinAll, nil, "0 a done A|1 b done B|2 c done C", "[a] A\n[b] B\n[c] C", agentbus.HaltDone, 3 * second},
		{conversation.JoinAll, reset, "", "", agentbus.HaltParticipantError, 3 * second},
		{conversation.JoinAny, nil, "0 a cancelled|1 b cancelled|2 c done C", "[c] C", agentbus.HaltDone, second},
		{conversation.JoinAny, reset, "0 a cancelled|1 b done B|2 c failed agent_unavailable", "[b] B", agentbus.HaltDone, 2 * second},
		{conversation.JoinQuorum(2), nil, "0 a cancelled|1 b done B|2 c done C", "[b] B\n[c] C", agentbus.HaltDone, 2 * second},
		{conversation.JoinQuorum(2), reset, "0 a done A|1 b done B|2 c failed agent_unavailable", "[a] A\n[b] B", agentbus.HaltDone, 3 * second},
		{conversation.JoinBestEffort, nil, "0 a done A|1 b done B|2 c done C", "[a] A\n[b] B\n[c] C", agentbus.HaltDone, 3 * second},
		{conversation.JoinBestEffort, reset, "0 a done A|1 b done B|2 c failed agent_unavailable", "[a] A\n[b] B", agentbus.HaltDone, 3 * second},
	} {
		t.Run(fmt.Sprintf("%s %v", tt.join, tt.c), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a agents
				c := fans(tt.join, "a", a.after(3*second, "A", nil), "b", a.after(2*second, "B", nil), "c", a.after(second, "C", tt.c))
				began := time.Now()
				r, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s"})
				if err != nil || r.Halt.Kind != tt.halt || r.Reply != tt.reply || outcomes(r.Turns) != tt.turns || time.Since(began) != tt.took {
					t.Errorf("%v after %v: %s, reply %q: %s", err, time.Since(began), r.Halt, r.Reply, outcomes(r.Turns))
				}
				if len(a.calls) != 3 {
					t.Errorf("%d calls", len(a.calls))
				}
			})
		})
	}
}

// R5, R20: what a reader of the events sees, and what the journal gets: the
// events of branches are held, to stand in the order of the plan.
func TestFanOutEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		j := &crashing{recorder: newRecorder(), at: 1000}
		c := fans(conversation.JoinQuorum(2), "a", a.after(3*second, "A", nil), "b", a.after(2*second, "B", nil), "c", a.after(second, "C", nil), "synth", a.says("S"))
		got, r, err := trace(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: j, Runs: j}, func(e conversation.Event) {
			if e.Branch != (e.Turn != nil && e.Turn.Index < 3) {
				t.Errorf("branch %v: %+v", e.Branch, e.Turn)
			}
		})
		want := []string{
			"start", "turn r.t0.a", "turn r.t1.b", "turn r.t2.c", "delta C", `end r.t2.c "C" attempts=1`, "delta B", `end r.t1.b "B" attempts=1`,
			"cancelled r.t0.a", "joined 3", "turn r.t3.synth", "delta S", `end r.t3.synth "S" attempts=1`, "halt done 4",
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || r.Reply != "S" {
			t.Errorf("reply %+v, %v (-want +got)\n%s", r, err, diff)
		}
		var stored []string
		for _, e := range j.events {
			stored = append(stored, fmt.Sprintf("%s %s %d", strings.TrimPrefix(e.Type, "agentbus."), e.Turn, e.Hold))
		}
		answer := func(turn string, hold int) (lines []string) {
			for _, kind := range []string{"agent.invocation.completed", "provider.usage", "conversation.exchanged", "channel.written", "node.completed"} {
				lines = append(lines, fmt.Sprintf("%s %s %d", kind, turn, hold))
			}
			return lines
		}
		want = slices.Concat([]string{
			"run.started  0", "conversation.opened  0", "node.started r.t0.a 0", "agent.invocation.started r.t0.a 0",
			"node.started r.t1.b 0", "agent.invocation.started r.t1.b 0", "node.started r.t2.c 0", "agent.invocation.started r.t2.c 0",
		}, answer("r.t2.c", 3), answer("r.t1.b", 2), []string{
			"agent.invocation.completed r.t0.a 1", "node.cancelled r.t0.a 1", "fanout.joined  0",
			"node.started r.t3.synth 0", "agent.invocation.started r.t3.synth 0", "output.chunk r.t3.synth 0",
		}, answer("r.t3.synth", 0), []string{"conversation.closed  0", "run.completed  0"})
		if diff := cmp.Diff(want, stored); diff != "" {
			t.Errorf("stored (-want +got)\n%s", diff)
		}
		joined := slices.IndexFunc(j.events, func(e agentbus.Event) bool { return e.Type == agentbus.EventJoined })
		if got := string(j.events[joined].Data); got != `{"join":"quorum:2","done":2,"cancelled":1,"turns":["t0.a","t1.b","t2.c"]}` { // E9: no id of the run
			t.Errorf("joined: %s", got)
		}
	})
}

// R4, R20: branches hear the seed alone; the synthesizer hears all that are done,
// in the order of the plan.
func TestSynthesizerHearsAll(t *testing.T) {
	t.Parallel()
	var a agents
	c := fans(conversation.JoinBestEffort, "a", a.says("A"), "b", a.streams(reset), "c", a.says("C"), "synth", a.says("S"))
	r, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s"})
	if err != nil || r.Reply != "S" {
		t.Fatalf("%+v, %v", r, err)
	}
	slices.SortFunc(a.calls, func(x, y called) int { return strings.Compare(string(x.Turn), string(y.Turn)) })
	seed := agentbus.Message{Role: agentbus.RoleUser, Content: "s"}
	want := [][]agentbus.Message{{seed}, {seed}, {seed}, {seed, {Role: agentbus.RoleUser, Content: "[a] A"}, {Role: agentbus.RoleUser, Content: "[c] C"}}}
	var got [][]agentbus.Message
	for _, call := range a.calls {
		got = append(got, call.Messages)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// R9, R20: who leaves stops fifty branches within a second, though half of them
// are deaf; those that are done are kept, the others are asked again.
func TestAbortOfFiftyBranches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m, release := newRecorder(), make(chan struct{})
		var all []any
		for i := range 50 {
			b := oneAfterAnother([]agentbus.Backend{a.says("at once"), a.hangs(), a.deaf(release)}[i%3], a.says("later"))
			all = append(all, fmt.Sprintf("p%d", i), b)
		}
		c := fans(conversation.JoinAll, all...)
		o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r, err := ran(ctx, c, o)
		if took := time.Since(began) - time.Minute; err != nil || r.Halt.Kind != agentbus.HaltAbort || took > second {
			t.Errorf("%s, %v, %v later", r.Halt, err, took)
		}
		close(release)
		synctest.Wait()
		r, err = ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltDone || len(a.calls) != 50+33 {
			t.Errorf("resumed: %s, %v, %d calls", r.Halt, err, len(a.calls))
		}
	})
}

// R5: who stops reading, wherever, leaves no branch behind.
func TestReaderOfAFanOutStops(t *testing.T) {
	t.Parallel()
	for _, at := range []string{conversation.EventTurnStarted, conversation.EventDelta, conversation.EventTurnDone, conversation.EventTurnCancelled, conversation.EventJoined} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var a agents
				m := newRecorder()
				c := fans(conversation.JoinQuorum(2), "a", a.says("A"), "b", a.says("B"), "c", a.after(second, "C", nil), "synth", a.says("S"))
				o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
				for e, err := range streamed(t.Context(), c, o) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Type == at {
						break
					}
				}
				if r, err := ran(t.Context(), c, o); err != nil || outcomes(r.Turns) != "0 a done A|1 b done B|2 c cancelled|3 synth done S" {
					t.Errorf("resumed: %v: %s", err, outcomes(r.Turns))
				}
			})
		})
	}
}

// R8, R20: the budget of all branches together is checked before the first, and
// so are the width and the turns that are left.
func TestFanOutLimits(t *testing.T) {
	t.Parallel()
	var a agents
	c := fans("", "a", a.says("A"), "b", a.says("B"), "c", a.says("C"))
	for i := range c.Participants {
		c.Participants[i].MaxCost = 10_000
	}
	poor := c
	poor.Budget = new(agentbus.Micros(29_999))
	r, err := ran(t.Context(), poor, conversation.Options{})
	if err != nil || r.Halt.Kind != agentbus.HaltBudget || r.Halt.Reason != "one call to each of 3 participants can cost $0.030000" || len(a.calls) > 0 {
		t.Errorf("%+v, %v after %v", r.Halt, err, a.turns())
	}
	poor.Budget = new(agentbus.Micros(30_000))
	if r, err = ran(t.Context(), poor, conversation.Options{}); err != nil || r.Halt.Kind != agentbus.HaltDone || r.Spent != 30_000 {
		t.Errorf("%+v, %v", r.Halt, err)
	}
	a.calls = nil
	step := conversation.Step{Together: []agentbus.Speaker{"a", "b", "c"}}
	wide := c
	wide.Plan = conversation.PlanFunc(func([]agentbus.Turn) (conversation.Step, error) { return step, nil })
	wide.MaxWidth = 2
	if _, err := ran(t.Context(), wide, conversation.Options{}); err == nil || !strings.Contains(err.Error(), "asks 3 at once, and the limit is 2") || len(a.calls) > 0 {
		t.Errorf("got %v after %v", err, a.turns())
	}
	wide.MaxWidth, wide.MaxTurns = 3, 5
	r, err = ran(t.Context(), wide, conversation.Options{})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || r.Halt.Reason != "2 turns are left, and 3 participants speak at once" || len(a.calls) != 3 {
		t.Errorf("%+v, %v after %v", r.Halt, err, a.turns())
	}
}

// R1: every fault of a fan-out, a moderator and their steps is named.
func TestPlanFaults(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(2, "a", a.says("A"), "b", a.says("B"), "done", a.says("C"))
	for _, tt := range []struct {
		plan conversation.Plan
		want string
	}{
		{conversation.FanOut{}, "plan: fan-out asks nobody"},
		{conversation.FanOut{Ask: []agentbus.Speaker{"a", "a"}}, `plan: fan-out asks "a" twice`},
		{conversation.FanOut{Ask: []agentbus.Speaker{"a", "x"}, Synthesizer: "y"}, "max_turns: this fan-out takes 3 turns, not 2\nplan: \"x\" is no participant\nplan: \"y\" is no participant"},
		{conversation.FanOut{Ask: []agentbus.Speaker{"a", "b"}, Join: "most"}, `join "most" is not all, any, best-effort or quorum:K`},
		{conversation.FanOut{Ask: []agentbus.Speaker{"a", "b"}, Join: "quorum:0"}, `join "quorum:0" is not all, any, best-effort or quorum:K`},
		{conversation.FanOut{Ask: []agentbus.Speaker{"a", "b"}, Join: conversation.JoinQuorum(3)}, "join quorum:3 needs more than the 2 that are asked"},
		{&conversation.FanOut{}, "plan: fan-out asks nobody"},
		{&conversation.Moderator{Decides: "a"}, "plan: moderator has nobody to name"},
		{&conversation.Alternate{"a", "b"}, "plan: alternate needs exactly 2 participants, not 3; use round-robin"},
		{&conversation.RoundRobin{"x"}, `plan: "x" is no participant`},
		{(*conversation.FanOut)(nil), "plan: is a nil pointer"},
		{conversation.Moderator{Decides: "a"}, "plan: moderator has nobody to name"},
		{conversation.Moderator{Decides: "a", Others: []agentbus.Speaker{"a"}}, `plan: moderator names "a" twice`},
		{conversation.Moderator{Decides: "a", Others: []agentbus.Speaker{"done"}}, `plan: moderator ends with "done", which is the name of a participant`},
	} {
		c.Plan = tt.plan
		if err := c.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: got %v", tt.plan, err)
		}
	}
	for _, step := range []conversation.Step{{Together: []agentbus.Speaker{"a", "x"}}, {Together: []agentbus.Speaker{"a", "a"}}, {Together: []agentbus.Speaker{"a"}, Join: "no"}} {
		c.Plan = conversation.PlanFunc(func([]agentbus.Turn) (conversation.Step, error) { return step, nil })
		if r, err := ran(t.Context(), c, conversation.Options{}); err == nil || r.Halt.Kind != agentbus.HaltAbort || len(a.calls) > 0 {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// R15, R20: a pointer to a plan is that plan: the same answer, and the same
// definition to be resumed with.
func TestPointerToAPlan(t *testing.T) {
	t.Parallel()
	var a agents
	c := fans("", "a", a.says("A"), "b", a.says("B"), "synth", a.says("S"))
	r, err := ran(t.Context(), c, conversation.Options{})
	p := c
	plan, _ := c.Plan.(conversation.FanOut)
	p.Plan = &plan
	if again, perr := ran(t.Context(), p, conversation.Options{}); err != nil || perr != nil || again.Reply != r.Reply || again.Reply != "S" || p.Definition() != c.Definition() {
		t.Errorf("%q and %q; %v, %v", r.Reply, again.Reply, err, perr)
	}
}

// A backend may say what it likes for as long as it likes: what is kept of a turn is
// bounded, also of a branch, whose siblings are kept.
func TestReplyIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it says 16 MiB several times")
	}
	var a agents
	mega := strings.Repeat("x", 1<<20)
	endless := agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for yield(agentbus.Chunk{Reasoning: mega, Usage: &cent}, nil) {
			}
		}
	})
	for name, c := range map[string]conversation.Conversation{
		"a turn": talk(2, "a", endless, "b", a.says("B")), "a branch": fans(conversation.JoinAll, "a", endless, "b", a.says("B")),
		"tool calls": talk(2, "a", a.streams(nil, agentbus.Chunk{ToolCall: &agentbus.ToolCall{Arguments: strings.Repeat(mega, 17)}}), "b", a.says("B")),
	} {
		r, err := ran(t.Context(), c, conversation.Options{})
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeAgentUnavailable || r.Halt.Error.Explain.Limit != conversation.MaxReply {
			t.Errorf("%s: %+v, %v", name, r.Halt, err)
		}
	}
	exact := a.streams(nil, agentbus.Chunk{Text: mega[:len(mega)-1]}, agentbus.Chunk{Text: strings.Repeat(mega, 15) + "x"})
	if r, err := ran(t.Context(), talk(1, "a", exact, "b", a.says("B")), conversation.Options{}); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Errorf("as long as it may be: %+v, %v", r.Halt, err)
	}
}

// R7, R20: a fan-out answers a call with its single reply, and its branches are
// turns of their own inside the turn it serves.
func TestFanOutAsABackend(t *testing.T) {
	t.Parallel()
	var a agents
	for want, synth := range map[string][]any{"[a] A\n[b] B": nil, "S": {"synth", a.says("S")}} {
		a.calls = nil
		b := conversation.Backend(conversation.BackendConfig{Conversation: fans("", append([]any{"a", a.says("A"), "b", a.says("B")}, synth...)...)})
		reply, err := agentbus.Collect(b.Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.panel", Depth: 1}}))
		if err != nil || reply.Text != want || reply.Usage.Cost != agentbus.Micros(len(a.calls)*10_000) {
			t.Errorf("%+v, %v", reply, err)
		}
		for _, c := range a.calls {
			if c.Headers[agentbus.HeaderParentTurnID] != "r.t0.panel" || c.Headers[agentbus.HeaderForwardedDepth] != "2" {
				t.Errorf("%v", c.Headers)
			}
		}
	}
}

// R3: a function may ask several at once, in any step; what they said is told in
// the order of the plan.
func TestStepsOfSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		c := talk(5, "a", a.after(2*second, "A", nil), "b", a.after(second, "B", nil), "c", a.says("C"))
		c.HaltContains = "A"
		c.Plan = conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
			if len(turns) == 1 {
				return conversation.Step{Together: []agentbus.Speaker{"a", "b"}, Say: "now"}, nil
			}
			return conversation.Step{Speaker: "c"}, nil
		})
		b := conversation.Backend(conversation.BackendConfig{Conversation: c})
		reply, err := agentbus.Collect(b.Call(t.Context(), &agentbus.Call{Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "s"}}}))
		if err != nil || reply.Text != "[c] C\n[a] A\n[b] B" || len(a.calls) != 3 {
			t.Errorf("%+v, %v, %v", reply, err, a.turns())
		}
		if m := a.calls[1].Messages; len(m) != 3 || m[2].Content != "now" {
			t.Errorf("%+v", m)
		}
	})
}

// R16: a conversation may end for good what would pause it, but an abort.
func TestOnHaltFail(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.streams(reset), "b", a.says("B"))
	c.OnHalt = conversation.OnHaltFail
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	for range 2 { // the second time finds it over
		r, err := ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || !r.Halt.Final() || len(a.calls) != 1 {
			t.Errorf("%+v, %v, %d calls", r.Halt, err, len(a.calls))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := ran(ctx, c, conversation.Options{}); err != nil || r.Halt.Final() {
		t.Errorf("%+v, %v", r.Halt, err)
	}
}

// A reader of the events that panics leaves no branch behind.
func TestReaderOfAFanOutPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		for e, err := range streamed(t.Context(), fans("", "a", a.says("A"), "b", a.hangs()), conversation.Options{}) {
			if err != nil || e.Type == conversation.EventDelta {
				panic("boom")
			}
		}
	})
}

// R7, R8, R20: fifty conversations side by side inside the branches of one: they
// share its budget and its journal, and keep their turns apart.
func TestFiftyNestedBranches(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	ten := a.streams(nil, agentbus.Chunk{Text: "x", Usage: &agentbus.Usage{Cost: 10}})
	var all []any
	for i := range 50 {
		all = append(all, fmt.Sprintf("p%d", i), a.swarm(2, "x", ten, "y", ten))
	}
	c := fans("", append(all, "synth", ten)...)
	c.Budget = new(agentbus.Micros(1_010))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltDone || r.Spent != 1_010 || len(r.Turns) != 51 {
		t.Fatalf("%s, %v, spent %d", r.Halt, err, r.Spent)
	}
	inside := map[string]int{}
	for _, c := range a.calls {
		inside[c.Headers[agentbus.HeaderParentTurnID]]++
	}
	if len(inside) != 51 || inside["r.t7.p7"] != 2 || inside[""] != 1 {
		t.Errorf("%v", inside)
	}
}

// C18: a sibling that fails, or waits, cancels no other; what became of each is told
// in the order of the step, whoever was faster, also by the driver that goes on.
func TestC18Children(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		part := json.RawMessage(`{"kind":"forbidden","message":"no"}`)
		refusal := &agentbus.Error{Code: agentbus.CodeForbidden, Message: "no", Policy: part}
		m := newRecorder()
		b := conversation.Backend(conversation.BackendConfig{
			Conversation: fans(conversation.JoinBestEffort, "slow", a.after(second, "S", nil), "pays", a.asking("P"), "breaks", a.after(0, "", reset), "refuses", a.after(0, "", refusal)),
			Journal:      m, Runs: m, Payer: func(context.Context) agentbus.Payer { return "zoë" },
		})
		call := &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.desk", Depth: 1}}
		want := []agentbus.Child{
			{Child: "slow", Outcome: agentbus.ChildOK, Text: "S"},
			{Child: "pays", Outcome: agentbus.ChildPolicy, Code: agentbus.CodePaymentRequired, Policy: payment.Policy},
			{Child: "breaks", Outcome: agentbus.ChildError, Code: agentbus.CodeAgentUnavailable},
			{Child: "refuses", Outcome: agentbus.ChildPolicy, Code: agentbus.CodeForbidden, Policy: part},
		}
		for range 2 { // the second asks nobody: nothing was decided
			_, err := agentbus.Collect(b.Call(t.Context(), call))
			if diff := cmp.Diff(want, agentbus.AsError(err).Children); diff != "" {
				t.Fatalf("%v (-want +got):\n%s", err, diff)
			}
		}
		m.Resolve(m.Waiting()[0].ID, granted())
		a.calls = nil
		var got []agentbus.Child
		for chunk, err := range b.Call(t.Context(), call) {
			if err != nil {
				t.Fatal(err)
			}
			if chunk.Children != nil {
				got = chunk.Children
			}
		}
		want[1] = agentbus.Child{Child: "pays", Outcome: agentbus.ChildOK, Text: got[1].Text}
		if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(got[1].Text, "P granted") || len(a.calls) != 1 {
			t.Errorf("%d calls (-want +got):\n%s", len(a.calls), diff)
		}
	})
	synctest.Test(t, func(t *testing.T) { // those that a join did without
		var a agents
		r, err := ran(t.Context(), fans(conversation.JoinAny, "slow", a.after(second, "S", nil), "fast", a.says("F")), conversation.Options{Run: "r", Seed: "s"})
		want := []agentbus.Child{{Child: "slow", Outcome: agentbus.ChildCancelled}, {Child: "fast", Outcome: agentbus.ChildOK, Text: "F"}}
		if diff := cmp.Diff(want, r.Children); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
