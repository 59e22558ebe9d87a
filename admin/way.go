package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/agentbus/agentbus"
)

// maxWay is how many turns up somebody who asks is looked for.
const maxWay = 64

// An Asking is an interrupt, and who asks.
type Asking struct {
	agentbus.Interrupt

	Way []string `json:"way"` // from the root to the leaf: the agents that were called, as far as the store knows them, then Path
}

// askings adds to interrupts who asks.
func (a *API) askings(ctx context.Context, found []agentbus.Interrupt) ([]Asking, error) {
	return Askings(ctx, a.cfg.Runs, a.cfg.Records, found)
}

// Executions finds executions. It is safe for concurrent use.
type Executions interface {
	Execution(ctx context.Context, id agentbus.ExecutionID) (e agentbus.Execution, found bool, err error)
}

// Parents finds the calls that others were made inside of. It is safe for
// concurrent use.
type Parents interface {
	// ParentCalls returns the calls of a payer's run with that turn id, refused
	// ones left out.
	ParentCalls(ctx context.Context, p agentbus.Payer, run agentbus.RunID, turn agentbus.TurnID) ([]agentbus.CallRecord, error)
}

// Askings adds to interrupts who asks, across the calls that their runs serve (U15),
// and keeps their order. It fails as the stores behind it do.
func Askings(ctx context.Context, runs Executions, calls Parents, found []agentbus.Interrupt) ([]Asking, error) {
	asked, ways := make([]Asking, 0, len(found)), map[agentbus.ExecutionID][]string{}
	for _, i := range found {
		way, known := ways[i.Root]
		if !known {
			e, driven, err := runs.Execution(ctx, i.Root)
			if err == nil && driven {
				way, err = above(ctx, calls, &e)
			}
			if err != nil {
				return nil, err
			}
			ways[i.Root] = way
		}
		one := Asking{Interrupt: i, Way: slices.Clone(way)}
		for _, s := range i.Path {
			one.Way = append(one.Way, string(s))
		}
		asked = append(asked, one)
	}
	return asked, nil
}

// above returns the agents in whose calls an execution is driven, from the root.
// Those that only forwarded a turn stand between its caller and who served it.
func above(ctx context.Context, calls Parents, e *agentbus.Execution) (way []string, err error) {
	turn, serves := e.Parent, func(c *agentbus.CallRecord) bool { return c.Path == e.Path && c.Depth <= e.Depth }
	for range maxWay {
		if turn == "" {
			break
		}
		known, err := calls.ParentCalls(ctx, e.Payer, e.Run, turn)
		if err != nil {
			return nil, err
		}
		known = slices.DeleteFunc(known, func(c agentbus.CallRecord) bool { return !serves(&c) })
		slices.SortStableFunc(known, func(x, y agentbus.CallRecord) int { return cmp.Compare(x.Depth, y.Depth) })
		if len(known) == 0 {
			break
		}
		first := known[0]
		hops := []string{first.Agent}
		for i := range known[1:] {
			before, c := &known[i], &known[i+1]
			switch {
			case c.Path != first.Path || c.Parent != first.Parent:
			case c.Depth == before.Depth:
				hops[len(hops)-1] = c.Agent // asked in place of the one before
			default:
				hops = append(hops, c.Agent)
			}
		}
		way = append(hops, way...)
		turn, serves = first.Parent, func(c *agentbus.CallRecord) bool {
			return (first.Path == "" || c.PathBelow() == first.Path) && c.Depth < first.Depth
		}
	}
	return way, nil
}
