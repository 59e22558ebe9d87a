package conversation_test

import (
	"context"
	"fmt"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/store/sqlite"
)

// recordOf reads what a store holds of an execution.
func recordOf(ctx context.Context, s *sqlite.Store, id agentbus.ExecutionID) (r conversation.Record, err error) {
	if r.Execution, _, err = s.Execution(ctx, id); err != nil {
		return r, err
	}
	for t, err := range s.Turns(ctx, id) {
		if err != nil {
			return r, err
		}
		r.Turns = append(r.Turns, t)
	}
	for e, err := range s.Events(ctx, id, -1) {
		if err != nil {
			return r, err
		}
		r.Events = append(r.Events, e)
	}
	return r, nil
}

// pair is a conversation of two, of which one counts its calls.
func pair(calls *int) conversation.Conversation {
	counting := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		*calls++
		return agentbus.Chunk{Text: fmt.Sprint("call ", *calls)}, nil
	})
	return conversation.Conversation{
		Name:         "pair",
		Participants: []conversation.Participant{{Name: "ann", Backend: speaker("hello")}, {Name: "bob", Backend: counting}},
		MaxTurns:     4,
	}
}

// A replay drives the run again against its record, and calls nobody. What was
// changed in it is found at its turn.
func ExampleReplay() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: ":memory:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	calls := 0
	c := pair(&calls)
	if _, err := conversation.Run(ctx, c, conversation.Options{Run: "run_1", Seed: "go", Journal: store, Runs: store}); err != nil {
		fmt.Println(err)
		return
	}
	record, err := recordOf(ctx, store, "run_1")
	if err != nil {
		fmt.Println(err)
		return
	}
	replayed, err := conversation.Replay(ctx, c, record)
	fmt.Println(len(replayed.Turns), "turns,", len(replayed.Events), "events,", calls, "calls", replayed.Divergence, err)
	record.Turns[2].Reply.Text = "good bye"
	replayed, err = conversation.Replay(ctx, c, record)
	fmt.Println(replayed.Divergence.Turn, err)
	// Output:
	// 4 turns, 36 events, 2 calls <nil> <nil>
	// 2 <nil>
}

// A fork begins with the turns of another run, and asks only for those behind
// them.
func ExampleFork() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: ":memory:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	calls := 0
	c := pair(&calls)
	if _, err := conversation.Run(ctx, c, conversation.Options{Run: "run_1", Seed: "go", Journal: store, Runs: store}); err != nil {
		fmt.Println(err)
		return
	}
	fork := conversation.Fork(c, conversation.Source{Execution: "run_1", Turns: 3, Journal: store})
	result, err := conversation.Run(ctx, fork, conversation.Options{Run: "run_2", Seed: "go", Journal: store, Runs: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range result.Turns {
		fmt.Println(t.ID, t.Reply.Text, t.Reply.Replayed)
	}
	// Output:
	// run_2.t0.ann hello true
	// run_2.t1.bob call 1 true
	// run_2.t2.ann hello true
	// run_2.t3.bob call 3 false
}

// A run can be begun by one process and driven by another, which needs its id
// alone.
func ExampleSubmit() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: ":memory:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	calls := 0
	c := pair(&calls)
	run, err := conversation.Submit(ctx, c, conversation.Options{Run: "run_1", Seed: "go", Journal: store, Runs: store})
	fmt.Println(run, calls, err)
	result, err := conversation.Run(ctx, c, conversation.Options{Run: run, Journal: store, Runs: store})
	fmt.Println(result.Halt, calls, err)
	// Output:
	// run_1 0 <nil>
	// max_turns (4) 2 <nil>
}

// A participant asks something: the run waits, in its store, and goes on in the
// same turn once somebody has decided.
func ExampleRun_interrupt() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: ":memory:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	deployer := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		if c.Resolution == nil {
			return agentbus.Chunk{}, &agentbus.Error{
				Code: agentbus.CodeInputRequired, Message: "it needs a region", Ask: &agentbus.Ask{Kind: agentbus.AskClarification, Title: "which region?"},
			}
		}
		return agentbus.Chunk{Text: "deployed to " + c.Resolution.Text}, nil
	})
	c := conversation.Conversation{
		Name: "release", MaxTurns: 2, Participants: []conversation.Participant{{Name: "ann", Backend: speaker("go ahead")}, {Name: "deployer", Backend: deployer}},
	}
	o := conversation.Options{Run: "run_1", Seed: "ship it", Journal: store, Runs: store}
	result, err := conversation.Run(ctx, c, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Halt)
	_, err = store.Resolve(ctx, result.Halt.Wait.Interrupts[0], agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: "Oslo", By: "zoë", At: time.Now()})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err = conversation.Run(ctx, c, o)
	fmt.Println(result.Turns[1].Reply.Text, result.Halt, err)
	// Output:
	// waiting[deployer]: which region?
	// deployed to Oslo max_turns (2) <nil>
}

// A participant has a name of its own, of which its agent, its slug and its label
// are taken unless they are given: the same agent can take part twice.
func ExampleParticipant() {
	hears := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: fmt.Sprintf("%s heard %q", c.Agent, c.Messages[len(c.Messages)-1].Content)}, nil
	})
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name: "mirror",
		Participants: []conversation.Participant{
			{Name: "first", Agent: "critic", Label: "The first", Backend: hears},
			{Name: "second", Agent: "critic", Auth: conversation.AuthAgentOwned, Backend: hears},
		},
		MaxTurns: 2,
	}, conversation.Options{Run: "run_1", Seed: "go"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range result.Turns {
		fmt.Println(t.ID, t.Reply.Text)
	}
	// Output:
	// run_1.t0.first critic heard "go"
	// run_1.t1.second critic heard "[The first] critic heard \"go\""
}

// With a quorum the slower branches are cancelled, once enough are done.
func ExampleJoinQuorum() {
	hangs := agentbus.Answer(func(ctx context.Context, _ *agentbus.Call) (agentbus.Chunk, error) {
		<-ctx.Done()
		return agentbus.Chunk{}, ctx.Err()
	})
	result, err := conversation.Run(context.Background(), conversation.Conversation{
		Name:         "panel",
		Participants: []conversation.Participant{{Name: "ann", Backend: speaker("yes")}, {Name: "bob", Backend: hangs}, {Name: "cem", Backend: speaker("no")}},
		MaxTurns:     3,
		Plan:         conversation.FanOut{Ask: []agentbus.Speaker{"ann", "bob", "cem"}, Join: conversation.JoinQuorum(2)},
	}, conversation.Options{Seed: "well?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Reply)
	fmt.Println(result.Turns[1].State)
	// Output:
	// [ann] yes
	// [cem] no
	// cancelled
}
