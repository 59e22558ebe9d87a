// The openai client, as its users have it, against the bus.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { agent, agentKey, mock, startBus, turn, userKey } from "./harness.mjs";

const messages = [{ role: "user", content: "is this right?" }];

async function setup(t) {
  const m = await mock(t, { chunkSize: 4, auth: { apiKeys: [agentKey] } }); // 401 without it (P22)
  m.onMessage("is this right?", { content: "Not quite: look again at step two." });
  const bus = await startBus(t, { critic: agent(m, { aliases: ["house/critic"], model: "gpt-mock" }) });
  const client = (base, more) => new OpenAI({ baseURL: bus.url + base, apiKey: userKey, maxRetries: 0, ...more });
  return { m, bus, client };
}

async function text(stream) {
  let said = "";
  for await (const c of stream) said += c.choices[0]?.delta?.content ?? "";
  return said;
}

test("chat completions, whole and streamed, say what the agent says", async (t) => {
  const { m, client } = await setup(t);
  const direct = new OpenAI({ baseURL: `${m.url}/v1`, apiKey: agentKey });
  const want = (await direct.chat.completions.create({ model: "gpt-mock", messages })).choices[0].message.content;
  const c = client("/v1");

  const whole = await c.chat.completions.create({ model: "critic", messages });
  assert.equal(whole.choices[0].message.content, want);
  const streamed = await c.chat.completions.create({ model: "critic", messages, stream: true });
  assert.equal(await text(streamed), want);
  assert.equal(m.asked().at(-1).body.model, "gpt-mock"); // G9: the agent's own name of its model
  const helper = await c.chat.completions.stream({ model: "critic", messages }).finalContent();
  assert.equal(helper, want);
});

test("an agent is found by name, alias and path (G1)", async (t) => {
  const { m, bus, client } = await setup(t);
  for (const model of ["critic", "house/critic", "agent/critic", "bridge/openai/critic"]) {
    const got = await client("/v1").chat.completions.create({ model, messages });
    assert.match(got.choices[0].message.content, /step two/, model);
  }
  for (const base of ["/agents/critic/v1", "/agents/critic"]) {
    const got = await client(base).chat.completions.create({ model: "whatever", messages });
    assert.match(got.choices[0].message.content, /step two/, base);
    assert.equal(m.asked().at(-1).path, "/v1/chat/completions", base);
  }
  const models = await client("/v1").models.list();
  assert.deepEqual(models.data.map((x) => x.id), ["critic"]);
  assert.equal((await client("/v1").models.retrieve("critic")).id, "critic");
  assert.equal((await fetch(`${bus.url}/v1/models`)).status, 401); // G4
});

test("the responses API passes, whole and streamed, and is charged by its usage (G26)", async (t) => {
  const { m, bus, client } = await setup(t);
  m.onMessage("how much?", { content: "Five tokens for you.", usage: { input_tokens: 7, output_tokens: 5 } });
  const asked = { model: "critic", input: "how much?" };
  const first = turn("critic"), second = turn("critic");
  const whole = await client("/v1", { defaultHeaders: first.headers }).responses.create(asked);
  assert.equal(whole.output_text, "Five tokens for you.");
  let said = "", types = [];
  for await (const e of await client("/v1", { defaultHeaders: second.headers }).responses.create({ ...asked, stream: true })) {
    types.push(e.type);
    if (e.type === "response.output_text.delta") said += e.delta;
  }
  assert.equal(said, whole.output_text);
  assert.equal(types.at(-1), "response.completed");
  for (const { run } of [first, second]) {
    const [call] = (await bus.trace(run)).calls;
    assert.equal(call.state, "settled");
    assert.deepEqual(call.usage, { input_tokens: 7, output_tokens: 5 });
    assert.equal(call.cost_micros, 1000 + 7 + 2 * 5);
  }
});

test("refusals read as the client's own errors, with our code and words", async (t) => {
  const { m, client } = await setup(t);
  const ask = (c, model = "critic") => c.chat.completions.create({ model, messages });
  await assert.rejects(ask(client("/v1"), "nobody"), (e) => { // G1
    assert.ok(e instanceof OpenAI.NotFoundError);
    assert.equal(e.code, "agent_not_found");
    assert.match(e.message, /there is no agent "nobody"; you may call: critic/);
    return true;
  });
  await assert.rejects(ask(client("/v1", { apiKey: "wrong" })), (e) => { // G4
    assert.ok(e instanceof OpenAI.AuthenticationError);
    assert.equal(e.code, "unauthenticated");
    assert.ok(!e.message.includes("wrong"));
    return true;
  });
  await assert.rejects(ask(client("/v1", { defaultHeaders: { "x-tangle-forwarded-depth": "four" } })), (e) => { // P3
    assert.ok(e instanceof OpenAI.BadRequestError);
    assert.equal(e.code, "invalid_depth");
    return true;
  });
  assert.equal(m.asked().length, 0);
});

test("what the agent reads is the lineage, not the caller's key (P8, P21, P22)", async (t) => {
  const { m, bus, client } = await setup(t);
  const { run, id, headers } = turn("critic");
  await client("/v1", { defaultHeaders: headers }).chat.completions.create({ model: "critic", messages });
  const got = m.asked()[0].headers;
  assert.equal(got["x-tangle-forwarded-depth"], "1"); // P8: forward counts one
  assert.equal(got["x-tangle-runid"], run);
  assert.equal(got["x-tangle-turnid"], id);
  assert.equal(got["x-tangle-parent-turnid"], undefined); // at top level
  assert.equal(got["x-tangle-forwarded-authorization"], `Bearer ${userKey}`); // P21
  assert.ok(got.authorization); // P22: the agent's own key; another one is a 401 there
  const { calls } = await bus.trace(run);
  assert.deepEqual(calls.map((c) => [c.agent, c.turn, c.depth, c.payer, c.state]), [["critic", id, 0, "user-123", "settled"]]);
});

test("ids that are missing are minted and told (P7)", async (t) => {
  const { m, client } = await setup(t);
  const { response } = await client("/v1").chat.completions.create({ model: "critic", messages }).withResponse();
  const run = response.headers.get("x-tangle-runid");
  assert.match(run, /^run_[0-9a-f-]{36}$/);
  assert.equal(response.headers.get("x-tangle-turnid"), `${run}.t0.critic`);
  assert.equal(m.asked()[0].headers["x-tangle-runid"], run);
});
