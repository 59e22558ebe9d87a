// A refusal that a retry cannot change, as real clients take it (P10 to P12).
import assert from "node:assert/strict";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { agent, counted, mock, startBus, turn, userKey } from "./harness.mjs";

async function setup(t) {
  const m = await mock(t);
  m.onMessage("deeper", { content: "Down here." });
  const bus = await startBus(t, { critic: agent(m) });
  return { m, bus, front: await counted(t, bus) };
}

// refusal asserts that a run was refused once, however often it was asked.
async function refusal(bus, m, { run, id }, repeats) {
  const { calls, totals } = await bus.trace(run);
  assert.deepEqual(
    calls.map((c) => [c.turn, c.state, c.code, c.status, c.depth, c.repeats, c.attempts, c.cost_micros]),
    [[id, "refused", "bridge_depth_exceeded", 429, 4, repeats, 0, 0]],
  );
  assert.equal(totals.calls, 0);
  assert.equal(totals.refusals, 1 + repeats);
  assert.equal(m.asked().length, 0);
}

test("openai sends one request for one refusal (P11, P12)", async (t) => {
  const { m, bus, front } = await setup(t);
  const here = turn("critic", 4);
  const client = new OpenAI({ baseURL: `${front.url}/v1`, apiKey: userKey, defaultHeaders: here.headers }); // two retries, its default
  const asked = { model: "critic", messages: [{ role: "user", content: "deeper" }] };
  await assert.rejects(client.chat.completions.create(asked), (e) => {
    assert.ok(e instanceof OpenAI.RateLimitError);
    assert.equal(e.status, 429);
    assert.equal(e.code, "bridge_depth_exceeded");
    assert.match(e.message, /depth 4 reaches the limit of 4/);
    assert.equal(e.headers.get("x-should-retry"), "false");
    assert.equal(e.headers.get("retry-after"), null);
    assert.equal(e.error.explain.rule, "P10");
    return true;
  });
  assert.equal(front.requests.length, 1);
  await refusal(bus, m, here, 0);

  await assert.rejects(client.chat.completions.create({ ...asked, stream: true }), { status: 429, code: "bridge_depth_exceeded" });
  assert.equal(front.requests.length, 2);
});

test("one below the limit is served (P10)", async (t) => {
  const { m, bus } = await setup(t);
  const { run, headers } = turn("critic", 3);
  const client = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: userKey, defaultHeaders: headers });
  const got = await client.chat.completions.create({ model: "critic", messages: [{ role: "user", content: "deeper" }] });
  assert.equal(got.choices[0].message.content, "Down here.");
  assert.equal(m.asked()[0].headers["x-tangle-forwarded-depth"], "4");
  assert.equal((await bus.trace(run)).totals.max_depth, 3);
});

// The client backs off 2 s, then 4 s; the two wait together.
test("ai sends three requests whatever a refusal says: one refusal, two repeats, no call (P12)", async (t) => {
  const { m, bus, front } = await setup(t);
  const provider = (here) => createOpenAICompatible({ name: "bus", baseURL: `${front.url}/v1`, apiKey: userKey, headers: here.headers })("critic");
  const [whole, streamed] = [turn("critic", 4), turn("critic", 4)];
  const refused = (e) => {
    assert.equal(e.reason, "maxRetriesExceeded");
    assert.equal(e.lastError.statusCode, 429);
    assert.equal(e.lastError.data.error.code, "bridge_depth_exceeded");
    return true;
  };
  const errors = [];
  await Promise.all([
    assert.rejects(generateText({ model: provider(whole), prompt: "deeper" }), refused),
    streamText({ model: provider(streamed), prompt: "deeper", onError: ({ error }) => errors.push(error) }).consumeStream(),
  ]);
  assert.equal(errors.length, 1);
  refused(errors[0]);
  assert.equal(front.requests.length, 6);
  await refusal(bus, m, whole, 2);
  await refusal(bus, m, streamed, 2);
});
