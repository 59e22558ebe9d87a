// Command approval has a human approve a turn before its agent is called. The run
// waits in its journal, where it costs nothing; whoever decides could be another
// process, days later.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/policy"
	"github.com/agentbus/agentbus/store/sqlite"
)

func main() {
	dir, err := os.MkdirTemp("", "approval")
	if err == nil {
		err = deploy(context.Background(), filepath.Join(dir, "journal.db"))
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func deploy(ctx context.Context, journal string) error {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: journal})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // what was acknowledged is durable already
	talk := conversation.Conversation{Name: "deploy", MaxTurns: 2, Participants: []conversation.Participant{
		{Name: "planner", Backend: says("deploy version 7")},
		{Name: "operator", Backend: agentbus.Wrap(says("version 7 is deployed"), policy.Approval{Who: "operator"}.Wrap)},
	}}
	for {
		r, err := conversation.Run(ctx, talk, conversation.Options{Run: "run_deploy", Seed: "go on", Journal: store, Runs: store})
		fmt.Printf("%v\n%s\n\n", r.Halt, r.Reply)
		if err != nil || r.Halt.Final() {
			return err
		}
		i, _, err := store.Interrupt(ctx, r.Halt.Wait.Interrupts[0])
		fmt.Printf("%s\n> %s\n\n", i.Ask.Title, i.Ask.Prompt)
		if err == nil {
			_, err = store.Resolve(ctx, i.ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, By: "a human", At: time.Now()})
		}
		if err != nil {
			return err
		}
	}
}

func says(text string) agentbus.Backend {
	return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { return agentbus.Chunk{Text: text}, nil })
}
