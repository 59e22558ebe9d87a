package execagent

// ClaudeStreamJSON returns the fields of what claude --print --verbose
// --output-format stream-json writes, word by word with --include-partial-messages.
func ClaudeStreamJSON() Fields {
	return Fields{ //nolint:gosec // paths, no credentials
		Type: "type", Types: []string{"assistant", "result", "stream_event"}, Nested: "parent_tool_use_id",
		Text: `message.content.#(type=="text")#.text`, Between: "\n\n", Reasoning: `message.content.#(type=="thinking")#.thinking`,
		TextPiece: "event.delta.text", ReasoningPiece: "event.delta.thinking",
		// A result without is_error can have failed, by its subtype: such as error_max_turns.
		Result: "result", Error: `[is_error,[@this].#(subtype%"error*").subtype]`, ErrorText: "[result,errors.0,subtype]",
		Model: "message.model", Session: "session_id",
		ToolName: `message.content.#(type=="tool_use")#.name`, ToolInput: `message.content.#(type=="tool_use")#.input`,
		InputTokens:  []string{"usage.input_tokens", "usage.cache_creation_input_tokens", "usage.cache_read_input_tokens"},
		CachedTokens: "usage.cache_read_input_tokens", OutputTokens: "usage.output_tokens", Cost: "total_cost_usd",
	}
}

// CodexJSON returns the fields of what codex exec --json writes. Items that begin
// are passed over, those that are done are told; a line of type error can be one
// that codex recovers from.
func CodexJSON() Fields {
	return Fields{ //nolint:gosec // paths, no credentials
		Type: "type", Types: []string{"item.completed", "turn.completed", "turn.failed"},
		Text: `[item].#(type=="agent_message")#.text`, Between: "\n\n", Reasoning: `[item].#(type=="reasoning")#.text`,
		Error: "error", ErrorText: "error.message", Session: "thread_id",
		ToolName: `[[item].#(type=="command_execution").type,[item].#(type=="mcp_tool_call").tool,` +
			`[item].#(type=="web_search").type,[item].#(type=="file_change").type]`,
		ToolInput: `[[item].#(type=="command_execution").command,[item].#(type=="mcp_tool_call").arguments,` +
			`[item].#(type=="web_search").query,[item].#(type=="file_change").changes]`,
		InputTokens: []string{"usage.input_tokens"}, CachedTokens: "usage.cached_input_tokens", OutputTokens: "usage.output_tokens",
	}
}
