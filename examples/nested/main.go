// Command nested has a conversation take part in another one. The inner one keeps
// the run, stands one hop deeper, inside the turn that it answers, and spends of
// the outer one's budget.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func main() {
	panel := conversation.Backend(conversation.BackendConfig{Conversation: conversation.Conversation{
		Name: "panel", MaxTurns: 2,
		Participants: []conversation.Participant{{Name: "lawyer", Backend: says("it is allowed")}, {Name: "engineer", Backend: says("it is possible")}},
	}})
	budget := agentbus.Micros(50_000)
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "board", MaxTurns: 2, Budget: &budget,
		Participants: []conversation.Participant{{Name: "panel", Backend: panel}, {Name: "chair", Backend: says("then do it")}},
	}, conversation.Options{Run: "run_board", Seed: "may we, and can we?"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, t := range result.Turns {
		fmt.Printf("%s: %q, $%s\n", t.Speaker, t.Reply.Text, t.Cost.USD())
	}
	fmt.Println("spent: $" + result.Spent.USD())
}

// says is an agent that says one thing for a cent, and where its call stood.
func says(text string) agentbus.Backend {
	return agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		fmt.Printf("called %s inside %q at depth %d\n", c.Lineage.Turn, c.Lineage.Parent, c.Lineage.Depth)
		return agentbus.Chunk{Text: text, Usage: &agentbus.Usage{Cost: 10_000}}, nil
	})
}
