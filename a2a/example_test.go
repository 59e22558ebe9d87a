package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// An A2A agent is a Backend: it takes part in conversations like any other, and
// is told the lineage of each call.
func ExampleNewBackend() {
	critic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it has no agent card, so its URL is called over JSON-RPC
			http.NotFound(w, r)
			return
		}
		var asked struct{ ID json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"message":{"messageId":"m1","role":"ROLE_AGENT","parts":[{"text":"no objection, at depth %s"}]}}}`,
			asked.ID, r.Header.Get(agentbus.HeaderForwardedDepth))
	}))
	defer critic.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	backend, err := a2a.NewBackend(a2a.BackendConfig{Name: "critic", URL: critic.URL, Transport: transport})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := agentbus.RunID("run_1")
	reply, err := agentbus.Collect(backend.Call(context.Background(), &agentbus.Call{
		Lineage:  agentbus.Lineage{Run: run, Turn: run.Turn(0, "critic"), Depth: 1},
		Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "the plan"}},
	}))
	fmt.Println(reply.Text, err)
	// Output: no objection, at depth 1 <nil>
}
