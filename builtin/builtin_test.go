package builtin_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/builtin"
)

func call(depth int, messages ...string) *agentbus.Call {
	c := &agentbus.Call{Lineage: agentbus.Lineage{Run: "run_x", Turn: "run_x.t0.y", Depth: depth}}
	for _, m := range messages {
		c.Messages = append(c.Messages, agentbus.Message{Role: agentbus.RoleUser, Content: m})
	}
	return c
}

func agent(t *testing.T, name string, c builtin.Config) agentbus.Backend {
	t.Helper()
	b, err := builtin.New(name, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEcho(t *testing.T) {
	t.Parallel()
	b := agent(t, builtin.Echo, builtin.Config{})
	for want, messages := range map[string][]string{
		"two words":  {"one", "two words"},
		"what I saw": {"[critic] what I saw"},
		"[odd":       {"[odd"},
		"kept":       {"kept", "  "},
		"Hello.":     nil,
	} {
		got, err := agentbus.Collect(b.Call(t.Context(), call(0, messages...)))
		if err != nil || got.Text != want || got.Usage.OutputTokens != int64(len(strings.Fields(want))) {
			t.Errorf("to %q: %+v, %v", messages, got, err)
		}
	}
}

func TestEliza(t *testing.T) {
	t.Parallel()
	b := agent(t, builtin.Eliza, builtin.Config{})
	for told, want := range map[string]string{
		"Should we ship on Friday?": "What would it cost to ship on Friday?",
		"We all agree.":             "AGREED. Let us leave it at that.",
		"I need a rest":             "Why do you need a rest?",
		"Nothing fits":              "What follows from it?",
	} {
		if got, err := agentbus.Collect(b.Call(t.Context(), call(0, told))); err != nil || got.Text != want {
			t.Errorf("to %q: %q, %v; want %q", told, got.Text, err, want)
		}
	}
}

func TestFlaky(t *testing.T) {
	t.Parallel()
	b := agent(t, builtin.Flaky, builtin.Config{})
	for i := range 4 {
		_, err := agentbus.Collect(b.Call(t.Context(), call(0, "x")))
		if failed := agentbus.CodeOf(err) == agentbus.CodeAgentUnavailable; failed != (i%2 == 0) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := agent(t, builtin.Slow, builtin.Config{})
		began := time.Now()
		if got, err := agentbus.Collect(b.Call(t.Context(), call(0, "one two three"))); err != nil || got.Text != "one two three" {
			t.Errorf("%q, %v", got.Text, err)
		}
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("three words took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if got, err := agentbus.Collect(b.Call(ctx, call(0, "one two three"))); err == nil || got.Text != "one two " {
			t.Errorf("cut: %q, %v", got.Text, err)
		}
	})
}

// TestLoop: P8 and P13, a loop goes one deeper with each call, does not retry a
// refusal, and answers with where it was stopped.
func TestLoop(t *testing.T) {
	t.Parallel()
	var depths []int
	var loop agentbus.Backend
	bus := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		depths = append(depths, c.Lineage.Depth)
		if err := c.Lineage.CheckDepth(4); err != nil {
			return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, err) }
		}
		return loop.Call(ctx, c)
	})
	loop = agent(t, builtin.Loop, builtin.Config{Bus: bus})
	got, err := agentbus.Collect(loop.Call(t.Context(), call(1, "go")))
	if err != nil || got.Text != "I was stopped below depth 3 with bridge_depth_exceeded" {
		t.Errorf("%q, %v", got.Text, err)
	}
	if len(depths) != 3 || depths[0] != 2 || depths[2] != 4 {
		t.Errorf("depths %v, want 2 3 4", depths)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := builtin.New("none", builtin.Config{}); err == nil || !strings.Contains(err.Error(), "eliza") {
		t.Errorf("an unknown agent: %v", err)
	}
	if _, err := builtin.New(builtin.Loop, builtin.Config{}); err == nil {
		t.Error("a loop without a bus")
	}
	for _, name := range builtin.Names() {
		if _, err := builtin.New(name, builtin.Config{Bus: agentbus.Answer(nil)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
