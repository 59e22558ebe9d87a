package conversation_test

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// speaker is an agent that says one thing.
func speaker(text string) agentbus.Backend {
	return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: text}, nil
	})
}

func ExampleRun() {
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "review",
		Participants: []conversation.Participant{
			{Name: "author", Backend: speaker("here is the plan")},
			{Name: "critic", Backend: speaker("APPROVED")},
		},
		MaxTurns:     10,
		HaltContains: "APPROVED",
	}, conversation.Options{Run: "run_1", Seed: "write a plan"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range result.Turns {
		fmt.Printf("%s  %s\n", t.ID, t.Reply.Text)
	}
	fmt.Println(result.Halt)
	// Output:
	// run_1.t0.author  here is the plan
	// run_1.t1.critic  APPROVED
	// predicate: critic said "APPROVED"
}

func ExampleFanOut() {
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "panel",
		Participants: []conversation.Participant{
			{Name: "lawyer", Backend: speaker("it is allowed")},
			{Name: "engineer", Backend: speaker("it is possible")},
			{Name: "judge", Backend: speaker("do it")},
		},
		MaxTurns: 3,
		Plan:     conversation.FanOut{Ask: []agentbus.Speaker{"lawyer", "engineer"}, Join: conversation.JoinAll, Synthesizer: "judge"},
	}, conversation.Options{Seed: "may we, and can we?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Reply)
	for _, t := range result.Turns {
		fmt.Println(t.Speaker, t.State)
	}
	// Output:
	// do it
	// lawyer done
	// engineer done
	// judge done
}

func ExampleModerator() {
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "meeting",
		Participants: []conversation.Participant{
			{Name: "chair", Backend: speaker("What do the engineers say?\nnext: engineer")},
			{Name: "lawyer", Backend: speaker("it is allowed")},
			{Name: "engineer", Backend: speaker("it is possible")},
		},
		MaxTurns: 2,
		Plan:     conversation.Moderator{Decides: "chair", Others: []agentbus.Speaker{"lawyer", "engineer"}},
	}, conversation.Options{Seed: "may we, and can we?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Turns[1].Speaker, result.Halt)
	// Output: engineer max_turns (2)
}

func ExampleBackend() {
	panel := conversation.Backend(conversation.BackendConfig{Conversation: conversation.Conversation{
		Name: "panel",
		Participants: []conversation.Participant{
			{Name: "lawyer", Backend: speaker("it is allowed")},
			{Name: "engineer", Backend: speaker("it is possible")},
		},
		MaxTurns: 2,
	}})
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name:         "board",
		Participants: []conversation.Participant{{Name: "panel", Backend: panel}, {Name: "chair", Backend: speaker("then do it")}},
		MaxTurns:     2,
	}, conversation.Options{Seed: "may we, and can we?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range result.Turns {
		fmt.Println(t.Reply.Text)
	}
	// Output:
	// [lawyer] it is allowed
	// [engineer] it is possible
	// then do it
}
