package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
)

// A claim is something the demo says, and whether what happened bears it out.
type claim struct {
	Name  string `json:"name"`
	Text  string `json:"text"`
	Holds bool   `json:"holds"`
}

// claims are read from the store, from what the agents counted and from the
// answers that came back; nothing is taken for granted.
func (d *demo) claims(ctx context.Context, traces []*trace) ([]claim, error) {
	talk, loop, retry := traces[0], traces[1], traces[2]
	turns := 0
	for t, err := range d.bus.server.Store().Turns(ctx, agentbus.ExecutionID(d.talk)) {
		if err != nil {
			return nil, err
		}
		if t.State == agentbus.TurnDone {
			turns++
		}
	}
	asked, most := d.bus.counts.most(d.talk)
	var cs []claim
	add := func(name string, holds bool, format string, args ...any) {
		cs = append(cs, claim{name, fmt.Sprintf(format, args...), holds})
	}
	add("killed", d.killed, "the driver was killed with -9 in the middle of turn %d", killAt)
	add("resumed", turns == demoTurns && len(talk.Executions) == 1 && talk.Executions[0].State == agentbus.RunDone,
		"another process resumed it: %d of %d turns are done, none is lost", turns, demoTurns)
	add("executed_once", asked > 0 && most == 1, "the agents executed %s of that run, each %d time", plural(asked, "turn"), most)
	add("answered_from_memory", talk.Totals.Replays > 0, "the turn that was cut off was answered from memory: %s executed nothing", plural(talk.Totals.Replays, "request"))
	nested := countNested(talk.Calls)
	add("nested", nested == demoTurns/2, "%s made inside another one, and stand below it", plural(nested, "call")+" "+was(nested))
	add("refused", refusedAt(loop.Calls) == agentbus.DefaultMaxDepth && d.looped.status == 200,
		"the loop was refused at depth %d, after %s", refusedAt(loop.Calls), plural(loop.Totals.Calls, "served call"))
	same := d.first.status == 200 && bytes.Equal(d.first.body, d.second.body) && d.second.header.Get("X-Agentbus-Replay") == "hit"
	add("replayed", same, "the retry got the same %d bytes, from memory", len(d.second.body))
	add("charged_once", retry.Totals.Calls == 1 && retry.Totals.Attempts == 1 && retry.Totals.Cost > 0 && retry.Totals.Replays == 1,
		"the turn was asked %d times and charged once: $%s", retry.Totals.Replays+1, retry.Totals.Cost.USD())
	bill := map[agentbus.Payer]agentbus.Micros{}
	var total, settled agentbus.Micros
	for _, t := range traces {
		total += t.Totals.Cost
		for p, m := range t.Totals.ByPayer {
			bill[p] += m
		}
		settled += settledCost(t.Calls)
	}
	add("one_payer", len(bill) == 1 && bill[demoUser] == total && total == settled && total > 0,
		"one payer for every hop: %s pays $%s, the sum of all settled calls", demoUser, total.USD())
	return cs, nil
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func countNested(nodes []*node) (n int) {
	for _, c := range nodes {
		for _, inner := range c.Calls {
			if inner.Depth > c.Depth && inner.Parent == c.TurnKey.ID && inner.State == agentbus.CallSettled {
				n++
			}
		}
		n += countNested(c.Calls)
	}
	return n
}

// refusedAt returns the depth of the deepest refusal, or -1.
func refusedAt(nodes []*node) int {
	at := -1
	for _, c := range nodes {
		if c.State == agentbus.CallRefused && c.Code == agentbus.CodeDepthExceeded {
			at = max(at, c.Depth)
		}
		at = max(at, refusedAt(c.Calls))
	}
	return at
}

func settledCost(nodes []*node) (sum agentbus.Micros) {
	for _, c := range nodes {
		if c.State == agentbus.CallSettled {
			sum += c.Cost
		}
		sum += settledCost(c.Calls)
	}
	return sum
}
