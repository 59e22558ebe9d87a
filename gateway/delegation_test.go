package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// C8: a model at the final hop is offered no tool that has another agent called,
// and nothing forces the use of one that is gone; before it, all of them. What was
// asked stays what it was (G20).
func TestC8DelegationToolsAreHiddenAtTheCap(t *testing.T) {
	t.Parallel()
	const search, ask, critic = `{"type":"function","function":{"name":"search"}}`, `{"type":"function","function":{"name":"transfer_to_editor"}}`, `{"type":"function","function":{"name":"critic"}}`
	for name, c := range map[string]struct {
		delegates []string
		route     string
		in, want  string // without the model and what was said
	}{
		"none is offered":   {in: `"n":1`, want: `"n":1`},
		"none delegates":    {in: `"tools":[` + search + `],"tool_choice":"required"`, want: `"tools":[` + search + `],"tool_choice":"required"`},
		"one of two":        {in: `"tools":[` + ask + `, ` + search + `],"tool_choice":"auto","parallel_tool_calls":true`, want: `"tools":[` + search + `],"tool_choice":"auto","parallel_tool_calls":true`},
		"an agent's name":   {in: `"tools":[` + critic + `,` + search + `]`, want: `"tools":[` + search + `]`},
		"a choice of it":    {in: `"tools":[` + ask + `,` + search + `],"tool_choice":` + ask, want: `"tools":[` + search + `]`},
		"none is left":      {in: `"tools":[` + ask + `],"tool_choice":"required","parallel_tool_calls":false,"n":1`, want: `"n":1`},
		"functions":         {in: `"functions":[{"name":"delegate_work"},{"name":"search"}],"function_call":{"name":"delegate_work"}`, want: `"functions":[{"name":"search"}]`},
		"the list twice":    {in: `"tools":[` + ask + `],"Tools":[` + ask + `]`, want: ``},
		"responses":         {route: "/v1/responses", in: `"tools":[{"type":"function","name":"call_agent"},{"type":"mcp","server_label":"delegate_all"},{"type":"web_search"}]`, want: `"tools":[{"type":"web_search"}]`},
		"allowed tools":     {route: "/v1/responses", in: `"tools":[{"type":"function","name":"call_agent"},{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"call_agent"}]}`, want: `"tools":[{"type":"web_search"}]`},
		"the operator's":    {delegates: []string{"sear*"}, in: `"tools":[` + search + `,` + ask + `]`, want: `"tools":[` + ask + `]`},
		"what is no list":   {in: `"tools":{"name":"call_agent"},"tool_choice":null`, want: `"tools":{"name":"call_agent"},"tool_choice":null`},
		"tools without one": {in: `"tools":[1,null,{"name":2},` + search + `]`, want: `"tools":[1,null,{"name":2},` + search + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newAgent(t, "model", nil)
			model.Cue = true
			b := newBus(t, func(g *gateway.Config) { g.Chain.Delegates = c.delegates }, model, newAgent(t, "critic", nil))
			route, said := chatRoute, `"messages":[]`
			if c.route != "" {
				route, said = c.route, `"input":"hi"`
			}
			body := `{"model":"model",` + said + `,` + c.in + `}`
			for hop := 3; hop <= 4; hop++ {
				at := agentbus.Lineage{Run: "r", Turn: agentbus.TurnID("r.t" + string(rune('0'+hop)) + ".model"), Depth: 1}
				got := b.inChainAt(&agentbus.AgentChain{Hop: hop, MaxHops: 4, Final: hop == 4}, route, body, at)
				if got.status != http.StatusOK {
					t.Fatal(got)
				}
				want := c.in
				if hop == 4 {
					want = c.want
				}
				sent := model.next(t).body
				var rest []string
				gjson.Parse(sent).ForEach(func(k, v gjson.Result) bool {
					switch k.Str {
					case "model", "messages", "input", "instructions":
					default:
						rest = append(rest, k.Raw+":"+v.Raw)
					}
					return true
				})
				if diff := cmp.Diff(want, strings.Join(rest, ",")); diff != "" || !gjson.Valid(sent) || !strings.Contains(sent, "You are responding as") {
					t.Errorf("hop %d was sent %s (-want +got):\n%s", hop, sent, diff)
				}
			}
			calls := b.calls("r")
			if gone := c.want != c.in; strings.Contains(strings.Join(calls[len(calls)-1].Notes, " "), "delegation_hidden:") != gone {
				t.Errorf("noted %v", calls[len(calls)-1].Notes)
			}
		})
	}
}

// C9, R4: the first agents that a conversation of this bus calls are told what was
// said, and nothing else, or their place too where the operator wants that.
func TestC9CueAtTheFirstHop(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		model := newAgent(t, "model", nil)
		model.Cue = true
		b := newBus(t, func(g *gateway.Config) { g.Chain.CueFirst = first }, model)
		at := agentbus.Lineage{Run: "r", Turn: "r.t0.model", Depth: 1}
		if got := b.inChain(&agentbus.AgentChain{Hop: 1, MaxHops: 4}, ask("model"), at); got.status != http.StatusOK {
			t.Fatal(got)
		}
		const cue = "You are responding as hop 1 of a chain capped at 4 hops. [3 hops remaining.]"
		if sent := model.next(t).body; (gjson.Get(sent, "messages.0.content").Str == cue) != first {
			t.Errorf("CueFirst %v: sent %s", first, sent)
		}
	}
}
