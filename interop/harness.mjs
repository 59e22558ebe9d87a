// What the tests stand on: the program itself, built from this tree and run as
// a process of its own, and servers of others behind it.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { LLMock } from "@copilotkit/aimock";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

// One folder and one program for all tests of a file.
const folder = await mkdtemp(path.join(tmpdir(), "agentbus-interop-"));
after(() => rm(folder, { recursive: true, force: true }));
const program = path.join(folder, "agentbus");
await new Promise((resolve, reject) => {
  execFile("go", ["build", "-buildvcs=false", "-o", program, "./cmd/agentbus"], { cwd: root }, (err, _, stderr) => (err ? reject(new Error(stderr)) : resolve()));
});

export const userKey = "user-key-of-the-tests";
export const agentKey = "own-key-of-the-agent";
export const swarmKey = "key-of-the-agents"; // which may forward the credential of others
const env = { PATH: process.env.PATH, HOME: folder, USER_KEY: userKey, AGENT_KEY: agentKey, SWARM_KEY: swarmKey };

// agentbus runs the program to its end.
export function agentbus(bus, args, more = {}) {
  return new Promise((resolve) => {
    execFile(program, [...args, "--config", bus.config], { cwd: bus.dir, env: { ...env, ...more } }, (err, stdout, stderr) => {
      resolve({ code: err ? err.code : 0, stdout, stderr });
    });
  });
}

// configured writes a configuration with a store of its own. Agents are called
// by name; YAML reads JSON.
export async function configured(agents = {}, more = {}) {
  const dir = await mkdtemp(path.join(folder, "bus-"));
  const config = path.join(dir, "agentbus.yaml");
  await writeFile(config, JSON.stringify({
    listen: "127.0.0.1:0",
    admin: { listen: "" },
    store: { url: `sqlite:${path.join(dir, "bus.db")}` },
    keys: [{ id: "user-123", secret_env: "USER_KEY" }],
    agents,
    ...more,
  }));
  return { dir, config };
}

// startBus serves a bus until the test ends, which it must do in order.
export async function startBus(t, agents, more) {
  const bus = await configured(agents, more);
  const child = spawn(program, ["serve", "--quiet", "--config", bus.config], { cwd: bus.dir, env, stdio: ["ignore", "pipe", "pipe"] });
  let out = "", complaint = "";
  child.stderr.on("data", (b) => (complaint += b));
  const exited = once(child, "exit");
  t.after(async () => {
    child.kill("SIGTERM"); // this process and no other
    const [code] = await exited;
    assert.equal(code, 0, complaint);
  });
  bus.url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (b) => {
      out += b;
      const at = out.match(/ on (http:\S+)/);
      if (at) resolve(at[1]);
    });
    exited.then(() => reject(new Error(`the bus ended: ${complaint}`)));
  });
  const ready = await fetch(`${bus.url}/readyz`);
  assert.equal(ready.status, 200, await ready.text());
  bus.trace = (run) => trace(bus, run);
  return bus;
}

// trace returns what the store knows of a run: its calls without their nesting,
// its executions and its totals.
export async function trace(bus, run) {
  const { code, stdout, stderr } = await agentbus(bus, ["trace", run, "--json"]);
  assert.equal(code, 0, stderr);
  const got = JSON.parse(stdout);
  const flat = (calls) => calls.flatMap(({ calls: inner = [], ...c }) => [c, ...flat(inner)]);
  return { ...got, calls: flat(got.calls) };
}

// mock starts a server of others, which keeps a journal of what it was asked.
export async function mock(t, options = {}) {
  const m = new LLMock({ host: "127.0.0.1", ...options });
  await m.start();
  m.stopped = false;
  t.after(() => m.stopped || m.stop());
  m.asked = () => m.getRequests().filter((r) => r.method === "POST");
  return m;
}

// agent is how a bus calls a mock.
export const agent = (m, more = {}) => ({ kind: "openai", url: `${m.url}/v1`, api_key_env: "AGENT_KEY", price: { input: 1, output: 2, call: 0.001 }, ...more });

// counted passes requests on to a bus and keeps the head of each, so that a
// client's retries show however the bus answers.
export async function counted(t, bus, seen = () => {}) {
  const requests = [];
  const server = http.createServer((req, res) => {
    requests.push({ method: req.method, url: req.url, headers: req.headers });
    seen(requests.length);
    const up = http.request(bus.url + req.url, { method: req.method, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    up.on("error", () => res.destroy());
    res.on("close", () => up.destroy()); // a client that leaves, leaves the bus
    req.pipe(up);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

let runs = 0;

// turn returns the headers of a turn in a run of its own.
export function turn(speaker, depth = 0) {
  const run = `conv_${process.pid}_${++runs}`;
  return {
    run,
    id: `${run}.t0.${speaker}`,
    headers: { "x-tangle-runid": run, "x-tangle-turnid": `${run}.t0.${speaker}`, "x-tangle-forwarded-depth": String(depth) },
  };
}
