package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/agentbus/agentbus"
)

// maxWay is how many turns up somebody who asks is looked for.
const maxWay = 64

// An asking is an interrupt, and who asks.
type asking struct {
	agentbus.Interrupt

	Way []string `json:"way"` // from the root to the leaf: the agents that were called, as far as the store knows them, then Path
}

// askings adds to interrupts who asks, across the calls that their runs serve (U15).
func (a *API) askings(ctx context.Context, found []agentbus.Interrupt) ([]asking, error) {
	asked, above := make([]asking, 0, len(found)), map[agentbus.ExecutionID][]string{}
	for _, i := range found {
		way, known := above[i.Root]
		if !known {
			e, driven, err := a.cfg.Runs.Execution(ctx, i.Root)
			if err == nil && driven {
				way, err = a.above(ctx, &e)
			}
			if err != nil {
				return nil, err
			}
			above[i.Root] = way
		}
		one := asking{Interrupt: i, Way: slices.Clone(way)}
		for _, s := range i.Path {
			one.Way = append(one.Way, string(s))
		}
		asked = append(asked, one)
	}
	return asked, nil
}

// above returns the agents in whose calls an execution is driven, from the root.
// Those that only forwarded a turn stand between its caller and who served it.
func (a *API) above(ctx context.Context, e *agentbus.Execution) (way []string, err error) {
	turn, serves := e.Parent, func(c *agentbus.CallRecord) bool { return c.Path == e.Path && c.Depth <= e.Depth }
	for range maxWay {
		if turn == "" {
			break
		}
		known, err := a.cfg.Records.ParentCalls(ctx, e.Payer, e.Run, turn)
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
