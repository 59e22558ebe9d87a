package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/httpx"
)

// maxFindings is how many rows of one sort are told of one by one.
const maxFindings = 5

// findings are the sentences about a run that people look for: who paid, what was
// refused and why, what was retried and not charged, which branch cost most.
func (p *runPage) findings() []console.Finding {
	found := p.payers()
	say := func(kind console.Kind, row int, format string, args ...any) {
		f := console.Finding{Kind: kind, Text: fmt.Sprintf(format, args...)}
		if row >= 0 {
			f.URL, f.IsRow = p.url(row), true
		}
		found = append(found, f)
	}
	p.trouble(say)
	p.retried(say)
	if p.Replays > 0 {
		say(console.KindReplayed, -1, "%d %s answered from memory: $%s saved", p.Replays, words(p.Replays, "request was", "requests were"), p.Saved.USD())
	}
	if most := p.costliest(); most >= 0 {
		r := &p.rows[most]
		say("money", most, "the branch that cost most: %s %s, $%s, %d %% of the run", p.line(most).Who, shortTurn(r, p.Run), r.Branch.USD(), int(float64(r.Branch)/float64(p.Cost)*100+0.5))
	}
	return found
}

// costliest is the row with what cost most, of the first level at which the run
// branches; -1: it does not, or it cost nothing.
func (p *runPage) costliest() int {
	rows := map[int][]int{}
	for i := range p.rows {
		if p.rows[i].Interrupt == nil && p.rows[i].Standing != console.KindRefused {
			rows[p.rows[i].Level] = append(rows[p.rows[i].Level], i)
		}
	}
	for level := 0; len(rows[level]) > 0; level++ {
		if len(rows[level]) == 1 {
			continue
		}
		most := slices.MaxFunc(rows[level], func(x, y int) int { return cmp.Compare(p.rows[x].Branch, p.rows[y].Branch) })
		if p.rows[most].Branch > 0 && p.Cost > 0 {
			return most
		}
		return -1
	}
	return -1
}

// payers tells who paid.
func (p *runPage) payers() (found []console.Finding) {
	paid := map[agentbus.Payer]agentbus.Micros{}
	for i := range p.record.Calls {
		if c := &p.record.Calls[i]; c.State == agentbus.CallSettled {
			paid[c.Payer] += c.Cost
		}
	}
	who := slices.SortedFunc(maps.Keys(paid), func(x, y agentbus.Payer) int {
		return cmp.Or(cmp.Compare(paid[y], paid[x]), cmp.Compare(x, y))
	})
	for i, payer := range who {
		if i == maxFindings {
			return append(found, console.Finding{Kind: "money", Text: fmt.Sprintf("and %d more payers", len(who)-i)})
		}
		what := ""
		if len(who) == 1 {
			what = ", for every hop"
		}
		f := console.Finding{Kind: "money", Text: fmt.Sprintf("%s paid $%s%s", cmp.Or(payer, "nobody"), paid[payer].USD(), what)}
		if payer != "" {
			f.URL = "/console/payers/" + httpx.Segment(string(payer))
		}
		found = append(found, f)
	}
	return found
}

// trouble tells what was refused, what failed and what is waited for.
func (p *runPage) trouble(say func(console.Kind, int, string, ...any)) {
	told := map[console.Kind]int{} //nolint:exhaustive // of those that are told
	for i := range p.rows {
		r := &p.rows[i]
		kind := r.Standing
		if kind != console.KindRefused && kind != console.KindFailed && (kind != console.KindWaiting || r.Interrupt == nil) || kind == console.KindRefused && r.Call == nil {
			continue
		}
		if told[kind]++; told[kind] > maxFindings {
			continue
		}
		l := p.line(i)
		switch kind {
		case console.KindRefused:
			say(kind, i, "%s was refused at depth %d: %s, %s", l.Who, l.Depth, l.Code, l.Message)
		case console.KindFailed:
			say(kind, i, "%s failed and is not charged: %s, %s", l.Who, l.Code, l.Message)
		default:
			say(kind, i, "%s is waited for until %s: %s", l.Who, l.Deadline.UTC().Format(time.RFC3339), l.Message)
		}
	}
	for _, kind := range []console.Kind{console.KindRefused, console.KindFailed, console.KindWaiting} {
		if more := told[kind] - maxFindings; more > 0 {
			say(kind, -1, "and %d more %s", more, kind)
		}
	}
}

// retried tells which calls were retried, and that nobody paid for the attempts
// that failed.
func (p *runPage) retried(say func(console.Kind, int, string, ...any)) {
	told := 0
	for i := range p.rows {
		c := p.rows[i].Call
		if c == nil || c.State != agentbus.CallSettled || c.Attempts < 2 {
			continue
		}
		if told++; told > maxFindings {
			continue
		}
		failed := c.Attempts - 1
		say(console.KindReplayed, i, "%s %s was retried and charged once: $%s of %d failed %s is paid by nobody",
			p.line(i).Who, shortTurn(&p.rows[i], p.Run), c.Unbilled.USD(), failed, words(failed, "attempt", "attempts"))
	}
	if more := told - maxFindings; more > 0 {
		say(console.KindReplayed, -1, "and %d more were retried and charged once", more)
	}
}

func words(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

const (
	maxLanes = 12
	maxSpans = 400 // one by one; more are drawn by what lies side by side
)

// timeline draws who was called when.
func (p *runPage) timeline() console.Timeline {
	t := console.Timeline{Took: p.took}
	lanes := map[string]int{}
	for i := range p.rows {
		if p.rows[i].Interrupt != nil {
			continue
		}
		name := p.rows[i].key().Agent
		at, ok := lanes[name]
		if !ok {
			if at = len(lanes); at < maxLanes {
				t.Lanes = append(t.Lanes, console.Lane{Name: name})
			}
			if at > 10*maxLanes { // a caller may have named anything
				at = maxLanes
			} else {
				lanes[name] = at
			}
		}
		if at >= maxLanes {
			continue
		}
		l := p.line(i)
		s := console.Span{X: l.Bar[0], W: max(4, l.Bar[1]), Kind: l.Kind}
		if len(p.rows) <= maxSpans {
			s.URL = l.URL
			s.Title = strings.TrimSpace(fmt.Sprintf("%s %s: %s, %s %s", l.Who, l.Turn, l.Kind, l.Took.Round(time.Millisecond), l.Message))
		}
		t.Lanes[at].Spans = append(t.Lanes[at].Spans, s)
	}
	t.More, t.Kinds = max(0, len(lanes)-maxLanes), kindsOf(t.Lanes)
	if len(p.rows) > maxSpans {
		for i := range t.Lanes {
			t.Lanes[i].Spans = joined(t.Lanes[i].Spans)
		}
	}
	return t
}

// kindsOf returns how the calls of lanes stand that are not done, the worst first:
// what colours tell, words must tell too (U1).
func kindsOf(lanes []console.Lane) (kinds []console.Kind) {
	seen := map[console.Kind]bool{console.KindDone: true} //nolint:exhaustive // of those that are met
	for _, lane := range lanes {
		for _, s := range lane.Spans {
			if !seen[s.Kind] {
				seen[s.Kind], kinds = true, append(kinds, s.Kind)
			}
		}
	}
	slices.SortFunc(kinds, func(x, y console.Kind) int { return slices.Index(gravity, y) - slices.Index(gravity, x) })
	return kinds
}

// gravity is which of two states that lie on one another is seen.
var gravity = []console.Kind{console.KindDone, console.KindStopped, console.KindRunning, console.KindWaiting, console.KindFailed, console.KindRefused}

// joined draws many spans as few: what lies side by side, in one state, is one.
func joined(spans []console.Span) (out []console.Span) {
	var box [1001]int // 0: nothing; else 1 more than the gravity
	for _, s := range spans {
		for x := s.X; x < min(1000, s.X+s.W); x++ {
			box[x] = max(box[x], 1+slices.Index(gravity, s.Kind))
		}
	}
	for x := 0; x < 1000; {
		end := x + 1
		for end < 1000 && box[end] == box[x] {
			end++
		}
		if box[x] > 0 {
			kind := gravity[box[x]-1]
			out = append(out, console.Span{X: x, W: end - x, Kind: kind, Title: string(kind)})
		}
		x = end
	}
	return out
}

// burn draws what was spent over time: down from a cap, or up from nothing.
func (p *runPage) burn(t *console.Timeline, limit agentbus.Micros) {
	type step struct {
		at   time.Time
		cost agentbus.Micros
	}
	var steps []step
	for i := range p.record.Calls {
		if c := &p.record.Calls[i]; c.Cost > 0 && !c.Ended.IsZero() {
			steps = append(steps, step{c.Ended, c.Cost})
		}
	}
	if len(steps) == 0 {
		return
	}
	slices.SortStableFunc(steps, func(x, y step) int { return x.at.Compare(y.at) })
	t.Cap = limit > 0
	whole := max(limit, p.Cost)
	spent, lastX, lastY := agentbus.Micros(0), 0, -1
	var points strings.Builder
	y := func() int {
		left := 38 * float64(spent) / float64(whole)
		if t.Cap {
			return 1 + int(left)
		}
		return 39 - int(left)
	}
	fmt.Fprintf(&points, "0,%d", y())
	for _, s := range steps {
		x := thousandths(s.at.Sub(p.began), p.took)
		before := y()
		if spent += s.cost; x == lastX && y() == lastY {
			continue
		}
		fmt.Fprintf(&points, " %d,%d %d,%d", x, before, x, y())
		lastX, lastY = x, y()
	}
	fmt.Fprintf(&points, " 1000,%d", y())
	t.Spent = points.String()
	t.Legend = "$" + p.Cost.USD() + " spent"
	if t.Cap {
		t.Legend += ", $" + (limit - p.Cost).USD() + " of $" + limit.USD() + " left"
	}
}
