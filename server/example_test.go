package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// A program has a whole bus inside: its handler, and its conversations. Serve
// does the same on a socket, with the workers and the upkeep of agentbus serve.
func Example() {
	ctx := context.Background()
	cfg, _, err := config.Parse("agentbus.yaml", []byte(`
store: {url: "memory:"}
keys: [{id: alice, secret_env: ALICE}]
agents:
  echo: {kind: builtin, builtin: echo}
  eliza: {kind: builtin, builtin: eliza}
conversations:
  chat: {participants: [{agent: echo}, {agent: eliza}], max_turns: 2}
`), config.Source{Env: func(name string) (string, bool) { return "alice-secret", name == "ALICE" }})
	if err != nil {
		fmt.Println(err)
		return
	}
	bus, err := server.New(ctx, server.Config{Config: cfg})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close() //nolint:errcheck // nothing of it is kept

	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"echo","messages":[{"role":"user","content":"hello"}]}`))
	r.Header.Set("Authorization", "Bearer alice-secret")
	answer := httptest.NewRecorder()
	bus.Handler().ServeHTTP(answer, r)
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "hello"))

	start := server.Start{Conversation: "chat", Seed: "I am tired", Authorization: agentbus.NewCredential("Bearer alice-secret")}
	for e, err := range bus.Converse(ctx, start, nil) {
		switch {
		case err != nil:
			fmt.Println(err)
		case e.Type == conversation.EventTurnDone:
			fmt.Println(e.Turn.Speaker, e.Turn.State)
		case e.Result != nil:
			fmt.Println(e.Result.Halt)
		}
	}
	// Output:
	// 200 true
	// echo done
	// eliza done
	// max_turns (2)
}
