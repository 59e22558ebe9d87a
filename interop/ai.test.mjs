// The Vercel AI SDK, as its users have it, against the bus.
import assert from "node:assert/strict";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { agent, agentKey, mock, startBus, turn, userKey } from "./harness.mjs";

async function setup(t) {
  const m = await mock(t, { chunkSize: 5 });
  m.onMessage("in words", { content: "One word after the other, as they come." });
  m.on({ userMessage: "weather" }, { toolCalls: [{ id: "call_1", name: "weather", arguments: { city: "Bern", days: 3 } }, { id: "call_2", name: "weather", arguments: { city: "Chur", days: 1 } }] });
  const bus = await startBus(t, { critic: agent(m) });
  const direct = createOpenAICompatible({ name: "direct", baseURL: `${m.url}/v1`, apiKey: agentKey, includeUsage: true })("critic");
  const through = (headers) => createOpenAICompatible({ name: "bus", baseURL: `${bus.url}/v1`, apiKey: userKey, headers, includeUsage: true })("critic");
  return { m, bus, direct, through };
}

test("streamText and generateText through the bus equal the direct answer", async (t) => {
  const { bus, direct, through } = await setup(t);
  const here = turn("critic");
  const read = async (model) => {
    const r = streamText({ model, prompt: "in words" });
    const parts = [];
    for await (const p of r.textStream) parts.push(p);
    return { parts, finish: await r.finishReason, usage: (await r.usage).totalTokens };
  };
  const want = await read(direct);
  assert.ok(want.parts.length > 3);
  assert.deepEqual(await read(through(here.headers)), want); // piece by piece (G10)
  assert.deepEqual(await read(through(here.headers)), want); // and from memory (G23)
  assert.equal((await generateText({ model: through(turn("critic").headers), prompt: "in words" })).text, want.parts.join(""));
  const { calls } = await bus.trace(here.run);
  assert.deepEqual(calls.map((c) => [c.state, c.attempts, c.replays]), [["settled", 1, 1]]);
});

test("streamed tool calls survive, whole and in order", async (t) => {
  const { m, direct, through } = await setup(t);
  const tools = { weather: tool({ description: "of a city", inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" }, days: { type: "number" } } }) }) };
  const read = async (model) => {
    const r = streamText({ model, tools, prompt: "weather" });
    await r.consumeStream();
    return (await r.toolCalls).map(({ toolCallId, toolName, input }) => ({ toolCallId, toolName, input }));
  };
  const want = await read(direct);
  assert.deepEqual(want.map((c) => c.input.city), ["Bern", "Chur"]);
  assert.deepEqual(await read(through(turn("critic").headers)), want);
  assert.equal(m.asked().at(-1).body.tools[0].function.name, "weather");
  const whole = await generateText({ model: through(turn("critic").headers), tools, prompt: "weather" });
  assert.deepEqual(whole.toolCalls.map((c) => c.input), want.map((c) => c.input));
});
