// The SDK of A2A for JavaScript, client and server, direct and with the bus in
// between: the same both ways (A18).
import assert from "node:assert/strict";
import test from "node:test";
import { TaskState, alike, bindings, client, collect, part, peer, say } from "./a2a.mjs";
import { agentbus, startBus, turn, userKey } from "./harness.mjs";

const behind = (p, more = {}) => ({ kind: "a2a", url: p.url, price: { input: 1, output: 2, call: 0.001 }, ...more });

// until reads a stream until an event of a kind has come, and hands the rest on.
async function until(stream, kind) {
  const seen = [];
  for (;;) {
    const { value, done } = await stream.next();
    if (done) return seen;
    seen.push(value);
    if (kind(value.payload)) return seen;
  }
}

// One part of each kind.
const kinds = [
  part("parts é\u2028 <b>&amp;"), part({ n: 1.5, deep: [null, { "": "" }] }, "data", "application/json"), part(Buffer.from([0, 255, 10, 13]), "raw", "application/octet-stream", { filename: "a.bin" }),
  part("https://example.com/a?b=c&d#e", "url", "image/png", { metadata: { alt: "é" } }),
];

// talk does all that the client can, and returns what came of each step.
async function talk(c) {
  const steps = [];
  const step = async (name, what) => {
    const got = await (async () => what())().catch((e) => e);
    steps.push([name, got]);
    return got;
  };
  const stream = (text, more) => () => collect(c.sendMessageStream(say(text, more)));
  await step("echo", () => c.sendMessage(say("echo é\u2028 <b>")));
  await step("parts", () => c.sendMessage(say("parts", { parts: kinds, metadata: { mine: { a: [1, null] } } }, { metadata: { request: true } })));
  const done = await step("task", () => c.sendMessage(say("work")));
  await step("get", () => c.getTask({ tenant: "", id: done.id }));
  await step("get without history", () => c.getTask({ tenant: "", id: done.id, historyLength: 0 }));
  await step("cancel what is over", () => c.cancelTask({ tenant: "", id: done.id }));
  await step("subscribe to what is over", () => collect(c.resubscribeTask({ tenant: "", id: done.id })));
  await step("go on with what is over", () => c.sendMessage(say("work", { taskId: done.id, contextId: done.contextId })));
  await step("get nobody's", () => c.getTask({ tenant: "", id: "nobody" }));
  await step("list", () => c.listTasks({ tenant: "", contextId: done.contextId, status: 0, pageToken: "", pageSize: 5, includeArtifacts: true }));
  for (const how of ["fail", "reject", "login", "throw"]) await step(how, () => c.sendMessage(say(how)));
  for (const how of ["echo", "work", "ask", "fail", "login", "throw"]) await step(`stream ${how}`, stream(how));
  await step("stream to nobody's task", stream("work", { taskId: "nobody" }));

  const asked = await step("ask", () => c.sendMessage(say("ask")));
  assert.equal(asked.status?.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  await step("answer", () => c.sendMessage(say("this one", { taskId: asked.id, contextId: asked.contextId })));
  const again = await step("ask again", () => c.sendMessage(say("ask")));
  await step("answer, streamed", stream("that one", { taskId: again.id, contextId: again.contextId }));

  const running = c.sendMessageStream(say("long"));
  const began = await until(running, (p) => p.$case === "statusUpdate");
  const id = began[0].payload.value.id;
  const second = c.resubscribeTask({ tenant: "", id });
  steps.push(["subscribed", await until(second, (p) => p.$case === "task")]);
  await step("cancel", () => c.cancelTask({ tenant: "", id }));
  steps.push(["both streams", await Promise.all([collect(running), collect(second)])]);

  const early = await step("at once", () => c.sendMessage(say("long", {}, { configuration: { acceptedOutputModes: ["text/plain"], returnImmediately: true } })));
  await step("cancel it", () => c.cancelTask({ tenant: "", id: early.id }));
  await step("webhooks", () => c.listTaskPushNotificationConfig({ tenant: "", taskId: early.id, pageSize: 0, pageToken: "" }));
  return steps;
}

for (const binding of bindings) {
  test(`the SDK's client makes the same of the SDK's server over ${binding}, with the bus in between (A11, A14, A18)`, async (t) => {
    const p = await peer(t);
    const bus = await startBus(t, { peer: behind(p) });
    const direct = await talk(await client(p.url, binding));
    const through = await talk(await client(`${bus.url}/a2a/peer`, binding));
    const name = ([what]) => what;
    assert.deepEqual(through.map(name), direct.map(name));
    for (const [i, [what, got]] of through.entries()) assert.deepEqual(alike(got), alike(direct[i][1]), what);
  });
}

test("the card names the bus and nobody else; agents check reads the SDK's own (A10, X37)", async (t) => {
  const p = await peer(t);
  const bus = await startBus(t, { peer: behind(p) });
  const at = `${bus.url}/a2a/peer`;
  const direct = await (await fetch(`${p.url}/.well-known/agent-card.json`)).json();
  assert.deepEqual(Object.keys(direct.securitySchemes.key), ["scheme"]); // as the SDK writes it: { scheme: { $case, value } }

  const headers = { authorization: `Bearer ${userKey}` };
  const answer = await fetch(`${at}/.well-known/agent-card.json`, { headers });
  const text = await answer.text();
  const card = JSON.parse(text);
  assert.deepEqual(card.supportedInterfaces.map((i) => [i.url, i.protocolBinding, i.protocolVersion]), [[at, "JSONRPC", "1.0"], [`${at}/rest`, "HTTP+JSON", "1.0"]]);
  assert.ok(!text.includes(new URL(p.url).host) && !text.includes("$case") && !text.includes("signatures"));
  assert.deepEqual(card.securitySchemes, { bearer: { httpAuthSecurityScheme: { scheme: "Bearer" } } });
  const again = await fetch(`${at}/.well-known/agent-card.json`, { headers: { ...headers, "if-none-match": answer.headers.get("etag") } });
  assert.equal(again.status, 304);

  for (const binding of bindings) { // what does not change is what it was, and the SDK reads the rest
    const read = async (base) => {
      const c = await client(base, binding);
      const { supportedInterfaces, securitySchemes, securityRequirements, signatures, provider, ...rest } = await c.getAgentCard();
      return { rest, securitySchemes, securityRequirements };
    };
    const [one, two] = [await read(p.url), await read(at)];
    assert.equal(two.rest.name, "peer, extended");
    assert.deepEqual(two.rest, one.rest);
    assert.equal(two.securitySchemes.bearer.scheme.$case, "httpAuthSecurityScheme");
    assert.deepEqual(two.securityRequirements, [{ schemes: { bearer: { list: [] } } }]);
  }

  const { code, stdout, stderr } = await agentbus(bus, ["agents", "check", p.url, "--json"]);
  assert.equal(code, 0, stderr);
  const told = JSON.parse(stdout);
  assert.equal(told.usable, true);
  assert.deepEqual(told.security_schemes.map((s) => [s.name, s.kind, s.give]), [["key", "http", "api_key_env"]]);
  assert.deepEqual(told.security_required, [["key"]]);
  assert.match(JSON.stringify(told.findings), /the JavaScript SDK's generator/);
});

for (const binding of bindings) {
  test(`the agent reads the lineage once, the ledger has the bill, and a duplicate is no second execution, over ${binding} (P8, P22, A20, K6)`, async (t) => {
    const p = await peer(t);
    const bus = await startBus(t, { peer: behind(p) });
    const here = turn("peer");
    const sent = { ...here.headers, "x-kagent-root-context-id": "chat-1", "x-kagent-parent-context-id": "router-2" };
    const c = await client(`${bus.url}/a2a/peer`, binding, sent);
    const asked = say("work");
    const done = await c.sendMessage(asked);
    const replayed = await c.sendMessage(asked);
    assert.deepEqual(replayed, done);
    assert.equal(p.executor.asked.length, 1);

    const [head] = p.heads;
    assert.equal(p.heads.length, 1);
    const values = (name) => head.raw.filter((_, i) => i % 2 === 0 && head.raw[i].toLowerCase() === name).length;
    const want = {
      "x-tangle-runid": here.run, "x-tangle-turnid": here.id, "x-tangle-forwarded-depth": "1", "x-tangle-forwarded-authorization": `Bearer ${userKey}`,
      "x-kagent-root-context-id": "chat-1", "x-kagent-parent-context-id": "router-2", "a2a-version": "1.0",
    };
    for (const [name, value] of Object.entries(want)) {
      assert.equal(head.headers[name], value, name);
      assert.equal(values(name), 1, name);
    }
    assert.equal(head.headers.authorization, undefined); // the caller's key is not the agent's
    assert.deepEqual(p.executor.asked[0].message.metadata.agentbus, {
      "x-tangle-runid": here.run, "x-tangle-turnid": here.id, "x-tangle-forwarded-depth": "1",
      "x-kagent-root-context-id": "chat-1", "x-kagent-parent-context-id": "router-2",
    });

    const { calls, totals } = await bus.trace(here.run);
    assert.deepEqual(calls.map((x) => [x.agent, x.turn, x.depth, x.payer, x.state, x.attempts, x.replays, x.stream]), [["peer", here.id, 0, "user-123", "settled", 1, 1, false]]);
    assert.equal(totals.cost_micros, 1000 + calls[0].usage.input_tokens + 2 * calls[0].usage.output_tokens);

    const keyed = await client(`${bus.url}/a2a/peer`, binding, { "idempotency-key": `key-${binding}` });
    const again = say("work");
    const first = await collect(keyed.sendMessageStream(again));
    const second = await collect(keyed.sendMessageStream(again));
    assert.deepEqual(second, first);
    assert.deepEqual(first.map((e) => e.payload.$case), ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]);
    assert.equal(p.executor.asked.length, 2);
  });
}

for (const binding of bindings) {
  test(`a tenant of the card is called, extensions and headers arrive once, over ${binding} (A7, A9, A10)`, async (t) => {
    const p = await peer(t);
    for (const i of p.card.supportedInterfaces) i.tenant = "acme";
    const bus = await startBus(t, { peer: behind(p) });
    const steps = [];
    for (const base of [p.url, `${bus.url}/a2a/peer`]) {
      const c = await client(base, binding, { "a2a-extensions": "https://example.com/x, https://example.com/y", "last-event-id": "7", "x-mine": "no" });
      const whole = await c.sendMessage(say("work"));
      const streamed = await collect(c.sendMessageStream(say("work")));
      const got = await c.getTask({ tenant: "", id: whole.id });
      const list = await c.listTasks({ tenant: "", contextId: whole.contextId, status: 0, pageToken: "" });
      const none = await c.getTask({ tenant: "other", id: whole.id }).catch((e) => e);
      steps.push(alike([whole, streamed, got, list, none]));
    }
    assert.deepEqual(steps[1], steps[0]);
    const half = p.heads.length / 2;
    const lines = p.heads.map((h) => `${h.method} ${h.url.replaceAll(/[0-9a-f-]{36}/g, "ID")}`);
    assert.deepEqual(lines.slice(half), lines.slice(0, half));
    for (const { headers, raw } of p.heads.slice(half)) {
      assert.equal(headers["a2a-extensions"].replaceAll(" ", ""), "https://example.com/x,https://example.com/y");
      assert.equal(raw.filter((x) => x.toLowerCase() === "a2a-extensions").length, 1);
      assert.equal(headers["last-event-id"], "7");
      assert.equal(headers["x-mine"], undefined);
    }
  });

  test(`a caller that leaves ends no task over ${binding}, and finds it again (G14, A11, A12)`, async (t) => {
    const p = await peer(t);
    const bus = await startBus(t, { peer: behind(p) });
    const here = turn("peer");
    const c = await client(`${bus.url}/a2a/peer`, binding, here.headers);
    const leave = new AbortController();
    const stream = c.sendMessageStream(say("long"), { signal: leave.signal });
    const { id } = (await stream.next()).value.payload.value;
    leave.abort();
    await assert.rejects(collect(stream));
    const watched = c.resubscribeTask({ tenant: "", id });
    const first = (await watched.next()).value.payload;
    assert.deepEqual([first.$case, first.value.status.state], ["task", TaskState.TASK_STATE_WORKING]);
    assert.equal(p.executor.stopped.size, 0);
    await c.cancelTask({ tenant: "", id });
    assert.equal((await collect(watched)).at(-1).payload.value.status.state, TaskState.TASK_STATE_CANCELED);
  });

  test(`clients of A2A 0.3 and of 1.0 make the same of a server of both over ${binding}, with the bus in between (A1, A8, A18)`, async (t) => {
    const p = await peer(t, bindings, true);
    const bus = await startBus(t, { peer: behind(p) });
    for (const legacy of [true, false]) {
      const steps = [];
      for (const base of [p.url, `${bus.url}/a2a/peer`]) {
        const c = await client(base, binding, {}, legacy);
        assert.equal(c.protocolVersion, legacy ? "0.3" : "1.0");
        const whole = await c.sendMessage(say("work"));
        const echo = await c.sendMessage(say("echo é"));
        const streamed = await collect(c.sendMessageStream(say("work")));
        const got = await c.getTask({ tenant: "", id: whole.id });
        const asked = await c.sendMessage(say("ask"));
        const answered = await c.sendMessage(say("this one", { taskId: asked.id, contextId: asked.contextId }));
        const none = await c.getTask({ tenant: "", id: "nobody" }).catch((e) => e);
        const over = await c.cancelTask({ tenant: "", id: whole.id }).catch((e) => e);
        steps.push([whole, echo, streamed, got, asked, answered, none, over].map(alike));
      }
      assert.deepEqual(steps[1], steps[0], `legacy: ${legacy}`);
    }
    const { code, stdout, stderr } = await agentbus(bus, ["agents", "check", p.url, "--json"]);
    assert.equal(code, 0, stderr);
    assert.equal(JSON.parse(stdout).usable, true);
  });
}
