// The SDK's client for JavaScript against agents of the bus's own, which are
// served as agents of A2A.
import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { TaskState, bindings, client, collect, say, words } from "./a2a.mjs";
import { startBus } from "./harness.mjs";

// program writes a program that answers in two pieces, or works until it is ended.
async function program(t) {
  const dir = await mkdtemp(path.join(tmpdir(), "agentbus-program-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const file = path.join(dir, "agent.sh");
  await writeFile(file, '#!/bin/sh\nread -r line\ncase "$line" in\n*long*) exec sleep 60 ;;\nesac\necho "the program heard: $line"\n');
  await chmod(file, 0o755);
  return { kind: "exec", command: [file] };
}

const talking = {
  conversations: { chat: { participants: [{ agent: "echo" }, { agent: "eliza" }], max_turns: 2 } },
};

async function setup(t, more = {}) {
  const bus = await startBus(t, {
    echo: { kind: "builtin", builtin: "echo" }, eliza: { kind: "builtin", builtin: "eliza" }, pay: { kind: "builtin", builtin: "pay" },
    panel: { kind: "conversation", conversation: "chat" }, program: await program(t),
  }, { ...talking, ...more });
  return { at: (agent, binding, headers, legacy) => client(`${bus.url}/a2a/${agent}`, binding, headers, legacy) };
}

const failed = (code, reason) => (e) => {
  e = /^SSE event contained an error/.test(e.message) ? e.cause : e;
  assert.equal(e.reason, reason);
  if (e.envelopeCode) assert.equal(e.envelopeCode, code);
  return true;
};

// told puts a stream's events together: the kinds, the text and the last state.
function told(events) {
  const last = events.at(-1).payload;
  let text = "";
  for (const { payload: { $case, value } } of events) {
    if ($case === "artifactUpdate") text = (value.append ? text : "") + words({ parts: value.artifact.parts });
    else if ($case === "task" && value.artifacts.length > 0) text = words(value);
  }
  return { first: events[0].payload.$case, text, state: (last.value.status ?? {}).state };
}

for (const binding of bindings) {
  for (const [agent, want] of [["echo", /^hello there é$/], ["panel", /hello there é/], ["program", /^the program heard: .*hello there é/]]) {
    test(`${agent} is an agent of A2A to the SDK's client over ${binding} (A25, A29, A32)`, async (t) => {
      const { at } = await setup(t);
      const c = await at(agent, binding);
      assert.equal((await c.getAgentCard()).name, agent);
      assert.equal(c.protocolVersion, "1.0");

      const whole = await c.sendMessage(say("hello there é"));
      assert.equal(whole.status.state, TaskState.TASK_STATE_COMPLETED);
      assert.match(words(whole), want);
      const streamed = told(await collect(c.sendMessageStream(say("hello there é"))));
      assert.deepEqual(streamed, { first: "task", text: words(whole), state: TaskState.TASK_STATE_COMPLETED });

      const got = await c.getTask({ tenant: "", id: whole.id });
      assert.deepEqual([got.id, got.contextId, got.status.state, words(got)], [whole.id, whole.contextId, whole.status.state, words(whole)]);
      const list = await c.listTasks({ tenant: "", contextId: whole.contextId, status: 0, pageToken: "", includeArtifacts: true });
      assert.deepEqual(list.tasks.map((x) => [x.id, words(x)]), [[whole.id, words(whole)]]);
      assert.equal((await c.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "" })).totalSize, 2);

      await assert.rejects(c.getTask({ tenant: "", id: "nobody" }), failed(-32001, "TASK_NOT_FOUND"));
      await assert.rejects(c.cancelTask({ tenant: "", id: whole.id }), failed(-32002, "TASK_NOT_CANCELABLE"));
      await assert.rejects(collect(c.resubscribeTask({ tenant: "", id: whole.id })), failed(-32004, "UNSUPPORTED_OPERATION"));
      await assert.rejects(c.sendMessage(say("more", { taskId: whole.id })), failed(-32004, "UNSUPPORTED_OPERATION"));
      await assert.rejects(collect(c.sendMessageStream(say("more", { taskId: whole.id }))), failed(-32004, "UNSUPPORTED_OPERATION"));
    });
  }

  test(`a task that works is seen, followed and cancelled over ${binding} (A32, A29)`, async (t) => {
    const { at } = await setup(t);
    const c = await at("program", binding);
    const task = await c.sendMessage(say("a long one", {}, { configuration: { acceptedOutputModes: [], returnImmediately: true } }));
    assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(task.status.state));
    const watched = c.resubscribeTask({ tenant: "", id: task.id });
    const { value } = await watched.next();
    assert.deepEqual([value.payload.$case, value.payload.value.id], ["task", task.id]); // A34: first the task
    const over = await c.cancelTask({ tenant: "", id: task.id });
    assert.equal(over.status.state, TaskState.TASK_STATE_CANCELED);
    const rest = await collect(watched);
    assert.equal(rest.at(-1).payload.value.status.state, TaskState.TASK_STATE_CANCELED);
    assert.equal((await c.getTask({ tenant: "", id: task.id })).status.state, TaskState.TASK_STATE_CANCELED);
  });

  test(`a message that comes twice is one execution, another under its id none, over ${binding} (A19, X35)`, async (t) => {
    const { at } = await setup(t);
    const c = await at("echo", binding);
    const asked = say("once");
    const all = await Promise.all(Array.from({ length: 20 }, () => c.sendMessage(asked)));
    assert.equal(new Set(all.map((x) => x.id)).size, 1);
    const again = told(await collect(c.sendMessageStream(asked)));
    assert.deepEqual([again.text, again.state], ["once", TaskState.TASK_STATE_COMPLETED]);
    const other = say("other", { messageId: asked.message.messageId });
    await assert.rejects(c.sendMessage(other), (e) => { // over HTTP+JSON the client keeps the reasons that it knows, and the status of others
      if (binding === "JSONRPC") assert.deepEqual([e.envelopeCode, e.data[0].reason], [-32602, "MESSAGE_ID_CONFLICT"]);
      else assert.equal(e.statusCode, 400);
      return true;
    });
    assert.equal((await c.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "" })).totalSize, 1);
  });

  test(`an agent that asks to be paid leaves its task interrupted over ${binding} (C27, C28)`, async (t) => {
    const { at } = await setup(t);
    const c = await at("pay", binding);
    const task = await c.sendMessage(say("how much?"));
    assert.equal(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    assert.equal(task.status.message.metadata.mentionable.policy.kind, "payment_required");
    const seen = told(await collect(c.sendMessageStream(say("how much?"))));
    assert.equal(seen.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const got = await collect(c.resubscribeTask({ tenant: "", id: task.id })); // A29: the task, and the end
    assert.deepEqual(got.map((e) => [e.payload.$case, e.payload.value.status.state]), [["task", TaskState.TASK_STATE_INPUT_REQUIRED]]);
  });

  test(`what the bus refuses reads as the SDK's own error over ${binding} (A14, A16, A26)`, async (t) => {
    const { at } = await setup(t);
    const refused = async (c, text, status) => {
      for (const call of [() => c.sendMessage(say("hello")), () => collect(c.sendMessageStream(say("hello"))), () => c.getTask({ tenant: "", id: "any" })]) {
        await assert.rejects(call, (e) => {
          assert.match(e.message, text);
          if (binding === "HTTP+JSON") assert.equal(e.statusCode, status);
          return true;
        });
      }
    };
    await refused(await at("echo", binding, { authorization: "Bearer wrong" }), /credential|401/, 401);
    await refused(await at("echo", binding, { "x-tangle-forwarded-depth": "9" }), /depth/, 429);
    const old = await at("echo", binding, { "a2a-version": "0.3" });
    await assert.rejects(old.sendMessage(say("hello")), failed(-32009, "VERSION_NOT_SUPPORTED"));
  });

  test(`clients of A2A 0.3 are served over ${binding} where the operator lets them (A1, A26)`, async (t) => {
    const { at } = await setup(t, { a2a: { compat: "0.3" } });
    const c = await at("program", binding, {}, true);
    assert.equal(c.protocolVersion, "0.3");
    const whole = await c.sendMessage(say("hello there é"));
    assert.equal(whole.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.match(words(whole), /hello there é/);
    const streamed = told(await collect(c.sendMessageStream(say("hello there é"))));
    assert.deepEqual(streamed, { first: "task", text: words(whole), state: TaskState.TASK_STATE_COMPLETED });
    const got = await c.getTask({ tenant: "", id: whole.id });
    assert.deepEqual([got.id, got.status.state, words(got)], [whole.id, whole.status.state, words(whole)]);
    await assert.rejects(c.getTask({ tenant: "", id: "nobody" }), /no task of this id|not found/i);
    const task = await c.sendMessage(say("a long one", {}, { configuration: { acceptedOutputModes: [], returnImmediately: true } }));
    const watched = c.resubscribeTask({ tenant: "", id: task.id });
    assert.equal((await watched.next()).value.payload.value.id, task.id);
    assert.equal((await c.cancelTask({ tenant: "", id: task.id })).status.state, TaskState.TASK_STATE_CANCELED);
    assert.equal((await collect(watched)).at(-1).payload.value.status.state, TaskState.TASK_STATE_CANCELED);
  });
}
