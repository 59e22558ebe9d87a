package console_test

import (
	"fmt"
	"testing"

	"github.com/agentbus/agentbus/admin/console"
)

// U12: a graph of 20 agents has no two boxes at one place, everything is within
// the drawing, and lines go to the right, but those that close a circle.
func TestDraw(t *testing.T) {
	t.Parallel()
	g := console.Graph{Nodes: []console.Node{{Name: "app", Kind: console.KindCaller}}}
	edge := func(from, to string) { g.Edges = append(g.Edges, console.Edge{From: from, To: to, Calls: 12}) }
	name := func(i int) string { return fmt.Sprintf("agent-%02d", i) }
	for i := range 20 {
		g.Nodes = append(g.Nodes, console.Node{Name: name(i), Kind: "openai"})
		if i < 3 {
			edge("app", name(i))
		} else {
			edge(name((i-3)/2), name(i))
		}
	}
	edge(name(0), name(19))
	edge(name(17), name(1)) // goes back
	edge(name(5), name(5))  // and round
	d := console.Draw(g)
	if len(d.Boxes) != 21 || len(d.Arcs) != len(g.Edges) {
		t.Fatalf("%d boxes, %d lines", len(d.Boxes), len(d.Arcs))
	}
	at := map[string]console.Box{}
	for i, a := range d.Boxes {
		at[a.Name] = a
		if a.X < 0 || a.Y < 0 || a.X+a.W > d.Width || a.Y+a.H > d.Height {
			t.Errorf("%s is outside: %+v of %d × %d", a.Name, a, d.Width, d.Height)
		}
		for _, b := range d.Boxes[:i] {
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s stands on %s", a.Name, b.Name)
			}
		}
	}
	for _, l := range d.Arcs {
		if l.Path == "" || l.Arrow == "" || l.LX <= 0 || l.LY <= 0 || l.LX > d.Width || l.LY > d.Height {
			t.Errorf("line from %s to %s: %+v", l.From, l.To, l)
		}
		if back := l.From == name(17) && l.To == name(1) || l.From == l.To; !back && at[l.From].X >= at[l.To].X {
			t.Errorf("the line from %s to %s goes to the left", l.From, l.To)
		}
	}
	for i, a := range d.Arcs {
		for _, b := range d.Arcs[:i] {
			if max(a.LX-b.LX, b.LX-a.LX) < 12 && max(a.LY-b.LY, b.LY-a.LY) < 12 {
				t.Errorf("the counts of %s → %s and %s → %s stand at one place", a.From, a.To, b.From, b.To)
			}
		}
	}
	if d := console.Draw(console.Graph{}); d.Width != 0 || len(d.Boxes) != 0 {
		t.Errorf("of nothing: %+v", d)
	}
}
