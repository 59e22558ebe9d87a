// Command resume loses an agent in the middle of a conversation and goes on where
// it stopped. Its journal is a file, so the second half could be another process,
// after a crash: the turns that are done are not asked for again.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/store/sqlite"
)

func main() {
	dir, err := os.MkdirTemp("", "resume")
	for up := range 2 {
		if err == nil {
			err = drive(filepath.Join(dir, "journal.db"), up == 1)
		}
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// drive opens the journal and runs the conversation: begins it, or goes on.
func drive(journal string, up bool) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: journal})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // what was acknowledged is durable already
	result, err := conversation.Run(ctx, conversation.Conversation{
		Name: "talk", MaxTurns: 4,
		Participants: []conversation.Participant{{Name: "reliable", Backend: agent(0, true)}, {Name: "shaky", Backend: agent(3, up)}},
	}, conversation.Options{Run: "run_talk", Seed: "begin", Journal: store, Runs: store})
	fmt.Printf("%s: %d turns done, %v\n\n", result.Run, len(result.Turns), result.Halt)
	return err
}

// agent answers, but for one turn while it is down.
func agent(bad int, up bool) agentbus.Backend {
	return agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		fmt.Println("asked for", c.Lineage.Turn)
		if !up && c.Lineage.Turn == c.Lineage.Run.Turn(bad, c.Lineage.Speaker) {
			return agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "it is down"}
		}
		return agentbus.Chunk{Text: "done"}, nil
	})
}
