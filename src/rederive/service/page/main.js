// The page: its parts and their addresses (after #), the version that is looked at, and the stream of versions that all follow.

import { count, el, guarded } from "/page/dom.js";
import { feed, remember } from "/page/feed.js";
import { overview } from "/page/network.js";
import { relationPart } from "/page/rows.js";
import { ask, follow, path } from "/page/server.js";
import { operations } from "/page/operations.js";
import { work } from "/page/work.js";

const main = document.getElementById("main"), tabs = document.getElementById("tabs"), time = document.getElementById("time");
const status = document.getElementById("status"), statusText = document.getElementById("status-text");

/** What all parts know. `at`: the earlier version that is looked at, or null for the present one. */
const page = { relations: [], version: 0, first: 0, at: null, open, travel, reload: restart };
let current = { section: el("p") }, stream = null, state = "connecting";

/** The parts of the page by the start of their address. Each has a section, and may follow versions and times. */
const PARTS = {
  overview: ["Overview", () => overview(page)],
  view: ["Rows", (name) => relationPart(page, name)],
  feed: ["Feed", () => feed(page)],
  work: ["Work", () => work(page)],
  operations: ["Operations", () => operations(page)],
};

function open(name, extra = "") {
  location.hash = `view=${encodeURIComponent(name)}${extra}`;
}

function route() {
  const [name, argument] = location.hash.slice(1).split("&")[0].split("=");
  const part = PARTS[name] ? name : "overview";
  tabs.replaceChildren(...Object.entries(PARTS).map(([key, [title]], i) =>
    el("a", { href: `#${key}`, "aria-current": key === part ? "page" : null, title: `${title} (${i + 1})` }, title)));
  current.leave?.();
  current = PARTS[part][1](argument ? decodeURIComponent(argument) : undefined);
  main.replaceChildren(current.section);
  main.dataset.part = part;
  time.hidden = !current.travel;
}

/** Looks at an earlier version, or at the present one with null. */
function travel(version) {
  page.at = version === null || version >= page.version ? null : Math.max(version, page.first);
  drawTime();
  current.travel?.();
}

const slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "version", oninput: () => travel(Number(slider.value)) });
const label = el("output", {}), back = el("button", { class: "small", onclick: () => travel(null) }, "Back to live");
time.append(el("span", { class: "quiet" }, "Version"), el("button", { class: "icon", "aria-label": "one version back", onclick: () => step(-1) }, "‹"),
  slider, el("button", { class: "icon", "aria-label": "one version on", onclick: () => step(1) }, "›"), label, back);
const step = (by) => travel((page.at ?? page.version) + by);

function drawTime() {
  slider.min = page.first;
  slider.max = page.version;
  slider.value = page.at ?? page.version;
  slider.disabled = page.first === page.version;
  document.body.classList.toggle("past", page.at !== null);
  label.textContent = page.at === null ? `${count(page.version)}, now` : `${count(page.at)} of ${count(page.version)}`;
  back.hidden = page.at === null;
}

function drawStatus() {
  status.dataset.state = state;
  status.dataset.version = page.version;
  statusText.textContent = `${state}, version ${count(page.version)}`;
}

function onEvent({ name, data }) {
  if (data.version !== undefined) page.version = Math.max(page.version, data.version);
  if (name === "reset") { restart(); return; }
  if (name === "version") {
    remember(data);
    current.passed?.(data);
    if (data.changes.some((change) => !page.relations.some((relation) => relation.name === change.relation))) readRelations();
  }
  drawStatus();
  drawTime();
}

async function readRelations() {
  const found = await ask("/v1/relations");
  page.relations = found.relations;
  page.version = Math.max(page.version, found.version);
  return found;
}

/** Reads what is defined, and follows the versions from there on. No row is shipped before it is looked at. */
async function restart() {
  stream?.abort();
  stream = new AbortController();
  const found = await readRelations();
  page.first = (await ask(path(["versions"], { limit: 1 }))).first;
  drawTime();
  route();
  drawStatus();
  follow(found.position, onEvent, (now) => {
    const isBack = now === "live" && state === "reconnecting";
    state = now;
    drawStatus();
    if (isBack) current.again?.();  // what failed meanwhile is asked for again
  }, stream.signal);
}

const KEYS = {
  "1 … 5": "the parts of the page", "/": "filter the rows", "j, k": "next and previous row", "Enter": "explain the row",
  "[ and ]": "one version back and on", "l": "back to live", "Ctrl+Enter": "dry run", "Esc": "close", "?": "this list",
};
const help = document.getElementById("help");
help.append(el("h2", {}, "Keys"), el("dl", { class: "keys" }, Object.entries(KEYS).flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
  el("form", { method: "dialog", class: "row end" }, el("button", {}, "Close")));

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const parts = Object.keys(PARTS);
  if (event.key >= "1" && event.key <= String(parts.length)) location.hash = parts[Number(event.key) - 1];
  else if (event.key === "?") help.showModal();
  else if (event.key === "[" && current.travel) step(-1);
  else if (event.key === "]" && current.travel) step(1);
  else if (event.key === "l" && current.travel) travel(null);
  else if (!current.key?.(event.key)) return;
  event.preventDefault();
});
// Without a token there is nothing to go back to: Escape does not close the dialog.
document.getElementById("token").addEventListener("keydown", (event) => { if (event.key === "Escape") event.preventDefault(); });
window.addEventListener("hashchange", route);
guarded(main, restart());
