// Package openai speaks OpenAI's chat completions API, in both directions.
//
// A [Backend] calls an agent at an OpenAI-compatible URL; [Handler] serves any
// [agentbus.Backend] at such a URL. Text, tool calls, reasoning, usage and cost
// travel in the body, and lineage in the headers of the protocol only.
package openai
