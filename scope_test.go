package agentbus_test

import (
	"testing"

	"github.com/agentbus/agentbus"
)

// B2: a call with the token of a turn is a call of that turn, or none.
func TestScopeWithin(t *testing.T) {
	t.Parallel()
	turn := agentbus.Lineage{Run: "r", Turn: "r.t0.a", Depth: 1, Auth: agentbus.NewCredential("Bearer origin"), TraceParent: "tp", RootContext: "root"}
	below := agentbus.TurnKey{ID: turn.Turn}.PathBelow()
	for name, tt := range map[string]struct {
		claimed agentbus.Lineage
		depth   int // 0: refused
	}{
		"nothing":           {agentbus.Lineage{}, 2},
		"only a depth":      {agentbus.Lineage{Depth: 3}, 3},
		"its own":           {agentbus.Lineage{Run: "r", Parent: "r.t0.a", Depth: 2}, 2},
		"deeper":            {agentbus.Lineage{Run: "r", Parent: "r.t0.a", Depth: 9, Turn: "r.t1.b", Path: below}, 9},
		"as deep":           {agentbus.Lineage{Run: "r", Parent: "r.t0.a", Depth: 1}, 0},
		"depth left out":    {agentbus.Lineage{Run: "r", Parent: "r.t0.a"}, 0},
		"another run":       {agentbus.Lineage{Run: "s", Parent: "r.t0.a", Depth: 2}, 0},
		"another turn":      {agentbus.Lineage{Run: "r", Parent: "r.t1.a", Depth: 2}, 0},
		"no parent":         {agentbus.Lineage{Run: "r", Depth: 2}, 0},
		"another path":      {agentbus.Lineage{Run: "r", Parent: "r.t0.a", Depth: 2, Path: "0123456789abcdef"}, 0},
		"the turn itself":   {agentbus.Lineage{Run: "r", Turn: "r.t0.a", Depth: 1}, 0},
		"a credential more": {agentbus.Lineage{Auth: agentbus.NewCredential("Bearer another")}, 2},
	} {
		got, err := agentbus.Scope{Lineage: turn}.Within(tt.claimed)
		if tt.depth == 0 {
			if agentbus.CodeOf(err) != agentbus.CodeInvalidLineage {
				t.Errorf("%s: %v, want invalid_lineage", name, err)
			}
			continue
		}
		if err != nil || got.Depth != tt.depth || got.Run != "r" || got.Parent != turn.Turn || got.Path != below || got.Turn != tt.claimed.Turn ||
			got.Auth != turn.Auth || got.TraceParent != "tp" || got.RootContext != "root" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// Trace and contexts are the program's own where it tells them: they decide nothing (K9).
	got, err := agentbus.Scope{Lineage: turn}.Within(agentbus.Lineage{TraceParent: "own", TraceState: "a=1", RootContext: "mine", ParentContext: "chat"})
	if err != nil || got.TraceParent != "own" || got.TraceState != "a=1" || got.RootContext != "mine" || got.ParentContext != "chat" {
		t.Errorf("its own trace: %+v, %v", got, err)
	}
}
