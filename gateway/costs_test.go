package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// TestCosts: G26, the charge from the agent's price and the usage told, exactly,
// rounded up once; unknown usage is estimated and marked. I1: the sum of charges
// is the sum of the settled calls.
func TestCosts(t *testing.T) {
	t.Parallel()
	usage := func(u string) string { return `{"choices":[],"usage":` + u + `}` }
	type row struct {
		price     agentbus.Price
		reported  bool // charge what the agent reports
		body      string
		cost      agentbus.Micros
		estimated bool
	}
	rows := map[string]row{
		"tokens":           {price, false, completion, priced, false},
		"free":             {agentbus.Price{}, false, completion, 0, false},
		"per call":         {agentbus.Price{Call: 5}, false, completion, 5, false},
		"rounded up":       {agentbus.Price{Input: 1}, false, usage(`{"prompt_tokens":1}`), 1, false},
		"rounded once":     {agentbus.Price{Input: 500_000, Output: 500_000}, false, usage(`{"prompt_tokens":1,"completion_tokens":1}`), 1, false},
		"cached":           {agentbus.Price{Input: 2_000_000, Cached: 1_000_000}, false, usage(`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}`), 16, false},
		"cached too many":  {agentbus.Price{Input: 2_000_000, Cached: 1_000_000}, false, usage(`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":40}}`), 10, false},
		"reported":         {price, true, usage(`{"prompt_tokens":1,"cost":0.0000015}`), 2, false},
		"reported as 1e-3": {price, true, usage(`{"cost":1e-3}`), 1000, false},
		"reported below 0": {price, true, usage(`{"cost":-1}`), 0, false},
		"absurd":           {agentbus.Price{Input: 1_000_000}, false, usage(`{"prompt_tokens":1e400,"completion_tokens":-5}`), agentbus.Micros(len(ask("absurd")) / 4), true},
		"no figure":        {agentbus.Price{Input: 1_000_000}, false, usage(`{"total":5}`), agentbus.Micros(len(ask("no figure")) / 4), true},
		"none":             {agentbus.Price{Output: 1_000_000}, false, `{"choices":[]}` + strings.Repeat(" ", 26), 10, true},
	}
	var agents []*agent
	for name, c := range rows {
		a := newAgent(t, name, answerWith(http.StatusOK, c.body))
		a.Price, a.UsageCost = c.price, c.reported
		agents = append(agents, a)
	}
	b := newBus(t, nil, agents...)
	var sum agentbus.Micros
	for name, c := range rows {
		id := strings.ReplaceAll(name, " ", "-")
		got := b.call(name, turn(id, "t")...)
		b.call(name, turn(id, "t")...)
		b.call(name, turn("all", id)...)
		r := b.one(id, agentbus.CallSettled)
		if r.Cost != c.cost || r.Usage.Estimated != c.estimated || got.header.Get("X-Agentbus-Cost-Usd") != c.cost.USD() {
			t.Errorf("%s: %d micros for %+v, told as %s; want %d", name, r.Cost, r.Usage, got.header.Get("X-Agentbus-Cost-Usd"), c.cost)
		}
		sum += c.cost
	}
	runs, err := b.store.RunSummaries(t.Context(), agentbus.RunFilter{}, 100, "")
	if err != nil || len(runs) != len(rows)+1 {
		t.Fatal(runs, err)
	}
	for _, r := range runs {
		if r.Run == "all" && r.Cost != sum {
			t.Errorf("the sum of a run is %d, want %d", r.Cost, sum)
		}
	}
}
