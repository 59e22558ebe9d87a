package eventlog_test

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A run is followed from its first event to its last, while another goroutine, or
// another process, drives it.
func ExampleFollow() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: ":memory:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	hello := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "hello"}, nil
	})
	talk := conversation.Conversation{
		Name:         "talk",
		Participants: []conversation.Participant{{Name: "ann", Backend: hello}, {Name: "bob", Backend: hello}},
		MaxTurns:     2,
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conversation.Run(ctx, talk, conversation.Options{Run: "run_1", Journal: store, Runs: store})
		ended <- err
	}()
	for e, err := range eventlog.Follow(ctx, eventlog.Config{Source: store, Execution: "run_1", After: -1}) {
		switch {
		case err != nil:
			fmt.Println(err)
		case e.Type == agentbus.EventRunStarted, agentbus.Terminal(e.Type):
			fmt.Println(e.Type)
		}
	}
	fmt.Println(<-ended)
	// Output:
	// run.started
	// run.completed
	// <nil>
}
