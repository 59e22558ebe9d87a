package console

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Drawing is a graph with a place for everything (U12). Lengths are pixels.
type Drawing struct {
	Width, Height int
	Boxes         []Box
	Arcs          []Arc
}

// A Box is a node where it stands.
type Box struct {
	Node

	X, Y, W, H int
}

// Middle is the height of its middle.
func (b Box) Middle() int { return b.Y + b.H/2 }

// An Arc is an edge as it is drawn.
type Arc struct {
	Edge

	Path   string // of an SVG
	Arrow  string // its head
	Thick  int    // by how many calls it has
	LX, LY int    // where its count stands
	KX, KY int    // where its mark of a verbatim credential does
	width  int    // about that of its count
}

// Measures of a drawing.
const (
	boxWidth   = 184
	boxHeight  = 48
	leastGap   = 104 // between columns
	mostGap    = 240
	wide       = 1180 // what a drawing may have before it is scrolled
	rowGap     = 26
	bendHeight = 18 // what a line takes that passes a column
	margin     = 28
	hang       = 46 // how far a line that goes back hangs down
)

// A spot is what stands in a column: a node, or a line that passes.
type spot struct {
	name   string // of the node; "": a line passes
	column int
	height int
	y      float64 // of its middle
	in     []*spot
	out    []*spot
}

// A plan is where everything stands, before it is drawn.
type plan struct {
	spots   map[string]*spot
	columns [][]*spot
	ways    map[[2]string][]*spot // of each edge that goes forward: its ends and the columns between
	gap     int                   // between columns
}

// Draw lays a graph out in columns, callers at the left: a line goes to the
// right, unless it closes a circle.
func Draw(g Graph) Drawing {
	if len(g.Nodes) == 0 {
		return Drawing{}
	}
	forward, back := split(g)
	p := place(g, forward)
	p.order()
	n := len(p.columns)
	p.gap = min(mostGap, max(leastGap, (wide-2*margin-n*boxWidth)/max(n-1, 1)))
	d := Drawing{Width: p.left(n) - p.gap + margin, Height: p.stack()}
	for _, n := range g.Nodes {
		s := p.spots[n.Name]
		d.Boxes = append(d.Boxes, Box{Node: n, X: p.left(s.column), Y: int(s.y) - boxHeight/2, W: boxWidth, H: boxHeight})
	}
	ports, taken := p.ports(), labels{}
	for _, e := range g.Edges {
		l := &Arc{Edge: e, Thick: 1 + int(math.Log10(float64(max(e.Calls+e.Refused, 1))))}
		switch {
		case e.From == e.To:
			l.loop(p, p.spots[e.From])
		case back[[2]string{e.From, e.To}]:
			d.Height = max(d.Height, l.hang(p, p.spots[e.From], p.spots[e.To], &taken)+margin)
		default:
			l.across(p, p.ways[[2]string{e.From, e.To}], ports, &taken)
		}
		d.Arcs = append(d.Arcs, *l)
	}
	return d
}

// left is the left side of a column.
func (p *plan) left(column int) int { return margin + column*(boxWidth+p.gap) }

// split tells the edges that go forward from those that would close a circle.
func split(g Graph) (forward map[string][]string, back map[[2]string]bool) {
	next := map[string][]string{}
	for _, e := range g.Edges {
		if e.From != e.To {
			next[e.From] = append(next[e.From], e.To)
		}
	}
	forward, back = map[string][]string{}, map[[2]string]bool{}
	const open, closed = 1, 2
	seen := map[string]int{}
	var visit func(name string)
	visit = func(name string) {
		seen[name] = open
		for _, to := range next[name] {
			if seen[to] == open {
				back[[2]string{name, to}] = true
				continue
			}
			forward[name] = append(forward[name], to)
			if seen[to] == 0 {
				visit(to)
			}
		}
		seen[name] = closed
	}
	nodes := slices.Clone(g.Nodes)
	called := map[string]bool{}
	for _, e := range g.Edges {
		called[e.To] = called[e.To] || e.From != e.To
	}
	slices.SortStableFunc(nodes, func(a, b Node) int { // who is called by nobody begins
		return cmp.Or(rank(a, called)-rank(b, called), strings.Compare(a.Name, b.Name))
	})
	for _, n := range nodes {
		if seen[n.Name] == 0 {
			visit(n.Name)
		}
	}
	return forward, back
}

func rank(n Node, called map[string]bool) int {
	switch {
	case n.Kind == KindCaller:
		return 0
	case !called[n.Name]:
		return 1
	}
	return 2
}

// place gives each node its column, the farthest that its callers ask for, and
// each edge a spot in the columns that it passes.
func place(g Graph, forward map[string][]string) *plan {
	p := &plan{spots: map[string]*spot{}, ways: map[[2]string][]*spot{}}
	from := map[string][]string{}
	for a, tos := range forward {
		for _, b := range tos {
			from[b] = append(from[b], a)
		}
	}
	column := map[string]int{}
	var depth func(name string) int
	depth = func(name string) int {
		if d, ok := column[name]; ok {
			return d
		}
		d := 0
		for _, a := range from[name] {
			d = max(d, depth(a)+1)
		}
		column[name] = d
		return d
	}
	for _, n := range g.Nodes {
		p.add(&spot{name: n.Name, column: depth(n.Name), height: boxHeight})
	}
	for _, a := range slices.Sorted(maps.Keys(forward)) {
		for _, b := range forward[a] {
			way := []*spot{p.spots[a]}
			for c := column[a] + 1; c < column[b]; c++ {
				bend := &spot{column: c, height: bendHeight}
				p.add(bend)
				way = append(way, bend)
			}
			way = append(way, p.spots[b])
			for i := range way[1:] {
				way[i].out = append(way[i].out, way[i+1])
				way[i+1].in = append(way[i+1].in, way[i])
			}
			p.ways[[2]string{a, b}] = way
		}
	}
	return p
}

func (p *plan) add(s *spot) {
	for len(p.columns) <= s.column {
		p.columns = append(p.columns, nil)
	}
	p.columns[s.column] = append(p.columns[s.column], s)
	if s.name != "" {
		p.spots[s.name] = s
	}
}

// order brings what is connected side by side, so that few lines cross.
func (p *plan) order() {
	for sweep := range 6 {
		at := map[*spot]float64{}
		for _, column := range p.columns {
			for i, s := range column {
				at[s] = float64(i) - float64(len(column))/2
			}
		}
		sort := func(column []*spot, beside func(*spot) []*spot) {
			weight := map[*spot]float64{}
			for _, s := range column {
				weight[s] = at[s]
				if others := beside(s); len(others) > 0 {
					sum := 0.0
					for _, o := range others {
						sum += at[o]
					}
					weight[s] = sum / float64(len(others))
				}
			}
			slices.SortStableFunc(column, func(a, b *spot) int { return cmp.Compare(weight[a], weight[b]) })
			for i, s := range column {
				at[s] = float64(i) - float64(len(column))/2
			}
		}
		if sweep%2 == 0 {
			for _, column := range p.columns[1:] {
				sort(column, func(s *spot) []*spot { return s.in })
			}
			continue
		}
		for i := len(p.columns) - 2; i >= 0; i-- {
			sort(p.columns[i], func(s *spot) []*spot { return s.out })
		}
	}
}

// stack gives each spot its height, columns about one middle, and returns how
// high the drawing is.
func (p *plan) stack() int {
	tallest := 0
	high := func(column []*spot) (h int) {
		for _, s := range column {
			h += s.height + rowGap
		}
		return h - rowGap
	}
	for _, column := range p.columns {
		tallest = max(tallest, high(column))
	}
	for _, column := range p.columns {
		y := margin + float64(tallest-high(column))/2
		for _, s := range column {
			s.y = y + float64(s.height)/2
			y += float64(s.height) + rowGap
		}
	}
	return tallest + 2*margin
}

// ports says how far from the middle of a box each line begins and ends, in the
// order of where it goes.
func (p *plan) ports() map[[2]*spot][2]float64 {
	ports := map[[2]*spot][2]float64{}
	spread := func(s *spot, others []*spot, set func(other *spot, at float64)) {
		sorted := slices.Clone(others)
		slices.SortStableFunc(sorted, func(a, b *spot) int { return cmp.Compare(a.y, b.y) })
		step := min(12, float64(s.height-12)/float64(max(len(sorted), 1)))
		for i, o := range sorted {
			set(o, (float64(i)-float64(len(sorted)-1)/2)*step)
		}
	}
	for _, column := range p.columns {
		for _, s := range column {
			if s.name == "" {
				continue
			}
			spread(s, s.out, func(o *spot, at float64) { ports[[2]*spot{s, o}] = [2]float64{at, ports[[2]*spot{s, o}][1]} })
			spread(s, s.in, func(o *spot, at float64) { ports[[2]*spot{o, s}] = [2]float64{ports[[2]*spot{o, s}][0], at} })
		}
	}
	return ports
}

// across draws a line forward, through the columns that it passes.
func (l *Arc) across(p *plan, way []*spot, ports map[[2]*spot][2]float64, taken *labels) {
	var b strings.Builder
	x, y := float64(p.left(way[0].column)+boxWidth), way[0].y+ports[[2]*spot{way[0], way[1]}][0]
	fmt.Fprintf(&b, "M%.0f %.1f", x, y)
	for i, s := range way[1:] {
		tx, ty := float64(p.left(s.column)), s.y
		last := i == len(way)-2
		if last {
			ty += ports[[2]*spot{way[i], s}][1]
			tx -= 7
		}
		half := (tx - x) / 2
		fmt.Fprintf(&b, "C%.0f %.1f %.0f %.1f %.0f %.1f", x+half, y, tx-half, ty, tx, ty)
		if i == 0 {
			taken.put(l, []float64{0.62, 0.5, 0.74, 0.42, 0.84, 0.34, 0.26}, func(t float64) (int, int) { // behind the middle first, where lines of one box are apart
				return int(x + half*2*bend(t, 0.5)), int(y+(ty-y)*bend(t, 0)) + 4
			})
		}
		if last {
			l.KX, l.KY = int(tx)-22, int(ty)-6
		}
		if x, y = tx, ty; !last { // straight through the column
			x += boxWidth
			fmt.Fprintf(&b, "H%.0f", x)
		}
	}
	l.Path = b.String()
	l.Arrow = fmt.Sprintf("M%.0f %.1fl-8 -4.5v9z", x+7, y)
}

// labels are those that have a place.
type labels []*Arc

// put gives the label of a line the first of some places on it, from 0 to 1, where
// no other one is; where all are taken, the first.
func (ls *labels) put(l *Arc, places []float64, at func(t float64) (x, y int)) {
	l.LX, l.LY = at(places[0])
	l.width = 6 * utf8.RuneCountInString(count(l.Calls))
	if l.Errors > 0 {
		l.width += 6 * utf8.RuneCountInString(" · ✕ "+percent(l.Errors))
	}
	for _, t := range places {
		x, y := at(t)
		if !slices.ContainsFunc(*ls, func(o *Arc) bool {
			return max(y-o.LY, o.LY-y) < 13 && max(x-o.LX, o.LX-x) < (l.width+o.width)/2+4
		}) {
			l.LX, l.LY = x, y
			break
		}
	}
	*ls = append(*ls, l)
}

// bend is how far a line has come at t, from 0 to 1, that leaves and arrives
// level: to the right, whose first handle is at first, or down, with handle 0.
func bend(t, first float64) float64 {
	return 3*t*(1-t)*(1-t)*first + 3*t*t*(1-t)*(1-first) + t*t*t
}

// hang draws a line that goes back, below what it passes, and returns how low.
func (l *Arc) hang(p *plan, from, to *spot, taken *labels) int {
	x, y := p.left(from.column)+boxWidth/2-12, int(from.y)+boxHeight/2
	tx, ty := p.left(to.column)+boxWidth/2+12, int(to.y)+boxHeight/2
	low := max(y, ty) + hang + 10*(from.column-to.column)
	l.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, y, x, low, tx, low, tx, ty+7)
	l.Arrow = fmt.Sprintf("M%d %dl-4.5 8h9z", tx, ty)
	taken.put(l, []float64{0.5, 0.38, 0.62, 0.28, 0.72}, func(t float64) (int, int) {
		u := 1 - t
		return x + int(float64(tx-x)*bend(t, 0)), int(float64(y)*u*u*u+float64(low)*3*t*u+float64(ty)*t*t*t) + 4
	})
	l.KX, l.KY = tx+8, ty+16
	return (y+ty)/8 + low*3/4 + 4
}

// loop draws a line of a node to itself.
func (l *Arc) loop(p *plan, s *spot) {
	x, y := p.left(s.column)+boxWidth-30, int(s.y)-boxHeight/2
	l.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x-26, y, x-26, y-26, x+14, y-26, x+14, y-7)
	l.Arrow = fmt.Sprintf("M%d %dl-4.5 -8h9z", x+14, y)
	l.LX, l.LY = x-62, y-8
	l.KX, l.KY = x+22, y-10
}
