package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/store/sqlite"
)

// A service mounts a gateway beside its own routes. It needs the agents, the
// callers' keys and a store, which is the ledger and the recorder. Package server
// builds all of this from an agentbus.yaml.
func Example() {
	critic := httptest.NewServer(openai.Handler(openai.HandlerConfig{
		Backend: agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
			return agentbus.Chunk{Text: "no objection"}, nil
		}),
	}))
	defer critic.Close()
	agent, err := url.Parse(critic.URL + "/v1")
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: ":memory:"}) // in production, a file
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close() //nolint:errcheck // nothing of it is kept
	callers, err := identity.New(identity.Config{Keys: store, Static: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "alice"}, Secret: agentbus.NewCredential("alice-secret")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	bus, err := gateway.New(gateway.Config{
		Router: gateway.NewTable([]*gateway.Target{
			{Name: "critic", Kind: "openai", URL: agent, Transport: transport, Price: agentbus.Price{Call: 20_000}, Priced: true},
		}, nil),
		Identifier: callers, Ledger: store, Recorder: store, Owner: "my-service",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	service := http.NewServeMux()
	service.Handle("/bus/", http.StripPrefix("/bus", bus))

	for range 2 { // the second request repeats the turn
		r := httptest.NewRequest(http.MethodPost, "/bus/v1/chat/completions", strings.NewReader(`{"model":"critic","messages":[{"role":"user","content":"the plan"}]}`))
		r.Header.Set("Authorization", "Bearer alice-secret")
		r.Header.Set(agentbus.HeaderRunID, "run_1")
		r.Header.Set(agentbus.HeaderTurnID, "run_1.t0.critic")
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "no objection"), "$"+answer.Header().Get("x-agentbus-cost-usd"))
	}
	// Output:
	// 200 true $0.020000
	// 200 true $0.000000
}
