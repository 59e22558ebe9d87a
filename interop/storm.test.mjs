// A storm of retries by clients that others wrote, through four hops, with
// agents that fail, hang and drop their answer in the middle: one execution
// that counts, and one charge, per turn and hop (G20 to G23, P12, I1, I7).
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { startBus, swarmKey, turn, userKey } from "./harness.mjs";

const hops = ["first", "second", "third", "last"];
const turns = 16;
const duplicates = 4; // of each turn, at once
const retries = 8;

const question = [{ role: "user", content: "what is it?" }];

// An agent answers with what the agent behind it said. trouble tells, for a
// turn and its execution, what goes wrong: fail, hang or drop.
async function startAgent(t, name, ask, trouble) {
  const begun = {};
  const server = http.createServer(async (req, res) => {
    const body = JSON.parse(Buffer.concat(await req.toArray()));
    const id = req.headers["x-tangle-turnid"];
    const execution = (begun[id] = (begun[id] ?? 0) + 1);
    const wrong = trouble(id, execution);
    if (wrong === "hang") return; // until the caller gives up
    if (wrong === "fail") return res.writeHead(500, { "content-type": "application/json" }).end('{"error":{"message":"not now"}}');
    let text;
    try {
      text = `${name} (execution ${execution}) > ${await ask(req.headers)}`;
    } catch (err) {
      return res.writeHead(502, { "content-type": "application/json" }).end(JSON.stringify({ error: { message: String(err) } }));
    }
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const base = { id: `c-${id}-${execution}`, created: 1, model: name };
    if (body.stream) {
      res.writeHead(200, { "content-type": "text/event-stream" });
      const event = (delta, finish_reason, more) => `data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }], ...more })}\n\n`;
      res.write(event({ role: "assistant", content: text.slice(0, 7) }, null));
      if (wrong === "drop") return void setTimeout(() => res.destroy(), 20);
      res.end(event({ content: text.slice(7) }, null) + event({}, "stop", { usage }) + "data: [DONE]\n\n");
    } else {
      const whole = JSON.stringify({ ...base, object: "chat.completion", choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }], usage });
      res.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(whole) });
      if (wrong === "drop") return void res.write(whole.slice(0, 30), () => res.destroy());
      res.end(whole);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { begun, config: { kind: "openai", url: `http://127.0.0.1:${server.address().port}/v1`, price: { call: 0.001 } } };
}

// onward calls the next agent through the bus, as a runtime does inside a turn:
// a turn of its own, one deeper, on the origin's bill (P8, P21).
const onward = (bus, next, stream) => async (headers) => {
  const run = headers["x-tangle-runid"];
  const client = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: swarmKey, maxRetries: retries });
  const request = client.chat.completions.create({ model: next, messages: question, stream }, {
    headers: {
      "x-tangle-runid": run,
      "x-tangle-turnid": `${run}.t0.${next}`,
      "x-tangle-parent-turnid": headers["x-tangle-turnid"],
      "x-tangle-forwarded-depth": String(Number(headers["x-tangle-forwarded-depth"]) + 1),
      "x-tangle-forwarded-authorization": headers["x-tangle-forwarded-authorization"],
    },
  });
  const answer = await request;
  if (!stream) return answer.choices[0].message.content;
  let text = "";
  for await (const chunk of answer) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
};

// tapped is a fetch that keeps every whole answer, to the byte.
function tapped(bodies) {
  return async (url, init) => {
    const answer = await fetch(url, init);
    if (answer.status !== 200) return answer;
    const [mine, theirs] = answer.body.tee();
    bodies.push(new Response(mine).arrayBuffer().then(Buffer.from, () => Buffer.of())); // a cut answer is none
    return new Response(theirs, { status: answer.status, headers: answer.headers });
  };
}

// The four clients. Each is asked for one turn and retries by itself; a stream
// that breaks is asked for again, as a user would.
const clients = [
  async ({ bus, here, fetch }) => {
    const client = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: userKey, maxRetries: retries, timeout: 1500, fetch, defaultHeaders: here.headers });
    return (await client.chat.completions.create({ model: hops[0], messages: question })).choices[0].message.content;
  },
  async ({ bus, here, fetch }) => {
    const client = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: userKey, maxRetries: retries, fetch, defaultHeaders: here.headers });
    let text = "";
    for await (const chunk of await client.chat.completions.create({ model: hops[0], messages: question, stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
    return text;
  },
  async ({ bus, here, fetch }) => {
    const provider = createOpenAICompatible({ name: "bus", baseURL: `${bus.url}/v1`, apiKey: userKey, headers: here.headers, fetch });
    return (await generateText({ model: provider(hops[0]), prompt: "what is it?", maxRetries: retries })).text;
  },
  async ({ bus, here, fetch }) => {
    const provider = createOpenAICompatible({ name: "bus", baseURL: `${bus.url}/v1`, apiKey: userKey, headers: here.headers, fetch });
    let failed;
    const { textStream } = streamText({ model: provider(hops[0]), prompt: "what is it?", maxRetries: retries, onError: ({ error }) => (failed = error) });
    let text = "";
    for await (const part of textStream) text += part;
    if (failed) throw failed;
    return text;
  },
];

async function insistently(ask) {
  for (let n = 1; ; n++) {
    try {
      return await ask();
    } catch (err) {
      if (n === retries) throw err;
    }
  }
}

test("a storm of retries through four hops is executed and charged once a turn", { timeout: 120_000 }, async (t) => {
  const bus = { url: "" }; // the agents know it once it serves
  const numberOf = (id) => Number(id.split(".")[0].split("_").at(-1)) % turns;
  const wrongs = [undefined, "fail", "hang", "drop"];
  const trouble = {
    last: (id, execution) => (execution === 1 ? wrongs[numberOf(id) % 4] : undefined),
    second: (id, execution) => (execution === 1 && numberOf(id) % 5 === 0 ? "drop" : undefined),
  };
  const agents = {};
  for (const [i, name] of hops.entries()) {
    const ask = i + 1 < hops.length ? onward(bus, hops[i + 1], i % 2 === 1) : async () => "it is charged once";
    agents[name] = await startAgent(t, name, (h) => ask(h), trouble[name] ?? (() => undefined));
  }
  const served = await startBus(t, Object.fromEntries(hops.map((n) => [n, agents[n].config])), {
    keys: [{ id: "user-123", secret_env: "USER_KEY" }, { id: "swarm", secret_env: "SWARM_KEY", inter_agent: true }],
    limits: { max_depth: 16, response_header: "1500ms" },
  });
  bus.url = served.url;

  const asked = Array.from({ length: turns }, (_, i) => ({ here: turn(hops[0]), client: clients[i % clients.length], bodies: [] }));
  await Promise.all(asked.flatMap((a) => Array.from({ length: duplicates }, async () => {
    const text = await insistently(() => a.client({ bus, here: a.here, fetch: tapped(a.bodies) }));
    assert.match(text, /^first \(execution \d+\) > second \(execution \d+\) > third \(execution \d+\) > last \(execution \d+\) > it is charged once$/);
    a.text ??= text;
    assert.equal(text, a.text);
  })));
  let voided = 0;
  for (const { here, client, bodies, text } of asked) {
    assert.equal(await client({ bus, here, fetch: tapped(bodies) }), text); // and once more, from memory
    const whole = (await Promise.all(bodies)).filter((b) => b.includes("charged once"));
    assert.ok(whole.length > duplicates, `${whole.length} answers of ${here.run}`);
    for (const b of whole) assert.ok(b.equals(whole[0]), `two answers of ${here.run} differ`);

    const { calls, totals } = await served.trace(here.run);
    assert.deepEqual(calls.map((c) => [c.agent, c.state, c.cost_micros, c.payer]), hops.map((n) => [n, "settled", 1000, "user-123"]));
    assert.equal(totals.cost_micros, 4000);
    for (const { agent, attempts } of calls) {
      const id = `${here.run}.t0.${agent}`;
      assert.equal(agents[agent].begun[id], attempts, `${id}: the ledger and the agent count the same executions`);
      voided += attempts - 1;
    }
  }
  assert.ok(voided >= turns / 2, `${voided} attempts failed`);
});
