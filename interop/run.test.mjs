// agentbus run and resume, with servers of others as the agents.
import assert from "node:assert/strict";
import test from "node:test";
import { agentbus, configured, mock, trace } from "./harness.mjs";

// setup starts two agents; each says what it was told last, with its name.
async function setup(t) {
  const says = (name) => (req) => ({ content: `${name} heard: ${req.messages.at(-1).content}`, usage: { prompt_tokens: 3, completion_tokens: 4 } });
  const start = async (name, port) => {
    const m = await mock(t, { port, auth: { apiKeys: ["key-of-both"] } });
    m.on({ predicate: () => true }, says(name));
    return m;
  };
  const [a, b] = [await start("A", 0), await start("B", 0)];
  const bus = await configured();
  const args = ["--agent", `${a.url}/v1#model-a`, "--agent", `${b.url}/v1#model-b`, "--key-env", "BOTH"];
  return { a, b, bus, start, args, go: (...more) => agentbus(bus, more, { BOTH: "key-of-both" }) };
}

// stored is a turn as far as a store keeps it: a driver's own clock is finer.
const stored = ({ ended, ...turn }) => ({ ...turn, ended: Date.parse(ended) });
const turns = (result) => result.turns.map((x) => [x.index, x.speaker, x.reply.text]);

test("two agents that only know OpenAI's dialect talk (R4, P8)", async (t) => {
  const { a, b, bus, args, go } = await setup(t);
  const { code, stdout, stderr } = await go("run", ...args, "--max-turns", "4", "ship it?", "--json");
  assert.equal(code, 0, stderr);
  const result = JSON.parse(stdout);
  const said = ["A heard: ship it?"];
  said.push(`B heard: [model-a] ${said[0]}`);
  said.push(`A heard: [model-b] ${said[1]}`);
  said.push(`B heard: [model-a] ${said[2]}`);
  assert.deepEqual(turns(result), said.map((text, i) => [i, i % 2 ? "model-b" : "model-a", text]));
  assert.deepEqual([result.halt.kind, result.halt.turns], ["max_turns", 4]);

  for (const [m, name, first] of [[a, "model-a", 0], [b, "model-b", 1]]) {
    const asked = m.asked();
    assert.equal(asked.length, 2);
    for (const [i, { headers, body }] of asked.entries()) {
      assert.equal(body.model, name);
      assert.equal(headers["x-tangle-runid"], result.run);
      assert.equal(headers["x-tangle-turnid"], `${result.run}.t${first + 2 * i}.${name}`);
      assert.equal(headers["x-tangle-forwarded-depth"], "1"); // P9: the driver and its gateway count once
      assert.equal(headers["x-tangle-parent-turnid"], undefined);
      assert.equal(headers["x-tangle-speaker"], name);
      assert.equal(headers["x-tangle-forwarded-authorization"], undefined); // nobody's credential was given
    }
  }
  // R4: what the other said comes as its words, under its name; what it said itself as its own.
  assert.deepEqual(a.asked()[1].body.messages.map((m) => [m.role, m.content]), [
    ["user", "ship it?"], ["assistant", said[0]], ["user", `[model-b] ${said[1]}`],
  ]);
  const { calls, totals } = await trace(bus, result.run);
  assert.deepEqual(calls.map((c) => [c.agent, c.state, c.depth]), [["model-a", "settled", 1], ["model-b", "settled", 1], ["model-a", "settled", 1], ["model-b", "settled", 1]]);
  assert.deepEqual([totals.input_tokens, totals.output_tokens], [12, 16]);
});

test("an agent that is down pauses the run; resume goes on from there and calls no finished turn again (R14 to R16)", async (t) => {
  const { a, b, bus, start, args, go } = await setup(t);
  const port = b.port;
  await b.stop();
  b.stopped = true;

  const paused = await go("run", ...args, "--max-turns", "4", "ship it?", "--json");
  assert.equal(paused.code, 5, paused.stderr);
  const before = JSON.parse(paused.stdout), told = JSON.parse(paused.stderr).error;
  assert.equal(told.exit, 5);
  assert.match(told.message, /^paused: participant_error\[model-b\]/);
  assert.match(told.next, new RegExp(`agentbus resume ${before.run}$`));
  assert.equal(before.turns.length, 1);
  assert.equal(a.asked().length, 1);

  const still = await go("resume", before.run); // still down: paused again, in words
  assert.equal(still.code, 5);
  assert.match(still.stderr, new RegExp(`next: .*agentbus resume ${before.run}\n`));
  assert.match(still.stdout, /\[model-a\] A heard: ship it\?/);

  const back = await start("B", port);
  const done = await go("resume", before.run, "--json");
  assert.equal(done.code, 0, done.stderr);
  const after = JSON.parse(done.stdout);
  assert.equal(after.run, before.run);
  assert.deepEqual(turns(after).map(([i, who]) => [i, who]), [[0, "model-a"], [1, "model-b"], [2, "model-a"], [3, "model-b"]]);
  assert.deepEqual(stored(after.turns[0]), stored(before.turns[0])); // an acknowledged turn stays as it was
  const ids = (m) => m.asked().map((r) => r.headers["x-tangle-turnid"]);
  assert.deepEqual(ids(a), [`${after.run}.t0.model-a`, `${after.run}.t2.model-a`]);
  assert.deepEqual(ids(back), [`${after.run}.t1.model-b`, `${after.run}.t3.model-b`]);

  const again = await go("resume", before.run, "--json"); // over: told again, nothing is called
  assert.equal(again.code, 0, again.stderr);
  assert.deepEqual(turns(JSON.parse(again.stdout)), turns(after));
  assert.deepEqual([a.asked().length, back.asked().length], [2, 2]);
  const { calls, totals } = await trace(bus, before.run);
  assert.deepEqual(calls.map((c) => c.state), ["settled", "settled", "settled", "settled"]);
  assert.equal(totals.replays, 0);
});
