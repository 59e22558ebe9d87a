package openai_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
)

// A function becomes an OpenAI-compatible URL, and the URL an agent again.
func Example() {
	critic := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "no objection to " + c.Messages[len(c.Messages)-1].Content}, nil
	})
	handler := openai.Handler(openai.HandlerConfig{Backend: critic, Models: []string{"critic"}})
	backend, err := openai.New(openai.Config{URL: "http://localhost/v1", Model: "critic", Transport: inProcess(handler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := agentbus.Collect(backend.Call(context.Background(), &agentbus.Call{
		Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "the plan"}},
	}))
	fmt.Println(reply.Text, err)
	// Output: no objection to the plan <nil>
}

// inProcess stands for a network.
func inProcess(h http.Handler) http.RoundTripper { return httpx.Memory(h) }
