package conversation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

var errCrash = errors.New("crash")

// crashing is a journal whose process dies at its nth write, before or after
// the write took effect. From then on nothing works.
type crashing struct {
	*recorder
	mu     sync.Mutex // guards all below
	at     int        // counts down; 0 has crashed
	after  bool
	events []agentbus.Event
	done   []agentbus.TurnID // acknowledged
}

func (j *crashing) write(f func() error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.at == 0 {
		return errCrash
	}
	if j.at--; j.at == 0 {
		if j.after {
			_ = f()
		}
		return errCrash
	}
	return f()
}

func (j *crashing) Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) (stored []agentbus.Turn, err error) {
	err = j.write(func() error {
		j.events = append(j.events, events...)
		stored, err = j.recorder.Begin(ctx, turns, events...)
		return err
	})
	return stored, err
}

func (j *crashing) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	err := j.write(func() error {
		j.events = append(j.events, events...)
		return j.recorder.Finish(ctx, done, next, events...)
	})
	if err == nil && done.State == agentbus.TurnDone {
		j.done = append(j.done, done.ID)
	}
	return err
}

func (j *crashing) Halt(ctx context.Context, l agentbus.Lease, h agentbus.Halt, events ...agentbus.Event) error {
	return j.write(func() error {
		j.events = append(j.events, events...)
		return j.recorder.Halt(ctx, l, h, events...)
	})
}

// gateway answers by turn id, and charges each once, as the ledger does (G20).
type gateway struct {
	mu      sync.Mutex // guards all below
	charged map[agentbus.TurnID]int
	asked   map[agentbus.TurnID]string
	closed  map[agentbus.TurnID]bool // these must not be asked any more
}

func (g *gateway) agent(t *testing.T) agentbus.Backend {
	t.Helper()
	return agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		raw, _ := json.Marshal(c.Messages)
		g.mu.Lock()
		defer g.mu.Unlock()
		if before, ok := g.asked[c.Lineage.Turn]; ok && before != string(raw) {
			t.Errorf("turn %s was asked with other messages", c.Lineage.Turn)
		}
		if g.closed[c.Lineage.Turn] {
			t.Errorf("turn %s was asked again", c.Lineage.Turn)
		}
		g.asked[c.Lineage.Turn] = string(raw)
		g.charged[c.Lineage.Turn] = 1
		return agentbus.Chunk{Text: "answer of " + string(c.Lineage.Turn), Usage: &cent}, nil
	})
}

func newGateway() *gateway {
	return &gateway{charged: map[agentbus.TurnID]int{}, asked: map[agentbus.TurnID]string{}, closed: map[agentbus.TurnID]bool{}}
}

func texts(turns []agentbus.Turn) (all []string) {
	for _, t := range turns {
		all = append(all, string(t.Speaker)+": "+t.Reply.Text)
	}
	return all
}

// R14, R15: a crash before or after any write loses no acknowledged turn, runs
// none again, and charges once; the resumed run ends as one that never crashed.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	const turns = 4
	undisturbed := newGateway()
	want, err := ran(t.Context(), talk(turns, "a", undisturbed.agent(t), "b", undisturbed.agent(t)), conversation.Options{Run: "r", Seed: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= turns+2; at++ { // Begin, Finish × turns, Halt
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %v", at, after), func(t *testing.T) {
				t.Parallel()
				g, m := newGateway(), newRecorder()
				c := talk(turns, "a", g.agent(t), "b", g.agent(t))
				o := conversation.Options{Run: "r", Seed: "s", Owner: "one"}
				j := &crashing{recorder: m, at: at, after: after}
				o.Journal, o.Runs = j, j
				acknowledged := 0
				_, _, err := trace(t.Context(), c, o, func(e conversation.Event) {
					if e.Type == conversation.EventTurnDone {
						acknowledged++
						delete(g.asked, e.Turn.ID)
						g.charged[e.Turn.ID]++ // a second call of it would set this back
					}
				})
				if !errors.Is(err, errCrash) {
					t.Fatalf("got %v", err)
				}
				o.Journal, o.Runs = m, m
				got, err := ran(t.Context(), c, o)
				if err != nil || len(got.Turns) < acknowledged {
					t.Fatalf("%d turns of %d, %v", len(got.Turns), acknowledged, err)
				}
				if diff := cmp.Diff(texts(want.Turns), texts(got.Turns)); diff != "" || got.Spent != want.Spent || got.Halt != want.Halt {
					t.Errorf("spent %v, halt %v (-want +got)\n%s", got.Spent, got.Halt, diff)
				}
				for id, n := range g.charged {
					if i := id.Index("r"); i < acknowledged && n != 2 {
						t.Errorf("%s was acknowledged and called again", id)
					}
				}
			})
		}
	}
}

// R14, E56: one write a turn: the result of one and the intent of the next go
// together, with the events of both. None holds a credential.
func TestOneWriteATurn(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	j := &crashing{recorder: m, at: 1000}
	c := talk(10, "a", a.says("words"), "b", a.says("words"))
	c.Participants[1].Auth = conversation.AuthAgentOwned
	o := conversation.Options{Run: "r", Seed: "seed", Journal: j, Runs: j, Lineage: agentbus.Lineage{Auth: user}}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	if writes := 1000 - j.at; writes != 12 { // one Begin, ten Finish, one Halt
		t.Errorf("%d writes for 10 turns", writes)
	}
	var types, owned []string
	for _, e := range j.events {
		types = append(types, e.Type)
		if s := string(e.Data); strings.Contains(s, "Bearer") || !json.Valid(e.Data) || len(s) > 600 {
			t.Errorf("%s holds %s", e.Type, s)
		}
		if e.Execution != "r" || e.Run != "r" || e.At.IsZero() || (e.Turn == "") != (e.Node == "") {
			t.Errorf("%+v", e)
		}
		if e.Type == agentbus.EventNodeCompleted && strings.Contains(string(e.Data), `"auth":"agent-owned"`) { // P22
			owned = append(owned, e.Node)
		}
	}
	want := "run.started conversation.opened " + strings.Repeat("node.started agent.invocation.started output.chunk agent.invocation.completed "+
		"provider.usage conversation.exchanged channel.written node.completed ", 10) + "conversation.closed run.completed"
	if got := strings.Join(types, " "); got != want || strings.Join(owned, "") != "bbbbb" {
		t.Errorf("got %s; %v", got, owned)
	}
}

// R15: another definition or seed is refused, with the difference named, and
// leaves the run as it was; forced, it goes on with the stored seed.
func TestResumeWithAnother(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(reset), a.says("y")))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	if r, err := ran(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltParticipantError {
		t.Fatalf("%+v, %v", r.Halt, err)
	}
	calls := len(a.calls)
	changed := c
	changed.MaxTurns = 3
	renamed := c
	renamed.Name = "other"
	reordered := c
	reordered.Plan = conversation.Alternate{"b", "a"}
	otherSeed := o
	otherSeed.Seed = "t"
	for _, x := range []struct {
		c    conversation.Conversation
		o    conversation.Options
		want string
	}{
		{changed, o, `another definition of "talk"`},
		{reordered, o, `another definition of "talk"`},
		{renamed, o, `conversation "talk", not "other"`},
		{c, otherSeed, "another seed"},
		{changed, otherSeed, "and another seed"},
	} {
		_, err := ran(t.Context(), x.c, x.o)
		if agentbus.CodeOf(err) != agentbus.CodeRunConflict || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %q", err, x.want)
		}
	}
	if len(a.calls) != calls {
		t.Fatal("a refused resume called somebody")
	}
	otherSeed.Force = true
	r, err := ran(t.Context(), changed, otherSeed)
	if err != nil || len(r.Turns) != 3 || a.calls[len(a.calls)-1].Messages[0].Content != "s" {
		t.Errorf("forced: %+v, %v", r.Halt, err)
	}
}

// R15: to force another definition does not change a turn that was begun under the
// old one. The refusal says what does.
func TestForcedOnATurnThatWasBegun(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", a.streams(reset))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Force: true}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	calls := len(a.calls)
	c.Participants[0].Label = "A" // which b hears
	_, err := ran(t.Context(), c, o)
	e := agentbus.AsError(err)
	if e == nil || e.Code != agentbus.CodeRunConflict || e.Explain == nil || !strings.Contains(e.Explain.Next, "replay r --from 1 ") || len(a.calls) != calls {
		t.Errorf("got %v, %d calls", err, len(a.calls)-calls)
	}
}

// R15: without a seed, a resume takes the stored one. A plan that disagrees with
// the journal is refused.
func TestResumeTakesTheStoredSeed(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(reset), a.says("y"), a.says("y")))
	c.Plan = conversation.PlanFunc(conversation.Alternate{"a", "b"}.Next)
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	impure := c
	impure.Plan = conversation.PlanFunc(conversation.Alternate{"b", "a"}.Next) // and so it is no replay of what was recorded
	if _, err := conversation.Run(t.Context(), impure, conversation.Options{Run: "r", Journal: m, Runs: m}); agentbus.CodeOf(err) != agentbus.CodeRunConflict || !strings.Contains(err.Error(), `the plan names "b"`) {
		t.Errorf("got %v", err)
	}
	r, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || a.calls[len(a.calls)-1].Messages[0].Content != "s" {
		t.Errorf("%+v, %v", r, err)
	}
}

// R8, R16: the failed attempt of a turn is in its cost when it is resumed.
func TestFailedAttemptsCost(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	used := agentbus.Chunk{Usage: &agentbus.Usage{Cost: 7}}
	broken := a.streams(reset, used, agentbus.Chunk{Void: true}, used)
	c := talk(1, "a", oneAfterAnother(broken, a.says("x")), "b", a.says("y"))
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	first, err := ran(t.Context(), c, o)
	if err != nil || first.Spent != 14 || first.Halt.Error.Code != reset.Code || first.Halt.Participant != "a" {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := ran(t.Context(), c, o)
	if err != nil || second.Spent != 10_014 || second.Turns[0].Cost != 10_014 || second.Turns[0].Attempts != 3 {
		t.Errorf("%+v, %v", second, err)
	}
}

// told is what a run told its participants and what they answered.
func told(r conversation.Result, g *gateway) string {
	raw, _ := json.MarshalIndent(struct {
		Texts []string
		Asked map[agentbus.TurnID]string
		Halt  agentbus.Halt
		Spent agentbus.Micros
	}{texts(r.Turns), g.asked, r.Halt, r.Spent}, "", " ")
	return string(raw)
}

// R14, R15: whatever the conversation, and however often it is cut, wherever,
// the transcript and the calls are those of a run that was never cut.
func TestResumeFromAnyCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n, turns := rapid.IntRange(2, 4).Draw(rt, "participants"), rapid.IntRange(1, 8).Draw(rt, "turns")
		say := rapid.SampledFrom([]string{"", "go on"}).Draw(rt, "say")
		stride := rapid.IntRange(1, 3).Draw(rt, "stride")
		build := func(g *gateway) conversation.Conversation {
			c := talk(turns)
			for i := range n {
				c.Participants = append(c.Participants, conversation.Participant{Name: agentbus.Speaker(rune('a' + i)), Backend: g.agent(t)})
			}
			c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
				return conversation.Step{Speaker: c.Participants[len(done)*stride%n].Name, Say: say}, nil
			})
			return c
		}
		whole := newGateway()
		want, err := ran(context.Background(), build(whole), conversation.Options{Run: "r", Seed: "s"})
		if err != nil {
			rt.Fatal(err)
		}
		g, m := newGateway(), newRecorder()
		c := build(g)
		o := conversation.Options{Run: "r", Seed: "s", Owner: "one"}
		for _, at := range rapid.SliceOfN(rapid.IntRange(1, turns+2), 0, 4).Draw(rt, "cuts") {
			j := &crashing{recorder: m, at: at, after: rapid.Bool().Draw(rt, "after")}
			o.Journal, o.Runs = j, j
			_, _ = ran(context.Background(), c, o)
		}
		o.Journal, o.Runs = m, m
		got, err := ran(context.Background(), c, o)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(told(want, whole), told(got, g)); diff != "" {
			rt.Errorf("(-uncut +cut)\n%s", diff)
		}
	})
}

// A turn that the journal has done meanwhile is used, not performed.
func TestBeginFindsTheTurnDone(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	o := conversation.Options{Run: "r", Seed: "s", Owner: "one", Journal: m, Runs: m}
	c := talk(2, "a", a.says("x"), "b", oneAfterAnother(a.streams(reset), a.says("y")))
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	blind := &forgetful{recorder: m}
	o.Journal = blind
	r, err := ran(t.Context(), c, o)
	if diff := cmp.Diff([]agentbus.TurnID{"r.t0.a", "r.t1.b", "r.t1.b"}, a.turns()); diff != "" || err != nil || len(r.Turns) != 2 || r.Spent != 20_000 {
		t.Errorf("%+v, %v (-want +got)\n%s", r, err, diff)
	}
}

// forgetful is a journal that shows no turns, but knows them.
type forgetful struct{ *recorder }

// kept is nil: what this journal hides cannot be replayed.
func (forgetful) kept() *recorder { return nil }

func (forgetful) Turns(context.Context, agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	return func(func(agentbus.Turn, error) bool) {}
}

// A store that fails ends the driver with its error, and writes nothing more.
func TestJournalFails(t *testing.T) {
	t.Parallel()
	var a agents
	broken := &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "disk full"}
	m := newRecorder()
	_, err := ran(t.Context(), talk(1, "a", a.says("x"), "b", a.says("y")), conversation.Options{Journal: unreadable{m, broken}, Runs: m})
	if !errors.Is(err, broken) || len(a.calls) > 0 {
		t.Errorf("got %v after %v", err, a.turns())
	}
	_, err = ran(t.Context(), talk(1, "a", a.says("x"), "b", a.says("y")), conversation.Options{Journal: m, Runs: closed{m, broken}})
	if !errors.Is(err, broken) || len(a.calls) > 0 {
		t.Errorf("got %v after %v", err, a.turns())
	}
}

type unreadable struct {
	*recorder
	err error
}

func (u unreadable) Turns(context.Context, agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	return func(yield func(agentbus.Turn, error) bool) { yield(agentbus.Turn{}, u.err) }
}

type closed struct {
	*recorder
	err error
}

func (c closed) Open(context.Context, agentbus.Execution, agentbus.Claim) (agentbus.Execution, error) {
	return agentbus.Execution{}, c.err
}
