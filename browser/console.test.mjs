// The console in a real browser, on stores that real runs filled.
import assert from "node:assert/strict";
import http from "node:http";
import { once } from "node:events";
import test from "node:test";
import { agentbus, ask, atEnd, bus, demo, fill, shoot, visit } from "./harness.mjs";

const text = (page, selector) => page.locator(selector).allInnerTexts();
const flat = (s) => s.replace(/\s+/g, " ").trim();

test("the console of the demo shows the numbers that the terminal printed (U10, U11)", async (t) => {
  const d = await demo(t);
  const page = await visit(t, d);
  const runs = [...d.out.matchAll(/^run (run_\S+)\n[^]*?^(\d+) calls? · (\d+) refusals? · (\d+) answered from memory · tokens (\d+) in, (\d+) out · \$(\S+) charged · paid by (\S+)/gm)];
  assert.equal(runs.length, 3, d.out);
  await shoot(page, "runs");
  for (const [, run, calls, refusals, replays, input, output, cost, payer] of runs) {
    await page.open("/console/runs");
    const row = flat(await page.locator(`tr[data-key="${run}"]`).innerText());
    for (const want of [`${calls} call`, `${input} / ${output}`, `$${cost}`, payer, ...(+replays ? [`${replays} from memory`] : [])]) assert.ok(row.includes(want), `${want} in ${row}`);
    await page.click(`tr[data-key="${run}"] a[data-main]`);
    await page.waitForURL(new RegExp(`${run}$`));
    const figures = flat((await text(page, ".figures")).join(" "));
    for (const want of [`Settled $${cost}`, `${replays} from memory`, `Refused ${refusals}`, `Calls ${calls}`, `Tokens in / out ${input} / ${output}`]) assert.ok(figures.includes(want), `${want} in ${figures}`);
    const told = flat((await text(page, ".findings")).join(" "));
    assert.ok(told.includes(`${payer} paid $${cost}, for every hop`), told); // who paid
  }
  // which call was refused, and why: the exact message
  const [, message] = d.out.match(/refused bridge_depth_exceeded {2}(.*?) {2}|refused bridge_depth_exceeded {2}(.*)$/m) ?? [];
  const said = flat((await text(page, ".tree")).join(" ")), loop = runs.find((r) => r[3] !== "0")[1];
  await page.open(`/console/runs/${loop}`);
  const row = flat(await page.locator("tr.is-refused-row").innerText());
  assert.match(row, /4\/4.*refused.*bridge_depth_exceeded depth 4 reaches the limit of 4/);
  assert.ok(d.out.includes("depth 4 reaches the limit of 4"), said + message);
  await shoot(page, "run-refused");
  // which turn was answered from memory, and which branch cost most
  await page.open(`/console/runs/${runs[0][1]}`);
  assert.match(flat((await text(page, ".findings")).join(" ")), /answered from memory: \$\S+ saved.*the branch that cost most: \S+ t\d\.\S+, \$\S+, \d+ % of the run/);
  await page.click("tr[data-key]:nth-child(2) a[data-main]");
  await page.waitForURL(/turn=/);
  assert.match(flat(await page.locator("#inspector").innerText()), /x-tangle-forwarded-depth 1 2 ?(changed ?)?≠/); // headers in → out
  await shoot(page, "run");
});

test("a deep link opens the turn, and the keyboard goes on from there (U3, U11)", async (t) => {
  const d = await demo(t);
  const page = await visit(t, d);
  const run = d.out.match(/^run (run_\S+)$/m)[1];
  await page.open(`/console/runs/${run}?turn=${run}.t1.critic`);
  assert.equal(await page.locator('tr[aria-selected="true"]').count(), 1);
  assert.match(await page.locator("#inspector h2").innerText(), /critic/);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/t0\.checker/);
  await page.waitForFunction(() => document.querySelector("#inspector h2").textContent.includes("checker"));
  await page.keyboard.press("?");
  assert.ok(await page.locator("#keys").evaluate((d) => d.open));
  await page.keyboard.press("Escape");
  await page.keyboard.press("1"); // the first screen
  await page.waitForURL(/\/console\/runs$/);
});

// agent serves an agent that is told what to say; hold keeps its answers back.
async function agent(t, say) {
  const held = [];
  const a = { hold: false, asked: async () => { while (held.length === 0) await new Promise((f) => setTimeout(f, 20)); }, release: () => { a.hold = false; held.splice(0).forEach((f) => f()); } };
  const server = http.createServer(async (req, res) => {
    let body = "";
    for await (const b of req) body += b;
    if (a.hold) await new Promise((f) => held.push(f));
    const answer = say(JSON.parse(body || "{}"));
    res.writeHead(answer.status ?? 200, { "content-type": "application/json" });
    res.end(JSON.stringify(answer.body ?? { id: "1", object: "chat.completion", model: "m", choices: [{ index: 0, message: { role: "assistant", content: answer.text }, finish_reason: "stop" }], usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  atEnd(t, () => { a.release(); server.closeAllConnections(); server.close(); });
  a.config = { kind: "openai", url: `http://127.0.0.1:${server.address().port}/v1`, price: { input: 1, output: 2, call: 0.001 } };
  return a;
}

test("a running conversation shows itself, pauses, and is stopped by hand (U4, U5)", async (t) => {
  const a = await agent(t, () => ({ text: "yes" }));
  const b = await bus(t, { agents: { slow: a.config } });
  const page = await visit(t, b);
  assert.match(await page.locator(".empty").innerText(), /No runs yet[^]*agentbus run/);
  await shoot(page, "empty");
  a.hold = true;
  const first = ask(b, "slow", "hello", "run_live", "run_live.t0.slow");
  await page.waitForSelector('tr[data-key="run_live"] .badge.is-running'); // nobody reloaded
  await page.open("/console/runs/run_live");
  await page.waitForSelector('#live[data-state="live"]');
  await page.waitForSelector("tr[data-key] .badge.is-running");
  await page.click("#live button"); // pause
  a.release();
  assert.equal((await first).status, 200);
  await page.waitForFunction(() => /paused, \d+ changes? behind/.test(document.querySelector("#live").textContent));
  assert.equal(await page.locator("tr[data-key] .badge.is-running").count(), 1); // nothing moved
  await page.click("#live button"); // go on
  await page.mouse.move(2, 2);
  await page.waitForSelector("tr[data-key] .badge.is-done");

  a.hold = true;
  const second = ask(b, "slow", "again", "run_stop", "run_stop.t0.slow");
  await a.asked(); // before, there is no such run
  await page.open("/console/runs/run_stop");
  await page.waitForSelector("tr[data-key] .badge.is-running");
  await page.click(".ask summary");
  await shoot(page, "stop");
  await page.click(".ask form button");
  await page.waitForURL(/run_stop$/);
  await page.waitForSelector(".figures .is-stopped");
  assert.match(await page.locator(".figures").innerText(), /by ops/);
  assert.equal(JSON.parse((await second).body).error.code, "run_stopped");
  assert.equal((await ask(b, "slow", "more", "run_stop", "run_stop.t1.slow")).status >= 400, true);
});

test("a paused run goes on, is replayed and forked by hand; lists are sorted over the store (U5, U10, U11)", async (t) => {
  const b = await bus(t, {
    agents: { echo: { kind: "builtin", builtin: "echo", price: { call: 0.01 } }, critic: { kind: "builtin", builtin: "eliza", price: { call: 0.01 } } },
    conversations: { talk: { participants: [{ agent: "critic" }, { agent: "echo" }], max_turns: 4, budget_usd: 0.02 } },
  });
  await agentbus(b, "run", "talk", "hello");
  await ask(b, "echo", "cheap", "run_cheap");
  const page = await visit(t, b);
  await page.click('thead a:has-text("Cost")');
  await page.waitForURL(/sort=cost/);
  await page.click(".more summary");
  await page.fill('input[name="min_turns"]', "2");
  await page.click(".filters > button");
  await page.waitForURL(/min_turns=2/);
  assert.match(page.url(), /sort=cost/);
  assert.equal(await page.locator("tr[data-key]").count(), 1);
  await page.click("tr[data-key] a[data-main]");
  await page.waitForSelector(".figures .is-paused");
  const did = async (what) => {
    const answered = page.waitForEvent("load"); // the page before it is live too, and may show the same
    await page.locator(`form[action$="/${what}"]`).evaluate((f) => f.requestSubmit());
    await answered;
    await page.mouse.move(2, 2);
  };
  await page.click('.title .ask summary:text("Resume")');
  await page.fill('input[name="max_usd"]', "1");
  await shoot(page, "paused");
  await did("resume");
  await page.waitForSelector(".figures .is-done");
  await did("replay");
  await page.waitForSelector("#did :text('as recorded: 4 turns')");
  assert.match(await page.locator("#did").innerText(), /ops[^]*run\.replay[^]*run\.resume/);
  await page.click("tr[data-key]:nth-child(2) a[data-main]");
  await page.click("#inspector .ask summary");
  await shoot(page, "fork");
  const from = new URL(page.url()).pathname;
  await did("fork");
  await page.waitForURL((u) => u.pathname !== from && /runs\/run_/.test(u.pathname));
  await page.waitForSelector(".tree tr[data-key]");
});

test("rows that say the same stay as they are, and only new ones light up (U4)", async (t) => {
  const b = await bus(t), page = await visit(t, b);
  for (const run of ["run_a", "run_b"]) await ask(b, "echo", "x", run);
  await page.open("/console/runs");
  await page.waitForSelector('#live[data-state="live"]');
  await page.mouse.move(2, 2);
  for (const run of ["run_c", "run_d"]) { // the second time, what the script wrote the first time is there
    await page.evaluate(() => {
      window.before = [...document.querySelectorAll("tr[data-key]")];
      window.placed = [];
      new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((row) => window.placed.push(row.dataset?.key)))).observe(document.querySelector('[data-part="runs"] tbody'), { childList: true });
    });
    await ask(b, "echo", "x", run);
    await page.waitForSelector(`tr.new[data-key="${run}"] .badge.is-done`);
    assert.deepEqual(await page.evaluate(() => window.before.filter((row) => !row.isConnected).map((row) => row.dataset.key)).then((gone) => gone.filter((key) => key !== run)), []);
    assert.deepEqual([...new Set(await page.evaluate(() => window.placed))], [run]); // one that is put back lights up again
  }
});

test("a page that was paused when its run ended catches up (U4)", async (t) => {
  const a = await agent(t, () => ({ text: "yes" }));
  const b = await bus(t, { agents: { slow: a.config }, conversations: { talk: { participants: [{ agent: "slow" }, { agent: "slow", slug: "other" }], max_turns: 1 } } });
  const page = await visit(t, b);
  a.hold = true;
  const ended = agentbus(b, "run", "talk", "go");
  await a.asked();
  await page.click("tr[data-key] a[data-main]");
  await page.waitForSelector('#live[data-state="live"]');
  await page.click("#live button"); // pause
  a.release();
  assert.equal((await ended).code, 0);
  await page.waitForFunction(() => live.over);
  assert.match(await page.locator("#live").innerText(), /paused, \d+ changes? behind/);
  await page.click("#live button"); // go on
  await page.mouse.move(2, 2);
  await page.waitForSelector('#live[data-state="over"]');
  await page.waitForSelector("tr[data-key] .badge.is-done");
});

test("a page says when it is behind, and comes back where it was (U4)", async (t) => {
  const a = await agent(t, () => ({ text: "yes" }));
  const b = await bus(t, { agents: { slow: a.config } });
  const page = await visit(t, b, { serviceWorkers: "block" });
  await page.waitForSelector('#live[data-state="live"]');
  let cut = true;
  await page.route("**/console/live**", (r) => (cut ? r.fulfill({ status: 200, contentType: "text/event-stream", body: "retry: 50\n\n" }) : r.continue()));
  await page.reload();
  await page.waitForSelector('#live[data-state="behind"]');
  await ask(b, "slow", "x", "run_new", "run_new.t0.slow");
  cut = false;
  await page.waitForSelector('tr[data-key="run_new"]');
  await page.waitForSelector('#live[data-state="live"]');
});

test("what an agent says is text, however hostile or long (U1)", async (t) => {
  const evil = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">\u202Egnp.exe\u202C &amp; ]]> `;
  const a = await agent(t, () => ({ text: evil + "x".repeat(1 << 20) }));
  const b = await bus(t, { agents: { evil: a.config }, conversations: { talk: { participants: [{ agent: "evil" }, { agent: "evil", slug: "other", label: "other" }], max_turns: 1 } } });
  const { code, stdout, stderr } = await agentbus(b, "run", "talk", "<b>seed</b>", "--json");
  assert.equal(code, 0, stderr);
  const { run } = JSON.parse(stdout);
  await ask(b, `<u id=owned>`, "x", `${run}`, `${run}.t9.<u>`);
  const page = await visit(t, b);
  await page.open(`/console/runs/${run}?turn=t0.evil`);
  const said = await page.locator("#inspector pre.said").first().innerText();
  assert.ok((await text(page, "#inspector pre")).some((s) => s.startsWith(evil.trim().slice(0, 60))), said.slice(0, 200));
  assert.match(await page.locator("#inspector").innerText(), /more bytes are not shown/);
  assert.doesNotMatch(await page.title(), /owned/);
  assert.equal(await page.locator("#owned, #inspector img, #inspector script").count(), 0);
  await shoot(page, "hostile");
});

test("a run of 10,000 turns opens, scrolls and pages (U3)", async (t) => {
  const b = await bus(t, { store: { url: "memory:" } });
  const turns = 10_000, run = "run_long";
  await fill(b, "echo", run, turns);
  const page = await visit(t, b);
  await page.open(`/console/runs/${run}`);
  const paint = await page.evaluate(() => new Promise((done) => new PerformanceObserver((l) => done(l.getEntriesByName("first-contentful-paint")[0]?.startTime)).observe({ type: "paint", buffered: true })));
  t.diagnostic(`first paint after ${Math.round(paint)} ms`);
  assert.equal(await page.locator("tr[data-key]").count(), 200);
  assert.match(await page.locator(".pager").innerText(), /rows 1 to 200 of 10000/);
  await page.mouse.wheel(0, 4000);
  await page.waitForFunction(() => scrollY > 1000);
  await page.click('.pager a:text("Last")');
  await page.waitForURL(/page=/);
  assert.match(await page.locator(".pager").innerText(), /rows 9801 to 10000 of 10000/);
  await page.open(`/console/runs/${run}?turn=t5000.echo`); // a deep link finds its page
  assert.equal(await page.locator('tr[aria-selected="true"]').count(), 1);
  await page.open(`/console/runs/${run}`);
  await shoot(page, "long");
});

test("the pages work with the script off (U1)", async (t) => {
  const b = await bus(t);
  await ask(b, "echo", "hello", "run_plain", "run_plain.t0.echo");
  const page = await visit(t, b, { javaScriptEnabled: false });
  await page.click('tr[data-key="run_plain"] a[data-main]');
  await page.click("tr[data-key] a[data-main]");
  assert.match(await page.locator("#inspector").innerText(), /Identity[^]*user-123/);
  await page.fill('input[name="with"]', "run_none");
  await page.click('.tools form button');
  assert.match(await page.locator(".compared").innerText(), /no driver of this store performed run/);
  await page.click(".who button");
  await page.waitForURL(/signin/);
});
