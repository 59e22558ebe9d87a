package main

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
)

// E55, E57: a conversation is begun at a bus that serves and shown as it goes on
// there, with what was said and decided; what waits exits 6; and its trace tells
// what agents did in each turn.
func TestRunAtAServer(t *testing.T) {
	t.Parallel()
	decides := agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			_ = yield(agentbus.Chunk{ToolCall: &agentbus.ToolCall{ID: "1", Name: "search", Arguments: `{"q":1}`}}, nil) &&
				yield(agentbus.Chunk{Text: `{"decision":"ship it","confidence":0.6}`}, nil)
		}
	})
	bus := agentbustest.New(t, agentbustest.Config{Agents: map[string]agentbustest.Agent{"a": {Backend: decides}, "b": {Answers: []agentbustest.Answer{{Text: "fine"}}}}, YAML: `
agents: {a: {tools: ["a:read"]}}
conversations:
  talk: {participants: [{agent: a, decides: true}, {agent: b}], max_turns: 2}
  calm: {participants: [{agent: a}, {agent: b}], max_turns: 2}
`})
	token := strings.TrimPrefix(bus.Key(agentbustest.User).Reveal(), "Bearer ")
	at := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(args, "--server", bus.URL), strings.NewReader(""), &out, &errs, func(name string) (string, bool) { return token, name == "AGENTBUS_TOKEN" })
		return code, out.String(), errs.String()
	}
	code, out, errs := at("run", "calm", "hello")
	if code != 0 || !strings.Contains(out, "agent.toolReturned  a:search  forbidden") || !strings.Contains(out, "b  fine\n") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	code, out, errs = at("run", "talk", "hello")
	if code != int(exitWaiting) || !strings.Contains(errs, "agentbus approve int_") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	if strings.Contains(out, "fine") {
		t.Errorf("it went on: %s", out)
	}
	waiting, err := bus.Server().Store().Interrupts(t.Context(), agentbus.InterruptQuery{Limit: 2})
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	if code, out, errs = at("run", "none", "x"); code != int(exitFailed) || !strings.Contains(errs, "workflow_not_found") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs = at("run", "talk", "x", "--max-turns", "3"); code != int(exitUsage) {
		t.Errorf("%d %s", code, errs)
	}
	traced, err := traceOf(t.Context(), bus.Server().Store(), waiting[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	if text := traced.text(false); !strings.Contains(text, `· host:a  decided  "ship it"`) {
		t.Error(text)
	}
	code, out, _ = at("run", "talk", "hello", "--detach", "--json")
	var begun struct {
		Run agentbus.RunID `json:"run"`
	}
	if err := json.Unmarshal([]byte(out), &begun); code != 0 || err != nil || begun.Run == "" {
		t.Errorf("%d %s", code, out)
	}
}
