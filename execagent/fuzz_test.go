package execagent_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
)

// B1: whatever a program writes as JSON lines is an answer of text and of figures
// that can be charged, or an error.
func FuzzLines(f *testing.F) {
	f.Add(claude)
	f.Add(`{"type":"result","is_error":true,"result":"no"}`)
	f.Add("{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff\\ud800\"}]}}\n{")
	f.Add(`{"type":"result","total_cost_usd":1e308,"usage":{"input_tokens":1e18,"output_tokens":-1}}`)
	f.Fuzz(func(t *testing.T, lines string) {
		got, err := agentbus.Collect(execagent.ReadLines(execagent.ClaudeStreamJSON(), strings.NewReader(lines)))
		u := got.Usage
		if !utf8.ValidString(got.Text + got.Reasoning + got.Model) {
			t.Errorf("not text: %+v", got)
		}
		if u.InputTokens < 0 || u.CachedTokens < 0 || u.OutputTokens < 0 || u.Cost < 0 {
			t.Errorf("usage %+v", u)
		}
		if code := agentbus.CodeOf(err); code != "" && code != agentbus.CodeAgentUnavailable {
			t.Error(err)
		}
	})
}
