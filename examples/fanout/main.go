// Command fanout asks three reviewers at once. One of them is down, and an editor
// makes one answer of what the others say.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func main() {
	down := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "it is down"}
	})
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "review", MaxTurns: 4,
		Participants: []conversation.Participant{
			{Name: "lawyer", Backend: says("it is allowed")},
			{Name: "engineer", Backend: says("it is possible")},
			{Name: "treasurer", Backend: down},
			{Name: "editor", Backend: agentbus.Answer(summary)},
		},
		Plan: conversation.FanOut{
			Ask: []agentbus.Speaker{"lawyer", "engineer", "treasurer"}, Join: conversation.JoinBestEffort, Synthesizer: "editor",
		},
	}, conversation.Options{Run: "run_review", Seed: "may we, and can we?"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, t := range result.Turns {
		fmt.Printf("%s  %s  %s\n", t.ID, t.State, t.Reply.Text)
	}
	fmt.Println("over:", result.Halt.Kind)
}

func says(text string) agentbus.Backend {
	return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { return agentbus.Chunk{Text: text}, nil })
}

// summary tells what the editor has heard behind the question.
func summary(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
	var heard []string
	for _, m := range c.Messages[1:] {
		heard = append(heard, m.Content)
	}
	return agentbus.Chunk{Text: strings.Join(heard, "; ")}, nil
}
