package server_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// onTheWire serves s with its workers, and returns who asks it over A2A.
func onTheWire(t *testing.T, s *server.Server) *three {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &three{b: s, url: "http://" + l.Addr().String() + "/a2a/", client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// get reads a task of an agent.
func (w *three) get(t *testing.T, agent, id string) gjson.Result {
	t.Helper()
	return w.rpc(t, "user-secret", agent, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+id+`"}}`).Get("result")
}

// withGate has an agent whose second participant is called when a human said so.
var withGate = strings.Replace(asking, "agents:\n", "agents:\n  gate: {kind: conversation, conversation: gated}\n", 1)

// R22, R19, E60: what an operator decides, or nobody in time, wakes the task that
// waits for it: it goes on to its end without its caller, who pays, once.
func TestADecisionWakesATask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		yaml   string
		agent  string
		decide agentbus.Decision // "": nobody does
		state  string
		text   string
		paid   agentbus.Micros
	}{
		"granted": {asking, "shop", agentbus.DecisionGranted, "TASK_STATE_COMPLETED", "Paid. hello", 1_010_000},
		"denied":  {asking, "shop", agentbus.DecisionDenied, "TASK_STATE_FAILED", "denied", 0},
		"expired": {withGate + "interrupts: {timeout: 1s}\n", "gate", "", "TASK_STATE_FAILED", "nobody decided in time", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.yaml)
			w := onTheWire(t, s)
			w.agent = tt.agent
			id := w.ask(t, "user-secret", "m1", "", "hello", "{}").Get("result.task.id").Str
			if tt.decide != "" {
				if got := w.get(t, tt.agent, id); got.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" {
					t.Fatal(got.Raw)
				}
				if _, err := s.Resolve(t.Context(), waiting(t, s)[0].ID, agentbus.Resolution{Decision: tt.decide, By: "zoë"}); err != nil {
					t.Fatal(err)
				}
			}
			var last gjson.Result
			soon(t, "the end of the task", func() bool {
				last = w.get(t, tt.agent, id)
				return strings.HasPrefix(last.Get("status.state").Str, "TASK_STATE_COMPLETED") || last.Get("status.state").Str == "TASK_STATE_FAILED"
			})
			if last.Get("status.state").Str != tt.state || !strings.Contains(last.Raw, tt.text) {
				t.Errorf("%s", last.Raw)
			}
			b, err := s.Store().Balances(t.Context(), "user-123")
			if err != nil || tt.paid > 0 && (len(b) != 1 || b[0].Charged != tt.paid || b[0].Held != 0) {
				t.Errorf("%+v, %v", b, err)
			}
			if again := w.ask(t, "user-secret", "m2", id, "here", "{}"); again.Get("error.code").Int() != -32004 {
				t.Errorf("a message to a task that is over: %s", again.Raw)
			}
		})
	}
}
