package agentbus_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

// stream yields chunks, then err when there is one.
func stream(err error, chunks ...agentbus.Chunk) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(agentbus.Chunk{}, err)
		}
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	usage := func(n int64) *agentbus.Usage { return &agentbus.Usage{OutputTokens: n} }
	tool := func(id string) *agentbus.ToolCall { return &agentbus.ToolCall{ID: id, Name: "look", Arguments: "{}"} }
	for _, tt := range []struct {
		name   string
		answer iter.Seq2[agentbus.Chunk, error]
		want   agentbus.Reply
		err    error
	}{
		{name: "nothing", answer: stream(nil)},
		{
			name:   "pieces in their order",
			answer: stream(nil, agentbus.Chunk{Text: "no "}, agentbus.Chunk{Reasoning: "hm"}, agentbus.Chunk{Text: "objection", Reasoning: "m"}),
			want:   agentbus.Reply{Text: "no objection", Reasoning: "hmm"},
		},
		{
			name:   "the last usage, model and finish hold",
			answer: stream(nil, agentbus.Chunk{Usage: usage(1), Model: "a", Finish: "length"}, agentbus.Chunk{Text: "x"}, agentbus.Chunk{Usage: usage(2), Model: "b", Finish: "stop"}),
			want:   agentbus.Reply{Text: "x", Usage: agentbus.Usage{OutputTokens: 2}, Model: "b", Finish: "stop"},
		},
		{
			name:   "tool calls add up",
			answer: stream(nil, agentbus.Chunk{ToolCall: tool("1")}, agentbus.Chunk{ToolCall: tool("2")}),
			want:   agentbus.Reply{ToolCalls: []agentbus.ToolCall{*tool("1"), *tool("2")}},
		},
		{
			name:   "replayed stays",
			answer: stream(nil, agentbus.Chunk{Text: "a", Replayed: true}, agentbus.Chunk{Text: "b"}),
			want:   agentbus.Reply{Text: "ab", Replayed: true},
		},
		{
			name: "void empties all of it",
			answer: stream(
				nil,
				agentbus.Chunk{Text: "par", Reasoning: "r", ToolCall: tool("1"), Usage: usage(9), Model: "a", Finish: "length", Replayed: true},
				agentbus.Chunk{Void: true},
				agentbus.Chunk{Text: "full"},
			),
			want: agentbus.Reply{Text: "full"},
		},
		{
			name:   "a void chunk has text of its own",
			answer: stream(nil, agentbus.Chunk{Text: "par"}, agentbus.Chunk{Void: true, Text: "full", ToolCall: tool("2")}),
			want:   agentbus.Reply{Text: "full", ToolCalls: []agentbus.ToolCall{*tool("2")}},
		},
		{name: "an error comes with what had come", answer: stream(broken, agentbus.Chunk{Text: "par"}), want: agentbus.Reply{Text: "par"}, err: broken},
	} {
		got, err := agentbus.Collect(tt.answer)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A reply that was handed out does not change when more chunks come.
func TestReplyBuilderHandsOutCopies(t *testing.T) {
	t.Parallel()
	var b agentbus.ReplyBuilder
	b.Add(agentbus.Chunk{Text: "a", ToolCall: &agentbus.ToolCall{ID: "1"}})
	first := b.Reply()
	b.Add(agentbus.Chunk{Text: "b", ToolCall: &agentbus.ToolCall{ID: "2"}})
	second := b.Reply()
	b.Add(agentbus.Chunk{Void: true, Text: "c", ToolCall: &agentbus.ToolCall{ID: "3"}})
	want := []agentbus.Reply{
		{Text: "a", ToolCalls: []agentbus.ToolCall{{ID: "1"}}},
		{Text: "ab", ToolCalls: []agentbus.ToolCall{{ID: "1"}, {ID: "2"}}},
		{Text: "c", ToolCalls: []agentbus.ToolCall{{ID: "3"}}},
	}
	if diff := cmp.Diff(want, []agentbus.Reply{first, second, b.Reply()}); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
}

// Whatever came before the last void chunk leaves no trace.
func TestVoidForgets(t *testing.T) {
	t.Parallel()
	chunk := rapid.Custom(func(t *rapid.T) agentbus.Chunk {
		return agentbus.Chunk{
			Text: rapid.StringN(0, 4, -1).Draw(t, "text"), Model: rapid.SampledFrom([]string{"", "m"}).Draw(t, "model"),
			Replayed: rapid.Bool().Draw(t, "replayed"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := rapid.SliceOf(chunk).Draw(t, "before"), rapid.SliceOf(chunk).Draw(t, "after")
		want, err := agentbus.Collect(stream(nil, after...))
		if err != nil {
			t.Fatal(err)
		}
		all := append(append(before, agentbus.Chunk{Void: true}), after...)
		got, err := agentbus.Collect(stream(nil, all...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with a void attempt before it (-want +got):\n%s", diff)
		}
	})
}

// The first listed middleware sees a call first and its answer last.
func TestWrap(t *testing.T) {
	t.Parallel()
	var order []string
	named := func(name string) agentbus.Middleware {
		return func(next agentbus.Backend) agentbus.Backend {
			return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
				return func(yield func(agentbus.Chunk, error) bool) {
					order = append(order, "into "+name)
					for chunk, err := range next.Call(ctx, c) {
						if !yield(chunk, err) {
							break
						}
					}
					order = append(order, "out of "+name)
				}
			})
		}
	}
	agent := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		order = append(order, "agent "+c.Agent)
		return agentbus.Chunk{Text: "yes"}, nil
	})
	reply, err := agentbus.Collect(agentbus.Wrap(agent, named("first"), named("second")).Call(t.Context(), &agentbus.Call{Agent: "critic"}))
	if err != nil || reply.Text != "yes" {
		t.Errorf("reply %+v, %v", reply, err)
	}
	want := []string{"into first", "into second", "agent critic", "out of second", "out of first"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if bare := agentbus.Wrap(agent); bare == nil {
		t.Error("a backend without middleware is nil")
	}
}

// A sequence does nothing before it is read, and can be left early.
func TestAnswer(t *testing.T) {
	t.Parallel()
	called := 0
	b := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		called++
		return agentbus.Chunk{Text: "yes"}, nil
	})
	answer := b.Call(t.Context(), &agentbus.Call{})
	if called != 0 {
		t.Error("it was called before its answer was read")
	}
	for c, err := range answer {
		if c.Text != "yes" || err != nil {
			t.Errorf("answer %+v, %v", c, err)
		}
		break
	}
	if called != 1 {
		t.Errorf("it was called %d times", called)
	}
}

// R8: usage adds up exactly, and an absurd report never turns negative.
func TestUsageAdd(t *testing.T) {
	t.Parallel()
	got := agentbus.Usage{InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Cost: 4}.Add(
		agentbus.Usage{InputTokens: 10, CachedTokens: 20, OutputTokens: 30, Cost: 40, Estimated: true})
	if diff := cmp.Diff(agentbus.Usage{InputTokens: 11, CachedTokens: 22, OutputTokens: 33, Cost: 44, Estimated: true}, got); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
	most := agentbus.Usage{InputTokens: math.MaxInt64, CachedTokens: math.MaxInt64, OutputTokens: math.MaxInt64, Cost: math.MaxInt64}
	if diff := cmp.Diff(most, most.Add(most)); diff != "" {
		t.Errorf("sum of the largest (-want +got):\n%s", diff)
	}
	if got := (agentbus.Usage{Cost: 5}).Add(agentbus.Usage{Cost: -3}); got.Cost != 2 {
		t.Errorf("5 - 3 = %d", got.Cost)
	}
}
