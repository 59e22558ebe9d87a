// The bus as a client of agents on the SDK of A2A for JavaScript: as a model, in a
// conversation; and what is made of servers that do not keep to the protocol.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { bindings, card, client, collect, peer, say, serve } from "./a2a.mjs";
import { agentbus, configured, startBus, trace, turn, userKey } from "./harness.mjs";

const remote = (p) => ({ kind: "a2a", url: p.url, price: { input: 1, output: 2, call: 0.001 } });
const done = `done: é${"x".repeat(500)}`;

function asker(bus, headers = {}) {
  const openai = new OpenAI({ baseURL: `${bus.url}/v1`, apiKey: userKey, maxRetries: 0, defaultHeaders: headers });
  const messages = (text) => [{ role: "user", content: text }];
  return {
    whole: async (text) => (await openai.chat.completions.create({ model: "peer", messages: messages(text) })).choices[0].message.content,
    streamed: async (text) => {
      const chunks = [];
      for await (const c of await openai.chat.completions.create({ model: "peer", messages: messages(text), stream: true })) chunks.push(c.choices[0]?.delta?.content ?? "");
      return chunks.join("");
    },
  };
}

for (const binding of bindings) {
  test(`an agent of A2A over ${binding} is a model: its artifacts are joined once, whole and streamed (G2, A38)`, async (t) => {
    const p = await peer(t, [binding]);
    for (const i of p.card.supportedInterfaces) i.tenant = "acme"; // A37
    const bus = await startBus(t, { peer: remote(p) });
    const here = turn("peer");
    assert.equal(await asker(bus, here.headers).whole("work"), done);
    assert.equal(await asker(bus).streamed("work"), done);
    assert.equal(await asker(bus).whole("echo é <b>"), "echo é <b>");
    assert.equal(await asker(bus).streamed("echo é <b>"), "echo é <b>");
    assert.ok(p.heads.every((h) => h.url.startsWith(binding === "JSONRPC" ? "/rpc" : "/v/acme/")));
    assert.deepEqual(new Set(p.executor.asked.map((x) => x.tenant)), new Set(["acme"]));
    assert.equal(p.heads[0].headers["a2a-version"], "1.0");
    assert.equal(p.heads[0].headers["x-tangle-turnid"], here.id);
    assert.equal(p.heads[0].headers["x-tangle-forwarded-depth"], "1");
    assert.equal(p.executor.asked[0].message.metadata.agentbus["x-tangle-turnid"], here.id);
    const { calls } = await bus.trace(here.run);
    assert.deepEqual(calls.map((c) => [c.agent, c.payer, c.state]), [["peer", "user-123", "settled"]]);
    assert.equal(calls[0].cost_micros, 1000 + calls[0].usage.input_tokens + 2 * calls[0].usage.output_tokens);
  });

  test(`of an agent that serves A2A 0.3 too, over ${binding}, the bus reads the card of 1.0 (A37)`, async (t) => {
    const p = await peer(t, [binding], true);
    const bus = await startBus(t, { peer: remote(p) });
    assert.equal(await asker(bus).whole("work"), done);
    assert.ok(p.heads.every((h) => h.headers["a2a-version"] === "1.0"));
  });

  test(`what interrupts a task over ${binding}, or ends it badly, is the model's error (A38)`, async (t) => {
    const p = await peer(t, [binding]);
    const bus = await startBus(t, { peer: remote(p) });
    for (const how of ["whole", "streamed"]) {
      for (const [text, want] of [["ask", "input_required"], ["login", /./], ["fail", /./], ["reject", /./], ["throw", /./]]) {
        await assert.rejects(asker(bus)[how](text), (e) => {
          assert.ok(e instanceof OpenAI.APIError, `${how} ${text}: ${e}`);
          if (typeof want === "string") assert.equal(e.code, want);
          return true;
        }, `${how} ${text}`);
      }
    }
  });

  test(`an agent of A2A over ${binding} takes part in a conversation, in a context of its own (A24, K1, R4)`, async (t) => {
    const p = await peer(t, [binding]);
    const bus = await configured(
      { peer: remote(p), eliza: { kind: "builtin", builtin: "eliza" } },
      { conversations: { chat: { participants: [{ agent: "peer" }, { agent: "eliza" }], max_turns: 4 } } },
    );
    const { code, stdout, stderr } = await agentbus(bus, ["run", "chat", "work on it", "--json"]);
    assert.equal(code, 0, stderr);
    const result = JSON.parse(stdout);
    assert.deepEqual(result.turns.map((x) => x.speaker), ["peer", "eliza", "peer", "eliza"]);
    assert.equal(result.turns[0].reply.text, done);
    const [first, second] = p.executor.asked;
    assert.equal(p.executor.asked.length, 2);
    assert.equal(first.context, second.context);
    const heads = p.heads.filter((h) => h.headers["x-tangle-turnid"]);
    assert.deepEqual(new Set(heads.map((h) => h.headers["x-tangle-turnid"])), new Set([`${result.run}.t0.peer`, `${result.run}.t2.peer`]));
    const roots = new Set(heads.map((h) => h.headers["x-kagent-root-context-id"]));
    assert.equal(roots.size, 1);
    assert.ok([...roots][0]);
    const { calls } = await trace(bus, result.run);
    assert.deepEqual(calls.filter((c) => c.agent === "peer").map((c) => [c.state, c.depth]), [["settled", 1], ["settled", 1]]);
  });

  const faults = {
    "an empty stream": (res) => res.writeHead(200, { "content-type": "text/event-stream" }).end(),
    "a stream of comments": (res) => res.writeHead(200, { "content-type": "text/event-stream" }).end(": keepalive\n\n"),
    "a stream that ends while the task works": (res, event) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(event({ task: { id: "t1", contextId: "c1", status: { state: "TASK_STATE_SUBMITTED" } } }));
      res.end(event({ statusUpdate: { taskId: "t1", contextId: "c1", status: { state: "TASK_STATE_WORKING" } } }));
    },
    "a stream that breaks off": (res, event) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(event({ task: { id: "t1", contextId: "c1", status: { state: "TASK_STATE_WORKING" } } }), () => res.destroy());
    },
    "a page": (res) => res.writeHead(200, { "content-type": "text/html" }).end("<html>hello</html>"),
    "events under the wrong type": (res, event) => res.writeHead(200, { "content-type": "text/plain" }).end(event({ message: { messageId: "m1", role: "ROLE_AGENT", parts: [{ text: "hello" }] } })),
  };
  for (const [what, answer] of Object.entries(faults)) {
    test(`${what} over ${binding} is a failure, to the SDK's client behind the bus and to the bus's own (A33, X33, G15)`, async (t) => {
      const url = await serve(t, (req, res) => {
        let body = "";
        req.on("data", (b) => (body += b));
        req.on("end", () => {
          if (req.url.endsWith("agent-card.json")) return res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(card(url, { securitySchemes: {}, securityRequirements: [], supportedInterfaces: card(url).supportedInterfaces.filter((i) => i.protocolBinding === binding) })));
          if (req.method === "GET" || body.includes("GetTask") || body.includes("SubscribeToTask") || req.url.includes("/tasks/")) return res.writeHead(404).end();
          const id = binding === "JSONRPC" && JSON.parse(body).id;
          answer(res, (result) => `data: ${JSON.stringify(id === false ? result : { jsonrpc: "2.0", id, result })}\n\n`);
        });
      });
      const bus = await startBus(t, { peer: { kind: "a2a", url, price: { call: 1 } } });
      const { run, headers } = turn("peer");
      const c = await client(`${bus.url}/a2a/peer`, binding, headers);
      await assert.rejects(collect(c.sendMessageStream(say("work"))), /the agent/); // told in words, not by a broken connection
      const { calls, totals } = await bus.trace(run);
      assert.deepEqual(calls.map((x) => x.state), ["voided"]);
      assert.equal(totals.cost_micros, 0);
      for (const how of ["whole", "streamed"]) {
        const mine = turn("peer");
        await assert.rejects(asker(bus, mine.headers)[how]("work"), (e) => e instanceof OpenAI.APIError, how);
        assert.deepEqual((await bus.trace(mine.run)).calls.map((x) => x.state), ["voided"]);
      }
    });
  }
}
