// Once per turn, charged once, whatever a client does (G20 to G24).
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { agent, counted, mock, startBus, turn, userKey } from "./harness.mjs";

const messages = [{ role: "user", content: "what is it?" }];
const answer = "It is charged once.";

async function setup(t, options) {
  const m = await mock(t, options);
  const bus = await startBus(t, { critic: agent(m) });
  return { m, bus };
}

// post sends a turn as it is and returns the answer to the byte.
async function post(bus, here, body) {
  const r = await fetch(`${bus.url}/v1/chat/completions`, {
    method: "POST", body: JSON.stringify(body),
    headers: { ...here.headers, authorization: `Bearer ${userKey}`, "content-type": "application/json" },
  });
  return { status: r.status, headers: r.headers, body: Buffer.from(await r.arrayBuffer()) };
}

for (const stream of [false, true]) {
  test(`the same turn twice gets the same bytes, from memory, ${stream ? "streamed" : "whole"} (G23)`, async (t) => {
    const { m, bus } = await setup(t, { chunkSize: 3 });
    m.onMessage("what is it?", { content: answer }); // a new id for every execution
    const here = turn("critic");
    const body = { model: "critic", messages, stream };
    const first = await post(bus, here, body);
    const second = await post(bus, here, body);
    assert.equal(first.status, 200);
    assert.equal(first.headers.get("x-agentbus-replay"), null);
    assert.equal(second.status, 200);
    assert.equal(second.headers.get("x-agentbus-replay"), "hit");
    assert.equal(second.headers.get("content-type"), first.headers.get("content-type"));
    assert.equal(second.headers.get("x-request-id"), first.headers.get("x-request-id"));
    assert.equal(second.headers.get("x-agentbus-cost-usd"), "0.000000");
    assert.ok(first.body.length > 0 && first.body.equals(second.body));
    assert.equal(m.asked().length, 1);
    const { calls, totals } = await bus.trace(here.run);
    assert.deepEqual(calls.map((c) => [c.state, c.attempts, c.replays, c.stream]), [["settled", 1, 1, stream]]);
    assert.equal(second.headers.get("x-agentbus-turn-cost-usd"), (calls[0].cost_micros / 1e6).toFixed(6));
    assert.ok(totals.cost_micros > 0);
    assert.deepEqual(totals.by_payer_micros, { "user-123": totals.cost_micros });

    const other = await post(bus, here, { ...body, messages: [{ role: "user", content: "something else" }] }); // G20
    assert.equal(other.status, 422);
    assert.equal(JSON.parse(other.body).error.code, "turn_mismatch");
    assert.equal(m.asked().length, 1);
  });
}

test("a client that retries a failure is charged once (G20)", async (t) => {
  const { m, bus } = await setup(t);
  m.onMessage("what is it?", { content: answer });
  m.nextRequestError(500, { message: "not today" });
  const front = await counted(t, bus);
  const here = turn("critic");
  const client = new OpenAI({ baseURL: `${front.url}/v1`, apiKey: userKey, maxRetries: 2, defaultHeaders: here.headers });
  const { data, response } = await client.chat.completions.create({ model: "critic", messages }).withResponse();
  assert.equal(data.choices[0].message.content, answer);
  assert.equal(response.headers.get("x-agentbus-attempts"), "2");
  assert.equal(response.headers.get("x-agentbus-replay"), null);
  assert.deepEqual(front.requests.map((r) => r.headers["x-stainless-retry-count"]), ["0", "1"]);
  assert.deepEqual(new Set(m.asked().map((r) => r.headers["x-tangle-turnid"])), new Set([here.id]));
  assert.equal(m.asked().length, 2);
  const { calls, totals } = await bus.trace(here.run);
  assert.deepEqual(calls.map((c) => [c.state, c.attempts, c.replays, c.status]), [["settled", 2, 0, 200]]);
  assert.equal(totals.cost_micros, 1000 + calls[0].usage.input_tokens + 2 * calls[0].usage.output_tokens);
});

test("a stream that breaks off is an error to its client, and what it used nobody pays (G15, G20)", async (t) => {
  const { m, bus } = await setup(t, { chunkSize: 4 });
  m.on({ userMessage: "what is it?", sequenceIndex: 0 }, { content: answer }, { truncateAfterChunks: 4, streamingProfile: { ttft: 20, tps: 100 } });
  m.on({ userMessage: "what is it?", sequenceIndex: 1 }, { content: answer });
  const here = turn("critic");
  const client = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: userKey, defaultHeaders: here.headers });
  const said = async () => {
    let text = "";
    for await (const c of await client.chat.completions.create({ model: "critic", messages, stream: true })) text += c.choices[0]?.delta?.content ?? "";
    return text;
  };
  await assert.rejects(said());
  const failed = (await bus.trace(here.run)).calls[0];
  assert.deepEqual([failed.state, failed.cost_micros], ["voided", 0]);
  assert.ok(failed.unbilled_micros > 0);

  assert.equal(await said(), answer);
  assert.equal(m.asked().length, 2);
  const { calls } = await bus.trace(here.run);
  assert.deepEqual(calls.map((c) => [c.state, c.attempts, c.unbilled_micros]), [["settled", 2, failed.unbilled_micros]]);
});

test("a client that times out finds its first request still at work, and gets its answer (G14, G22)", async (t) => {
  const { m, bus } = await setup(t);
  let open;
  const gate = new Promise((resolve) => (open = resolve));
  m.onMessage("what is it?", async () => {
    await gate;
    return { content: answer };
  });
  // The agent answers a moment after the retry has been sent, when the bus has had time to read it.
  const front = await counted(t, bus, (n) => n === 2 && setTimeout(open, 150));
  const here = turn("critic");
  const client = new OpenAI({ baseURL: `${front.url}/v1`, apiKey: userKey, timeout: 700, maxRetries: 1, defaultHeaders: here.headers });
  const { data, response } = await client.chat.completions.create({ model: "critic", messages }).withResponse();
  assert.equal(data.choices[0].message.content, answer);
  assert.equal(response.headers.get("x-agentbus-replay"), "attached");
  assert.equal(front.requests.length, 2);
  assert.equal(m.asked().length, 1);
  const { calls } = await bus.trace(here.run);
  assert.deepEqual(calls.map((c) => [c.state, c.attempts, c.replays]), [["settled", 1, 1]]);
});

test("a duplicate of a stream gets the frames so far and then the live ones, to the byte (G22)", async (t) => {
  const { m, bus } = await setup(t, { chunkSize: 1 });
  m.onMessage("what is it?", { content: answer }, { streamingProfile: { ttft: 1, tps: 50 } }); // some 400 ms
  const here = turn("critic");
  const send = () => fetch(`${bus.url}/v1/chat/completions`, {
    method: "POST", body: JSON.stringify({ model: "critic", messages, stream: true }),
    headers: { ...here.headers, authorization: `Bearer ${userKey}`, "content-type": "application/json" },
  });
  const first = await send(); // its head is here: the stream has begun
  const second = await send();
  assert.equal(first.headers.get("x-agentbus-replay"), null);
  assert.equal(second.headers.get("x-agentbus-replay"), "attached");
  const [a, b] = await Promise.all([first.text(), second.text()]);
  assert.ok(a.endsWith("data: [DONE]\n\n"));
  assert.equal(b, a);
  assert.equal(m.asked().length, 1);
});
