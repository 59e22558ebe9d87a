package conversation_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/eventlog"
)

// leaks says a secret in everything that an agent can say, in pieces as they are
// drawn, some of them long after others.
func leaks(secret string, size func() int, fails bool) agentbus.Backend {
	return agentbus.BackendFunc(func(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			text := "the key is " + secret + ", and sk-abcdefghijklmnopqrstuvwxyz, keep it\nnext: b"
			for text != "" {
				n := min(len(text), size())
				if !yield(agentbus.Chunk{Text: text[:n], Reasoning: text[:n]}, nil) {
					return
				}
				text = text[n:]
				<-time.After(100 * time.Millisecond)
			}
			in, _ := json.Marshal(map[string]any{"key": secret, "n": 1, secret: []string{secret}})
			if !yield(agentbus.Chunk{ToolCall: &agentbus.ToolCall{ID: "1", Name: "send", Arguments: string(in)}, Receipts: []json.RawMessage{in}}, nil) {
				return
			}
			if fails && c.Lineage.Turn.Index(c.Lineage.Run) == 2 {
				yield(agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "refused " + secret, Explain: &agentbus.Explain{Observed: secret, Next: "revoke " + secret}})
			}
		}
	})
}

// E28, E25: a secret that agents say is stored nowhere, wherever it is cut; the
// reasoning that closes is what its deltas come to, and the text is that of the
// chunks.
func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	redactor := eventlog.NewRedactor(eventlog.Secret{ID: "keys.alice", Value: agentbus.NewCredential(secret)})
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 30), 4, 9).Draw(rt, "sizes")
		fails, together := rapid.Bool().Draw(rt, "fails"), rapid.Bool().Draw(rt, "together")
		verbosity := rapid.SampledFrom([]string{"", conversation.ReasoningFull, conversation.ReasoningOff}).Draw(rt, "verbosity")
		synctest.Test(t, func(t *testing.T) {
			size := func(i int) func() int {
				return func() int { i++; return sizes[i%len(sizes)] }
			}
			m := newRecorder()
			c := talk(4, "a", leaks(secret, size(0), fails), "b", leaks(secret, size(1), fails))
			if c.Plan = (conversation.Moderator{Decides: "a", Others: []agentbus.Speaker{"b"}}); together {
				c.Plan = conversation.FanOut{Ask: []agentbus.Speaker{"a", "b"}}
			}
			o := conversation.Options{Run: "r", Seed: "it is " + secret, Journal: m, Runs: m, Redact: redactor, Reasoning: verbosity}
			if _, err := ran(t.Context(), c, o); err != nil {
				rt.Fatal(err)
			}
			rec := m.record("r")
			raw, _ := json.Marshal([]any{rec.Turns, rec.Events, rec.Execution.Halt})
			if strings.Contains(string(raw), secret) || strings.Contains(string(raw), "sk-abc") || !strings.Contains(string(raw), "[REDACTED:keys.alice]") {
				rt.Fatalf("%s", raw)
			}
			retells(rt, rec, verbosity)
		})
	})
}

// retells compares what was told of answers as they came with what they came to.
func retells(rt *rapid.T, rec conversation.Record, verbosity string) {
	var deltas, chunks string
	for _, e := range rec.Events {
		var d struct{ Delta, Chunk, Reasoning string }
		if json.Unmarshal(e.Data, &d) != nil {
			continue
		}
		switch e.Type {
		case agentbus.EventNodeStarted:
			deltas, chunks = "", ""
		case agentbus.EventAgentReasoningDelta:
			deltas += d.Delta
		case agentbus.EventOutputChunk:
			chunks += d.Chunk
		case agentbus.EventAgentReasoned:
			if deltas != "" && d.Reasoning != deltas || verbosity == conversation.ReasoningOff {
				rt.Errorf("%q after %q", d.Reasoning, deltas)
			}
		case agentbus.EventNodeCompleted:
			if chunks != "" && chunks != rec.Turns[e.Turn.Index(e.Run)].Reply.Text {
				rt.Errorf("%q came to %q", chunks, rec.Turns[e.Turn.Index(e.Run)].Reply.Text)
			}
		}
	}
}

// E58: a moderator's turn tells whom it chose, before that one begins.
func TestModeratorDirects(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(9, "mod", a.says("next: b", "so\ndone"), "b", a.says("B"))
	c.Plan = conversation.Moderator{Decides: "mod", Others: []agentbus.Speaker{"b"}}
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range m.record("r").Events {
		switch e.Type {
		case agentbus.EventAgentHandoff, agentbus.EventOrchestratorDecided, agentbus.EventNodeStarted:
			lines = append(lines, e.Type+" "+e.Node)
		}
	}
	want := "node.started mod|agent.handoff mod|runOrchestrator.decided mod|node.started b|node.started mod|runOrchestrator.decided mod"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("got %s", got)
	}
}
