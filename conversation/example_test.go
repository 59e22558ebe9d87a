package conversation_test

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/store/sqlite"
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

func ExampleStream() {
	c := conversation.Conversation{
		Name:         "talk",
		Participants: []conversation.Participant{{Name: "ann", Backend: speaker("hello")}, {Name: "bob", Backend: speaker("goodbye")}},
		MaxTurns:     2,
	}
	for e, err := range conversation.Stream(context.Background(), c, conversation.Options{Run: "run_1"}) {
		switch {
		case err != nil:
			fmt.Println(err)
		case e.Type == conversation.EventDelta:
			fmt.Printf("%s: %s\n", e.Turn.Speaker, e.Chunk.Text)
		case e.Result != nil:
			fmt.Println(e.Result.Halt)
		}
	}
	// Output:
	// ann: hello
	// bob: goodbye
	// max_turns (2)
}

// A plan is pure: it decides by the turns so far, and a resumed run decides again
// as it did before.
func ExamplePlanFunc() {
	c := conversation.Conversation{
		Name:         "interview",
		Participants: []conversation.Participant{{Name: "host", Backend: speaker("why?")}, {Name: "guest", Backend: speaker("because")}},
		MaxTurns:     100,
		Plan: conversation.PlanFunc(func(turns []agentbus.Turn) (conversation.Step, error) {
			switch len(turns) {
			case 0:
				return conversation.Step{Speaker: "host", Say: "ask one question"}, nil
			case 1:
				return conversation.Step{Speaker: "guest"}, nil
			}
			return conversation.Step{Done: true, Reason: "one question was asked"}, nil
		}),
	}
	result, err := conversation.Run(context.Background(), c, conversation.Options{})
	fmt.Println(len(result.Turns), result.Halt, err)
	// Output: 2 done: one question was asked <nil>
}

func ExampleConversation_Validate() {
	err := (&conversation.Conversation{
		Name:         "alone",
		Participants: []conversation.Participant{{Name: "ann", Backend: speaker("hello?")}},
	}).Validate()
	fmt.Println(err)
	// Output:
	// participants: at least 2 are required, not 1
	// max_turns: must be at least 1, not 0
}

// Several runs share a budget; a turn that could cost more than is left is not
// begun.
func ExampleBudget() {
	budget := conversation.NewBudget(30_000) // $0.03
	paid := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "that is a cent", Usage: &agentbus.Usage{Cost: 10_000}}, nil
	})
	c := conversation.Conversation{
		Name:         "talk",
		Participants: []conversation.Participant{{Name: "ann", Backend: paid, MaxCost: 10_000}, {Name: "bob", Backend: paid, MaxCost: 10_000}},
		MaxTurns:     2,
	}
	for range 2 {
		result, err := conversation.Run(context.Background(), c, conversation.Options{Budget: budget})
		fmt.Println(len(result.Turns), result.Halt.Kind, "$"+budget.Spent().USD(), err)
	}
	// Output:
	// 2 max_turns $0.020000 <nil>
	// 1 budget $0.030000 <nil>
}

// A journal makes a run durable: run it again under its id, and it goes on. Any
// store of the bus is one; see examples/resume.
func ExampleJournal() {
	journal, err := sqlite.Open(context.Background(), sqlite.Config{Path: ":memory:"}) // a file, to survive a crash
	if err != nil {
		fmt.Println(err)
		return
	}
	defer journal.Close() //nolint:errcheck // what was acknowledged is durable already
	calls := 0
	moody := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		if calls++; calls == 1 {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "not today"}
		}
		return agentbus.Chunk{Text: "here I am"}, nil
	})
	c := conversation.Conversation{
		Name:         "talk",
		Participants: []conversation.Participant{{Name: "ann", Backend: speaker("hello")}, {Name: "bob", Backend: moody}},
		MaxTurns:     2,
	}
	for range 2 {
		result, err := conversation.Run(context.Background(), c, conversation.Options{Run: "run_1", Journal: journal, Runs: journal})
		fmt.Println(len(result.Turns), result.Halt, err)
	}
	// Output:
	// 1 participant_error[bob]: not today <nil>
	// 2 max_turns (2) <nil>
}

func ExampleRoundRobin() {
	plan := conversation.RoundRobin{"ann", "bob", "cem"}
	turns := make([]agentbus.Turn, 4)
	step, err := plan.Next(turns)
	fmt.Println(step.Speaker, err)
	// Output: bob <nil>
}

func ExampleAlternate() {
	plan := conversation.Alternate{"ann", "bob"}
	step, err := plan.Next(make([]agentbus.Turn, 1))
	fmt.Println(step.Speaker, err)
	// Output: bob <nil>
}
