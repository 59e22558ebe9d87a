package conversation_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// chains is a backend that remembers where in the chain it was called.
type chains []agentbus.AgentChain

func (c *chains) backend(then agentbus.Backend) agentbus.Backend {
	return agentbus.Answer(func(ctx context.Context, call *agentbus.Call) (agentbus.Chunk, error) {
		if call.Lineage.Chain == nil {
			*c = append(*c, agentbus.AgentChain{})
		} else {
			*c = append(*c, *call.Lineage.Chain)
		}
		if then == nil {
			return agentbus.Chunk{Text: "x"}, nil
		}
		r, err := agentbus.Collect(then.Call(ctx, call))
		return agentbus.Chunk{Text: r.Text}, err
	})
}

// C7: the calls of a dispatcher are hop 1, its turns share a hop, and nesting
// raises it. C6: the last hop is final.
func TestC7TurnsShareAHopAndNestingRaisesIt(t *testing.T) {
	t.Parallel()
	var outer, inner chains
	swarm := conversation.Backend(conversation.BackendConfig{Conversation: talk(2, "c", inner.backend(nil), "d", inner.backend(nil))})
	c := talk(2, "a", outer.backend(swarm), "b", outer.backend(nil))
	if r, err := conversation.Run(t.Context(), c, conversation.Options{Run: "r", MaxHops: 2}); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("%+v, %v", r.Halt, err)
	}
	first, last := agentbus.AgentChain{Hop: 1, MaxHops: 2}, agentbus.AgentChain{Hop: 2, MaxHops: 2, Final: true}
	if diff := cmp.Diff([]chains{{first, first}, {last, last}}, []chains{outer, inner}); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
}

// C8, X7: a conversation that answers at the final hop calls nobody, and nothing
// of it is written down; with no hops at all nobody begins.
func TestC8AFinalConversationCallsNobody(t *testing.T) {
	t.Parallel()
	var inner chains
	swarm := conversation.Backend(conversation.BackendConfig{Conversation: talk(1, "c", inner.backend(nil), "d", inner.backend(nil)), Journal: refusing{}, Runs: refusing{}})
	for _, chain := range []agentbus.AgentChain{{Hop: 4, MaxHops: 4, Final: true}, {Hop: 1, MaxHops: 4, Final: true}} {
		_, err := agentbus.Collect(swarm.Call(t.Context(), &agentbus.Call{Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.c", Chain: &chain}}))
		if agentbus.CodeOf(err) != agentbus.CodeChainFinal {
			t.Errorf("at %+v: %v", chain, err)
		}
	}
	_, err := conversation.Run(t.Context(), talk(1, "c", inner.backend(nil), "d", inner.backend(nil)), conversation.Options{Run: "r", MaxHops: -1})
	if agentbus.CodeOf(err) != agentbus.CodeChainFinal || len(inner) > 0 {
		t.Errorf("without hops: %v, and %d calls", err, len(inner))
	}
}

// K2, K3: the calls of a run belong to its session; those of a conversation
// inside of a turn, to its own, below the root that was told.
func TestK3Sessions(t *testing.T) {
	t.Parallel()
	type told struct{ Parent, Root string }
	var got []told
	hear := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		got = append(got, told{c.Lineage.ParentContext, c.Lineage.RootContext})
		return agentbus.Chunk{Text: "x"}, nil
	})
	for _, o := range []conversation.Options{
		{Run: "run"}, // K-1
		{Lineage: agentbus.Lineage{Run: "run", Turn: "run.t0.c"}},
		{Lineage: agentbus.Lineage{Run: "run", Turn: "run.t0.c", RootContext: "chat", ParentContext: "router"}},  // K-2
		{Lineage: agentbus.Lineage{Run: "run", Turn: "run.t0.c", ParentContext: "legacy"}},                       // K-3
		{Lineage: agentbus.Lineage{Run: "run", Turn: "run.t0.c", ParentContext: "legacy"}, NoLegacyParent: true}, // K-3
	} {
		if _, err := conversation.Run(t.Context(), talk(1, "a", hear, "b", hear), o); err != nil {
			t.Fatal(err)
		}
	}
	own := string(agentbus.ExecutionOf("", agentbus.Lineage{Run: "run", Turn: "run.t0.c"}, talk(1, "a", hear, "b", hear).Name))
	want := []told{{"run", "run"}, {"run", "run"}, {own, "chat"}, {own, "legacy"}, {own, own}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}
