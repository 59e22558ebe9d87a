package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	if code != int(exitWaiting) || !strings.Contains(errs, "agentbus approve int_") || !strings.Contains(errs, "; then where that bus has its store: agentbus resume run_") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	if strings.Contains(out, "fine") {
		t.Errorf("it went on: %s", out)
	}
	waiting, err := bus.Server().Store().Interrupts(t.Context(), agentbus.InterruptQuery{Limit: 2})
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	if code, out, errs = at("run", "none", "x"); code != int(exitUsage) || !strings.Contains(errs, "workflow_not_found") || !strings.Contains(errs, "conversations of that bus") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	known := token
	token = "another"
	code, _, errs = at("run", "calm", "x")
	token = known
	if code != int(exitRefused) || !strings.Contains(errs, "agentbus: the bus does not know this key\n") {
		t.Errorf("%d %s", code, errs)
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

// R19: who follows a run at a bus waits while that is started again, and learns
// which run it was when the bus stays away.
func TestRunAtAServerThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	const doc = `{"eventId":"%d","runId":"run_1","type":%q,"payload":{},"timestamp":"2026-01-02T03:04:05Z","sequence":%d}`
	polls := 0 // they come one after the other
	bus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if polls++; r.URL.Query().Get("lastSequence") == "" {
			_, _ = fmt.Fprintf(w, `{"events":[`+doc+`]}`, 0, agentbus.EventRunStarted, 0) // the client tells
			return
		}
		switch polls {
		case 2:
			panic(http.ErrAbortHandler) // it is killed
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"draining","message":"it drains"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"events":[`+doc+`]}`, 1, agentbus.EventRunCompleted, 1)
		}
	}))
	defer bus.Close()
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard, noEnv)
	w := &wire{url: bus.URL, http: bus.Client(), patience: time.Minute}
	halt, err := w.shown(t.Context(), a, "run_1", "talk")
	if err != nil || halt.Kind != agentbus.HaltDone || polls != 4 || !strings.HasPrefix(out.String(), "run run_1\n") {
		t.Errorf("%v, %v, %d polls, %s", halt, err, polls, out.String())
	}
	polls, w.patience = 0, 0
	if _, err = w.shown(t.Context(), a, "run_1", "talk"); err == nil || !strings.Contains(describe(err).Next, "run_1") {
		t.Error(err, describe(err))
	}
}
