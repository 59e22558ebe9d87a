//nolint:errcheck // a document without the member that is looked at fails its test
package server_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
)

const bounded = `
conversations:
  talk: {participants: [{agent: a}, {agent: b}], max_turns: 4}
  both: {participants: [{agent: a}, {agent: b}], plan: fan-out}
  poor: {participants: [{agent: a}, {agent: b}], max_turns: 4, budget_usd: "0.00001"}
`

// E7, E35, E58: a bound of a run is told before the run ends at it, by its kind, and
// the node that would have been one too many never starts.
func TestWireBoundsConversations(t *testing.T) {
	t.Parallel()
	answers := []agentbustest.Answer{{Text: "ok", Usage: &agentbus.Usage{InputTokens: 6, OutputTokens: 4, Cost: 5}}}
	b := onWire(t, map[string]agentbustest.Agent{"a": {Answers: answers}, "b": {Answers: answers}}, `
agents: {a: {usage_cost: true}, b: {usage_cost: true}}
`+bounded)
	type object = map[string]any
	for _, tt := range []struct {
		workflow, options, status, code string
		started                         int
		breach                          object // nil: none
	}{
		{"talk", `{"recursionLimit":4}`, "completed", "", 4, nil},
		{"talk", `{"recursionLimit":1000000}`, "completed", "", 4, nil}, // clamped
		{"talk", `{"recursionLimit":3}`, "failed", "recursion_limit_exceeded", 3, object{"kind": "node-executions", "limit": 3.0, "observed": 4.0, "nodeId": "b"}},
		{"both", `{"recursionLimit":1}`, "failed", "recursion_limit_exceeded", 0, object{"kind": "node-executions", "limit": 1.0, "observed": 2.0, "nodeId": "b"}},
		{"talk", `{"budget":{"maxTokens":20}}`, "failed", "budget_exceeded", 2, object{"kind": "budget-tokens", "limit": 20.0, "observed": 20.0}},
		{"talk", `{"budget":{"maxTokens":15},"onHalt":"pause"}`, "paused", "", 2, object{"kind": "budget-tokens", "limit": 15.0, "observed": 20.0}},
		{"talk", `{"budget":{"maxTokens":60},"maxTokens":45}`, "failed", "budget_exceeded", 2, object{"kind": "budget-tokens", "limit": 60.0, "observed": 20.0}},
		{"talk", `{"budget":{"maxCostUsd":0.000005}}`, "failed", "budget_exceeded", 1, object{"kind": "budget-cost", "limit": 0.000005, "observed": 0.000005}},
		{"poor", `{"budget":{"maxCostUsd":1}}`, "failed", "budget_exceeded", 2, object{"kind": "budget-cost", "limit": 0.00001, "observed": 0.00001}}, // it cannot be raised
	} {
		run := b.began(`{"workflowId":"` + tt.workflow + `","inputs":{"seed":"hello"},"configurable":` + tt.options + `}`)
		snap, events := b.stands(run, tt.status), b.events(run)
		if e, _ := snap["error"].(object); tt.code != "" && e["code"] != tt.code {
			t.Errorf("%s %s: %v", tt.workflow, tt.options, snap)
		}
		var breach object
		for i, e := range events {
			if e["type"] != "cap.breached" {
				continue
			}
			breach = e["payload"].(object)
			if e["nodeId"] != breach["nodeId"] || i != len(events)-2 {
				t.Errorf("%s %s: event %d of %d is %v", tt.workflow, tt.options, i, len(events), e)
			}
		}
		if diff := cmp.Diff(tt.breach, breach); diff != "" || len(payloadsOf(events, "node.started")) != tt.started {
			t.Errorf("%s %s: %s, started %v", tt.workflow, tt.options, diff, payloadsOf(events, "node.started"))
		}
	}
}

// E7: what a run asks of its models is what they are asked; what nobody may change is
// refused, and no run begins.
func TestWireOverridesModels(t *testing.T) {
	t.Parallel()
	b := onWire(t, map[string]agentbustest.Agent{"a": {}, "b": {}}, `
agents: {a: {model: big, models: [small]}, b: {model: small}, echo: {kind: builtin, builtin: echo}}
conversations:
  talk: {participants: [{agent: a}, {agent: b}], max_turns: 2}
  one: {participants: [{agent: a}, {agent: echo}], max_turns: 2}
  none: {participants: [{agent: echo}, {agent: echo, slug: again}], max_turns: 2}
`)
	type sent struct {
		Model       string   `json:"model"`
		Temperature *float64 `json:"temperature"`
		MaxTokens   int      `json:"max_tokens"`
		Messages    []struct{ Role, Content string }
	}
	last := func(agent string) (s sent) {
		all := b.Requests(agent)
		if err := json.Unmarshal(all[len(all)-1].Body, &s); err != nil {
			t.Error(err)
		}
		return s
	}
	run := b.began(`{"workflowId":"talk","inputs":{"seed":"x"},"configurable":{"model":"small","temperature":0,"maxTokens":7,"promptOverrides":{"prompt:b":"Be brief."}}}`)
	b.stands(run, "completed")
	for _, agent := range []string{"a", "b"} {
		if s := last(agent); s.Model != "small" || s.Temperature == nil || *s.Temperature != 0 || s.MaxTokens != 7 {
			t.Errorf("%s was asked %+v", agent, s)
		}
	}
	if a, b := last("a").Messages[0], last("b").Messages[0]; a.Role != "user" || b.Role != "system" || b.Content != "Be brief." {
		t.Error(a, b)
	}
	events := b.events(run)
	status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":`+strconv.Itoa(len(events))+`}`)
	if status != http.StatusCreated { // E50: without an overlay it goes on as its source did
		t.Fatal(status, out)
	}
	b.stands(out["runId"].(string), "completed")
	if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"configurable":{"temperature":1}}}`); status != http.StatusCreated {
		t.Error(status, out)
	} else if b.stands(out["runId"].(string), "completed"); last("b").Temperature == nil || *last("b").Temperature != 1 || last("b").MaxTokens != 7 {
		t.Errorf("the overlay is not laid over: %+v", last("b"))
	}
	if s := last("a"); s.Model != "small" {
		t.Error(s)
	}
	b.stands(b.began(`{"workflowId":"one","inputs":{"seed":"x"},"configurable":{"temperature":2}}`), "completed")
	for body, want := range map[string]string{
		`"talk","configurable":{"model":"big"}`:                                                 "model",
		`"talk","configurable":{"model":"huge"}`:                                                "model",
		`"talk","configurable":{"model":"sm all"}`:                                              "model",
		`"talk","configurable":{"model":""}`:                                                    "model",
		`"talk","configurable":{"model":7}`:                                                     "type",
		`"talk","configurable":{"temperature":2.1}`:                                             "temperature",
		`"talk","configurable":{"maxTokens":0}`:                                                 "maxTokens",
		`"talk","configurable":{"recursionLimit":0}`:                                            "recursionLimit",
		`"talk","configurable":{"recursionLimit":1.5}`:                                          "type",
		`"talk","configurable":{"budget":{"maxTokens":0}}`:                                      "budget",
		`"talk","configurable":{"budget":{"maxCostUsd":-1}}`:                                    "budget",
		`"talk","configurable":{"budget":[]}`:                                                   "type",
		`"talk","configurable":{"promptOverrides":{"c":"x"}}`:                                   "promptOverrides",
		`"talk","configurable":{"promptOverrides":{"a":7}}`:                                     "type",
		`"one","configurable":{"promptOverrides":{"echo":"x"}}`:                                 "promptOverrides",
		`"none","configurable":{"temperature":1}`:                                               "model",
		`"talk","configurable":{"promptOverrides":{"a":"` + strings.Repeat("x", 65<<10) + `"}}`: "promptOverrides",
	} {
		status, out := b.do("alice", http.MethodPost, "/v1/runs", `{"inputs":{"seed":"x"},"workflowId":`+body+`}`)
		if message, _ := out["message"].(string); status != http.StatusBadRequest || out["error"] != "validation_error" || !strings.Contains(message, want) {
			t.Errorf("%.80s: %d %v", body, status, out)
		}
	}
	if status, out := b.do("alice", http.MethodPost, "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":`+strconv.Itoa(len(events))+`,"runOptionsOverlay":{"configurable":{"promptOverrides":{}}}}`); status != http.StatusBadRequest {
		t.Error(status, out)
	}
	if _, out := b.do("alice", http.MethodGet, "/v1/runs", ""); len(out["runs"].([]any)) != 4 {
		t.Errorf("%d runs", len(out["runs"].([]any)))
	}
}
