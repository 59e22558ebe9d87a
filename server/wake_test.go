package server_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// onTheWire serves s with its workers, and returns who asks it over A2A.
func onTheWire(t *testing.T, s *server.Server) *three {
	t.Helper()
	addr, stop := serveAt(t, s)
	t.Cleanup(stop)
	return &three{b: s, url: "http://" + addr + "/a2a/", client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
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

// C28, C29, C30, R22, X22: an approval is asked for by a policy part of this bus's own.
// Its state is good once, for the task and its caller; whatever else is sent, the task
// goes on waiting, with a fresh one, and says nothing of why.
func TestApprovalsAsPolicyParts(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"granted", "denied"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			s := open(t, withGate)
			w := onTheWire(t, s)
			w.agent = "gate"
			task := w.ask(t, "user-secret", "m1", "", "hello", "{}").Get("result.task")
			id := task.Get("id").Str
			part := func(r gjson.Result) gjson.Result {
				p := r.Get("status.message.metadata.mentionable.policy")
				data := r.Get("status.message.parts.#(data).data")
				if r.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" || p.Get("kind").Str != "consent_required" || p.Get("message").Str == "" || len(p.Get("state").Str) < 43 || data.Get("state").Str != p.Get("state").Str {
					t.Fatalf("no part: %s", r.Raw)
				}
				return p
			}
			states := []string{part(task).Get("state").Str}
			if from := task.Get("status.message.metadata.agentbus.surfaced.0.from").Str; from != "eliza" {
				t.Errorf("from %q", from)
			}
			answer := func(state, outcome string) string {
				return `{"mentionable":{"policy_resolution":{"in_reply_to_state":"` + state + `","outcome":"` + outcome + `"}}}`
			}
			for name, said := range map[string]struct{ text, metadata string }{
				"words that are no yes": {"what would it do?", "{}"},
				"another state":         {"yes", answer("x", "granted")},
				"no outcome":            {"yes", answer("STATE", "")},
				"an unknown outcome":    {"yes", answer("STATE", "sure")},
			} {
				metadata := strings.Replace(said.metadata, "STATE", states[len(states)-1], 1)
				again := w.ask(t, "user-secret", name, id, said.text, metadata).Get("result.task")
				states = append(states, part(again).Get("state").Str)
			}
			if got := w.ask(t, "other-secret", "m2", id, "yes", answer(states[len(states)-1], "granted")); got.Get("error.code").Int() != -32001 {
				t.Errorf("another caller: %s", got.Raw)
			}
			if open := waiting(t, s); len(open) != 1 || !open[0].Open() {
				t.Fatalf("it was decided: %+v", open)
			}
			used := w.ask(t, "user-secret", "m3", id, "yes", answer(states[0], "granted")).Get("result.task") // not the last one
			last := part(used).Get("state").Str
			if slices.Contains(states, last) {
				t.Error("the state is not fresh")
			}
			var mu sync.Mutex
			var racing sync.WaitGroup
			wins := 0
			for i := range 3 {
				racing.Go(func() {
					got := w.ask(t, "user-secret", "r"+strconv.Itoa(i), id, "I have decided", answer(last, outcome))
					mu.Lock()
					defer mu.Unlock()
					if said := strings.Count(got.Get("result.task.artifacts").Raw, "[echo] hello"); said > 1 {
						t.Errorf("said %d times: %s", said, got.Raw)
					}
					if want := map[string]string{"granted": "TASK_STATE_COMPLETED", "denied": "TASK_STATE_FAILED"}[outcome]; got.Get("result.task.status.state").Str == want {
						wins++
					} else if !got.Get("error").Exists() {
						t.Errorf("%s", got.Raw)
					}
				})
			}
			racing.Wait()
			all, err := s.Store().Interrupts(t.Context(), agentbus.InterruptQuery{All: true, Limit: 9})
			if err != nil || wins != 1 || len(all) != 1 || string(all[0].Resolution.Decision) != outcome || all[0].Resolution.By != "user-123" {
				t.Errorf("%d won: %+v, %v", wins, all, err)
			}
			secretNowhere(t, s, agentbus.RunID(id), last)
		})
	}
}
