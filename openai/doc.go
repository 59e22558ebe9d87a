// Package openai speaks the chat completions dialect, in both directions.
//
// A [Backend] calls an agent that is an OpenAI-compatible URL; [Handler] makes
// any [agentbus.Backend] such a URL. What travels is text, tool calls,
// reasoning, usage and cost. Lineage travels in the headers of the protocol and
// nowhere else.
package openai
