package conversation_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func (a *agents) swarm(turns int, participants ...any) agentbus.Backend {
	inner := talk(turns, participants...)
	inner.Name = "swarm"
	return conversation.Backend(conversation.BackendConfig{Conversation: inner})
}

// R7: usage and cost are sums; P8: the path tells the nested turns apart; R2:
// an agent-owned participant ends forwarding for all below it.
func TestNested(t *testing.T) {
	t.Parallel()
	var a agents
	paths := map[string]bool{}
	leaf := func() agentbus.Backend {
		return a.does(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
			paths[c.Lineage.Path] = true
			return agentbus.Chunk{Text: "x", Usage: &cent}, nil
		})
	}
	c := talk(3, "o", leaf(), "s", a.swarm(2, "x", leaf(), "y", leaf()))
	c.Participants[1].Auth = conversation.AuthAgentOwned
	r, err := ran(t.Context(), c, conversation.Options{Run: "r", Lineage: agentbus.Lineage{Auth: user}})
	if err != nil {
		t.Fatal(err)
	}
	want := agentbus.Reply{Text: "[x] x\n[y] x", Finish: "stop", Usage: agentbus.Usage{InputTokens: 4, OutputTokens: 6, Cost: 20_000}}
	if diff := cmp.Diff(want, r.Turns[1].Reply); diff != "" || r.Turns[1].Cost != 20_000 {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(paths) != 2 || !paths[""] {
		t.Errorf("paths %v", paths)
	}
	for _, c := range a.calls {
		nested := strings.HasPrefix(c.Headers[agentbus.HeaderParentTurnID], "r.t1.s")
		if has := c.Headers[agentbus.HeaderForwardedAuthorization] != ""; has == nested {
			t.Errorf("%s in %q has a credential: %v", c.Turn, c.Headers[agentbus.HeaderParentTurnID], has)
		}
	}
}

// refusing is a store that must not be reached.
type refusing struct {
	conversation.Journal
	conversation.Runs
}

// R7, P10: at the limit a nested run is refused before any I/O; served below.
func TestNestedDepthLimit(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(1, "a", a.says("x"), "b", a.says("y"))
	b := conversation.Backend(conversation.BackendConfig{Conversation: c, Journal: refusing{}, Runs: refusing{}})
	_, err := agentbus.Collect(b.Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Depth: 4}}))
	if agentbus.CodeOf(err) != agentbus.CodeDepthExceeded {
		t.Errorf("got %v", err)
	}
	// Four nestings in one process: depths 0 to 3 are served.
	deep := a.says("leaf")
	for range 4 {
		deep = a.swarm(1, "a", deep, "b", a.says("y"))
	}
	r, err := ran(t.Context(), talk(1, "a", deep, "b", a.says("y")), conversation.Options{Run: "r"})
	if err != nil || r.Halt.Kind != agentbus.HaltParticipantError || r.Halt.Error.Code != agentbus.CodeDepthExceeded || len(a.calls) > 0 {
		t.Errorf("%+v, %v after %v", r.Halt, err, a.calls)
	}
	r, err = ran(t.Context(), talk(1, "a", deep, "b", a.says("y")), conversation.Options{Run: "r", MaxDepth: 5, MaxHops: 5})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || a.calls[0].Headers[agentbus.HeaderForwardedDepth] != "5" {
		t.Errorf("limit 5: %+v, %v after %v", r.Halt, err, a.calls)
	}
}

// C32, R7, R23: receipts of the turns of a nested run, as they were written, are those of
// the turn around it, also when that is resumed; what is no JSON is none.
func TestReceiptsOfNestedRuns(t *testing.T) {
	t.Parallel()
	var a agents
	paid := func(receipts ...string) agentbus.Backend {
		c := agentbus.Chunk{Text: "x"}
		for _, r := range receipts {
			c.Receipts = append(c.Receipts, json.RawMessage(r))
		}
		return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { return c, nil })
	}
	m := newRecorder()
	last := oneAfterAnother(a.streams(reset), paid(`{"n":3}`))
	c := talk(2, "a", a.swarm(2, "x", paid(`{"n": 9007199254740993, "t":"<&>"}`, "no JSON"), "y", paid("{\"n\":\"\xff\"}")), "b", last)
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	for range 2 {
		if _, err := ran(t.Context(), c, o); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, turn := range m.record("r").Turns {
		raw, _ := json.Marshal(turn.Reply.Receipts)
		got = append(got, string(raw))
	}
	want := []string{`[{"n":9007199254740993,"t":"\u003c\u0026\u003e"},{"n":"�"}]`, `[{"n":3}]`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// P9: the worked example: origin 0, after the router 1, after the nested
// runtime 2; and a driver of its own begins with 1.
func TestCountingExample(t *testing.T) {
	t.Parallel()
	var a agents
	origin := agentbus.Lineage{Run: "conv_abc", Turn: "conv_abc.t0.researcher", Auth: user}
	router := origin.Forward()
	b := a.swarm(1, "researcher", a.says("x"), "critic", a.says("y"))
	if _, err := agentbus.Collect(b.Call(t.Context(), &agentbus.Call{Lineage: router})); err != nil {
		t.Fatal(err)
	}
	if got := a.calls[0].Headers; router.Depth != 1 || got[agentbus.HeaderForwardedDepth] != "2" ||
		got[agentbus.HeaderParentTurnID] != "conv_abc.t0.researcher" || got[agentbus.HeaderRunID] != "conv_abc" || got[agentbus.HeaderForwardedAuthorization] != "Bearer U" {
		t.Errorf("router %d, then %v", router.Depth, got)
	}
}

// P17: a second nested conversation inside one turn begins where the first
// ended, and a retry computes the same ids.
func TestTwoNestedInOneTurn(t *testing.T) {
	t.Parallel()
	var a agents
	first, second := talk(2, "x", a.says("1"), "y", a.says("2")), talk(1, "x", oneAfterAnother(a.streams(reset), a.says("3")), "y", a.says("4"))
	first.Name, second.Name = "first", "second"
	both := agentbus.Answer(func(ctx context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		for _, inner := range []conversation.Conversation{first, second} {
			if _, err := agentbus.Collect(conversation.Backend(conversation.BackendConfig{Conversation: inner}).Call(ctx, c)); err != nil {
				return agentbus.Chunk{}, err
			}
		}
		return agentbus.Chunk{Text: "done"}, nil
	})
	m := newRecorder()
	c := talk(1, "o", both, "p", a.says("p"))
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	for range 2 { // the second time resumes the nested run that failed
		if _, err := ran(t.Context(), c, o); err != nil {
			t.Fatal(err)
		}
	}
	want := []agentbus.TurnID{"r.t0.x", "r.t1.y", "r.t2.x", "r.t2.x"}
	if diff := cmp.Diff(want, a.turns()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// R14, R7: a crash inside a nested run: both go on where they were, at once,
// though the dead driver's lease on the nested run has not expired.
func TestNestedCrash(t *testing.T) {
	t.Parallel()
	want := ""
	for at := range 10 {
		g, m, a := newGateway(), newRecorder(), new(agents)
		c := talk(2, "o", g.agent(t), "s", a.swarm(2, "x", g.agent(t), "y", g.agent(t)))
		o := conversation.Options{Run: "r", Seed: "s", Owner: "dead", TTL: time.Hour}
		if at > 0 {
			j := &crashing{recorder: m, at: at}
			o.Journal, o.Runs = j, j
			_, _ = ran(t.Context(), c, o)
		}
		o.Journal, o.Runs, o.Owner, o.TakeOver = m, m, "alive", 1
		r, err := ran(t.Context(), c, o)
		if err != nil {
			t.Fatalf("cut at write %d: %v", at, err)
		}
		if at == 0 {
			want = told(r, g)
		}
		if diff := cmp.Diff(want, told(r, g)); diff != "" {
			t.Errorf("cut at write %d (-want +got)\n%s", at, diff)
		}
	}
}

// R7: how a nested run ends is how its turn ends.
func TestNestedHalts(t *testing.T) {
	t.Parallel()
	var a agents
	refusal := &agentbus.Error{Code: agentbus.CodeChainFinal, Message: "no", Status: 429, Explain: &agentbus.Explain{Rule: "C1"}}
	poor := talk(2, "x", costs(10), "y", costs(10))
	poor.Budget = new(agentbus.Micros(10))
	for name, c := range map[string]struct {
		b    agentbus.Backend
		want agentbus.Error
	}{
		"participant error": {a.swarm(1, "x", a.streams(refusal), "y", a.says("y")), agentbus.Error{Code: refusal.Code, Message: "x: no", Status: 429, Explain: refusal.Explain}},
		"budget": {conversation.Backend(conversation.BackendConfig{Conversation: poor}), agentbus.Error{
			Code: agentbus.CodeBudgetExceeded, Message: "run r halted: budget ($0.000010 of $0.000010)",
			Explain: &agentbus.Explain{Rule: "R8", Observed: "0.000010", Limit: "0.000010", Next: "raise budget_usd of the conversation"},
		}},
		"no turn": {a.swarm(0, "x", a.says("x"), "y", a.says("y")), agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "conversation: max_turns: must be at least 1, not 0"}},
	} {
		_, err := agentbus.Collect(c.b.Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{}}))
		got := *agentbus.AsError(err)
		if _, rest, minted := strings.Cut(got.Message, " halted"); minted {
			got.Message = "run r halted" + rest
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// R7, R9: cancelling reaches the leaves, and every level's halt is stored.
func TestNestedAbort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := newRecorder()
		j := &crashing{recorder: m, at: 1000}
		c := talk(1, "o", a.swarm(1, "x", a.hangs(), "y", a.says("y")), "p", a.says("p"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := ran(ctx, c, conversation.Options{Run: "r", Journal: j, Runs: j})
		if err != nil || r.Halt.Kind != agentbus.HaltAbort {
			t.Errorf("%+v, %v", r.Halt, err)
		}
		halts := 0
		for _, e := range j.events {
			if e.Type == agentbus.EventRunPaused && strings.Contains(string(e.Data), `"abort"`) {
				halts++
			}
		}
		if halts != 2 {
			t.Errorf("%d halts were stored", halts)
		}
	})
}

// The nested conversation's caller leaves: its error is the context's.
func TestNestedCallerLeaves(t *testing.T) {
	t.Parallel()
	var a agents
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := agentbus.Collect(a.swarm(1, "x", a.says("x"), "y", a.says("y")).Call(ctx, &agentbus.Call{}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// R7: a call repeated after its run is over gets the same answer, unpaid.
func TestNestedCalledAgain(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	inner := talk(2, "x", a.says("1"), "y", a.says("2"))
	b := conversation.Backend(conversation.BackendConfig{
		Conversation: inner, Journal: m, Runs: m, Payer: func(context.Context) agentbus.Payer { return "p" },
	})
	call := &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.s", Depth: 1, Speaker: "s"}, Messages: []agentbus.Message{
		{Role: agentbus.RoleUser, Content: "a"}, {Role: agentbus.RoleAssistant, Content: "b"}, {Role: agentbus.RoleUser, Content: "[o] c"},
	}}
	first, err := agentbus.Collect(b.Call(t.Context(), call))
	if err != nil {
		t.Fatal(err)
	}
	second, err := agentbus.Collect(b.Call(t.Context(), call))
	if diff := cmp.Diff(first, second); diff != "" || err != nil || len(a.calls) != 2 {
		t.Errorf("%v, %d calls (-first +second)\n%s", err, len(a.calls), diff)
	}
	if got := a.calls[0].Messages[0].Content; got != "a\n\n[s] b\n\n[o] c" {
		t.Errorf("seed %q", got)
	}
}
