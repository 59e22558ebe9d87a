package conversation_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

var reset = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "ECONNRESET"}

// twice retries once, as package policy does: a void chunk, then the other
// attempt.
func twice(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for c, err := range b.Call(ctx, c) {
				if err != nil {
					break
				}
				if !yield(c, nil) {
					return
				}
			}
			if !yield(agentbus.Chunk{Void: true}, nil) {
				return
			}
			for c, err := range b.Call(ctx, c) {
				if !yield(c, err) {
					return
				}
			}
		}
	})
}

// oneAfterAnother uses a backend a call.
func oneAfterAnother(bs ...agentbus.Backend) agentbus.Backend {
	n := 0
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		n++
		return bs[n-1].Call(ctx, c)
	})
}

// golden is how a scenario of the reference is run here.
type golden struct {
	run  func(ctx context.Context, a *agents) ([]string, error)
	want []string // where ours differs, by the rule named
	rule string
	err  string
}

func plainly(build func(a *agents) (conversation.Conversation, conversation.Options)) func(context.Context, *agents) ([]string, error) {
	return func(ctx context.Context, a *agents) ([]string, error) {
		c, o := build(a)
		o.Run, o.Seed = "run", "SEED"
		if o.Lineage.Run != "" {
			o.Run = ""
		}
		lines, _, err := trace(ctx, c, o)
		return lines, err
	}
}

var user = agentbus.NewCredential("Bearer U")

// goldens are the reference's conversations, by name.
var goldens = map[string]golden{
	"two participants, 3 turns": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		return talk(3, "researcher", a.says("r1", "r2"), "critic", a.says("c1")), conversation.Options{}
	})},
	// R2, P22: b pays for itself.
	"three participants round-robin, 4 turns, authorization + parent + depth": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		c := talk(4, "a", a.says("a"), "b", a.says("b"), "c", a.says("c"))
		c.Participants[1].Auth = conversation.AuthAgentOwned
		return c, conversation.Options{Lineage: agentbus.Lineage{Run: "run", Turn: "outer.t0.x", Depth: 1, Auth: user}}
	})},
	"retry: partial delta then ECONNRESET, then success": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		flaky := oneAfterAnother(a.streams(reset, agentbus.Chunk{Text: "par"}), a.streams(nil, agentbus.Chunk{Text: "full"}))
		return talk(1, "a", twice(flaky), "b", a.says("b")), conversation.Options{}
	})},
	"non-retryable stops at once despite maxRetries": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		return talk(3, "a", a.streams(&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "400 bad request"}), "b", a.says("b")), conversation.Options{}
	})},
	"breaker opens inside the retry loop": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		broken := oneAfterAnother(a.streams(reset), a.streams(&agentbus.Error{Code: agentbus.CodeCircuitOpen, Message: "circuit open"}))
		return talk(3, "a", twice(broken), "b", a.says("b")), conversation.Options{}
	})},
	"empty text": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		return talk(3, "a", a.says("  \n"), "b", a.says("b")), conversation.Options{}
	})},
	"final status failed": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		return talk(3, "a", a.streams(reset, agentbus.Chunk{Text: "x"}), "b", a.says("b")), conversation.Options{}
	})},
	// R8: money is exact; without a known worst case the last call may go over.
	"max_credits between turns (cap 12c, 5c per turn)": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		five := a.streams(nil, agentbus.Chunk{Text: "t", Usage: &agentbus.Usage{Cost: 50_000}})
		c := talk(10, "a", five, "b", five)
		c.Budget = new(agentbus.Micros(120_000))
		return c, conversation.Options{}
	})},
	"maxCreditsCents 0 halts before the first turn": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		c := talk(10, "a", a.says("t"), "b", a.says("t"))
		c.Budget = new(agentbus.Micros(0))
		return c, conversation.Options{}
	})},
	"haltOn truthy non-boolean (1) is ignored": {run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
		c := talk(2, "a", a.says("a"), "b", a.says("b"))
		c.HaltWhen = func([]agentbus.Turn) (string, bool) { return "1", false }
		return c, conversation.Options{}
	})},
	"haltOn throws -> stream throws": {
		rule: "R3: a predicate cannot fail; a plan can, and leaves the run paused",
		run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
			c := talk(2, "a", a.says("a"), "b", a.says("b"))
			c.Plan = conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
				if len(turns) > 0 {
					return conversation.Step{}, errors.New("boom")
				}
				return conversation.Step{Speaker: "a"}, nil
			})
			return c, conversation.Options{}
		}),
		want: []string{"start", "turn run.t0.a", "delta a", `end run.t0.a "a" attempts=1`, "halt abort 1"},
		err:  "boom",
	},
	"unknown turnOrder throws at run time": {
		rule: "R3: a plan of ours is checked before the run; a function that names nobody leaves it paused",
		run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
			c := talk(2, "a", a.says("a"), "b", a.says("b"))
			c.Plan = conversation.PlanFunc(func([]agentbus.Turn) (conversation.Step, error) { return conversation.Step{Speaker: "zigzag"}, nil })
			return c, conversation.Options{}
		}),
		want: []string{"start", "halt abort 0"},
		err:  `"zigzag" is no participant`,
	},
	"already-aborted signal": {
		rule: "R9: at once, so before any I/O",
		run: func(ctx context.Context, a *agents) ([]string, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			lines, _, err := trace(ctx, talk(2, "a", a.says("a"), "b", a.says("b")), conversation.Options{Run: "run"})
			return lines, err
		},
		want: []string{"halt abort 0"},
	},
	"abort in mid-turn (no retries)": {
		rule: "R9: an abort is not a participant's error",
		run: func(ctx context.Context, a *agents) ([]string, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			lines, _, err := trace(ctx, talk(2, "a", a.streams(&agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "aborted"}, agentbus.Chunk{Text: "x"}), "b", a.says("b")),
				conversation.Options{Run: "run", Seed: "SEED"}, func(e conversation.Event) {
					if e.Type == conversation.EventDelta {
						cancel()
					}
				})
			return lines, err
		},
		want: []string{"start", "turn run.t0.a", "delta x", "halt abort 0"},
	},
	"abort between turns": {run: func(ctx context.Context, a *agents) ([]string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		lines, _, err := trace(ctx, talk(2, "a", a.says("x"), "b", a.says("b")), conversation.Options{Run: "run", Seed: "SEED"}, func(e conversation.Event) {
			if e.Type == conversation.EventTurnDone {
				cancel()
			}
		})
		return lines, err
	}},
	"deadline: backend that ignores the signal is NOT interrupted (60 ms deadline 20 ms, then completes without another event -> turn succeeds)": {
		rule: "R10: a deadline is enforced even when the backend ignores its context",
		run: func(ctx context.Context, a *agents) ([]string, error) {
			deaf := agentbus.BackendFunc(func(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
				return func(yield func(agentbus.Chunk, error) bool) {
					a.record(c)
					if yield(agentbus.Chunk{Text: "x"}, nil) {
						<-time.After(60 * time.Millisecond)
					}
				}
			})
			lines, _, err := trace(ctx, talk(1, "a", deaf, "b", deaf), conversation.Options{Run: "run", Seed: "SEED", Deadline: time.Now().Add(20 * time.Millisecond)})
			return lines, err
		},
		want: []string{"start", "turn run.t0.a", "delta x", "halt deadline 0"},
	},
	"nested: inner and outer share runId; (runId,turnId) COLLIDE for equal index+speaker": {
		rule: "R7: the newline comes before a line, not after it",
		run: plainly(func(a *agents) (conversation.Conversation, conversation.Options) {
			inner := talk(2, "researcher", a.says("ir"), "critic", a.says("ic"))
			inner.Name = "swarm"
			swarm := conversation.Backend(conversation.BackendConfig{Conversation: inner})
			return talk(2, "researcher", a.says("or"), "swarm", swarm), conversation.Options{Lineage: agentbus.Lineage{Auth: user}}
		}),
		want: []string{
			"start", "turn run.t0.researcher", "delta or", `end run.t0.researcher "or" attempts=1`,
			"turn run.t1.swarm", "delta [researcher] ir", "delta \n[critic] ic", `end run.t1.swarm "[researcher] ir\n[critic] ic" attempts=1`, "halt max_turns 2",
		},
	},
}

// R3, R4, R5, R6, R7, R9: the reference's conversations, and where ours differ
// on purpose.
func TestGoldenConversations(t *testing.T) {
	t.Parallel()
	for _, c := range readReference(t).Conversations {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			g, ok := goldens[c.Name]
			if !ok {
				t.Fatal("no such scenario here")
			}
			var a agents
			var got []string
			var err error
			synctest.Test(t, func(t *testing.T) { got, err = g.run(t.Context(), &a) })
			want := c.Events
			if g.want != nil {
				want = g.want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events, %s (-want +got)\n%s", g.rule, diff)
			}
			if (err == nil) != (g.err == "") || err != nil && !strings.Contains(err.Error(), g.err) {
				t.Errorf("got error %v, want %q", err, g.err)
			}
			if len(c.Calls) == 0 && len(a.calls) == 0 || strings.HasPrefix(c.Name, "haltOn throws") || strings.HasPrefix(c.Name, "unknown") {
				return
			}
			for i := range a.calls {
				a.calls[i].Seen = 0
				delete(a.calls[i].Headers, agentbus.RootContextIDHeader) // which the reference does not know
				delete(a.calls[i].Headers, agentbus.ParentContextIDHeader)
			}
			if diff := cmp.Diff(c.Calls, a.calls); diff != "" {
				t.Errorf("calls (-want +got)\n%s", diff)
			}
		})
	}
}

// R15, R16: the reference's journal: a run whose id is known goes on; ours also
// goes on after a participant's error.
func TestGoldenJournal(t *testing.T) {
	t.Parallel()
	ref := map[string]scenario{}
	for _, s := range readReference(t).Journal {
		ref[s.Name] = s
	}
	m, a := newRecorder(), new(agents)
	c := talk(3, "a", a.says("a1", "a2"), "b", a.says("b1"))
	o := conversation.Options{Run: "run", Seed: "SEED", Journal: m, Runs: m}
	check := func(name string, want []string) {
		t.Helper()
		a.calls = nil
		got, _, err := trace(t.Context(), c, o)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := trace(ctx, c, o, func(e conversation.Event) {
		if e.Type == conversation.EventTurnDone && e.Turn.Index == 1 {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	resumed := ref["journal: resumed with the same runId"]
	want := strings.Join(resumed.Events, "|")
	check(resumed.Name, strings.Split(strings.Replace(want, "attempts=1", "attempts=2", 1), "|")) // its intent was written, and may have been tried (R14)
	if diff := cmp.Diff(resumed.Calls[0].Messages, a.calls[0].Messages); diff != "" {
		t.Errorf("messages (-want +got)\n%s", diff)
	}
	check("again", ref["journal: reusing a halted runId replays without calling backends"].Events)
	if len(a.calls) > 0 {
		t.Errorf("a run that is over called %v", a.turns())
	}

	c = talk(1, "a", oneAfterAnother(a.streams(reset), a.says("a1")), "b", a.says("b1"))
	o.Run = "run2"
	check("participant error", ref["journal: same file, halted by participant_error is final too"].Events)
	check("R16: second attempt", []string{"resumed 0", "turn run2.t0.a", "delta a1", `end run2.t0.a "a1" attempts=2`, "halt max_turns 1"})
}

// R7, P17: the reference's nested conversation that is called twice.
func TestGoldenNestedRepeat(t *testing.T) {
	t.Parallel()
	var a agents
	inner := talk(2, "x", a.says("x"), "y", a.says("y"))
	inner.Name = "swarm"
	outer := talk(4, "o", a.says("o"), "swarm", conversation.Backend(conversation.BackendConfig{Conversation: inner}))
	if _, err := ran(t.Context(), outer, conversation.Options{Run: "run", Seed: "SEED"}); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range readReference(t).NestedRepeat {
		want = append(want, c.TurnID+" in "+c.ParentTurnID)
	}
	for _, c := range a.calls {
		got = append(got, string(c.Turn)+" in "+c.Headers[agentbus.HeaderParentTurnID])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// P3, P8, R7: a nested run counts from the depth it was called with; a bad one
// is an error, which the reference makes 0.
func TestGoldenNestedDepth(t *testing.T) {
	t.Parallel()
	for _, c := range readReference(t).NestedDepth {
		h := http.Header{}
		if c.InboundDepthHeader != "(absent)" {
			h.Set(agentbus.HeaderForwardedDepth, c.InboundDepthHeader)
		}
		l, err := agentbus.ParseLineage(h)
		if strings.Trim(c.InboundDepthHeader, "0123456789") != "" && c.InboundDepthHeader != "(absent)" {
			if agentbus.CodeOf(err) != agentbus.CodeInvalidDepth {
				t.Errorf("%s: got %v", c.InboundDepthHeader, err)
			}
			continue
		}
		var a agents
		b := conversation.Backend(conversation.BackendConfig{Conversation: talk(1, "a", a.says("x"), "b", a.says("y")), MaxDepth: 100})
		if _, err := agentbus.Collect(b.Call(t.Context(), &agentbus.Call{Lineage: l})); err != nil {
			t.Fatal(err)
		}
		if got := a.calls[0].Headers[agentbus.HeaderForwardedDepth]; got != c.InnerOutboundDepth {
			t.Errorf("%s: calls carry %s, want %s", c.InboundDepthHeader, got, c.InnerOutboundDepth)
		}
	}
}

// Halts are described as the reference does; a budget in dollars, not cents.
func TestGoldenHalts(t *testing.T) {
	t.Parallel()
	for _, c := range readReference(t).DescribeHalt {
		h := agentbus.Halt{Kind: agentbus.HaltKind(c.Halt.Kind), Turns: c.Halt.Turns, Reason: c.Halt.Reason, Participant: c.Halt.Participant}
		if c.Halt.Message != "" {
			h.Error = &agentbus.Error{Message: c.Halt.Message}
		}
		if h.Kind == "max_credits" {
			continue
		}
		if got := h.String(); got != c.Text {
			t.Errorf("got %q, want %q", got, c.Text)
		}
	}
}
