package admin

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// What readings look at.
const (
	defaultWindow = 24 * time.Hour
	maxWindow     = 31 * 24 * time.Hour
	mostLooked    = 20_000 // calls, the newest
)

// A look is which calls a reading is made of.
type look struct {
	run   agentbus.RunID // "": of all runs
	since time.Time
}

// lookOf reads run or window, such as 1h.
func lookOf(q url.Values) (l look, err error) {
	if l.run = agentbus.RunID(q.Get("run")); l.run != "" {
		return l, nil
	}
	window := defaultWindow
	if text := q.Get("window"); text != "" {
		if window, err = time.ParseDuration(text); err != nil || window < time.Minute || window > maxWindow {
			return l, invalid("window must be a duration from 1m to 744h", "send window=1h, or run= for one run")
		}
	}
	l.since = time.Now().Add(-window).UTC()
	return l, nil
}

// calls returns the calls of a look, and whether there are more.
func (a *API) calls(r *http.Request, l look) (calls []agentbus.CallRecord, partial bool, err error) {
	if l.run != "" {
		calls, err = a.cfg.Runs.Calls(r.Context(), l.run)
	} else {
		calls, err = a.cfg.Figures.NewestCalls(r.Context(), l.since, mostLooked)
	}
	return calls, l.run == "" && len(calls) == mostLooked, err
}

func (a *API) showGraph(w http.ResponseWriter, r *http.Request) error {
	_, g, err := a.graph(r)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, g)
}

// graph reads who called whom, as a request asks for it (U12); more are its other
// parameters.
func (a *API) graph(r *http.Request, more ...string) (q url.Values, g console.Graph, err error) {
	if q, err = query(r, append(more, "run", "window")...); err != nil {
		return q, g, err
	}
	l, err := lookOf(q)
	if err != nil {
		return q, g, err
	}
	calls, partial, err := a.calls(r, l)
	if err != nil {
		return q, g, err
	}
	g = graphOf(calls, a.cfg.Agents.Agents())
	g.Run, g.Since, g.Partial = l.run, l.since, partial
	return q, g, nil
}

// An edge is what an Edge is made of.
type edge struct {
	console.Edge

	took []time.Duration
}

// graphOf makes a graph of calls.
func graphOf(calls []agentbus.CallRecord, agents []Agent) console.Graph {
	known := map[string]Agent{}
	for _, a := range agents {
		known[a.Name] = a
	}
	nodes, edges, from := map[string]*console.Node{}, map[[2]string]*edge{}, callersOf(calls)
	pays := map[string]agentbus.Payer{} // who pays for all that a name has called; "": several do
	for i := range calls {
		c := &calls[i]
		if c.State == agentbus.CallPassed || c.Agent == "" {
			continue
		}
		ends := [2]string{from(c), c.Agent}
		if _, is := known[c.Agent]; !is && c.State == agentbus.CallRefused && c.Code == agentbus.CodeAgentNotFound {
			ends[1] = console.UnknownAgents // callers make up as many names as they like
		}
		e := edges[ends]
		if e == nil {
			e = &edge{Edge: console.Edge{From: ends[0], To: ends[1], Verbatim: known[c.Agent].Trust.Verbatim}}
			edges[ends] = e
		}
		e.count(c)
		if payer, met := pays[ends[0]]; !met {
			pays[ends[0]] = c.Payer
		} else if payer != c.Payer {
			pays[ends[0]] = ""
		}
		for _, name := range ends {
			if nodes[name] == nil {
				nodes[name] = &console.Node{Name: name, Kind: known[name].Kind}
			}
		}
		if c.State != agentbus.CallRefused {
			nodes[c.Agent].Calls++
		}
	}
	asked := map[string]bool{}
	for ends := range edges {
		asked[ends[1]] = true
	}
	g := console.Graph{Calls: len(calls), Nodes: []console.Node{}, Edges: []console.Edge{}}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		if n.Kind == "" && !asked[name] {
			n.Kind, n.Payer = console.KindCaller, pays[name]
		}
		g.Nodes = append(g.Nodes, *n)
	}
	g.Cycles = cyclesOf(edges)
	for _, e := range edges {
		g.Edges = append(g.Edges, e.done())
	}
	slices.SortFunc(g.Edges, func(a, b console.Edge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return g
}

// callersOf returns who made a call: the agent that serves its parent turn, where
// that is among the calls, or the principal that sent it.
func callersOf(calls []agentbus.CallRecord) func(*agentbus.CallRecord) string {
	type turn struct {
		run agentbus.RunID
		id  agentbus.TurnID
	}
	serves := map[turn]string{}
	for i := range calls {
		if c := &calls[i]; c.State != agentbus.CallRefused {
			serves[turn{c.Run, c.TurnKey.ID}] = c.Agent
		}
	}
	return func(c *agentbus.CallRecord) string {
		if name, inside := strings.CutPrefix(c.Caller, "agent:"); inside { // an agent of this bus's processes
			return name
		}
		if agent, ok := serves[turn{c.Run, c.Parent}]; ok && c.Parent != "" {
			return agent
		}
		return cmp.Or(c.Caller, "unknown")
	}
}

// count adds a call to an edge.
func (e *edge) count(c *agentbus.CallRecord) {
	e.Replays += c.Replays
	e.Cost += c.Cost
	switch c.State {
	case agentbus.CallRefused:
		e.Refused += 1 + c.Repeats
		return
	case agentbus.CallVoided:
		if !faultless(c) {
			e.Failed++
		}
	case agentbus.CallExecuting, agentbus.CallSettled, agentbus.CallPassed:
	}
	e.Calls++
	if !c.Ended.IsZero() {
		e.took = append(e.took, c.Ended.Sub(c.Began))
	}
}

// asked reports whether a call ended with a question to whoever made it, which is
// no failure (R22).
func asked(c *agentbus.CallRecord) bool {
	return c.Code == agentbus.CodeInputRequired || c.Code == agentbus.CodePaymentRequired
}

// faultless reports whether a voided call tells nothing against its agent.
func faultless(c *agentbus.CallRecord) bool { return asked(c) || c.CallerLeft() }

// wentRound reports whether a call asked an agent for what it was answering (G7).
func wentRound(c *agentbus.CallRecord) bool {
	return c.Code == agentbus.CodeCycleRefused || slices.Contains(c.Notes, "cycle")
}

// done returns the edge with what follows from its counts.
func (e *edge) done() console.Edge {
	if all := e.Calls + e.Refused; all > 0 {
		e.Errors = math.Round(float64(e.Failed+e.Refused)/float64(all)*1e4) / 1e4
	}
	e.P95 = percentiles(e.took, 95)[0]
	return e.Edge
}

// percentiles returns percentiles of durations in milliseconds, 0 of none. It
// sorts them.
func percentiles(took []time.Duration, ps ...int) []float64 {
	slices.Sort(took)
	found := make([]float64, len(ps))
	for i, p := range ps {
		if len(took) > 0 {
			found[i] = milliseconds(took[(len(took)*p+99)/100-1])
		}
	}
	return found
}

// milliseconds returns d in milliseconds, to the microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cyclesOf finds the agents that call each other in a circle, each set of them
// once, and marks the edges between them.
func cyclesOf(edges map[[2]string]*edge) []console.Cycle {
	next := map[string][]string{}
	for ends := range edges {
		next[ends[0]] = append(next[ends[0]], ends[1])
	}
	for _, to := range next {
		slices.Sort(to)
	}
	cycles, seen := []console.Cycle{}, map[string]bool{}
	for _, start := range slices.Sorted(maps.Keys(next)) {
		if seen[start] {
			continue
		}
		way := shortestRound(next, start)
		if way == nil {
			continue
		}
		c := console.Cycle{Agents: way}
		for i, from := range way {
			seen[from] = true
			e := edges[[2]string{from, way[(i+1)%len(way)]}]
			e.Cycle = true
			c.Calls += e.Calls + e.Refused
			c.Refused += e.Refused
		}
		cycles = append(cycles, c)
	}
	return cycles
}

// shortestRound returns the shortest way from start back to it, or nil.
func shortestRound(next map[string][]string, start string) []string {
	before, queue := map[string]string{}, []string{start}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, to := range next[at] {
			if to == start {
				way := []string{at}
				for at != start {
					at = before[at]
					way = append(way, at)
				}
				slices.Reverse(way)
				return way
			}
			if _, met := before[to]; !met {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
}
