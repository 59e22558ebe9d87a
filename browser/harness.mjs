// What the tests stand on: the program itself, built from this tree and run as
// processes of its own, and a real browser before its console.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = path.dirname(fileURLToPath(import.meta.url));
const shots = path.join(here, "screenshots");
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
await mkdir(shots, { recursive: true });

const folder = await mkdtemp(path.join(tmpdir(), "agentbus-browser-"));
after(() => rm(folder, { recursive: true, force: true }));
const program = path.join(here, "agentbus"); // npm test builds it

export const adminKey = "key-of-the-operator";
export const userKey = "key-of-the-user";
const env = { PATH: process.env.PATH, HOME: folder, ADMIN_KEY: adminKey, USER_KEY: userKey };

const ends = new WeakMap();

// atEnd does something when the test is over, the last that was asked for first:
// node's own hooks go the other way, and would stop a bus that a page still asks.
export function atEnd(t, end) {
  if (!ends.has(t)) {
    ends.set(t, []);
    t.after(async () => {
      const failures = [];
      for (const end of ends.get(t).reverse()) await Promise.resolve().then(end).catch((err) => failures.push(err));
      if (failures.length > 0) throw failures[0];
    });
  }
  ends.get(t).push(end);
}

// started runs the program until the test ends; out is what it has printed.
function started(t, args, dir) {
  const child = spawn(program, args, { cwd: dir, env, stdio: ["ignore", "pipe", "pipe"] });
  const p = { out: "", complaint: "", exited: once(child, "exit") };
  child.stdout.on("data", (b) => (p.out += b));
  child.stderr.on("data", (b) => (p.complaint += b));
  atEnd(t, async () => {
    child.kill("SIGTERM"); // this process and no other
    await p.exited;
  });
  let over = false;
  p.exited.then(() => (over = true));
  p.until = async (pattern) => {
    for (;;) {
      const m = (p.out + p.complaint).match(pattern);
      if (m) return m;
      if (over) throw new Error(`it ended: ${p.complaint}`);
      await new Promise((f) => setTimeout(f, 20));
    }
  };
  return p;
}

// demo plays the demo and keeps its bus.
export async function demo(t) {
  const p = started(t, ["demo", "--keep"], folder);
  const [, console] = await p.until(/^console {2}(http:\S+)$/m);
  await p.until(/until Ctrl-C/);
  return { console, out: p.out };
}

// bus serves a bus with a store of its own.
export async function bus(t, more = {}) {
  const dir = await mkdtemp(path.join(folder, "bus-"));
  const ports = path.join(dir, "config.yaml");
  const port = await free();
  await writeFile(ports, JSON.stringify({
    listen: "127.0.0.1:0", admin: { listen: `127.0.0.1:${port}`, content: true }, store: { url: `sqlite:${path.join(dir, "bus.db")}` },
    keys: [{ id: "user-123", secret_env: "USER_KEY" }, { id: "ops", secret_env: "ADMIN_KEY", role: "admin" }],
    agents: { echo: { kind: "builtin", builtin: "echo" } }, ...more,
  }));
  const p = started(t, ["serve", "--quiet", "--config", ports], dir);
  const [, url] = await p.until(/ on (http:\S+)/);
  return { dir, config: ports, url, admin: `http://127.0.0.1:${port}`, console: `http://127.0.0.1:${port}/console/signin#key=${adminKey}`, log: () => p.complaint };
}

// free is a port that nobody listens on, and that the system gives to nobody by itself,
// as it does from 32768 on.
async function free() {
  const { createServer } = await import("node:net");
  for (;;) {
    const port = 10000 + Math.floor(Math.random() * 22768);
    const s = createServer().listen(port, "127.0.0.1");
    if (!(await once(s, "listening").then(() => true, () => false))) continue; // somebody is there
    s.close();
    return port;
  }
}

// agentbus runs the program to its end, over the store of a bus.
export function agentbus(bus, ...args) {
  return new Promise((resolve) => {
    execFile(program, [...args, "--config", bus.config], { cwd: bus.dir, env, maxBuffer: 1 << 26 }, (err, stdout, stderr) => resolve({ code: err ? err.code : 0, stdout, stderr }));
  });
}

// ask calls an agent of a bus, as a turn of a run.
export async function ask(bus, agent, text, run, turn) {
  const r = await fetch(`${bus.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${userKey}`, "content-type": "application/json", "x-tangle-runid": run, ...(turn && { "x-tangle-turnid": turn }) },
    body: JSON.stringify({ model: agent, messages: [{ role: "user", content: text }] }),
  });
  return { status: r.status, body: await r.text() };
}

// fill makes the turns of a run by many calls of one agent, which takes a
// third of what as many times ask would.
export async function fill(bus, agent, run, turns) {
  const connections = new http.Agent({ keepAlive: true });
  let next = 0;
  const call = (i) => new Promise((resolve, reject) => {
    const r = http.request(`${bus.url}/v1/chat/completions`, {
      agent: connections, method: "POST",
      headers: { authorization: `Bearer ${userKey}`, "content-type": "application/json", "x-tangle-runid": run, "x-tangle-turnid": `${run}.t${i}.${agent}` },
    }, (answer) => answer.resume().on("end", () => (answer.statusCode === 200 ? resolve() : reject(new Error(`turn ${i}: ${answer.statusCode}`)))).on("error", reject));
    r.on("error", reject).end(JSON.stringify({ model: agent, messages: [{ role: "user", content: `turn ${i}` }] }));
  });
  await Promise.all(Array.from({ length: 32 }, async () => {
    for (let i = next++; i < turns; i = next++) await call(i);
  }));
  connections.destroy();
}

const chrome = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let browser; // of all tests of a file; each has a context of its own, with its cookies
after(async () => (await browser)?.close());

// visit opens the console of a bus in a browser that nobody used before, signed
// in. When the test ends it must have seen no error, and asked nobody else for
// anything.
export async function visit(t, bus, options = {}) {
  browser ??= chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: chrome });
  const context = await (await browser).newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  const errors = [], elsewhere = [];
  page.on("console", (m) => m.type() === "error" && errors.push(m.text()));
  page.on("pageerror", (e) => errors.push(String(e)));
  context.on("request", (r) => new URL(r.url()).host !== new URL(bus.console).host && elsewhere.push(r.url()));
  atEnd(t, async () => {
    await context.close();
    assert.deepEqual(errors, [], "errors in the browser's console");
    assert.deepEqual(elsewhere, [], "requests to others");
  });
  page.setDefaultTimeout(60_000);
  await page.goto(bus.console);
  if (options.javaScriptEnabled === false) {
    await page.fill("#key", bus.console.split("#key=")[1]);
    await page.click(".signin button");
  }
  await page.waitForURL(/\/console\/runs$/);
  page.open = (at) => page.goto(new URL(at, bus.console).href);
  return page;
}

// shoot keeps a picture of a page at both widths and in both schemes.
export async function shoot(page, name) {
  for (const [width, colorScheme] of [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]]) {
    await page.setViewportSize({ width, height: 860 });
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: path.join(shots, `${name}-${width}-${colorScheme}.png`) });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} at ${width}: the page is ${wide} pixels too wide`);
    if ((width === 1280) === (colorScheme === "light")) await accessible(page, `${name} at ${width}, ${colorScheme}`); // each width and each scheme once
  }
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.emulateMedia({ colorScheme: "light" });
}

const axeSource = await readFile(axe, "utf8");

// accessible fails with what axe finds serious. The source is evaluated by the
// browser's debugger: the page's own policy lets no such script in.
async function accessible(page, what) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.any[0]?.message ?? ""}`).slice(0, 5).join("; ")}`);
  assert.deepEqual(serious, [], what);
}
