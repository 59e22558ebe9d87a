package agentbus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// U11: turns stand inside the turn they were made in, also where ids coincide or
// no path was sent, and nothing stands inside itself.
func TestEnclosing(t *testing.T) {
	t.Parallel()
	outer := agentbus.TurnKey{Run: "r", ID: "r.t0.a"}
	inner := agentbus.TurnKey{Run: "r", Path: outer.PathBelow(), Parent: outer.ID, ID: "r.t0.a"}
	turns := []agentbus.TurnKey{
		outer, inner,
		{Run: "r", Path: inner.PathBelow(), Parent: inner.ID, ID: "r.t0.b"},
		{Run: "r", Parent: "r.t0.a", ID: "r.t1.c"},
		{Run: "r", Parent: "r.t9.z"}, {Run: "r"},
		{Run: "r", Parent: "r.t5.x", ID: "r.t5.x"},
	}
	if diff := cmp.Diff([]int{-1, 0, 1, 0, -1, -1, -1}, agentbus.Enclosing(turns)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// R23, U11: transcripts are compared by who spoke and what was said.
func TestCommon(t *testing.T) {
	t.Parallel()
	said := func(texts ...string) (turns []agentbus.Turn) {
		for _, text := range texts {
			turns = append(turns, agentbus.Turn{Speaker: "a", Reply: agentbus.Reply{Text: text}})
		}
		return turns
	}
	for _, tt := range []struct {
		a, b []agentbus.Turn
		want int
	}{{nil, said("x"), 0}, {said("x", "y"), said("x", "y"), 2}, {said("x", "y"), said("x", "z"), 1}, {said("x"), said("x", "z"), 1}} {
		if got := agentbus.Common(tt.a, tt.b); got != tt.want {
			t.Errorf("%d, want %d", got, tt.want)
		}
	}
}
