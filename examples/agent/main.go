// Command agent is an agent of yours: an HTTP server that speaks the OpenAI
// dialect, and asks another agent through the bus. How to test it is beside it, in
// main_test.go.
package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openai"
)

// editor answers with what the writer makes of a text. writer is reached through
// the bus, in a turn inside the one that editor serves: that is how the bus knows
// how deep the call is, what it belongs to, and who pays.
func editor(writer agentbus.Backend) agentbus.Backend {
	return agentbus.Answer(func(ctx context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		inside, err := c.Lineage.Next(c.Lineage.Run.Turn(0, "editor"), "editor")
		if err != nil {
			return agentbus.Chunk{}, err
		}
		reply, err := agentbus.Collect(writer.Call(ctx, &agentbus.Call{Lineage: inside, Agent: "writer", Messages: c.Messages}))
		if err != nil {
			return agentbus.Chunk{}, err
		}
		return agentbus.Chunk{Text: "edited: " + reply.Text, Usage: &reply.Usage, Finish: "stop"}, nil
	})
}

func main() {
	bus, address := os.Getenv("AGENTBUS_URL"), cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:9001")
	if bus == "" {
		fmt.Println("set AGENTBUS_URL to a bus, and AGENTBUS_TOKEN to a key of yours there")
		return
	}
	key := agentbus.NewCredential("Bearer " + os.Getenv("AGENTBUS_TOKEN"))
	writer, err := openai.New(openai.Config{URL: bus + "/v1", Model: "writer", Key: key})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	server := http.Server{Addr: address, Handler: openai.Handler(openai.HandlerConfig{Backend: editor(writer)}), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
