// Command hello lets two agents talk until one of them agrees. Its agents are
// functions; openai.New in their place calls any OpenAI-compatible URL.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func main() {
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "review",
		Participants: []conversation.Participant{
			{Name: "author", Backend: agent(func(heard string) string { return "a plan for: " + heard })},
			{Name: "critic", Backend: agent(func(string) string { return "AGREED" })},
		},
		MaxTurns:     10,
		HaltContains: "AGREED",
	}, conversation.Options{Run: "run_hello", Seed: "a garden"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, t := range result.Turns {
		fmt.Printf("%s  %s\n", t.ID, t.Reply.Text)
	}
	fmt.Println("over:", result.Halt)
}

// agent answers with what f makes of the last message.
func agent(f func(heard string) string) agentbus.Backend {
	return agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: f(c.Messages[len(c.Messages)-1].Content)}, nil
	})
}
