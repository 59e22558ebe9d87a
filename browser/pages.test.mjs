// Graph, Payers, Agents and Inbox in a real browser, on a bus that real calls
// filled.
import assert from "node:assert/strict";
import test from "node:test";
import { ask, bus, shoot, visit } from "./harness.mjs";

const flat = (s) => s.replace(/\s+/g, " ").trim();
const hostile = `<img src=x onerror="document.title='owned'"> \u202egnp.\u202c`;

// busy serves a bus and fills it: conversations, a circle, a failure, two payments
// that wait.
async function busy(t) {
  const b = await bus(t, {
    budgets: [{ payer: "user-123", period: "day", usd: 1 }],
    agents: {
      echo: { kind: "builtin", builtin: "echo", price: { call: 0.002 } },
      critic: { kind: "builtin", builtin: "eliza", price: { call: 0.004 }, aliases: ["reviewer"] },
      loop: { kind: "builtin", builtin: "loop" },
      pay: { kind: "builtin", builtin: "pay", price: { call: 0.01 } },
      gone: { kind: "openai", url: "http://127.0.0.1:1/v1", max_cost_usd: 0.01, concurrency: 2, queue: 4 },
      panel: { kind: "conversation", conversation: "panel" },
      shop: { kind: "conversation", conversation: "shop" },
    },
    conversations: {
      panel: { participants: [{ agent: "critic" }, { agent: "echo" }], max_turns: 3 },
      shop: { participants: [{ agent: "pay" }, { agent: "echo" }], max_turns: 2 },
    },
  });
  await ask(b, "panel", "hello", "run_panel");
  await ask(b, "loop", "round", "run_loop");
  await ask(b, "gone", "anybody?", "run_gone");
  assert.equal((await ask(b, "shop", hostile, "run_shop_1")).status, 402);
  assert.equal((await ask(b, "shop", "a book", "run_shop_2")).status, 402);
  return b;
}

test("the graph draws who called whom, with errors, circles and credentials (U12)", async (t) => {
  const page = await visit(t, await busy(t));
  await page.open("/console/graph");
  const drawn = await page.locator(".graph .node .name").allTextContents();
  for (const name of ["user-123", "panel", "critic", "echo", "loop", "gone"]) assert.ok(drawn.includes(name), `${name} in ${drawn}`);
  assert.match(flat(await page.locator(".notice").first().innerText()), /cycle.*loop → loop/);
  const gone = flat(await page.locator('tr[data-key="user-123 gone"]').innerText());
  assert.match(gone, /100 %.*verbatim/);
  await shoot(page, "graph");
  await page.open("/console/graph?run=run_panel");
  assert.deepEqual((await page.locator(".graph .node .name").allTextContents()).sort(), ["critic", "echo", "panel", "user-123"]);
  await page.open("/console/graph?window=1h&run=run_none");
  assert.match(await page.locator(".empty").innerText(), /No calls are like that/);
  await page.open("/console/graph?sort=calls"); // sorted by the server, and the head says so (U3)
  assert.match(await page.locator('th[aria-sort="descending"]').innerText(), /^Calls ↓$/);
  const made = (await page.locator('td[data-label="Calls"]').allInnerTexts()).map((n) => parseInt(n));
  assert.deepEqual(made, made.toSorted((a, b) => b - a));
  await page.locator('.graph a.node:has(.name:text-is("loop"))').click(); // leads to the filtered runs
  await page.waitForURL(/runs\?active_since=.*&agent=loop/);
});

test("a payer's account is taken apart, exported and verified (U13)", async (t) => {
  const b = await busy(t), page = await visit(t, b);
  await page.open("/console/payers");
  assert.match(flat(await page.locator('tr[data-key="user-123"]').innerText()), /\$0\.010000 of \$1\.000000 a day/);
  await shoot(page, "payers");
  await page.click('tr[data-key="user-123"] a[data-main]');
  await page.waitForURL(/payers\/user-123$/);
  assert.match(flat(await page.locator("main").innerText()), /strict: never overshot.*By agent.*critic.*By run.*By day/);
  await page.click("text=Verify the ledger");
  await page.waitForURL(/verify$/);
  assert.match(flat(await page.locator(".notice").innerText()), /in order.*every balance and every link is what it must be/);
  assert.match(await page.locator(".figures [data-copy]").getAttribute("data-copy"), /^[0-9a-f]{64}$/);
  await shoot(page, "payer");
  for (const [format, head] of [["csv", /^payer,seq,kind/], ["jsonl", /^\{"payer":"user-123"/]]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(`a[href*="payer=user-123"][href*="format=${format}"]`)]);
    const chunks = [];
    for await (const c of await download.createReadStream()) chunks.push(c);
    assert.match(Buffer.concat(chunks).toString(), head);
  }
});

test("an agent is probed, drained and enabled, and it says who did it (U5, U14)", async (t) => {
  const b = await busy(t), page = await visit(t, b);
  await page.open("/console/agents");
  assert.match(flat(await page.locator('tr[data-key="gone"]').innerText()), /0 \/ 2.*0 \/ 4 wait.*1 agent_unavailable/);
  await shoot(page, "agents");
  await page.click('tr[data-key="gone"] a[data-main]');
  await page.click("text=Probe now");
  await page.waitForURL(/probe$/);
  assert.match(flat(await page.locator(".found").first().innerText()), /does not answer http:\/\/127\.0\.0\.1:1\/v1/);
  await page.open("/console/agents/echo");
  await page.click(".ask summary"); // asks once more
  await page.click("text=Drain this agent");
  await page.waitForURL(/agents\/echo$/);
  assert.match(flat(await page.locator(".notice").innerText()), /drained ops took this agent out/);
  assert.equal((await ask(b, "echo", "hello?", "run_drained")).status, 503);
  await shoot(page, "agent");
  await page.click("text=Enable");
  await page.waitForSelector(".ask summary");
  assert.equal((await ask(b, "echo", "hello?", "run_enabled")).status, 200);
  assert.match(flat(await page.locator("main").innerText()), /What operators did.*ops agent\.enable echo done.*ops agent\.drain echo done/);
});

test("what waits is approved and denied, and then it says who decided and when (U15)", async (t) => {
  const b = await busy(t), page = await visit(t, b);
  await page.open("/console/inbox");
  assert.equal(await page.locator(".interrupt").count(), 2);
  const first = flat(await page.locator(".interrupt").first().innerText());
  assert.match(first, /payment.*asked by shop › pay in run .* paid by user-123.*Decide by.*then it counts as denied.*Cost of the run so far.*\$0\.010000 or more its price of a call/i);
  assert.ok(first.includes("<img src=x"), first); // what agents say is text
  assert.notEqual(await page.title(), "owned");
  await shoot(page, "inbox");
  await page.locator(".interrupt").first().locator('input[name="text"]').press("Enter"); // decides nothing
  await page.locator(".interrupt").first().locator("text=Approve once").click(); // asks once more (U5)
  await page.locator(".interrupt").first().locator("text=Approve it").click();
  await page.waitForURL(/chosen=/);
  assert.equal(await page.locator(".interrupt").count(), 1);
  await page.fill('.interrupt input[name="text"]', "too dear");
  await page.click(".interrupt summary:has-text('Deny')");
  await page.click(".interrupt >> text=Deny it");
  await page.waitForFunction(() => !document.querySelector(".interrupt"));
  const decided = flat(await page.locator('[data-part="decided"] tbody').innerText());
  assert.match(decided, /denied.*“too dear”.* ops .*granted.* ops /);
  assert.match(await page.locator(".nav a[aria-current]").innerText(), /^Inbox$/);
  await shoot(page, "decided");
});

test("another's interrupt arrives while the inbox is open, and works without a script (U1, U4)", async (t) => {
  const b = await busy(t), page = await visit(t, b);
  await page.open("/console/inbox");
  await page.waitForSelector('#live[data-state="live"]');
  await ask(b, "shop", "another", "run_shop_3");
  await page.waitForFunction(() => document.querySelectorAll(".interrupt").length === 3);
  await page.waitForSelector('.nav a[href$="inbox"] .depth:text-is("3")');
  const reason = page.locator('.interrupt input[name="text"]').first();
  await reason.fill("half a rea");
  await reason.blur(); // what somebody has begun to answer stays, wherever they point
  await ask(b, "shop", "one more", "run_shop_4");
  await page.waitForSelector('#live[data-state="behind"]:has-text("1 change waits while you are at this")');
  assert.equal(await reason.inputValue(), "half a rea");
  await reason.fill("");
  await reason.blur();
  await page.waitForFunction(() => document.querySelectorAll(".interrupt").length === 4);
  for (let i = 0; i < 2; i++) await page.locator(".interrupt").first().locator("summary:has-text('Deny')").click(); // a question that was closed again holds nothing
  await page.mouse.move(2, 2);
  await ask(b, "shop", "the last", "run_shop_5");
  await page.waitForFunction(() => document.querySelectorAll(".interrupt").length === 5);
  const still = await visit(t, b, { javaScriptEnabled: false });
  await still.open("/console/inbox");
  await still.locator(".interrupt").first().locator("summary:has-text('Deny')").click();
  await still.locator(".interrupt").first().locator("text=Deny it").click();
  await still.waitForURL(/chosen=/);
  assert.equal(await still.locator(".interrupt").count(), 4);
});
