// The console's only script. Pages work without it: live parts then refresh on
// reload, and every action is a form. It inserts nothing but pages that the bus
// has rendered itself.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const announce = (text) => { const at = $("#said"); if (at) at.textContent = text; };

// ---- live: the bus says that something changed, and the page is asked for anew.
const live = { source: null, over: false, paused: false, behind: 0, busy: false, again: false };

function liveState(state, text) {
  const at = $("#live");
  if (!at) return;
  at.dataset.state = state;
  $("[data-word]", at).textContent = text;
}

function showLive() {
  if (live.paused) liveState("paused", live.behind ? `paused, ${live.behind} ${live.behind === 1 ? "change" : "changes"} behind` : "paused");
  else if (!live.source) return;
  else if (!live.over && live.source.readyState === EventSource.CLOSED) liveState("behind", "behind: the bus ended the stream, reload the page");
  else if (!live.over && live.source.readyState !== EventSource.OPEN) liveState("behind", "behind: connecting again");
  else if (live.behind) liveState("behind", `${live.behind} ${live.behind === 1 ? "change waits" : "changes wait"} while you are at this`);
  else if (live.over) liveState("over", "over");
  else liveState("live", "live");
}

// written: what somebody has typed or chosen and not sent yet.
const written = (field) => field.type === "radio" ? field.checked !== field.defaultChecked : field.type !== "hidden" && field.value !== field.defaultValue;

// held: nothing moves under the pointer, under a selection, or under what
// somebody is about to answer. A button that was clicked keeps the focus, unseen,
// until something else is: it holds nothing.
const held = (part) => part.matches(":hover") || (part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, :is(summary, button):focus-visible")) || !!(String(getSelection()) && part.contains(getSelection().anchorNode)) || !!$(".ask[open]", part) || $$("input, textarea", part).some(written);

async function page(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin", cache: "no-store" });
  if (!answer.ok || answer.redirected && /\/signin/.test(answer.url)) { location.reload(); throw new Error("signed out"); }
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// told is a row as the bus wrote it, without what this script did to it since.
function told(row) {
  const copy = row.cloneNode(true);
  copy.classList.remove("new");
  if (!copy.classList.length) copy.removeAttribute("class");
  for (const at of $$("time[data-ago]", copy)) at.textContent = "";
  for (const at of $$("[data-said]", copy)) at.removeAttribute("data-said");
  return copy;
}

// place puts rows into a table in their order. Those that keep their place are not
// touched: what is taken out and put back lights up again, and loses the focus.
function place(rows, next) {
  const stay = new Set(next);
  for (const row of [...rows.children]) if (!stay.has(row)) row.remove();
  let at = rows.firstElementChild;
  for (const row of next) {
    if (row === at) at = at.nextElementSibling;
    else rows.insertBefore(row, at);
  }
}

// renew takes the live parts of a page over. Rows are told apart by data-key;
// those that say the same stay as they are, and do not light up.
function renew(fresh) {
  for (const part of $$("[data-part]")) {
    const other = $(`[data-part="${CSS.escape(part.dataset.part)}"]`, fresh);
    if (!other || part.innerHTML === other.innerHTML) continue;
    const rows = $("tbody", part), otherRows = $("tbody", other);
    if (!rows || !otherRows) { part.replaceChildren(...other.childNodes); continue; }
    const known = new Map($$("tr[data-key]", rows).map((row) => [row.dataset.key, row]));
    const next = $$("tr", otherRows).map((row) => {
      const old = known.get(row.dataset.key);
      if (old && told(old).isEqualNode(told(row))) return old;
      row.classList.add("new");
      return row;
    });
    const focus = document.activeElement?.closest?.("tr[data-key]")?.dataset.key;
    place(rows, next);
    const pager = $(".pager", part), otherPager = $(".pager", other);
    if (pager && otherPager) pager.replaceChildren(...otherPager.childNodes);
    if (focus && !rows.contains(document.activeElement)) $(`tr[data-key="${CSS.escape(focus)}"] a`, rows)?.focus({ preventScroll: true });
  }
  times();
}

async function refresh() {
  if (live.paused || $$("[data-part]").some(held)) { showLive(); return; }
  if (live.busy) { live.again = true; return; }
  live.busy = true;
  const seen = live.behind;
  try {
    const fresh = await page(location.href);
    if (!live.paused && !$$("[data-part]").some(held)) { renew(fresh); live.behind = Math.max(0, live.behind - seen); }
  } catch (e) { /* the stream tells when the bus is away */ }
  live.busy = false;
  showLive();
  if (live.again) { live.again = false; refresh(); }
}

function follow() {
  const at = $("#live");
  if (!at?.dataset.url) return;
  at.hidden = false;
  live.source = new EventSource(at.dataset.url); // it comes back by itself, with Last-Event-ID
  live.source.addEventListener("open", showLive);
  live.source.addEventListener("error", showLive);
  live.source.addEventListener("changed", () => { live.behind++; refresh(); });
  live.source.addEventListener("over", () => { live.over = true; live.source.close(); if (!live.busy) showLive(); });
  $("button", at)?.addEventListener("click", pause);
  document.addEventListener("pointerout", () => { if (live.behind) setTimeout(refresh, 50); });
  setInterval(() => { if (live.behind && (live.over || live.source.readyState === EventSource.OPEN)) refresh(); }, 1000); // what held a part may end without a sign
}

function pause() {
  live.paused = !live.paused;
  const button = $("#live button");
  if (button) { button.textContent = live.paused ? "Go on" : "Pause"; button.setAttribute("aria-pressed", live.paused); }
  if (live.paused) showLive(); else refresh();
}

// ---- copy
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr" });
    document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  announce("copied");
}

// ---- the inspector: a row is chosen without loading the whole page.
async function choose(link, push = true) {
  const fresh = await page(link.href);
  const pane = $("#inspector"), other = $("#inspector", fresh);
  if (!pane || !other) { location.href = link.href; return; }
  pane.replaceChildren(...other.childNodes);
  const now = new URL(link.href);
  for (const row of $$("tr[data-key]")) row.toggleAttribute("aria-selected", false);
  link.closest("tr[data-key]")?.setAttribute("aria-selected", "true");
  if (push) history.pushState({}, "", now);
  times();
  if (matchMedia("(max-width: 1000px)").matches) pane.scrollIntoView({ block: "start" });
  announce($("h2", pane)?.textContent ?? "");
}

document.addEventListener("click", (event) => {
  const copied = event.target.closest("[data-copy]");
  if (copied) { event.preventDefault(); copy(copied.dataset.copy); const old = copied.dataset.said ?? ""; copied.dataset.said = "copied"; setTimeout(() => (copied.dataset.said = old), 1200); return; }
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  const link = event.target.closest("a[data-inspect]");
  if (link && $("#inspector")) { event.preventDefault(); choose(link).catch(() => (location.href = link.href)); return; }
  if (event.target.closest("a, button, input, select, summary, label, details")) return;
  event.target.closest("tr[data-key]")?.querySelector("a[data-main]")?.click();
});
addEventListener("popstate", () => location.reload());

// ---- keyboard
function move(by) {
  const links = $$("tr[data-key] a[data-main]");
  if (!links.length) return;
  let at = links.indexOf(document.activeElement);
  if (at < 0) at = links.findIndex((link) => link.closest("tr").hasAttribute("aria-selected")) - (by > 0 ? 0 : 1) + (by > 0 ? -1 : 1) + (by > 0 ? 1 : 0);
  const to = links[Math.min(links.length - 1, Math.max(0, (at < -1 ? -1 : at) + by))];
  to.focus(); to.closest("tr").scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") { document.activeElement?.blur?.(); return; }
  if (event.target.closest("input, select, textarea, dialog")) return;
  const row = document.activeElement?.closest?.("tr[data-key]");
  const act = {
    j: () => move(1), ArrowDown: () => row && move(1), k: () => move(-1), ArrowUp: () => row && move(-1),
    "/": () => $(".filters input, .filters select")?.focus(), p: () => live.source && pause(),
    c: () => { const id = row?.dataset.id ?? $(".title [data-copy]")?.dataset.copy; if (id) copy(id); },
    "?": () => $("#keys")?.showModal(),
  }[event.key] ?? (/^[1-5]$/.test(event.key) ? () => $$(".nav a")[event.key - 1]?.click() : null);
  if (!act || event.key.startsWith("Arrow") && !row) return;
  event.preventDefault();
  act();
});

// ---- times: how long ago, beside the exact one that is there already.
function times() {
  for (const at of $$("time[data-ago]")) {
    const s = Math.max(0, (Date.now() - Date.parse(at.dateTime)) / 1000);
    at.textContent = s < 60 ? `${Math.floor(s)} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 86400 ? `${Math.floor(s / 3600)} h ago` : at.dateTime.slice(0, 10);
  }
}

// ---- sign in: a link may bring the key behind its #, which no server is sent.
const key = $("#key");
if (key && location.hash.startsWith("#key=")) {
  key.value = decodeURIComponent(location.hash.slice(5));
  history.replaceState(null, "", location.pathname + location.search);
  key.form.requestSubmit();
}
$("#keys button")?.addEventListener("click", () => $("#keys").close());
$("#help")?.addEventListener("click", () => $("#keys").showModal());
for (const select of $$(".filters select")) select.addEventListener("change", () => select.form.requestSubmit());
times();
setInterval(() => { if (!live.paused && !$$("[data-part]").some((part) => part.matches(":hover"))) times(); }, 10000);
follow();
$("tr[aria-selected]")?.scrollIntoView({ block: "nearest" });
