package main

import (
	"context"
	"iter"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
)

// The editor asks the writer through the bus: one hop deeper, inside its own turn,
// on the bill of the user, also when the writer fails once.
func TestEditor(t *testing.T) {
	t.Parallel()
	var bus *agentbustest.Bus // the editor is served by the bus that it calls
	writer := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return bus.Backend("writer", "editor").Call(ctx, c)
	})
	bus = agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{
			"editor": {Backend: editor(writer)},
			"writer": {Answers: []agentbustest.Answer{{Status: 503}, {Text: "a story"}}},
			"reader": {},
		},
		Principals: []agentbus.Principal{{ID: "editor", InterAgent: true}}, // its key may forward the user's
		YAML: `
agents: {writer: {price: {call: 0.10}}}
conversations:
  desk: {participants: [{agent: editor}, {agent: reader}], max_turns: 2, call_policy: {retries: 1, backoff: {base: 1ms}}}
`,
	})
	result := bus.Run("desk", "write a story")
	if len(result.Turns) != 2 || result.Turns[0].Reply.Text != "edited: a story" {
		t.Fatalf("%+v", result)
	}
	asked := bus.Requests("writer")
	if len(asked) != 2 || asked[1].Lineage.Depth != 3 || asked[1].Lineage.Parent != result.Run.Turn(0, "editor") {
		t.Errorf("the writer was sent %+v", asked)
	}
	if got := bus.Charged(agentbustest.User); got != 100_000 {
		t.Errorf("the user was charged $%s", got.USD())
	}
}
