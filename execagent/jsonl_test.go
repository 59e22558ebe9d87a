package execagent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
)

// speak runs an agent that writes what is asked.
func speak(t *testing.T, c execagent.Config, lines string) (agentbus.Reply, error) {
	t.Helper()
	c.Output = execagent.OutputJSONL
	return ask(t.Context(), newAgent(t, c, "cat"), lines)
}

// What claude --print --verbose --output-format stream-json writes.
const claude = `{"type":"system","subtype":"init","session_id":"s","tools":["Bash"],"model":"claude-x"}
{"type":"assistant","message":{"model":"claude-x","role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I look."},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":3,"output_tokens":1}},"parent_tool_use_id":null,"session_id":"s"}
{"type":"user","message":{"role":"user","content":[{"type":"text","text":"not the answer"},{"tool_use_id":"t","type":"tool_result","content":"x","is_error":true}]},"parent_tool_use_id":null}
{"type":"assistant","message":{"model":"claude-y","content":[{"type":"text","text":"a sub-agent"}]},"parent_tool_use_id":"t"}
{"type":"assistant","message":{"model":"claude-x","content":[{"type":"text","text":"Two files."}]},"parent_tool_use_id":null}
{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"Two files.","total_cost_usd":0.0123456,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":40}}
`

// B1: what Claude Code writes is an answer, with its tools, its usage and its
// cost.
func TestClaudeStreamJSON(t *testing.T) {
	t.Parallel()
	got, err := speak(t, execagent.Config{Fields: execagent.ClaudeStreamJSON(), ReportCost: true}, claude)
	want := agentbus.Reply{
		Text: "I look.\n\nTwo files.", Reasoning: `hm[tool Bash {"command":"ls"}]` + "\n", Model: "claude-x", Finish: "stop",
		Usage: agentbus.Usage{InputTokens: 330, CachedTokens: 300, OutputTokens: 40, Cost: 12_346},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// Word by word, with --include-partial-messages: nothing is told twice.
	partial := `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"h"}},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"m"}},"parent_tool_use_id":null}
{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"}]},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"I "}},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"sub-agent"}},"parent_tool_use_id":"t"}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"look."}},"parent_tool_use_id":null}
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."}]},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}},"parent_tool_use_id":null}
{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"Two"}},"parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":" files."}},"parent_tool_use_id":null}
{"type":"assistant","message":{"content":[{"type":"text","text":"Two files."}]},"parent_tool_use_id":null}
{"type":"result","subtype":"success","result":"Two files."}
`
	got, err = speak(t, execagent.Config{Fields: execagent.ClaudeStreamJSON()}, partial)
	if want := `hm[tool Bash {"command":"ls"}]` + "\n"; err != nil || got.Text != "I look.\n\nTwo files." || got.Reasoning != want {
		t.Errorf("%q, %q, %v", got.Text, got.Reasoning, err)
	}
	for failed, why := range map[string]string{
		`{"type":"result","subtype":"success","is_error":true,"result":"no @credit","usage":{}}`:                       "no (at)credit",
		`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["it broke"]}`:                   "it broke",
		`{"type":"result","subtype":"error_max_turns","is_error":false,"num_turns":3,"total_cost_usd":0.1,"usage":{}}`: "error_max_turns",
	} {
		if _, err := speak(t, execagent.Config{Fields: execagent.ClaudeStreamJSON()}, failed); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable ||
			!strings.HasSuffix(agentbus.AsError(err).Message, "it said: "+why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
}

// What codex exec --json writes.
const codex = `{"type":"thread.started","thread_id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}
{"type":"turn.started"}
{"type":"error","message":"Reconnecting... 1/5"}
{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"hm"}}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"bash -lc ls","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"bash -lc ls","aggregated_output":"a\n","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"item_2","type":"mcp_tool_call","server":"github","tool":"search","arguments":{"q":1},"status":"completed"}}
{"type":"item.completed","item":{"id":"item_3","type":"todo_list","items":[{"text":"x","completed":true}]}}
{"type":"item.completed","item":{"id":"item_4","type":"error","message":"a warning"}}
{"type":"item.completed","item":{"id":"item_5","type":"agent_message","text":"One file."}}
{"type":"turn.completed","usage":{"input_tokens":24763,"cached_input_tokens":24448,"output_tokens":122}}
`

// B1: what Codex writes is an answer, with its tools and its usage.
func TestCodexJSON(t *testing.T) {
	t.Parallel()
	got, err := speak(t, execagent.Config{Fields: execagent.CodexJSON()}, codex)
	want := agentbus.Reply{
		Text: "One file.", Reasoning: `hm[tool command_execution "bash -lc ls"]` + "\n" + `[tool search {"q":1}]` + "\n", Finish: "stop",
		Usage: agentbus.Usage{InputTokens: 24763, CachedTokens: 24448, OutputTokens: 122},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	failed := `{"type":"turn.failed","error":{"message":"the stream ended"}}`
	if _, err := speak(t, execagent.Config{Fields: execagent.CodexJSON()}, failed); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable ||
		!strings.HasSuffix(agentbus.AsError(err).Message, "it said: the stream ended") {
		t.Error(err)
	}
}

// B1: a field map reads other programs' lines; what is none of it is passed over.
func TestFields(t *testing.T) {
	t.Parallel()
	f := execagent.Fields{Text: "delta", Result: "final", InputTokens: []string{"in"}, OutputTokens: "out", Cost: "usd"}
	for name, tt := range map[string]struct {
		lines string
		want  agentbus.Reply
	}{
		"pieces":      {"{\"delta\":\"a\"}\n\n{\"delta\":\"b\"}\r\n{\"final\":\"c\",\"in\":1,\"out\":2}", agentbus.Reply{Text: "ab", Usage: agentbus.Usage{InputTokens: 1, OutputTokens: 2}}},
		"only a last": {`{"final":"c","out":2}`, agentbus.Reply{Text: "c", Usage: agentbus.Usage{OutputTokens: 2}}},
		"other lines": {"starting…\n[1]\n{\"delta\":4}\n{\"delta\":\"a\"\n{}\n", agentbus.Reply{Usage: agentbus.Usage{InputTokens: 11, OutputTokens: 11, Estimated: true}}},
		"absurd":      {`{"delta":"\ud800","in":-1,"out":1e99,"usd":-3}`, agentbus.Reply{Text: "\uFFFD", Usage: agentbus.Usage{InputTokens: 11, OutputTokens: 11, Estimated: true}}},
		"unpaid":      {`{"delta":"a","out":1,"usd":3}`, agentbus.Reply{Text: "a", Usage: agentbus.Usage{OutputTokens: 1}}},
	} {
		tt.want.Finish = "stop"
		got, err := speak(t, execagent.Config{Fields: f}, tt.lines)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := speak(t, execagent.Config{Fields: f}, `{"delta":"`+strings.Repeat("a", 9<<20)+`"}`); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
		t.Errorf("a line of 9 MiB: %v", err)
	}
}
