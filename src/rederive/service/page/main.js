// The page: its parts, the address of each (the part after #), and the stream of changes that all of them follow.

import { el, guarded } from "/page/dom.js";
import { overview } from "/page/network.js";
import { ask, follow } from "/page/server.js";
import { relationView } from "/page/view.js";
import { changeList, work } from "/page/work.js";

const KEPT_EVENTS = 200;
const main = document.getElementById("main"), tabs = document.getElementById("tabs"), status = document.getElementById("status");
const feed = { events: [], paused: false };
let current = null, relations = [], stream = null;

function feedSection() {
  const list = el("div"), pause = el("button", { onclick: () => { feed.paused = !feed.paused; draw(); } });
  const draw = () => {
    pause.textContent = feed.paused ? "Resume" : "Pause";
    if (feed.paused) return;
    list.replaceChildren(...(feed.events.length ? feed.events : [{ version: null, changes: [] }]).map((event) => (event.version === null
      ? el("p", { class: "quiet" }, "No change since this page was opened.")
      : el("section", {}, el("h2", {}, `version ${event.version}`), el("ul", {}, event.changes.flatMap(changeList))))));
  };
  draw();
  return { section: el("div", {}, el("div", { class: "row" }, pause), list), event: draw };
}

const open = (name) => { location.hash = `view=${encodeURIComponent(name)}`; };

/** The parts of the page by the start of their address. */
const PARTS = {
  overview: ["Overview", () => { const part = overview(open); return { ...part, event: (event) => part.light(event.changes.map((change) => change.view)) }; }],
  view: ["Rows", rowsPart],
  feed: ["Feed", feedSection],
  work: ["Work", () => ({ section: work(restart) })],
};

function rowsPart(name) {
  const chosen = relations.find((relation) => relation.name === name) || relations.find((relation) => relation.kind === "view") || relations[0];
  if (!chosen) return { section: el("p", {}, "Nothing is defined yet.") };
  const select = el("select", { "aria-label": "relation", onchange: (event) => open(event.target.value) },
    relations.map((relation) => el("option", { value: relation.name, selected: relation === chosen }, `${relation.name} (${relation.kind})`)));
  const part = relationView(chosen.name, chosen.columns);
  return {
    section: el("div", {}, el("div", { class: "row" }, select), part.section),
    event: (event) => event.changes.filter((change) => change.view === chosen.name).forEach(part.apply),
  };
}

function route() {
  const [name, argument] = location.hash.slice(1).split("=");
  const part = PARTS[name] ? name : "overview";
  tabs.replaceChildren(...Object.entries(PARTS).map(([key, [title]]) =>
    el("a", { href: `#${key}`, "aria-current": key === part ? "page" : null }, title)));
  current = PARTS[part][1](argument ? decodeURIComponent(argument) : undefined);
  main.replaceChildren(current.section);
}

function onEvent({ name, data }) {
  if (data.version !== undefined) status.dataset.version = data.version;
  if (name === "change") {
    const event = { version: data.version, changes: data.changes || [data] };
    feed.events = [event, ...feed.events].slice(0, KEPT_EVENTS);
    if (current.event) current.event(event);
  }
  status.textContent = `live, version ${status.dataset.version}`;
}

/** Reads what is defined, and follows all monitored views. A snapshot is not shipped: the stream begins at the current position. */
async function restart() {
  if (stream) stream.abort();
  stream = new AbortController();
  const found = await ask("/v1/relations");
  relations = found.relations;
  status.dataset.version = found.version;
  route();
  const views = relations.filter((relation) => relation.kind === "view" && relation.monitored).map((relation) => relation.name);
  status.textContent = `version ${found.version}`;
  if (views.length) follow(views, found.position, onEvent, (state) => { status.textContent = `${state}, version ${status.dataset.version}`; }, stream.signal);
}

window.addEventListener("hashchange", route);
guarded(main, restart());
